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
from typing import Any, TypeVar

from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.processes import drop_after_fork, generation

__all__ = ["Database", "is_busy", "read_mark", "try_again"]

T = TypeVar("T")
_PAUSE = 0.01  # seconds
_MOST_SECONDS = 10.0  # that a fork waits for other threads: longer than a write waits for other processes


class _Forks:
    """The threads that use SQLite, and the files to close before a fork."""

    def __init__(self) -> None:
        self.files: weakref.WeakSet[Database] = weakref.WeakSet()
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


class Database:
    """An open SQLite file. Errors of SQLite and of the system are raised as `CnllmError`.

    Before a fork it is closed: the parent and the child open it again, each with locks of its own. One that
    `is_exclusive` stays open, since its lock must not go to another process: a forked child neither uses nor closes it.
    Any thread may use it, one at a time; one that `is_bound` belongs to the thread that opened it.
    """

    def __init__(
        self, path: Path, seconds: float, hint: str | None, *, is_exclusive: bool = False, is_bound: bool = False
    ) -> None:
        """Open a file, which may be empty. Locks of others are waited for, `hint` is for errors of the system."""
        self.path = path
        self._seconds = seconds
        self._hint = hint
        self._is_exclusive = is_exclusive
        self._thread = threading.get_ident() if is_bound else None
        self._is_inherited = self._is_closed = False
        self._connection: sqlite3.Connection | None = None
        with self.using():
            _forks.files.add(self)
            drop_after_fork(self)

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Use the connection: no other thread forks this process meanwhile."""
        with self._guard():
            generation()  # for a fork without Python's hooks
            if self._is_inherited:
                raise CnllmError(f"{self.path} is open in the process that forked this one", hint="use it there")
            if self._is_closed or self._thread not in (None, threading.get_ident()):
                raise sqlite3.ProgrammingError
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Let no other thread fork this process meanwhile, and raise errors as `CnllmError`."""
        thread = _forks.begin()
        try:
            yield
        except UnicodeDecodeError:  # in the words of SQLite about a damaged table, which quote its bytes
            damage = sqlite3.DatabaseError("its tables are damaged")
            damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise self._readable(damage) from damage
        except (sqlite3.Error, OSError) as error:
            raise self._readable(error) from error
        finally:
            _forks.end(thread)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction: all of it is stored, or nothing. It waits for other processes."""
        with self.using() as connection:
            self._begin(connection)
            with connection:  # which commits, or rolls back
                yield connection

    def execute(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement, and return its rows."""
        with self.using() as connection:
            return connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the connection, unless it is that of the process that forked this one. No data is lost without it."""
        self._is_closed = True
        with self._guard():
            generation()
            if self._connection is not None:
                self._connection.close()

    def close_before_fork(self) -> None:
        """Close the connection until it is needed again, unless this thread is in the middle of a transaction."""
        connection = self._connection
        if self._is_exclusive or self._is_closed or connection is None or connection.in_transaction:
            return
        self._connection = None
        connection.close()

    def drop_inherited(self) -> None:
        """Leave the connection to the parent. To close it would remove the log of writes under the parent's hands."""
        if self._connection is not None and not self._is_closed:
            _keep_forever(self._connection)
            self._connection, self._is_inherited = None, self._is_exclusive

    def _connect(self) -> sqlite3.Connection:
        self._create()
        connection = sqlite3.connect(self.path, timeout=self._seconds, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self) -> None:
        """Create an empty file where there is none."""
        files.create_private_file(self.path)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make a new connection usable, and create the tables that the file lacks."""
        raise NotImplementedError

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Begin a write."""
        connection.execute("BEGIN IMMEDIATE")

    def _readable(self, error: sqlite3.Error | OSError) -> CnllmError:
        """Return an error in words for the user."""
        if isinstance(error, OSError):
            return CnllmError(f"{error.filename or self.path}: {error.strerror}", hint=self._hint)
        if isinstance(error, sqlite3.ProgrammingError):  # the caller's fault, and not the file's
            message = f"{self.path} was closed, or another thread opened it"
            return CnllmError(message, hint="use a store in the thread that opened it")
        return CnllmError(f"{self.path}: {error}", hint=self._hint)


def _keep_forever(connection: sqlite3.Connection) -> None:
    """Keep a connection alive until the process ends. Garbage collection would close it."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def read_mark(connection: sqlite3.Connection, mark: int) -> tuple[int, bool]:
    """Return the version of a file, and whether it has the mark or is empty. Call it in a transaction.

    Otherwise another process that creates the tables meanwhile makes a file without a mark, but with tables, out of an
    empty one.
    """
    (version,), (found,) = (connection.execute(f"PRAGMA {n}").fetchone() for n in ("user_version", "application_id"))
    if version or found:
        return version, found == mark
    return 0, not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process or connection is in the way."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def try_again(work: Callable[[], T], seconds: float, pause: float = _PAUSE) -> T:
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
            time.sleep(pause)
