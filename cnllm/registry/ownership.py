"""Whether the registry file in the config folder is its user's alone: only then its own providers get keys unasked."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cnllm.config import paths

__all__ = ["is_place", "ownership_advice", "ownership_fault"]

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def is_place(path: Path) -> bool:
    """Whether a path is that of the user's own registry file."""
    return os.path.abspath(path) == os.path.abspath(os.path.join(paths.folder("config"), "providers.toml"))


def ownership_fault(path: Path, status: os.stat_result) -> str | None:
    """Return what lets somebody else change a file, or None. `status` is that of the open file.

    Looks at the file, at every folder above it, and, where the file or a folder is a link, at what is above its target.
    """
    if os.name == "nt":
        return None
    user = (os.geteuid(),)
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is no plain file"
    if status.st_uid not in user and (status.st_uid != 0 or status.st_mode & stat.S_IWUSR):
        return f"{path} belongs to another user"
    if status.st_mode & _WRITABLE:
        return f"other users can write {path}"
    real = Path(os.path.realpath(path))
    for folder in dict.fromkeys([*Path(os.path.abspath(path)).parents, *real.parents]):
        try:
            found = folder.stat()
        except OSError as error:
            return f"{folder} cannot be looked at: {error.strerror}"
        if found.st_uid not in (*user, 0):
            return f"{folder} belongs to another user"
        if found.st_mode & _WRITABLE and not found.st_mode & stat.S_ISVTX:
            return f"other users can write {folder}"
    return None


def ownership_advice(file: str) -> str:
    """Return what to do where the file is the user's own but open to others, to be added to a hint."""
    path = Path(file)
    if not file or not is_place(path):
        return ""
    try:
        why = ownership_fault(path, path.stat())
    except OSError:
        return ""
    return f"; {why}" if why is not None else ""
