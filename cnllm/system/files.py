"""Files: read within bounds, changed and written back without loss, locked, and private to their owner.

Whatever systems do in different ways is here: owners, modes, locks, waits, and folders on the disk. A name that a user
gave may stand for a device without an end, or for a pipe that nobody writes to. Both end in an `OSError` whose
`strerror` says what is wrong, like that of a file that is not there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import stat
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from cnllm.errors import CnllmError
from cnllm.system.locks import lock_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "CASSETTE_BYTES",
    "MOST_BYTES",
    "change_file",
    "create_private_file",
    "explain_errors",
    "file_id",
    "lock_folder",
    "make_private_folder",
    "open_below",
    "open_log",
    "open_nonblocking",
    "open_private",
    "other_names",
    "read_at",
    "read_bounded",
    "read_descriptor",
    "read_safe_file",
    "reopen_nonblocking",
    "replace_file",
    "restrict_mode",
    "sync_folder",
    "user_id",
    "wait_readable",
    "write_at",
    "write_file",
]

MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of a file with settings, JSON or TOML."""
CASSETTE_BYTES = 256 * 1024 * 1024
"""The most bytes of a file with recorded exchanges."""
REPORT_BYTES = 1024 * 1024 * 1024
"""The most bytes of the report of a comparison, which holds every exchange of every host."""
_BLOCK = 1 << 20
_SILENCE = 8.0  # seconds without a byte from a pipe or a device
_DURATION = 60.0  # seconds for all of it

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PREFIX = ".cnllm-"
_UNFINISHED = re.compile(r"\.cnllm-[a-z0-9_]{8}\.(tmp|toml)")
"""The names of `mkstemp` for files that are still being written."""
_LOCK_SECONDS = 60.0  # for which others may change the files of a folder; a stopped process would have it without end
_LOCK = ".cnllm.lock"  # the file that is locked where a folder cannot be


def _flags(*names: str) -> int:
    """Return the flags of `os.open` with these names, without those that the system has not."""
    flags = 0
    for name in names:
        flags |= getattr(os, name, 0)
    return flags


_NONBLOCKING = _flags("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOCTTY")  # a pipe without a writer opens at once
_PRIVATE = _flags("O_CLOEXEC", "O_BINARY")
_WITHOUT_WAIT = _flags("O_NONBLOCK")
_FOLDER = os.O_RDONLY | _flags("O_DIRECTORY", "O_NONBLOCK")
_NO_LINK = os.O_RDONLY | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_LINK_ERRORS = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR, getattr(errno, "EFTYPE", errno.ELOOP))


@contextlib.contextmanager
def explain_errors(message: str, hint: str) -> Iterator[None]:
    """Raise an error of the system as a `CnllmError`: behind the message stands what is wrong."""
    try:
        yield
    except OSError as error:
        raise CnllmError(f"{message}: {error.strerror or error}", hint=hint) from error


# ── Owners and modes ─────────────────────────────────────────────────────────


def user_id() -> int | None:
    """Return the number of the user of this process; None on a system whose files have no owner and mode."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def restrict_mode(file: int | str | os.PathLike[str]) -> int | None:
    """Let only the owner use a file. Return the mode that it had; None where it is private, or files have no mode.

    What is no regular file stays as it is: a device belongs to all.
    """
    status = os.stat(file)
    mode = stat.S_IMODE(status.st_mode)
    if user_id() is None or not stat.S_ISREG(status.st_mode) or not mode & _OTHERS:
        return None
    os.chmod(file, 0o600)  # ours: callers pass files that cnllm made, or that the user named for it
    return mode


def file_id(file: int | str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return what tells a file, by its descriptor or path, from another one at the same path; None where none is."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def make_private_folder(path: Path, *, narrow: bool = True) -> None:
    """Create a folder, and its missing parents, with mode 0700 whatever the umask.

    With `narrow` an existing folder that others can read becomes private too, except a home folder, a /tmp, and a
    folder of another user. What is no folder stays as it is. Only for the folders that cnllm itself names.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):  # mkdir's `parents=True` would apply the umask to the parents
        folder.mkdir(mode=0o700, exist_ok=True)
    if not narrow or user_id() is None:
        return
    status = path.stat()
    shared = status.st_mode & stat.S_ISVTX or status.st_uid != user_id() or os.fspath(path) == os.path.expanduser("~")
    if stat.S_ISDIR(status.st_mode) and status.st_mode & _OTHERS and not shared:
        path.chmod(0o700)  # ours: callers with `narrow` pass a folder of `paths`, or one below it


