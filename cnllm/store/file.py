"""The file: private, in WAL mode, of this version; its failures in words."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cnllm.config import paths, private_files, process
from cnllm.errors import CnllmError
from cnllm.store.schema import MARK, STEPS, migrate, schema_version

__all__ = ["DatabaseFile"]

PATIENCE = 5.0
"""Seconds that a writer waits for the others."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class DatabaseFile:
    """An open file. What SQLite says against it is raised as `CnllmError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._generation = process.generation()
        with self._told():
            _private(path)
            self._connection = _connection(path)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _own(self) -> sqlite3.Connection:
        """This process's connection: SQLite forbids a child to use its parent's, or to close it."""
        if self._generation != process.generation():
            _keep_for_ever(self._connection)
            self._connection = _connection(self.path)
            self._generation = process.generation()
            self._prepare()
        return self._connection

    def rows(self, query: str, *values: Any) -> list[Any]:
        """What a query finds."""
        with self._told():
            return self._own().execute(query, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is kept, or nothing. It takes its turn among other processes."""
        with self._told():
            connection = self._own()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Nothing is lost by not closing."""
        if self._generation == process.generation():
            self._connection.close()
        else:
            _keep_for_ever(self._connection)

    def _prepare(self) -> None:
        # A commit survives the process; only a loss of power may take the last ones, and never breaks the file.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        found = schema_version(self._connection)
        if found > len(STEPS):
            raise CnllmError(
                f"{self.path} is of a newer cnllm (version {found}; this one knows up to {len(STEPS)})",
                hint="upgrade cnllm, or move that file away",
            )
        if not self._ours(found):
            raise CnllmError(f"{self.path} is a database of another program", hint="move it away")
        if found < len(STEPS) or self._connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            self._upgrade()
        self._connection.execute("PRAGMA foreign_keys = ON")

    def _ours(self, found: int) -> bool:
        mark = self._connection.execute("PRAGMA application_id").fetchone()[0]
        if found or mark:
            return bool(mark == MARK)
        return not self._connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()

    def _upgrade(self) -> None:
        """WAL mode and this version's tables. Of several processes that begin at once, one does it."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                migrate(self._connection, STEPS)
                return
            except sqlite3.OperationalError as error:  # the switch to WAL fails at once where others are at it too
                if not _busy(error) or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if _busy(error):
                raise CnllmError(f"{self.path} is held by another process", hint="try again") from error
            hint = f"is there room, and may {self.path.parent} be written to?"
            raise CnllmError(f"{self.path}: {error}", hint=hint) from error
        except sqlite3.Error as error:
            raise CnllmError(f"{self.path} cannot be used: {error}", hint="move it away to begin anew") from error
        except OSError as error:
            raise CnllmError(f"{error.filename or self.path}: {error.strerror}") from error


def _connection(path: Path) -> sqlite3.Connection:
    """Open a connection that shows the good part of a row with bad bytes, so that it hides no other."""
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def _keep_for_ever(connection: sqlite3.Connection) -> None:
    """Never let it be collected, which would close it."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _private(path: Path) -> None:
    """Makes the file 0600 in a folder that is 0700 if it is made here; SQLite makes its own files beside it the same.

    What is there already and open to others is closed to them, SQLite's files included, and the folder if it is ours.
    """
    private_files.make_private_folder(path.parent, narrow=path.parent == paths.data_dir())
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except (
        FileExistsError
    ):  # not opened: closing it would drop the locks that this process holds by another `DatabaseFile`
        if os.name != "nt":
            for one in (path, *(path.with_name(path.name + more) for more in ("-wal", "-shm", "-journal"))):
                with suppress(FileNotFoundError):
                    if os.stat(one).st_mode & _OTHERS:
                        os.chmod(one, 0o600)
