"""Sealed tokens: bytes that a client carries for the gateway and can neither read nor change.

A token is `cnllm1.` and base64url of: the id of the key (6 bytes), a random nonce (12 bytes), and the payload under
ChaCha20-Poly1305. The identity of the client's key is associated data: another client's token does not open.

ChaCha20-Poly1305 is in every build of OpenSSL that `cryptography` supports (AES-GCM-SIV is not), and takes the same
time on machines without AES instructions. A repeated nonce would give away two payloads and the forging of that one
nonce, where AES-GCM would give away the key of all tags. With random nonces of 96 bits, 2^32 tokens of one key hold a
repeated one with a probability of 2^-33; 100 tokens a second take 16 months for so many. Rotate the key before that.

The file of the keys has one key a line, in base64url: the first one seals, all open. It is written once, whole, and
never exists with a wider mode than 0600. Of several processes that start at once one wins, and the others read it.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import threading
import zlib
from collections.abc import Callable, Sequence
from importlib import util
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cnllm.config import paths
from cnllm.config.distribution import install_command
from cnllm.config.settings import read_secret
from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.files import open_nonblocking
from cnllm.system.processes import fork_safe
from cnllm.types import checks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

__all__ = [
    "MAX_PAYLOAD",
    "PREFIX",
    "DefaultKeys",
    "Keyring",
    "ProcessKeys",
    "TokenKeys",
    "keys_in_file",
    "new_key",
    "require_token_keys",
]


PREFIX = "cnllm1."
"""The beginning of every token."""
MAX_PAYLOAD = 8 << 20
"""The most bytes of a payload, before compression."""

_MAX_TOKEN = len(PREFIX) + 4 * (MAX_PAYLOAD + 1024) // 3
_COMPRESSED_FROM = 1024  # bytes
_ID, _NONCE, _TAG = 6, 12, 16
_PLAIN, _ZLIB = b"\0", b"\1"

_KEY_BYTES = 32

_MAKE = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MAX_BYTES = 1 << 20
_HEAD = f"""\
# Keys of cnllm's gateway, one a line. Who has them can read and forge the tokens that clients carry.
# To change the key, write a new one above the others: the first one seals, all open. With several machines, add it at
# the end on all of them first. Remove an old key once no client needs its conversations.
# A new key: {_MAKE}
"""

_log = logging.getLogger("cnllm.gateway")
_MARK = b"process:"  # no other token begins so
_DIGEST = 32


@runtime_checkable
class TokenKeys(Protocol):
    """The keys of tokens; see `Keyring`."""

    def seal(self, identity: str, payload: bytes) -> str:
        """Return a token."""

    def open(self, identity: str, token: str) -> bytes | None:
        """Return the payload of a token; None for one that this keyring and identity did not seal."""


def require_token_keys(keys: Any) -> None:
    """Raise `TypeError` for an argument `token_keys` that is neither None nor keys of tokens."""
    if keys is not None:
        checks.require_type("token_keys", keys, TokenKeys, "a cnllm.gateway.tokens.Keyring")


class Keyring:
    """Keys that seal and open tokens. The first one seals, all open. Nothing shows the keys.

    The package that does so is slow to load: it is loaded with the first token.
    """

    __slots__ = ("_cipher", "_count", "_sealing")

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Take keys of 32 bytes. Raise `ValueError` for others, `CnllmError` where `cryptography` is missing."""
        if not keys or any(len(key) != _KEY_BYTES for key in keys):
            raise ValueError(f"keys: one or more keys of {_KEY_BYTES} random bytes are expected")
        _require_package()
        self._cipher = _ciphers(keys)
        self._count = len({*keys})
        self._sealing = _key_id(keys[0])

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Keyring:
        """Return the keys of `CNLLM_GATEWAY_KEY`, or else those of the key file.

        The file is `serve.keys` in the configuration folder unless `path` names another. It is created, with one new
        key, where there is none. Raise `CnllmError` for keys or a file that cannot be used, and for a file that other
        users can read.
        """
        if text := read_secret("gateway_key"):
            return cls(_keys_in_variable(text))
        _require_package()  # before a file is created
        return cls(keys_in_file(Path(path) if path is not None else _key_file_path()))

    def seal(self, identity: str, payload: bytes) -> str:
        """Return a token that holds the payload. Raise `ValueError` for more than `MAX_PAYLOAD` bytes."""
        if len(payload) > MAX_PAYLOAD:
            raise ValueError(f"payload: {len(payload):,} bytes; {MAX_PAYLOAD:,} at most are expected")
        content = _PLAIN + payload
        if len(payload) > _COMPRESSED_FROM:
            content = min(content, _ZLIB + zlib.compress(payload, 1), key=len)
        key_id, nonce = self._sealing, os.urandom(_NONCE)
        cipher = self._cipher(key_id)
        assert cipher is not None
        sealed = cipher.encrypt(nonce, content, _associated_data(key_id, identity))
        return PREFIX + base64.urlsafe_b64encode(key_id + nonce + sealed).rstrip(b"=").decode()

    def open(self, identity: str, token: str) -> bytes | None:
        """Return the payload of a token. None for a forged, cut or foreign one, and for one of an unknown key."""
        if not isinstance(token, str) or not isinstance(identity, str) or not token.startswith(PREFIX):
            return None
        if len(token) > _MAX_TOKEN or (data := _decode(token[len(PREFIX) :])) is None:
            return None
        key_id = data[:_ID]
        cipher = self._cipher(key_id)
        if cipher is None or len(data) < _ID + _NONCE + _TAG + 1:
            return None
        from cryptography.exceptions import InvalidTag

        try:
            content = cipher.decrypt(data[_ID : _ID + _NONCE], data[_ID + _NONCE :], _associated_data(key_id, identity))
        except InvalidTag:
            return None
        return content[1:] if content[:1] == _PLAIN else _decompress(content) if content[:1] == _ZLIB else None

    def __repr__(self) -> str:
        return f"<Keyring of {self._count} keys>"


