"""The book of keys in a SQLite file, for all processes of one machine.

It is a file of its own beside the store's: a damaged store is renamed and begins anew, and budgets must not.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.gateway.limits.account import Grant, Operation, update
from cnllm.gateway.limits.key_use import KeyUse, account_of, name_taken, no_such_name, use_of
from cnllm.gateway.limits.keys import KeyRecord, Rights, team_digest
from cnllm.store.file import DatabaseFile
from cnllm.system.files import file_id
from cnllm.system.processes import fork_safe

__all__ = ["MARK", "STEPS", "SqliteBook", "book_path"]

MARK = 0x636E6C6B
"""The file's `application_id` ("cnlk")."""
STEPS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE keys (
            digest TEXT PRIMARY KEY,    -- a hash of the key, which is not stored; `team:NAME` of a team
            name TEXT NOT NULL,         -- of a team, too
            revoked REAL,               -- Unix time
            record BLOB NOT NULL
        )""",
        "CREATE UNIQUE INDEX keys_in_use ON keys (name) WHERE revoked IS NULL",
        "CREATE TABLE accounts (digest TEXT PRIMARY KEY, state BLOB NOT NULL)",
    ),
)
"""The statements from each version to the next."""

_BUSY_SECONDS = 2.0
T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(KeyRecord).decode


def book_path(store: str | None) -> Path:
    """Return the path of the book beside a store's file; None is the default store."""
    path = paths.data_dir() / "gateway.db" if store is None else Path(store).expanduser()
    return path.with_name(f"{path.stem}-keys{path.suffix}")


