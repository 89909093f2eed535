"""The book of keys in a SQLite file, for all processes of one machine.

It is a file of its own beside the store's: a damaged store is renamed and begins anew, and budgets must not.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cnllm.config import paths, process
from cnllm.errors import CnllmError
from cnllm.gateway.limits.account import Account, Grant, Operation, expire, update
from cnllm.gateway.limits.book import KeyUse, name_taken, no_such_key
from cnllm.gateway.limits.keys import KeyRecord
from cnllm.store.file import DatabaseFile

__all__ = ["MARK", "STEPS", "AsyncSqliteBook", "SqliteBook", "book_path"]

MARK = 0x636E6C6B
"""The file's `application_id` ("cnlk")."""
STEPS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE keys (
            digest TEXT PRIMARY KEY,    -- a hash of the key, which is not stored
            name TEXT NOT NULL,
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
_decode_account = msgspec.msgpack.Decoder(Account).decode


def book_path(store: str | None) -> Path:
    """Return the path of the book beside a store's file; None is the default store."""
    path = paths.data_dir() / "gateway.db" if store is None else Path(store).expanduser()
    return path.with_name(f"{path.stem}-keys{path.suffix}")


class SqliteBook:
    """The book in a file. Several processes may use it at once, and any thread of each. Reading creates no file."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._lock = process.fork_safe(threading.Lock())
        self._file: DatabaseFile | None = None

    def coroutines(self) -> AsyncSqliteBook:
        """Return the book for a gateway."""
        return AsyncSqliteBook(self)

    def add(self, digest: str, record: KeyRecord) -> None:
        """Add a key."""

        def work(file: DatabaseFile) -> None:
            with file.writing() as connection:
                query = "SELECT 1 FROM keys WHERE name = ? AND revoked IS NULL"
                if connection.execute(query, (record.name,)).fetchone():
                    raise name_taken(record.name)
                row = (digest, record.name, record.revoked, _encode(record))
                connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", row)

        self._run(work, create=True)

    def revoke(self, name: str) -> KeyRecord:
        """Revoke the key of a name."""

        def work(file: DatabaseFile) -> KeyRecord:
            with file.writing() as connection:
                query = "SELECT digest, record FROM keys WHERE name = ? AND revoked IS NULL"
                row = connection.execute(query, (name,)).fetchone()
                if row is None:
                    raise no_such_key(name)
                record = msgspec.structs.replace(_decode_record(row[1]), revoked=self._clock())
                query = "UPDATE keys SET revoked = ?, record = ? WHERE digest = ?"
                connection.execute(query, (record.revoked, _encode(record), row[0]))
                return record

        record = self._run(work)
        if record is None:
            raise no_such_key(name)
        return record

    def uses(self) -> list[KeyUse]:
        """Return all keys with their use, the oldest first."""
        query = "SELECT record, state FROM keys LEFT JOIN accounts USING (digest) ORDER BY keys.rowid"
        rows = self._run(lambda file: file.rows(query)) or []
        now = int(self._clock() * 1_000_000)
        return [_use(_decode_record(record), state, now) for record, state in rows]

    def is_empty(self) -> bool:
        """Whether no key was ever added."""
        return not self._run(lambda file: file.rows("SELECT 1 FROM keys LIMIT 1"))

    def find(self, digest: str) -> KeyRecord | None:
        """Return the record of a key by its digest; None for an unknown one."""
        rows = self._run(lambda file: file.rows("SELECT record FROM keys WHERE digest = ?", digest))
        return _decode_record(rows[0][0]) if rows else None

    def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker, in one transaction."""

        def work(file: DatabaseFile) -> Grant:
            with file.writing() as connection:
                query = "SELECT record, state FROM keys LEFT JOIN accounts USING (digest) WHERE keys.digest = ?"
                row = connection.execute(query, (digest,)).fetchone() or (None, None)
                record = None if row[0] is None else _decode_record(row[0])
                account = Account() if row[1] is None else _decode_account(row[1])
                grant = update(account, record, operation, int(self._clock() * 1_000_000))
                if record is not None:
                    connection.execute("REPLACE INTO accounts VALUES (?, ?)", (digest, _encode(account)))
                return grant

        return self._run(work) or Grant("revoked")

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _run(self, work: Callable[[DatabaseFile], T], *, create: bool = False) -> T | None:
        """Return the result of work on the file; None where there is no file."""
        with self._lock:
            if self._file is None:
                if not create and not self.path.exists():
                    return None
                self._file = DatabaseFile(self.path, mark=MARK, steps=STEPS, threads=True, busy_seconds=_BUSY_SECONDS)
            try:
                return work(self._file)
            except (msgspec.MsgspecError, ValueError) as error:
                raise CnllmError(f"{self.path} is damaged: {error}", hint="restore it from a backup") from error


class AsyncSqliteBook:
    """The book in a file for coroutines, in a thread of this process."""

    def __init__(self, book: SqliteBook) -> None:
        self._book = book
        self._thread: ThreadPoolExecutor | None = None
        self._generation = 0

    async def find(self, digest: str) -> KeyRecord | None:
        """Return the record of a key by its digest."""
        return await self._run(self._book.find, digest)

    async def update(self, digest: str, operation: Operation) -> Grant:
        """Carry out an operation of a worker."""
        return await self._run(self._book.update, digest, operation)

    async def aclose(self) -> None:
        """Close the file."""
        await self._run(self._book.close)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._thread is None or self._generation != process.generation():
            self._generation = process.generation()
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="cnllm-keys")
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _use(record: KeyRecord, state: bytes | None, now: int) -> KeyUse:
    """Return a key with its use."""
    if state is None:
        return KeyUse(record)
    account = _decode_account(state)
    expire(account, now)
    open: dict[str, int] = {}
    for lease in account.leases.values():
        for currency, units in lease.open.items():
            open[currency] = open.get(currency, 0) + units
    last = account.last / 1_000_000 if account.last else None
    return KeyUse(record, account.spent, open, account.calls, account.used, account.unpriced, last)
