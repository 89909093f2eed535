"""Use SQLite beside other processes, and beside forks of this one.

SQLite takes the locks that a child inherits from its parent for the child's own. A child of a process whose files were
open, or whose other thread was in SQLite, would wait for nobody without end, or write where another process deletes. So
a fork waits for the other threads, and closes the files first: both processes open them again.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

__all__ = ["close_before_forks", "connect", "in_use", "is_busy", "keep_forever", "try_again"]

T = TypeVar("T")
_PAUSE = 0.01  # seconds
_MOST_SECONDS = 10.0  # that a fork waits for other threads: longer than a write waits for other processes


class OpenFile(Protocol):
    """A file that SQLite has open."""

    def close_before_fork(self) -> None:
        """Close the connection until it is needed again, unless this thread is in the middle of a transaction."""


class _Forks:
    """The threads that use SQLite, and the files to close before a fork."""

    def __init__(self) -> None:
        self.files: weakref.WeakSet[OpenFile] = weakref.WeakSet()
        self._changed = threading.Condition()  # its lock is reentrant: a signal's handler may use SQLite, too
        self._uses: dict[int, int] = {}  # thread → how many of its uses go on
        self._forks = 0  # that wait, or go on

    def begin(self) -> int:
        """Begin a use, after a fork that goes on, and return its thread. One inside of another use waits for none."""
        thread = threading.get_ident()
        with self._changed:
            if thread not in self._uses:
                self._changed.wait_for(lambda: not self._forks)
            self._uses[thread] = self._uses.get(thread, 0) + 1
        return thread

    def end(self, thread: int) -> None:
        """End a use of a thread."""
        with self._changed:
            rest = self._uses.pop(thread, 1) - 1
            if rest:
                self._uses[thread] = rest
            elif self._forks:
                self._changed.notify_all()

    def before(self) -> None:
        """Wait until no other thread uses SQLite, and close the files."""
        own = {threading.get_ident()}
        with self._changed:
            self._forks += 1
            is_quiet = self._changed.wait_for(lambda: self._uses.keys() <= own, _MOST_SECONDS)
        for file in list(self.files) if is_quiet else ():
            with suppress(Exception):  # a failing file must not stop the fork
                file.close_before_fork()

    def after_in_parent(self) -> None:
        """Let the other threads go on."""
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def after_in_child(self) -> None:
        """Forget the threads that a child does not have."""
        thread = threading.get_ident()
        self._changed = threading.Condition()
        self._uses = {thread: self._uses[thread]} if thread in self._uses else {}
        self._forks = 0


_forks = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.before, after_in_parent=_forks.after_in_parent, after_in_child=_forks.after_in_child
    )


@contextmanager
def in_use() -> Iterator[None]:
    """Let no other thread fork this process meanwhile."""
    thread = _forks.begin()
    try:
        yield
    finally:
        _forks.end(thread)


def close_before_forks(file: OpenFile) -> None:
    """Close a file before each fork of this process. Each of its uses is `in_use`."""
    _forks.files.add(file)


def connect(path: Path, seconds: float, prepare: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    """Open a file whose lock others may have for so many seconds. Where `prepare` fails, the connection is closed."""
    connection = sqlite3.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False)
    try:
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def keep_forever(connection: sqlite3.Connection) -> None:
    """Keep a connection alive until the process ends. Garbage collection would close it."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process or connection is in the way."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def try_again(work: Callable[[], T], seconds: float) -> T:
    """Return the result of work, which is tried for so many seconds while another process is in its way.

    SQLite waits itself for most locks. A switch to WAL mode fails at once while another process does it.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
