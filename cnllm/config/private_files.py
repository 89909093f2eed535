"""Folders that only their owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["make_private_folder"]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private_folder(path: Path, *, narrow: bool = True) -> None:
    """Create a folder, and its missing parents, with mode 0700 whatever the umask.

    With `narrow` an existing folder that others can read becomes private too, except a home folder, a /tmp, and a
    folder of another user.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):  # mkdir's `parents=True` would apply the umask to the parents
        folder.mkdir(mode=0o700, exist_ok=True)
    if os.name == "nt" or not narrow:
        return
    status = path.stat()
    shared = status.st_mode & stat.S_ISVTX or status.st_uid != os.geteuid() or path == Path.home()
    if status.st_mode & _OTHERS and not shared:
        path.chmod(0o700)