def _require_package() -> None:
    """Raise `CnllmError` where `cryptography` is missing."""
    if find_spec("cryptography") is None:
        raise CnllmError(
            "the gateway seals its tokens with the package cryptography, which is not installed",
            hint=install_command("serve"),
        )


def _ciphers(keys: Sequence[bytes]) -> Callable[[bytes], ChaCha20Poly1305 | None]:
    """Return a function that gives the cipher of a key by its id, or None. It alone holds the keys."""
    by_id = {_key_id(key): key for key in keys}
    ciphers: dict[bytes, ChaCha20Poly1305] = {}

    def cipher(key_id: bytes) -> ChaCha20Poly1305 | None:
        if key_id not in ciphers and key_id in by_id:
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

            ciphers[key_id] = ChaCha20Poly1305(by_id[key_id])
        return ciphers.get(key_id)

    return cipher


def _key_id(key: bytes) -> bytes:
    """Return the public id of a key: a hash, which says nothing about a random key."""
    return hashlib.blake2b(key, digest_size=_ID, person=b"cnllm key id").digest()


def _associated_data(key_id: bytes, identity: str) -> bytes:
    return PREFIX.encode() + key_id + identity.encode("utf-8", "surrogatepass")


def _decode(text: str) -> bytes | None:
    """Return the bytes of base64url. None for any other text, and for a second spelling of the same bytes."""
    try:
        raw = text.encode("ascii")
        data = base64.urlsafe_b64decode(raw + b"=" * (-len(raw) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if base64.urlsafe_b64encode(data).rstrip(b"=") == raw else None


def _decompress(content: bytes) -> bytes | None:
    """Return at most `MAX_PAYLOAD` bytes. None where there are more, or where the data are damaged."""
    stream = zlib.decompressobj()
    try:
        payload = stream.decompress(memoryview(content)[1:], MAX_PAYLOAD + 1)
    except zlib.error:
        return None
    return payload if stream.eof and not stream.unused_data and len(payload) <= MAX_PAYLOAD else None


# ── the file of the keys ─────────────────────────────────────────────────────


def new_key() -> bytes:
    """Return a new random key."""
    return os.urandom(_KEY_BYTES)


def _key_file_path() -> Path:
    """Return the default path of the file, whether or not it exists."""
    return paths.config_dir() / "serve.keys"


def _keys_in_variable(text: str) -> list[bytes]:
    """Return the keys of the variable's text, separated by commas or white space. Raise `CnllmError` for other text."""
    keys = [_parse_key(word) for word in re.split(r"[\s,]+", text.strip(" ,"))]
    if None in keys:
        raise CnllmError(
            f"CNLLM_GATEWAY_KEY holds a key that is not {_KEY_BYTES} random bytes in base64 or hex",
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
            files.change_file(path, lambda old: new if old is None else old, narrow=path == _key_file_path())
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
                f"{path}:{number}: this line is not a key of {_KEY_BYTES} bytes in base64url",
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


# ── keys without a configuration ─────────────────────────────────────────────


class DefaultKeys:
    """The keys of the configuration folder, loaded at their first use; keys of this process where that fails."""

    def __init__(self) -> None:
        self._keys: TokenKeys | None = None
        self._lock = fork_safe(threading.Lock())

    def seal(self, identity: str, payload: bytes) -> str:
        """Return a token."""
        return self._load_keys().seal(identity, payload)

    def open(self, identity: str, token: str) -> bytes | None:
        """Return the payload of a token; None for one that these keys did not seal."""
        return self._load_keys().open(identity, token)

    def _load_keys(self) -> TokenKeys:
        """Return the keys."""
        with self._lock:
            if self._keys is None:
                self._keys = _load()
            return self._keys


def _load() -> TokenKeys:
    """Return the keys of the configuration folder, or those of this process."""
    try:
        return Keyring.load()
    except CnllmError as error:
        hint = f"; {error.hint}" if error.hint else ""
        level = logging.WARNING if util.find_spec("cryptography") else logging.INFO  # the package is optional
        _log.log(level, "tokens that hold reasoning are valid in this process only: %s%s", error.message, hint)
        return _process_keys()


@functools.cache
def _process_keys() -> ProcessKeys:
    """Return the keys of this process and its children."""
    return ProcessKeys(secrets.token_bytes(32))


class ProcessKeys:
    """Signs tokens with a key that nothing stores. The program that gets a token can read it, but not change it."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, identity: str, payload: bytes) -> str:
        """Return a token."""
        content = zlib.compress(payload, 1)
        data = _MARK + self._digest(identity, content) + content
        return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def open(self, identity: str, token: str) -> bytes | None:
        """Return the payload of a token; None for one that this process did not sign."""
        text = token.removeprefix(PREFIX)
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (binascii.Error, ValueError):
            return None
        digest, content = data[len(_MARK) : len(_MARK) + _DIGEST], data[len(_MARK) + _DIGEST :]
        if not data.startswith(_MARK) or not hmac.compare_digest(digest, self._digest(identity, content)):
            return None
        return zlib.decompressobj().decompress(content, MAX_PAYLOAD)

    def _digest(self, identity: str, content: bytes) -> bytes:
        """Return the digest of a token's content."""
        owner = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest()
        return hmac.digest(self._key, owner + content, "sha256")

    def __repr__(self) -> str:
        return "<ProcessKeys>"
