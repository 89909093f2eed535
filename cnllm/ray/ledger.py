"""Keep the money spent in a run and the answers of its finished rows, in an SQLite file.

SQLite's exclusive mode is the lock of the one process that may have the file open: it ends with the process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cnllm.config import private_files
from cnllm.errors import CnllmError

__all__ = ["Answer", "Ledger"]

Answer = tuple[bytes, str | None, bytes]
"""A key, the worker that alone knows the answer or None, and the answer as JSON."""
_BUSY_SECONDS = 10.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS answers (key BLOB NOT NULL, owner TEXT, reply BLOB NOT NULL) STRICT",
    "CREATE INDEX IF NOT EXISTS answers_by_key ON answers (key)",
    "CREATE INDEX IF NOT EXISTS answers_by_owner ON answers (owner) WHERE owner IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS spent (currency TEXT PRIMARY KEY, units INTEGER NOT NULL) STRICT",
)


class Ledger:
    """An open file. A commit survives the end of the process. Raises `CnllmError` for a file that cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._translate():
            private_files.make_private_folder(path.parent, narrow=False)
            private_files.create_private_file(path)
            self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and "answers" not in tables:
                self._db.close()
                raise CnllmError(f"{path} is a database of another program", hint="name another file: state=…")
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            for table in _TABLES:
                self._db.execute(table)
            self._db.execute("UPDATE answers SET owner = NULL")  # no worker of an earlier run goes on

    def spent(self) -> dict[str, int]:
        """Return what was spent, and what requests that were on their way may have cost, in units by currency."""
        with self._translate():
            return dict(self._db.execute("SELECT currency, units FROM spent"))

    def commit(self, answers: Iterable[Answer], currency: str | None, units: int) -> None:
        """Write answers, and the amount that is spent or reserved."""
        with self._translate():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT INTO answers VALUES (?, ?, ?)", answers)
                if currency is not None:
                    self._db.execute("INSERT OR REPLACE INTO spent VALUES (?, ?)", (currency, units))
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise

    def find(self, keys: Sequence[tuple[bytes, bool]], worker: str) -> list[bytes | None]:
        """Return the answer of each key that may be used again. One that is `owned` then belongs to the worker."""
        with self._translate():
            return [self._find(key, owned, worker) for key, owned in keys]

    def _find(self, key: bytes, owned: bool, worker: str) -> bytes | None:
        found = self._db.execute(
            "SELECT rowid, reply FROM answers WHERE key = ? AND owner IS NULL LIMIT 1", (key,)
        ).fetchone()
        if found is None:
            return None
        if owned:
            self._db.execute("UPDATE answers SET owner = ? WHERE rowid = ?", (worker, found[0]))
        return bytes(found[1])

    def release(self, worker: str) -> None:
        """Let others have the answers of a worker that ended."""
        with self._translate():
            self._db.execute("UPDATE answers SET owner = NULL WHERE owner = ?", (worker,))

    def close(self, *, remove: bool = False) -> None:
        """Close the file, and remove it where it served one run only."""
        self._db.close()
        if remove:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)  # ours: a temporary file

    @contextmanager
    def _translate(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CnllmError(f"{self.path}: {error}", hint="name another file: state=…") from error
        except OSError as error:
            raise CnllmError(f"{error.filename or self.path}: {error.strerror}", hint="state=… names a file") from error
