"""Check whether only the user can change the registry file in the config folder.

Only then its own providers get keys without a confirmation.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cnllm.config import paths
from cnllm.system import files

__all__ = ["is_user_file", "ownership_advice", "ownership_fault"]

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def is_user_file(path: Path) -> bool:
    """Whether a path is that of the user's own registry file."""
    return os.path.abspath(path) == os.path.abspath(os.path.join(paths.folder("config"), "providers.toml"))


def ownership_fault(path: Path, status: os.stat_result) -> str | None:
    """Return why somebody else can change a file; None where nobody can. `status` is that of the open file.

    The check covers the file, every folder above it, and, for a link, the folders above its target.
    """
    if (user := files.user_id()) is None:
        return None
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file"
    if status.st_uid != user and (status.st_uid != 0 or status.st_mode & stat.S_IWUSR):
        return f"{path} belongs to another user"
    if status.st_mode & _WRITABLE_BY_OTHERS:
        return f"other users can write {path}"
    real = Path(os.path.realpath(path))
    for folder in dict.fromkeys([*Path(os.path.abspath(path)).parents, *real.parents]):
        try:
            folder_status = folder.stat()
        except OSError as error:
            return f"{folder} cannot be checked: {error.strerror}"
        if folder_status.st_uid not in (user, 0):
            return f"{folder} belongs to another user"
        if folder_status.st_mode & _WRITABLE_BY_OTHERS and not folder_status.st_mode & stat.S_ISVTX:
            return f"other users can write {folder}"
    return None


def ownership_advice(file: str) -> str:
    """Return a hint where the file is the user's own but others can change it; empty otherwise."""
    path = Path(file)
    if not file or not is_user_file(path):
        return ""
    try:
        fault = ownership_fault(path, path.stat())
    except OSError:
        return ""
    return f"; {fault}" if fault is not None else ""
