"""The user's small files: read, changed and written back without loss, and folders that only their owner can read."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from cnllm.config.bounded_files import open_nonblocking, read_bounded, read_descriptor
from cnllm.errors import CnllmError

__all__ = [
    "change_file",
    "create_private_file",
    "lock_folder",
    "make_private_folder",
    "open_private",
    "read_safe_file",
    "sync_folder",
    "write_file",
]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PREFIX = ".cnllm-"
_UNFINISHED = re.compile(r"\.cnllm-[a-z0-9_]{8}\.(tmp|toml)")
"""The names of `mkstemp` for files that are still being written."""


def make_private_folder(path: Path, *, narrow: bool = True) -> None:
    """Create a folder, and its missing parents, with mode 0700 whatever the umask.

    With `narrow` an existing folder that others can read becomes private too, except a home folder, a /tmp, and a
    folder of another user. Only for the folders that cnllm itself names.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):  # mkdir's `parents=True` would apply the umask to the parents
        folder.mkdir(mode=0o700, exist_ok=True)
    if not narrow or not hasattr(os, "geteuid"):  # no modes
        return
    status = path.stat()
    shared = status.st_mode & stat.S_ISVTX or status.st_uid != os.geteuid() or path == Path.home()
    if status.st_mode & _OTHERS and not shared:
        path.chmod(0o700)  # ours: callers with `narrow` pass a folder of `paths`, or one below it


def create_private_file(path: str | os.PathLike[str]) -> None:
    """Create an empty file with mode 0600, where there is none. SQLite gives its own files beside it the same mode."""
    with contextlib.suppress(FileExistsError):  # not opened: closing it would drop the locks that this process holds
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def change_file(path: Path, change: Callable[[bytes | None], bytes | None], *, narrow: bool = True) -> None:
    """Read a file, change its content, and write it back. Processes and threads take turns, so that no change is lost.

    `change` gets the content, None where there is no file. It returns the new content, or None to have no file. What it
    raises leaves the file as it was. A reader sees the old content or the new one, never a part, also after `kill -9`
    or on a full disk. A link stays a link, an existing file keeps its mode, and a new one is 0600. `narrow` is that of
    `make_private_folder`. Raise `CnllmError` where the file cannot be read or written.
    """
    target = Path(os.path.realpath(path))
    try:
        make_private_folder(target.parent, narrow=narrow and not path.is_symlink())
        with lock_folder(target.parent):
            present = _content(target)
            content = change(present)
            if content is None:
                path.unlink(missing_ok=True)  # ours: the caller's own file; of a link only the link goes
                sync_folder(path.parent)
            elif content != present:
                write_file(target, content)
    except OSError as error:
        raise CnllmError(f"{path} cannot be written: {error.strerror}", hint="its content is as before") from error


def _content(path: Path) -> bytes | None:
    """Return the content of a file; None without one."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return read_bounded(path)
    except FileNotFoundError:
        return None


def write_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file as a whole; a file that is there keeps its mode, a new one is 0600. Raise `OSError`.

    With `durable` it is on the disk when this returns, its name as well.
    """
    import tempfile  # loads compressors, and nearly every start only reads

    descriptor, temporary = tempfile.mkstemp(prefix=_PREFIX, suffix=".tmp", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))  # ours: made above
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)  # ours: the caller's own file
    except BaseException:
        os.unlink(temporary)  # ours: made above
        raise
    if durable:
        sync_folder(path.parent)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Let one process or thread at a time change the files of a folder, where the system has locks.

    What a killed one left unfinished is removed.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = _open_folder(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for name in os.listdir(folder):  # only reads
            if _UNFINISHED.fullmatch(name):
                with contextlib.suppress(OSError):
                    os.unlink(folder / name)  # ours: the exact form of our names, and nobody else holds the lock
        yield
    finally:
        os.close(descriptor)


def _open_folder(folder: Path) -> int:
    """Open a folder. Raise `OSError` for anything else: the open of a pipe would wait for a writer."""
    return os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NONBLOCK", 0))


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk, where the system can."""
    with contextlib.suppress(OSError):  # Windows opens no folders, and some file systems have no such operation
        descriptor = _open_folder(folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_safe_file(path: Path) -> bytes | None:
    """Return the content of a file that nobody else can write; None without one. Raise `OSError` or `ValueError`."""
    try:
        with open(open_nonblocking(path), "rb") as file:
            status = os.fstat(file.fileno())
            if hasattr(os, "geteuid"):
                if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    raise ValueError("other users can write it")
                if status.st_uid not in (os.geteuid(), 0):
                    raise ValueError("it belongs to another user")
            return read_descriptor(file.fileno())
    except FileNotFoundError:
        return None


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file; also an `opener` for `open`.

    A file that this makes has mode 0600, whatever the umask; one that exists keeps its mode.
    """
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o600)
