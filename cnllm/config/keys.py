"""API keys: from the environment first, then from the `keys` file, which only its owner can read.

The file is a JSON object, one name (of an environment variable) to one value. It is replaced whole and
never exists with a wider mode than 0600.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cnllm.config import paths, private_files
from cnllm.errors import CnllmError
from cnllm.types import checks

__all__ = ["find_key", "key_names", "key_source", "keys_path", "set_key"]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
USABLE = re.compile(r"[\x21-\x7e]+")
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def keys_path() -> Path:
    """The `keys` file, whether or not it exists."""
    return paths.config_dir() / "keys.json"


def find_key(names: Sequence[str]) -> str | None:
    """The first key that goes by one of these names, best first; None when there is none.

    The environment goes before the file: what is exported for one command wins over what is kept. An empty
    value is absent.
    """
    if type(names) is not list:
        names = checks.as_list("names", names, "a list of names of environment variables")
    for name in names:
        if value := _environment("names: one of them", name):
            return value
    if not names:
        return None
    kept = _read()
    for name in names:
        if value := kept.get(name, "").strip():
            return value
    return None


def key_source(name: str) -> str | None:
    """Where `find` would take this name from: "environment", "file", or None."""
    if _environment("name", name):
        return "environment"
    return "file" if _read().get(name, "").strip() else None


def key_names() -> list[str]:
    """The names in the `keys` file, sorted."""
    return sorted(name for name, value in _read().items() if value.strip())


def set_key(name: str, value: str) -> Path:
    """Keeps a key in the file and says where that is. The folder is made 0700 and the file 0600.

    Raises `ValueError` for a name that is no variable's or a value that no header can carry.
    """
    checks.require_text("name", name)
    checks.require_text("value", value)
    value = value.strip()
    if not NAME.fullmatch(name):
        raise ValueError(f"name: {checks.short_text(name)} is not the name of an environment variable")
    if not value:
        raise ValueError("value: the key is empty")
    if not USABLE.fullmatch(value):
        raise ValueError("value: the key holds a space, a control character or a letter outside ASCII")
    target = Path(os.path.realpath(keys_path()))  # a linked file is written where it lies
    private_files.make_private_folder(target.parent)
    with _locked(target.parent):
        _write(target, {**_read(), name: value})
    return keys_path()


def _environment(place: str, name: Any) -> str:
    """What a variable holds, without white space; "" for one that is not set."""
    checks.require_text(place, name)
    try:
        return os.environ.get(name, "").strip()
    except UnicodeError:  # no variable has half of a character in its name
        return ""


def _read() -> dict[str, str]:
    file = keys_path()
    try:
        with file.open("rb") as opened:
            _repair(file, opened.fileno())
            raw = opened.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CnllmError(f"the keys file {file} cannot be read: {error.strerror}") from error
    try:
        found = json.loads(raw or b"{}")
    except ValueError as error:
        # not chained: a JSON error carries the document, and that is the keys
        place = f":{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise CnllmError(f"{file}{place}: the keys file is not valid JSON", hint=_SHAPE) from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise CnllmError(f"{file}: the keys file is not an object of strings", hint=_SHAPE)
    return found


_SHAPE = 'it looks like {"NAME_OF_VARIABLE": "key"}; correct it, or delete it and use: cnllm keys set NAME'


def _repair(file: Path, descriptor: int) -> None:
    """Takes a file away from others that can read it, and says so; refuses it where that fails."""
    mode = os.fstat(descriptor).st_mode
    if os.name == "nt" or not mode & OTHERS:
        return
    try:
        os.fchmod(descriptor, 0o600)
    except OSError as error:
        raise CnllmError(
            f"other users can open the keys file {file} (mode {stat.S_IMODE(mode):04o})",
            hint=f"chmod 600 {file}, and consider its keys as known to others",
        ) from error
    import logging

    logging.getLogger("cnllm.keys").warning(
        "cnllm: other users could open the keys file %s (mode %04o); it is 0600 now", file, stat.S_IMODE(mode)
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time, so that of two `keys set` none is lost, wherever files can be locked."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(target: Path, kept: dict[str, str]) -> None:
    import tempfile

    descriptor, temporary = tempfile.mkstemp(prefix=".keys-", dir=target.parent)  # mkstemp makes it 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            json.dump(dict(sorted(kept.items())), opened, indent=2)
            opened.write("\n")
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