class SqliteBook:
    """The book in a file. Several processes may use it at once, and any thread of each. Reading creates no file.

    Deadlines are by the machine's monotonic clock, which all its processes share: nobody sets it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = fork_safe(threading.Lock())
        self._file: DatabaseFile | None = None
        self._id: tuple[int, int] | None = None  # of the file that was opened last

    def add(self, digest: str, record: KeyRecord) -> None:
        """Add a key or a team, or replace the record of a key in a file unless it is revoked."""
        self.add_all({digest: record})

    def add_all(self, records: Mapping[str, KeyRecord]) -> None:
        """Add some, as `add` does, in one transaction."""

        def work(file: DatabaseFile) -> None:
            with _lasting(file) as connection:
                for digest, record in records.items():
                    _add(connection, digest, record)

        self._run(work, create=True)

    def change(self, name: str, change: Callable[[KeyRecord], KeyRecord]) -> KeyRecord:
        """Change the record of a name, in one transaction."""

        def work(file: DatabaseFile) -> KeyRecord:
            with _lasting(file) as connection:
                query = "SELECT digest, record FROM keys WHERE name = ? AND revoked IS NULL"
                row = connection.execute(query, (name,)).fetchone()
                if row is None:
                    raise no_such_name(name)
                record = change(_decode_record(row[1]))
                query = "UPDATE keys SET revoked = ?, record = ? WHERE digest = ?"
                connection.execute(query, (record.revoked, _encode(record), row[0]))
                return record

        record = self._run(work)
        if record is None:
            raise no_such_name(name)
        return record

    def revoke(self, name: str) -> KeyRecord:
        """Revoke the key of a name."""
        return self.change(name, lambda record: replace(record, revoked=time.time()))

    def remove(self, name: str) -> None:
        """Remove a team and what it used."""

        def work(file: DatabaseFile) -> bool:
            with _lasting(file) as connection:
                connection.execute("DELETE FROM accounts WHERE digest = ?", (name,))
                return connection.execute("DELETE FROM keys WHERE digest = ?", (name,)).rowcount > 0

        if not self._run(work):
            raise no_such_name(name)

    def get(self, name: str) -> KeyRecord | None:
        """Return the record of a name in use."""
        query = "SELECT record FROM keys WHERE name = ? AND revoked IS NULL"
        records = self._run(lambda file: [_decode_record(record) for (record,) in file.execute(query, name)])
        return records[0] if records else None

    def uses(self, *, teams: bool = False) -> list[KeyUse]:
        """Return all keys, or all teams, with their use, the oldest first."""
        query = "SELECT record, state FROM keys LEFT JOIN accounts USING (digest) WHERE name LIKE ? ORDER BY keys.rowid"
        if not teams:
            query = query.replace("LIKE", "NOT LIKE")

        def work(file: DatabaseFile) -> list[KeyUse]:
            rows, times = file.execute(query, f"{team_digest('')}%"), (_clock(), time.time())
            return [use_of(_decode_record(record), account_of(state), *times) for record, state in rows]

        return self._run(work) or []

    def find(self, digest: str) -> Rights | None:
        """Return the rights of a key by its digest; None for an unknown one."""

        def work(file: DatabaseFile) -> Rights | None:
            query = "SELECT record FROM keys WHERE digest = ?"
            rows = file.execute(query, digest)
            if not rows:
                return None
            record = _decode_record(rows[0][0])
            team = file.execute(query, team_digest(record.team)) if record.team is not None else ()
            return Rights(record, _decode_record(team[0][0]) if team else None, time.time())

        return self._run(work)

    def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker, in one transaction."""

        def work(file: DatabaseFile) -> Grant:
            with file.writing() as connection:
                query = "SELECT record, state FROM keys LEFT JOIN accounts USING (digest) WHERE keys.digest = ?"
                row = connection.execute(query, (digest,)).fetchone() or (None, None)
                record = None if row[0] is None else _decode_record(row[0])
                account = account_of(row[1])
                grant = update(account, record, operation, _clock(), time.time())
                if record is not None:
                    connection.execute("REPLACE INTO accounts VALUES (?, ?)", (digest, _encode(account)))
                return grant

        return self._run(work) or Grant("unknown")

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _run(self, work: Callable[[DatabaseFile], T], *, create: bool = False) -> T | None:
        """Return the result of work on the file; None where there never was one.

        Another file at its path is opened instead: keys that are revoked there are refused here. Raise `CnllmError`
        where the file has gone, as nobody knows what was spent, and for a record that cannot be read.
        """
        with self._lock:
            if self._file is not None and self._id != file_id(self.path):
                self._file.close()
                self._file = None
            if self._file is None:
                if not create and not self.path.exists():
                    if self._id is None:
                        return None
                    raise CnllmError(f"{self.path} has gone", hint="restore it from a backup, or make new keys")
                self._file = DatabaseFile(self.path, mark=MARK, steps=STEPS, threads=True, busy_seconds=_BUSY_SECONDS)
                self._id = self._file.id
            try:
                return work(self._file)
            except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
                raise CnllmError(f"{self.path} is damaged: {error}", hint="restore it from a backup") from error


def _add(connection: sqlite3.Connection, digest: str, record: KeyRecord) -> None:
    """Add a key or a team in a transaction."""
    name = record.stored_name
    query = "SELECT 1 FROM keys WHERE digest = ? AND revoked IS NOT NULL"
    if connection.execute(query, (digest,)).fetchone():
        return
    query = "SELECT 1 FROM keys WHERE name = ? AND revoked IS NULL AND digest != ?"
    if connection.execute(query, (name, digest if record.is_in_file else "")).fetchone():
        raise name_taken(name)
    query = """
        INSERT INTO keys VALUES (?, ?, ?, ?) ON CONFLICT (digest)
        DO UPDATE SET name = excluded.name, revoked = excluded.revoked, record = excluded.record
    """
    connection.execute(query, (digest, name, record.revoked, _encode(record)))


@contextmanager
def _lasting(file: DatabaseFile) -> Iterator[sqlite3.Connection]:
    """Write what a power failure must not undo, such as that a key was revoked."""
    with file.writing() as connection:
        yield connection
    file.execute("PRAGMA wal_checkpoint(PASSIVE)")  # it waits for the disk


def _clock() -> int:
    """Return the time of the clock of deadlines."""
    return int(time.monotonic() * 1_000_000)
