"""The SQLite files of answers, which several runs share or one process keeps for itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.sqlite import Database, try_again

__all__ = ["AnswerFile"]

_BUSY_SECONDS = 10.0


class AnswerFile(Database):
    """A file with a table `answers`. `advice` is the hint of an error of SQLite, `hint` that of one of the system."""

    def __init__(
        self, path: Path, tables: Sequence[str], advice: str, hint: str | None = None, *, is_exclusive: bool = False
    ) -> None:
        """Open a file, and create it if there is none. Raises `CnllmError` for one of another program.

        `is_exclusive`: this process alone may have it open.
        """
        self._tables = tables
        self._advice = advice
        super().__init__(path, _BUSY_SECONDS, hint, is_exclusive=is_exclusive)

    def _create(self) -> None:
        files.make_private_folder(self.path.parent, narrow=False)
        super()._create()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if names and "answers" not in names:
            raise CnllmError(f"{self.path} is a database of another program", hint=self._advice)
        if self._is_exclusive:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        try_again(lambda: self._create_tables(connection), _BUSY_SECONDS)
        connection.execute("PRAGMA synchronous = NORMAL")

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        """Create the tables that the file lacks: all of them, or none. Where it has all, no writer is in the way."""
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        with connection:
            for statement in self._tables:
                connection.execute(statement)

    def _readable(self, error: sqlite3.Error | OSError) -> CnllmError:
        if isinstance(error, OSError):
            return super()._readable(error)
        return CnllmError(f"{self.path}: {error}", hint=self._advice)
