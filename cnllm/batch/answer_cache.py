"""Answers that several runs share: an SQLite file from identities to replies, for several processes at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cnllm.errors import CnllmError
from cnllm.system import files

__all__ = ["AnswerCache"]

_TABLE = "CREATE TABLE IF NOT EXISTS answers (identity BLOB PRIMARY KEY, reply BLOB NOT NULL) STRICT, WITHOUT ROWID"
_BUSY_SECONDS = 10.0
_HINT = "leave --cache out, or move that file away"


def open_answers(path: Path, hint: str) -> sqlite3.Connection:
    """Open a file of answers, and create it if there is none. Raises `CnllmError` for one of another program."""
    files.make_private_folder(path.parent, narrow=False)
    files.create_private_file(path)
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "answers" not in tables:
        database.close()
        raise CnllmError(f"{path} is a database of another program", hint=hint)
    return database


class AnswerCache:
    """An open cache. Each method may be called in any thread, one at a time. Raises `CnllmError` for a bad file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._translate():
            self._db = open_answers(path, _HINT)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(_TABLE)

    def find(self, identity: bytes) -> bytes | None:
        """Return the reply of a request as JSON; None where no run has one."""
        with self._translate():
            row = self._db.execute("SELECT reply FROM answers WHERE identity = ?", (identity,)).fetchone()
            return None if row is None else bytes(row[0])

    def store(self, answers: Sequence[tuple[bytes, bytes]]) -> None:
        """Store replies as JSON. One that is there stays."""
        with self._translate():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?)", answers)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _translate(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CnllmError(f"{self.path}: {error}", hint=_HINT) from error
        except OSError as error:
            raise CnllmError(f"{error.filename or self.path}: {error.strerror}") from error