def create_private_file(path: str | os.PathLike[str], *, of_folder: bool = False) -> None:
    """Create an empty file with mode 0600, where there is none. SQLite gives its own files beside it the same mode.

    With `of_folder` a file that root makes in another user's private folder belongs to that user: their service has to
    open it as well.
    """
    with contextlib.suppress(FileExistsError):  # not opened: closing it would drop the locks that this process holds
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            folder = os.stat(os.path.dirname(path) or ".")
            if of_folder and user_id() == 0 and not folder.st_mode & _OTHERS:
                os.fchown(descriptor, folder.st_uid, folder.st_gid)
        finally:
            os.close(descriptor)


# ── Changes ──────────────────────────────────────────────────────────────────


def change_file(path: Path, change: Callable[[bytes | None], bytes | None], *, narrow: bool = True) -> None:
    """Read a file, change its content, and write it back. Processes and threads take turns, so that no change is lost.

    `change` gets the content, None where there is no file. It returns the new content, or None to have no file. What it
    raises leaves the file as it was. A reader sees the old content or the new one, never a part, also after `kill -9`
    or on a full disk. A link stays a link, an existing file keeps its mode, and a new one is 0600. `narrow` is that of
    `make_private_folder`. Raise `CnllmError` where the file cannot be read or written.
    """
    from pathlib import Path

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
    """Replace a file as a whole; a file that is there keeps its mode and its owner, a new one is 0600. Raise `OSError`.

    With `durable` it is on the disk when this returns, its name as well. Call it in `lock_folder`, as `replace_file`
    does, where others may lock the folder: a lock removes what it takes for unfinished.
    """
    import tempfile  # loads compressors, and nearly every start only reads

    descriptor, temporary = tempfile.mkstemp(prefix=_PREFIX, suffix=".tmp", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            with contextlib.suppress(FileNotFoundError):
                before = path.stat()
                if user_id() == 0 and before.st_uid != 0:  # another user could no longer read it
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                os.chmod(temporary, stat.S_IMODE(before.st_mode))  # ours: made above
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)  # ours: the caller's own file
    except BaseException:
        os.unlink(temporary)  # ours: made above
        raise
    if durable:
        sync_folder(path.parent)


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file as `write_file` does, while no other process or thread changes the files of its folder."""
    with lock_folder(path.parent):
        write_file(path, content, durable=durable)


@contextlib.contextmanager
def lock_folder(folder: Path, seconds: float | None = None) -> Iterator[None]:
    """Let one process or thread at a time change the files of a folder, where the system has locks.

    What a killed one left unfinished is removed. Raise `OSError` where another one has the lock for so many seconds:
    a minute, unless the caller sets them.
    """
    try:
        descriptor = os.open(folder, _FOLDER)
    except PermissionError:  # a system that opens no folders
        descriptor = open_private(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        with lock_file(descriptor, _LOCK_SECONDS if seconds is None else seconds) as is_locked:
            for name in os.listdir(folder) if is_locked else ():  # only reads
                if _UNFINISHED.fullmatch(name):
                    with contextlib.suppress(OSError):
                        os.unlink(folder / name)  # ours: the exact form of our names, and nobody else holds the lock
            yield
    finally:
        os.close(descriptor)


def other_names(path: Path) -> list[Path]:
    """Return the other names that a file has in its folder. A link to a name is none."""
    own = file_id(path)
    names = [entry for entry in path.parent.iterdir() if file_id(entry) == own]  # only reads
    return [name for name in names if name.name != path.name and not name.is_symlink()]  # only reads


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk, where the system can."""
    with contextlib.suppress(OSError):  # Windows opens no folders, and some file systems have no such operation
        descriptor = os.open(folder, _FOLDER)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_safe_file(path: str | os.PathLike[str]) -> bytes | None:
    """Return the content of a file that nobody else can write; None without one. Raise `OSError` or `ValueError`."""
    try:
        with open(open_nonblocking(path), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is not a regular file")
            if (user := user_id()) is not None:
                if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    raise ValueError("other users can write it")
                if status.st_uid not in (user, 0):
                    raise ValueError("it belongs to another user")
            return read_descriptor(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return None


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file; also an `opener` for `open`.

    A file that this makes has mode 0600, whatever the umask; one that exists keeps its mode.
    """
    return os.open(path, flags | _PRIVATE, 0o600)


def open_log(path: str | os.PathLike[str]) -> int:
    """Open a file for lines at its end, and make it as `open_private` does where there is none. Raises `OSError`.

    Its end can be read, too, if the user may read it. It may be a pipe: then writes fail where it is full, and so does
    this where nobody reads it. They do not wait.
    """
    is_read = not os.path.exists(path) or (os.path.isfile(path) and os.access(path, os.R_OK))
    mode = os.O_RDWR if is_read else os.O_WRONLY
    return open_private(path, mode | os.O_APPEND | os.O_CREAT | _WITHOUT_WAIT)


# ── Bounds and places ────────────────────────────────────────────────────────


def read_bounded(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return the content of a file of at most so many bytes. Raises `OSError`.

    A pipe is read to its end, unless it is silent for seconds.
    """
    descriptor = open_nonblocking(path)
    try:
        return read_descriptor(descriptor, most)
    finally:
        os.close(descriptor)


def open_nonblocking(path: str | os.PathLike[str]) -> int:
    """Open a file for reading. A pipe that nobody writes to opens at once."""
    return os.open(path, os.O_RDONLY | _NONBLOCKING)


def reopen_nonblocking(descriptor: int) -> int | None:
    """Open a pipe or a terminal once more, for writes that fail where they would wait for a reader.

    None for any other file, and where the system cannot. Other processes with that descriptor keep it as it is.
    """
    if not (stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor)):
        return None
    try:
        return os.open(f"/dev/fd/{descriptor}", os.O_WRONLY | _NONBLOCKING)
    except OSError:
        return None


def read_descriptor(descriptor: int, most: int = MOST_BYTES) -> bytes:
    """Return what an open file holds from where it stands. Raises `OSError`; see `read_bounded`."""
    status = os.fstat(descriptor)
    has_size = stat.S_ISREG(status.st_mode) and status.st_size > 0  # a file below /proc has none, and may never end
    if has_size and status.st_size > most:
        raise _too_large(most)
    blocks: list[bytes] = []
    rest, end = most + 1, time.monotonic() + _DURATION
    while rest > 0:
        if not has_size:
            _wait(descriptor, end)
        try:
            block = os.read(descriptor, min(_BLOCK, rest))
        except BlockingIOError:
            continue
        if not block:
            return b"".join(blocks)
        blocks.append(block)
        rest -= len(block)
    raise _too_large(most)


def _wait(descriptor: int, end: float) -> None:
    """Wait until something can be read. Raises `OSError` after a while, where the system can tell."""
    seconds = end - time.monotonic()
    ready = seconds > 0 and wait_readable(descriptor, min(seconds, _SILENCE)) is not False
    if not ready and seconds > _SILENCE:
        raise OSError(errno.ETIMEDOUT, f"nothing came for {_SILENCE:g} seconds")
    if not ready:
        raise OSError(errno.ETIMEDOUT, f"it did not end within {_DURATION:g} seconds")


def wait_readable(descriptor: int, seconds: float, *, is_socket: bool = False) -> bool | None:
    """Wait until something can be read, or until the time is over. Return whether it can be read.

    None where nobody knows: a system without `poll` knows it of sockets alone.
    """
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    return bool(select.select([descriptor], [], [], seconds)[0]) if is_socket else None


def read_at(descriptor: int, length: int, place: int) -> bytes:
    """Return bytes of a file from a place on."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, place)
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.read(descriptor, length)


def write_at(descriptor: int, data: bytes, place: int) -> int:
    """Write bytes to a place of a file, and return how many were written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, place)
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.write(descriptor, data)


