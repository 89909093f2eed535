"""The SQLite files of batches, beside other processes and beside forks of this one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.processes import drop_after_fork, generation
from cnllm.system.sqlite import close_before_forks, connect, in_use, keep_forever, try_again

__all__ = ["BatchDatabase", "open_answers", "readable_errors"]

_BUSY_SECONDS = 10.0


class BatchDatabase:
    """An open SQLite file.

    One that several processes share is closed before a fork, and opened again at its next use. One that `is_exclusive`
    stays open, since its lock must not go to another process: a forked child neither uses nor closes it.
    """

    def __init__(
        self, path: Path, prepare: Callable[[sqlite3.Connection], None], seconds: float, *, is_exclusive: bool = False
    ) -> None:
        """Open a file, which may be empty. `prepare` makes a connection usable, `seconds` are waited for others."""
        self.path = path
        self._prepare = prepare
        self._seconds = seconds
        self._is_exclusive = is_exclusive
        self._is_inherited = self._is_closed = False
        with in_use():
            self._connection: sqlite3.Connection | None = self._connect()
        close_before_forks(self)
        drop_after_fork(self)

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Use the connection: no other thread forks this process meanwhile."""
        with in_use():
            generation()  # for a fork without Python's hooks
            if self._is_inherited:
                raise CnllmError(f"{self.path} is open in the process that forked this one", hint="use it there")
            if self._is_closed:
                raise sqlite3.ProgrammingError("the file was closed")
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction: all of it is stored, or nothing."""
        with self.using() as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:  # which commits, or rolls back
                yield connection

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        with self.using() as connection:
            return connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the file, unless the process that forked this one has it open."""
        self._is_closed = True
        with in_use():
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
            keep_forever(self._connection)
            self._connection, self._is_inherited = None, self._is_exclusive

    def _connect(self) -> sqlite3.Connection:
        files.create_private_file(self.path)
        return connect(self.path, self._seconds, self._prepare)


def open_answers(path: Path, hint: str, tables: Sequence[str], *, is_exclusive: bool = False) -> BatchDatabase:
    """Open a file of answers, and create it if there is none. Raises `CnllmError` for one of another program.

    `is_exclusive`: this process alone may have it open.
    """
    files.make_private_folder(path.parent, narrow=False)

    def prepare(connection: sqlite3.Connection) -> None:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if names and "answers" not in names:
            raise CnllmError(f"{path} is a database of another program", hint=hint)
        if is_exclusive:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        try_again(lambda: _create_tables(connection, tables), _BUSY_SECONDS)
        connection.execute("PRAGMA synchronous = NORMAL")

    return BatchDatabase(path, prepare, _BUSY_SECONDS, is_exclusive=is_exclusive)


def _create_tables(connection: sqlite3.Connection, tables: Sequence[str]) -> None:
    """Create the tables that the file lacks: all of them, or none. Where it has all, no writer is in the way."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN")
    with connection:
        for statement in tables:
            connection.execute(statement)


@contextmanager
def readable_errors(path: Path, hint: str, file_hint: str | None = None) -> Iterator[None]:
    """Raise `CnllmError` for an error of SQLite, or of the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise CnllmError(f"{path}: {error}", hint=hint) from error
    except OSError as error:
        raise CnllmError(f"{error.filename or path}: {error.strerror}", hint=file_hint) from error
