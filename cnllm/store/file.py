"""The database file: private, in WAL mode, upgraded to this version. Its failures become `CnllmError`."""

from __future__ import annotations

import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.store.schema import MARK, STEPS, Step, migrate, schema_version
from cnllm.system import files
from cnllm.system.processes import generation

__all__ = ["DatabaseFile"]

BUSY_SECONDS = 5.0
"""Seconds that a writer waits for other writers, unless it sets its own."""
_TRY_MILLISECONDS = 5
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class DatabaseFile:
    """An open file. Errors of SQLite are raised as `CnllmError`."""

    def __init__(
        self,
        path: Path,
        *,
        mark: int = MARK,
        steps: Sequence[Step] | None = None,
        threads: bool = False,
        busy_seconds: float | None = None,
    ) -> None:
        """Open or create the file of these tables: those of conversations, unless `mark` and `steps` name others.

        With `threads` any thread may use it, one at a time. A write waits `busy_seconds` for other processes.
        """
        self.path = path
        self._mark = mark
        self._steps = STEPS if steps is None else steps
        self._threads = threads
        self._busy_seconds = BUSY_SECONDS if busy_seconds is None else busy_seconds
        self._generation = generation()
        with self._translate_errors():
            files.make_private_folder(path.parent, narrow=path.parent == paths.data_dir())
            files.create_private_file(path, of_folder=True)
            self._connection = self._connect()
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _current_connection(self) -> sqlite3.Connection:
        """Return the connection of this process. SQLite forbids a child to use or close its parent's."""
        if self._generation != generation():
            _keep_forever(self._connection)
            self._connection = self._connect()
            self._generation = generation()
            self._prepare()
        return self._connection

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of a query."""
        with self._translate_errors():
            return self._current_connection().execute(query, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction: all of it is stored, or nothing. It waits for other processes."""
        with self._translate_errors():
            connection = self._current_connection()
            self._begin(connection)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Begin a write, after those of other processes.

        SQLite's own wait tries again after up to 100 ms. Beside processes that write all the time it can be late each
        time, so this one tries again every few milliseconds.
        """
        deadline = time.monotonic() + self._busy_seconds
        connection.execute(f"PRAGMA busy_timeout = {_TRY_MILLISECONDS}")
        try:
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if not _is_busy(error) or time.monotonic() > deadline:
                        raise
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(self._busy_seconds * 1000)}")

    def close(self) -> None:
        """Close the connection. Without this call no data is lost."""
        if self._generation == generation():
            self._connection.close()
        else:
            _keep_forever(self._connection)

    def _connect(self) -> sqlite3.Connection:
        """Open a connection that replaces bad bytes in a row, so that one bad row hides no other."""
        connection = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=not self._threads
        )
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        return connection

    def _prepare(self) -> None:
        # A commit survives a crash of the process. A power failure may lose the last commits, but no other data.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        version, newest = schema_version(self._connection), len(self._steps)
        if version > newest:
            raise CnllmError(
                f"{self.path} was written by a newer cnllm (version {version}; this one reads up to {newest})",
                hint="upgrade cnllm, or move that file away",
            )
        if not self._is_ours(version):
            raise CnllmError(f"{self.path} is a database of another program", hint="move it to another place")
        _narrow(self.path)
        if version < newest or self._connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            self._upgrade()
        self._connection.execute("PRAGMA foreign_keys = ON")

    def _is_ours(self, version: int) -> bool:
        mark = self._connection.execute("PRAGMA application_id").fetchone()[0]
        if version or mark:
            return bool(mark == self._mark)
        return not self._connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()

    def _upgrade(self) -> None:
        """Switch to WAL mode and create this version's tables. Of several processes that start at once, one does it."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                migrate(self._connection, self._steps, self._mark)
                return
            except sqlite3.OperationalError as error:  # the switch to WAL fails at once while another process does it
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if _is_busy(error):
                raise CnllmError(f"another process has locked {self.path}", hint="try again") from error
            hint = f"check the free disk space and the permissions of {self.path.parent}"
            raise CnllmError(f"{self.path}: {error}", hint=hint) from error
        except sqlite3.Error as error:
            raise CnllmError(
                f"{self.path} cannot be used: {error}", hint="move it to another place to start a new one"
            ) from error
        except OSError as error:
            raise CnllmError(f"{error.filename or self.path}: {error.strerror}") from error


def _keep_forever(connection: sqlite3.Connection) -> None:
    """Keep a connection alive until the process ends. Garbage collection would close it."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _narrow(path: Path) -> None:
    """Make a file that others can read private, with SQLite's files beside it."""
    for file in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))):
        with suppress(FileNotFoundError):
            files.restrict_mode(file)  # ours: it is empty or has the mark of our databases
