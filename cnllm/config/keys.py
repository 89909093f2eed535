"""API keys: from the environment first, then from the `keys` file, which only its owner can read.

The file is a JSON object, one name (of an environment variable) to one value. It is replaced whole and
never exists with a wider mode than 0600.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.files import open_nonblocking, read_descriptor
from cnllm.types import checks

__all__ = ["find_key", "key_names", "key_source", "keys_path", "names_with_key", "remove_key", "set_key"]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
USABLE = re.compile(r"[\x21-\x7e]+")


def keys_path() -> Path:
    """Return the path of the `keys` file, whether or not it exists."""
    return paths.config_dir() / "keys.json"


def find_key(names: Sequence[str]) -> str | None:
    """Return the first key under one of these names, best first. None when there is none.

    The environment goes before the file: a variable that is exported for one command wins over a stored key. An empty
    value counts as absent.
    """
    if type(names) is not list:
        names = checks.as_list("names", names, "a list of names of environment variables")
    for name in names:
        if value := _environment("names: one of them", name):
            return value
    if not names:
        return None
    stored = _read()
    for name in names:
        if value := stored.get(name, "").strip():
            return value
    return None


def names_with_key(names: Sequence[str]) -> list[str]:
    """Return those of some names under which there is a key, in the environment or in the file."""
    found = {name for name in names if _environment("names: one of them", name)}
    if len(found) < len(names):
        found.update(name for name, value in _read().items() if value.strip())
    return [name for name in names if name in found]


def key_source(name: str) -> str | None:
    """Return where `find_key` would find this name: "environment", "file", or None."""
    if _environment("name", name):
        return "environment"
    return "file" if _read().get(name, "").strip() else None


def key_names() -> list[str]:
    """Return the names in the `keys` file, sorted."""
    return sorted(name for name, value in _read().items() if value.strip())


def set_key(name: str, value: str) -> Path:
    """Store a key in the file and return the file's path. The folder is made 0700 and the file 0600.

    Raise `ValueError` for an invalid variable name, or for a value that no header can carry.
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
    files.change_file(keys_path(), lambda _: _encode({**_read(), name: value}))
    return keys_path()


def remove_key(name: str) -> bool:
    """Remove a key from the file. Return whether there was one."""
    checks.require_text("name", name)
    removed = name in _read()
    if removed:
        files.change_file(keys_path(), lambda _: _encode({k: v for k, v in _read().items() if k != name}))
    return removed


def _environment(label: str, name: Any) -> str:
    """Return the value of a variable without white space; "" for one that is not set."""
    checks.require_text(label, name)
    try:
        return os.environ.get(name, "").strip()
    except UnicodeError:  # half a surrogate pair is in no variable's name
        return ""


def _read() -> dict[str, str]:
    file = f"{paths.folder('config')}/keys.json"  # as text: most calls find none, and pathlib takes longer than that
    try:
        with open(open_nonblocking(file), "rb") as stream:
            _restrict_mode(file, stream.fileno())
            raw = read_descriptor(stream.fileno())
    except (FileNotFoundError, NotADirectoryError):  # a service may have /dev/null for a home
        return {}
    except OSError as error:
        message = f"the keys file {file} cannot be read: {error.strerror}"
        raise CnllmError(message, hint=paths.CONFIG_DIR_HINT) from error
    try:
        stored = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as error:
        # not chained: a JSON error carries the document, which holds the keys
        position = f":{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise CnllmError(f"{file}{position}: the keys file is not valid JSON", hint=_SHAPE) from None
    if not isinstance(stored, dict) or not all(isinstance(value, str) for value in stored.values()):
        raise CnllmError(f"{file}: the keys file is not an object of strings", hint=_SHAPE)
    return stored


_SHAPE = 'it looks like {"NAME_OF_VARIABLE": "key"}; correct it, or delete it and use: cnllm keys set NAME'


def _restrict_mode(file: str, descriptor: int) -> None:
    """Restrict a file that other users can read, and log a warning. Raise `CnllmError` where that fails."""
    try:
        mode = files.restrict_mode(descriptor)  # ours: the keys file alone
    except OSError as error:
        raise CnllmError(
            f"other users can open the keys file {file} (mode {stat.S_IMODE(os.fstat(descriptor).st_mode):04o})",
            hint=f"run chmod 600 {file}, and assume that others know its keys",
        ) from error
    if mode is not None:
        import logging

        logging.getLogger("cnllm.keys").warning(
            "cnllm: other users could open the keys file %s (mode %04o); it is 0600 now", file, mode
        )


def _encode(stored: dict[str, str]) -> bytes:
    return json.dumps(dict(sorted(stored.items())), indent=2).encode() + b"\n"