def _too_large(most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {most:,} bytes")


# ── Links ────────────────────────────────────────────────────────────────────


def open_below(path: str, parts: tuple[str, ...]) -> int:
    """Open a file below the current folder for reading, and follow no link on the way.

    Each component is opened in the folder before it, so that another program which exchanges a folder for a link gains
    nothing. A system that cannot open relative to a folder gets a check before and one after.
    """
    opens_in_folders = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")
    try:
        return _open_in_steps(parts) if opens_in_folders else _open_checked(parts)
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except OSError as error:
        is_link = error.errno in _LINK_ERRORS and any(map(os.path.islink, accumulate(parts, os.path.join)))
        if is_link:
            raise ValueError(f"{path} leads over a link, and links are not followed") from None
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def _open_in_steps(parts: tuple[str, ...]) -> int:
    folder = os.open(".", _FOLDER)
    for part in parts[:-1]:
        try:
            inner = os.open(part, _NO_LINK | _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    try:
        return os.open(parts[-1], _NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)


def _open_checked(parts: tuple[str, ...]) -> int:
    """Open a file whose path has no link, as far as that can be seen from outside."""
    places = [os.path.abspath(place) for place in accumulate(parts, os.path.join)]
    before = [os.lstat(place) for place in places]
    descriptor = os.open(places[-1], _NO_LINK)
    after = [os.lstat(place) for place in places]
    unchanged = all(map(os.path.samestat, before, after)) and os.path.samestat(os.fstat(descriptor), after[-1])
    if unchanged and not any(stat.S_ISLNK(status.st_mode) or _is_junction(status) for status in after):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_junction(status: os.stat_result) -> bool:
    """Whether a folder of Windows stands for another one."""
    return bool(getattr(status, "st_reparse_tag", 0))
