"""Folders that are their owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["make_private_folder"]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private_folder(path: Path, *, narrow: bool = True) -> None:
    """Makes a folder, and those above it that are missing, 0700 whatever the umask.

    One that is there already and open to others is closed to them with `narrow`: not a home or a /tmp, which keep
    their mode, nor what belongs to somebody else.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):  # `parents=True` of mkdir would leave those above to the umask
        each.mkdir(mode=0o700, exist_ok=True)
    if os.name == "nt" or not narrow:
        return
    found = path.stat()
    shared = found.st_mode & stat.S_ISVTX or found.st_uid != os.geteuid() or path == Path.home()
    if found.st_mode & _OTHERS and not shared:
        path.chmod(0o700)
