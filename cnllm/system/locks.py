"""Locks on open files: for a block, which waits for it, or until the file is closed, which does not wait."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator

__all__ = ["hold_file", "lock_file"]

_PAUSE = 0.01  # seconds between two tries
_LOCKED_BYTE = (1 << 31) - 2  # the place of a lock for a block; `msvcrt` takes no greater one
_HELD_BYTE = 1 << 30  # the upper half of the place of the other one, which no file reaches


@contextlib.contextmanager
def lock_file(descriptor: int, seconds: float) -> Iterator[bool]:
    """Lock an open file against other programs while a block runs. The value is whether the system has such locks.

    Raise `TimeoutError` where another program has the lock for so many seconds.
    """
    try:
        import fcntl
    except ImportError:
        with _lock_byte(descriptor) as is_locked:
            yield is_locked
        return
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another program has locked it") from None
            time.sleep(_PAUSE)
    try:
        yield True
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def _lock_byte(descriptor: int) -> Iterator[bool]:
    """Lock a byte far behind the end of a file: on Windows nobody else may read or write what is locked."""
    try:
        import msvcrt
    except ImportError:
        yield False
        return
    lock: Callable[[int, int, int], None] = getattr(msvcrt, "locking")  # noqa: B009 - types know it on Windows only
    position = os.lseek(descriptor, 0, os.SEEK_CUR)

    def change(mode: str) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            lock(descriptor, getattr(msvcrt, mode), 1)
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)

    while True:
        try:
            change("LK_LOCK")
        except OSError as error:  # somebody else had it for ten seconds
            if error.errno not in (errno.EDEADLK, errno.EACCES):
                raise
        else:
            break
    try:
        yield True
    finally:
        change("LK_UNLCK")


def hold_file(descriptor: int) -> bool:
    """Lock an open file until it is closed. Return False where another descriptor has the lock.

    The lock is on the file, whatever its name. A descriptor that this process opened apart is another one, too. On a
    file system without locks the file counts as locked.
    """
    try:
        import fcntl
    except ImportError:
        return _hold_byte(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # there are no locks
    return True


def _hold_byte(descriptor: int) -> bool:
    """Lock a byte that no file reaches: on Windows nobody else, not even its owner, may read what is locked."""
    try:
        import ctypes
        import msvcrt
    except ImportError:
        return True
    handle: int = getattr(msvcrt, "get_osfhandle")(descriptor)  # noqa: B009 - types know it on Windows only
    kernel = getattr(ctypes, "WinDLL")("kernel32")  # noqa: B009 - the same
    return bool(kernel.LockFile(ctypes.c_void_p(handle), 0, _HELD_BYTE, 1, 0))
