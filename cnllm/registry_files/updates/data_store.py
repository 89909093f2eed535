"""Replace data files in one step, keep the earlier ones, and bring the last one back.

A file is written beside its place, forced to the disk, and renamed: a reader sees the old file or the new one,
also after a crash. The earlier file is kept before that; a copy that equals the present file is what a crash between
the two steps leaves, and is passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cnllm.errors import RegistryError
from cnllm.registry.files import RELEASE, UPDATES, data_folder
from cnllm.system import files
from cnllm.system.files import read_bounded

__all__ = ["replace_data_file", "restore_data_file"]

_KEPT = 10  # earlier files of each name
_EMPTY = b"schema = 1\n"


def replace_data_file(name: str, content: bytes, require: Callable[[bytes | None], None]) -> Path:
    """Replace a data file, and keep the earlier one. Raises `RegistryError` where it cannot be written.

    `require` gets the present content, None without one, while no other process can change it. It raises where that
    content must not be replaced.
    """
    path = _path(name)
    with _lock(path):
        present = _content(path)
        require(present)
        if present == content:
            return path
        files.write_file(_next_copy(path), _EMPTY if present is None else present)
        files.write_file(path, content)
        for old in _copies(path)[:-_KEPT]:
            old.unlink(missing_ok=True)  # ours: the exact form of our names in our data folder
    return path


def restore_data_file(name: str) -> Path:
    """Bring the earlier content of a data file back; the present one is dropped. Raises `RegistryError` without one."""
    path = _path(name)
    with _lock(path):
        present = _content(path)
        for copy in reversed(_copies(path)):
            if _content(copy) == (_EMPTY if present is None else present):
                copy.unlink(missing_ok=True)  # ours: left by a crash before the new file, or within this function
                continue
            os.replace(copy, path)  # ours: both are files of our data folder
            files.sync_folder(path.parent)
            return path
    raise RegistryError("there is no earlier one", file=str(path), hint="nothing was changed")


def _path(name: str) -> Path:
    assert name in (RELEASE, UPDATES)
    return Path(data_folder()) / name


def _copies(path: Path) -> list[Path]:
    """Return the kept files, the oldest first."""
    pattern = re.compile(rf"{re.escape(path.stem)}-(\d{{1,9}})\.toml")
    found = [
        (int(match[1]), copy)
        for copy in path.parent.glob(f"{path.stem}-*.toml")  # only reads
        if (match := pattern.fullmatch(copy.name))
    ]
    return [copy for _, copy in sorted(found)]


def _next_copy(path: Path) -> Path:
    last = _copies(path)
    number = int(last[-1].stem.rpartition("-")[2]) + 1 if last else 1
    return path.with_name(f"{path.stem}-{number}.toml")


def _content(path: Path) -> bytes | None:
    try:
        return read_bounded(path)
    except FileNotFoundError:
        return None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process at a time change the data files."""
    try:
        files.make_private_folder(path.parent, narrow=False)
        with files.lock_folder(path.parent):
            yield
    except OSError as error:
        raise RegistryError(
            f"cannot be written: {error.strerror}", file=str(path), hint="nothing was changed"
        ) from error
