"""Answers that several runs share: an SQLite file from identities to replies, for several processes at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cnllm.errors import CnllmError
from cnllm.system import files

__all__ = ["AnswerCache", "open_answers", "readable_errors", "writing"]

_TABLE = "CREATE TABLE IF NOT EXISTS answers (identity BLOB PRIMARY KEY, reply BLOB NOT NULL) STRICT, WITHOUT ROWID"
_BUSY_SECONDS = 10.0
_HINT = "leave --cache out, or move that file away"


def open_answers(path: Path, hint: str, tables: Sequence[str], *, is_exclusive: bool = False) -> sqlite3.Connection:
    """Open a file of answers, and create it if there is none. Raises `CnllmError` for one of another program.

    `is_exclusive`: this process alone may have it open.
    """
    files.make_private_folder(path.parent, narrow=False)
    files.create_private_file(path)
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if names and "answers" not in names:
            raise CnllmError(f"{path} is a database of another program", hint=hint)
        if is_exclusive:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", *tables):
            database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """Run one transaction: all of it is stored, or nothing."""
    database.execute("BEGIN IMMEDIATE")
    with database:  # which commits, or rolls back
        yield


@contextmanager
def readable_errors(path: Path, hint: str, file_hint: str | None = None) -> Iterator[None]:
    """Raise `CnllmError` for an error of SQLite, or of the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise CnllmError(f"{path}: {error}", hint=hint) from error
    except OSError as error:
        raise CnllmError(f"{error.filename or path}: {error.strerror}", hint=file_hint) from error


class AnswerCache:
    """An open cache. Each method may be called in any thread, one at a time. Raises `CnllmError` for a bad file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with readable_errors(path, _HINT):
            self._db = open_answers(path, _HINT, [_TABLE])

    def find(self, identity: bytes) -> bytes | None:
        """Return the reply of a request as JSON; None where no run has one."""
        with readable_errors(self.path, _HINT):
            row = self._db.execute("SELECT reply FROM answers WHERE identity = ?", (identity,)).fetchone()
            return None if row is None else bytes(row[0])

    def store(self, answers: Sequence[tuple[bytes, bytes]]) -> None:
        """Store replies as JSON. One that is there stays."""
        with readable_errors(self.path, _HINT), writing(self._db):
            self._db.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?)", answers)

    def close(self) -> None:
        """Close the file."""
        self._db.close()
