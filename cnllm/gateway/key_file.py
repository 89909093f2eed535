"""The file of the keys that seal tokens: one key a line, in base64url; the first one seals, all open.

It is written once, whole, and never exists with a wider mode than 0600. Of several processes that start at once one
wins, and the others read its file.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from pathlib import Path

from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.files import open_nonblocking

__all__ = ["KEY_BYTES", "key_file_path", "keys_in_file", "keys_in_variable", "new_key"]

KEY_BYTES = 32

_MAKE = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MAX_BYTES = 1 << 20
_HEAD = f"""\
# Keys of cnllm's gateway, one a line. Who has them can read and forge the tokens that clients carry.
# To change the key, write a new one above the others: the first one seals, all open. With several machines, add it at
# the end on all of them first. Remove an old key once no client needs its conversations.
# A new key: {_MAKE}
"""


def new_key() -> bytes:
    """Return a new random key."""
    return os.urandom(KEY_BYTES)


def key_file_path() -> Path:
    """Return the default path of the file, whether or not it exists."""
    return paths.config_dir() / "serve.keys"


def keys_in_variable(text: str) -> list[bytes]:
    """Return the keys of the variable's text, separated by commas or white space. Raise `CnllmError` for other text."""
    keys = [_parse_key(word) for word in re.split(r"[\s,]+", text.strip(" ,"))]
    if None in keys:
        raise CnllmError(
            f"CNLLM_GATEWAY_KEY holds a key that is not {KEY_BYTES} random bytes in base64 or hex",
            hint=f"make one with: {_MAKE}; separate several with commas, the first one seals",
        )
    return [key for key in keys if key is not None]


def keys_in_file(path: Path) -> list[bytes]:
    """Return the keys of the file. Create it with one new key where there is none.

    Raise `CnllmError` for a file that cannot be read or created, holds no key or anything else, or is open to others.
    """
    try:
        if not path.exists():
            new = _HEAD.encode() + base64.urlsafe_b64encode(new_key()).rstrip(b"=") + b"\n"
            files.change_file(path, lambda old: new if old is None else old, narrow=path == key_file_path())
        text = _read(path)
    except OSError as error:
        raise CnllmError(
            f"the key file {path} cannot be used: {error.strerror}",
            hint="name another file, or set CNLLM_GATEWAY_KEY to a key",
        ) from error
    return _parse(path, text)


def _read(path: Path) -> str:
    with os.fdopen(open_nonblocking(path), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise CnllmError(f"the key file {path} is not a regular file", hint="name another file")
        if files.user_id() is not None and status.st_mode & _OTHERS:
            raise CnllmError(
                f"other users can open the key file {path} (mode {stat.S_IMODE(status.st_mode):04o})",
                hint=f"run chmod 600 {path}; if others may have read it, write a new key into it",
            )
        return stream.read(_MAX_BYTES).decode("utf-8-sig", "replace")


def _parse(path: Path, text: str) -> list[bytes]:
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if not word or word.startswith("#"):
            continue
        key = _parse_key(word)
        if key is None:
            raise CnllmError(
                f"{path}:{number}: this line is not a key of {KEY_BYTES} bytes in base64url",
                hint="correct this line, or delete the file: a new one is created, and tokens of now open no more",
            )
        keys.append(key)
    if not keys:
        raise CnllmError(f"{path}: the file holds no key", hint="delete it: a new one is created")
    return keys


def _parse_key(word: str) -> bytes | None:
    """Return a key that is written in base64, base64url or hex; None for any other text."""
    if re.fullmatch(r"[0-9A-Fa-f]{64}", word):
        return bytes.fromhex(word)
    if not re.fullmatch(r"[A-Za-z0-9+/_-]{43}=?", word):
        return None
    return base64.b64decode(word.rstrip("=").replace("-", "+").replace("_", "/") + "=")
