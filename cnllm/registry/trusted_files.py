"""Which registry files may say where keys go: by path and content, kept in the config folder."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path

from cnllm.config import paths, private_files
from cnllm.errors import RegistryError

__all__ = ["is_trusted", "trust"]


def trust(path: str | os.PathLike[str]) -> None:
    """Vouch for a registry file as it is now; an edit ends the trust. Raises `RegistryError` if it cannot be read."""
    file = Path(path).resolve()
    try:
        if not stat.S_ISREG(file.stat().st_mode) and not file.is_dir():
            raise OSError(0, "it is no plain file")
        text = file.read_bytes()
    except OSError as error:
        raise RegistryError(f"cannot be read: {error.strerror}", file=str(path)) from error
    store = _store()
    private_files.make_private_folder(store.parent)
    known = {**_known(), str(file): hashlib.blake2b(text, digest_size=32).hexdigest()}
    handle, name = tempfile.mkstemp(dir=store.parent)
    with os.fdopen(handle, "w") as out:
        json.dump(known, out, indent=1)
    os.replace(name, store)


def is_trusted(path: Path, digest: str) -> bool:
    """Was this file, with this content, vouched for?"""
    return _known().get(str(path.resolve())) == digest


def _store() -> Path:
    return paths.config_dir() / "trusted.json"


def _known() -> dict[str, str]:
    try:
        with _store().open() as opened:
            found = os.fstat(opened.fileno())
            if os.name != "nt" and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ValueError("other users can write it")
            if os.name != "nt" and found.st_uid not in (os.geteuid(), 0):
                raise ValueError("it belongs to another user")
            known: dict[str, str] = json.loads(opened.read())
        if type(known) is not dict:
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RegistryError(f"cannot be read: {error}", file=str(_store()), hint="delete it and trust again") from error
    return known
