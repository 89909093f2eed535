"""State in a SQLite file, for all processes of one machine.

A committed turn survives a kill of any process. A damaged file is renamed to `NAME.damaged`, with a log line, and a new
one begins: what is lost is state that clients may have to do without. SQLite notices damage of its structure only, so
that each item carries a hash: no damage can put one conversation's turn into another.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.gateway.store.items import FailureLog, Item, StateStore, StoreBounds, WouldWait, check_of, item_size
from cnllm.store.file import DatabaseFile
from cnllm.system import files
from cnllm.system.processes import drop_after_fork, fork_safe

__all__ = ["MARK", "STEPS", "SqliteStore", "store_path"]

MARK = 0x636E6C67
"""The file's `application_id` ("cnlg")."""

_COUNT = """INSERT INTO usage VALUES ({0}, 1, new.size)
            ON CONFLICT (identity) DO UPDATE SET items = items + 1, bytes = bytes + new.size;"""

STEPS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE items (
            id INTEGER PRIMARY KEY,     -- the oldest has the lowest
            identity BLOB NOT NULL,     -- a hash
            at REAL NOT NULL,           -- Unix time
            digest BLOB NOT NULL,       -- of a turn's content; empty for the mark of an ambiguous key
            size INTEGER NOT NULL,
            names BLOB NOT NULL,        -- the keys that it was kept under, one after the other
            sum BLOB NOT NULL,          -- a hash of names and data
            data BLOB NOT NULL
        )""",
        "CREATE INDEX items_of ON items (identity, id)",
        """CREATE TABLE keys (
            key BLOB PRIMARY KEY,       -- a hash of identity and call id, prefix or response id
            item INTEGER NOT NULL REFERENCES items ON DELETE CASCADE
        ) WITHOUT ROWID""",
        "CREATE INDEX keys_of ON keys (item)",
        # Sums of each identity, and of all under an empty one: a bound is checked without reading the items.
        """CREATE TABLE usage (identity BLOB PRIMARY KEY, items INTEGER NOT NULL, bytes INTEGER NOT NULL)
           WITHOUT ROWID""",
        f"CREATE TRIGGER item_added AFTER INSERT ON items BEGIN {_COUNT.format('new.identity')} "
        f"{_COUNT.format('zeroblob(0)')} END",
        """CREATE TRIGGER item_deleted AFTER DELETE ON items BEGIN
            UPDATE usage SET items = items - 1, bytes = bytes - old.size WHERE identity IN (old.identity, zeroblob(0));
            DELETE FROM usage WHERE identity = old.identity AND items <= 0;
        END""",
    ),
)
"""The statements from each version to the next; the first from an empty file."""

_CHUNK = 200  # keys of one query
_CLOCK_SECONDS = 60.0  # by which the clock may be set back without an effect
_OLD = 8  # expired items that are deleted for each one that is kept
_BUSY_SECONDS = 1.0
"""Seconds that a write waits for other processes."""
_PAUSE_SECONDS = 2.0
"""Seconds without a write after one that waited in vain, so that requests do not queue up behind a stopped process."""

_CHECK_SECONDS = 60.0

_LOG_BYTES = 4_000_000
"""Bytes of the log of writes from which on it is moved into the file: SQLite's own bound."""
_SLOW_SECONDS = 0.01  # of work without a wait, after which the disk counts as slow
_SLOW_PAUSE_SECONDS = 10.0

T = TypeVar("T")
_log = logging.getLogger("cnllm.gateway")


def store_path() -> Path:
    """Return the default path of the file, whether or not it exists."""
    return paths.data_dir() / "gateway.db"


class _Damage(CnllmError):
    """The structure of the file is damaged, in a place where SQLite itself has not met it."""


class SqliteStore(StateStore):
    """State in a file. Several processes may use it at once, and any thread of each."""

    threads = 1

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        bounds: StoreBounds | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the file, and create it if there is none. Raise `CnllmError` for one that cannot be used."""
        self.path = Path(path).expanduser() if path is not None else store_path()
        self._bounds = bounds or StoreBounds()
        self._clock = clock
        self._lock = fork_safe(threading.RLock())
        self._failures = FailureLog()
        self._locked_until = 0.0
        self._next_check = 0.0
        self._file: DatabaseFile | None = None
        self._id: tuple[int, int] | None = None
        self._waits = True  # for other threads and processes
        self._slow_until = 0.0
        self._log_bound: float = _LOG_BYTES
        drop_after_fork(self)
        with self._lock:
            self._open()

    def drop_inherited(self) -> None:
        """Wait for other threads and processes again: a thread of the parent may have been in `attempt`."""
        self._waits = True

    @property
    def failure(self) -> str | None:
        """Return why the last operation failed; None if it did not."""
        return self._failures.failure

    def _keep(self, items: Sequence[Item]) -> Sequence[bool | None]:
        """Keep items in one transaction. Return for each whether it is kept; None for a failure."""
        outcomes = self._run(lambda file: self._keep_all(file, items))
        return [None] * len(items) if outcomes is None else outcomes

    def _find(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes]] | None:
        """Return key, digest and content of the items under these keys; None for a failure."""
        return self._run(lambda file: self._rows(file, keys), writes=False)

    def _delete(self, key: bytes) -> bool | None:
        """Delete the item under a key, and its bytes. Return whether there was one; None for a failure."""
        return self._run(lambda file: self._delete_item(file, key))

    def attempt(self, work: Callable[[], T]) -> T | None:
        """Return the result of work with this store, if it need not wait for a disk, a thread or a process, else None.

        A write goes to the system's memory. Where that took long, the disk is slow, and none is tried for a while.
        """
        begin = time.monotonic()
        if begin < self._slow_until or not self._lock.acquire(blocking=False):
            return None
        try:
            self._waits = False
            with self._current().without_waiting():
                return work()
        except (WouldWait, CnllmError):
            return None
        finally:
            self._waits = True
            self._lock.release()
            if (end := time.monotonic()) - begin > _SLOW_SECONDS:
                self._slow_until = end + _SLOW_PAUSE_SECONDS

    @property
    def needs_checkpoint(self) -> bool:
        """Whether the log of writes should be moved into the file."""
        file = self._file
        return file is not None and file.log_size >= self._log_bound

    def checkpoint(self) -> None:
        """Move the log of writes into the file, if that is due. What others hold up is tried when the log has grown."""
        file = self._file
        if file is None or not self.needs_checkpoint:
            return
        self._log_bound = math.inf
        with contextlib.suppress(CnllmError):
            file.checkpoint()
        self._log_bound = file.log_size + _LOG_BYTES

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        with self._lock:
            self._close()

    # ── the file ─────────────────────────────────────────────────────────────
    def _run(self, work: Callable[[DatabaseFile], T], *, writes: bool = True) -> T | None:
        """Return the result of work on the file. Where the file fails, log that and return None."""
        with self._lock:
            if writes and time.monotonic() < self._locked_until:
                return None
            try:
                try:
                    result = work(self._current())
                except CnllmError as error:
                    if not _is_damage(error):
                        raise
                    self._require_time()
                    self._close()
                    self._set_aside(error)
                    result = work(self._current())
            except CnllmError as error:
                if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    self._require_time()
                    self._locked_until = time.monotonic() + _PAUSE_SECONDS
                self._failures.log_failure(error.message)
                return None
            if writes:  # a full disk can be read
                self._failures.log_recovery()
                if self._waits:
                    self.checkpoint()
            return result

    def _current(self) -> DatabaseFile:
        """Return the open file. One that was deleted or replaced meanwhile is opened anew."""
        if self._file is not None and self._id == files.file_id(self.path):
            return self._file
        self._require_time()
        self._close()
        return self._open()

    def _require_time(self) -> None:
        """Raise `WouldWait` where nothing may take long."""
        if not self._waits:
            raise WouldWait

    def _open(self) -> DatabaseFile:
        self._id = None
        try:
            file = self._database()
        except CnllmError as error:
            if not _is_damage(error) or not self._is_ours():
                raise
            self._set_aside(error)
            file = self._database()
        self._file, self._id = file, file.id
        return file

    def _database(self) -> DatabaseFile:
        return DatabaseFile(
            self.path, mark=MARK, steps=STEPS, threads=True, busy_seconds=_BUSY_SECONDS, checkpoints=False
        )

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(CnllmError):
                self._file.close()
            self._file = None

    def _is_ours(self) -> bool:
        """Whether a damaged file is a store of the gateway: the default one, or one with its mark in the header."""
        if self.path == store_path():
            return True
        with contextlib.suppress(OSError), self.path.open("rb") as stream:
            return stream.read(72)[68:] == MARK.to_bytes(4, "big")
        return False

    def _set_aside(self, error: CnllmError) -> None:
        """Rename a damaged file, unless another process has done so."""
        try:
            with files.lock_folder(self.path.parent):
                if self._id != files.file_id(self.path) if self._id is not None else not self._is_damaged():
                    return
                # The log first: SQLite would take it for that of the new file. It deletes one beside an empty file.
                for suffix in ("-wal", "-shm", ""):
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(f"{self.path}{suffix}", f"{self.path}.damaged{suffix}")  # ours: `_is_ours`
        except OSError:
            raise error from None
        _log.warning("%s; it is now %s.damaged, and a new file begins", error.message, self.path)

    def _is_damaged(self) -> bool:
        try:
            self._database().close()
        except CnllmError as error:
            return _is_damage(error)
        return False

    # ── items ────────────────────────────────────────────────────────────────
    def _rows(self, file: DatabaseFile, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        """Return key, digest and data of the items under these keys."""
        oldest = self._clock() - self._bounds.seconds
        rows: list[tuple[Any, ...]] = []
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            rows += file.execute(
                "SELECT key, digest, data, names, sum FROM keys JOIN items ON items.id = item "
                f"WHERE key IN ({','.join('?' * len(chunk))}) AND at >= ?",
                *chunk,
                oldest,
            )
        whole = [row[:3] for row in rows if _is_whole(*row)]
        if len(whole) < len(rows):
            self._check(file)
        return whole

    def _check(self, file: DatabaseFile) -> None:
        """Raise `_Damage` for a file of broken structure. Its pages are read at most once a minute."""
        now = time.monotonic()
        if now >= self._next_check:
            self._require_time()
            self._next_check = now + _CHECK_SECONDS
            if file.execute("PRAGMA quick_check(1)") != [("ok",)]:
                raise _Damage(f"{self.path}: its tables are damaged", hint="move it to another place")

    def _keep_all(self, file: DatabaseFile, items: Sequence[Item]) -> list[bool]:
        """Keep items in one transaction. Return for each whether it is kept."""
        now = self._clock()
        outcomes: list[bool] = []
        with file.writing() as connection:
            _set_back(connection, now)
            for item in items:
                fits = item_size(item.blob, len(item.keys)) <= self._bounds.identity_bytes
                outcomes.append(fits and self._keep_item(connection, item, now))
            for owner in dict.fromkeys(item.owner for item in items):
                self._evict(connection, owner)
            self._drop_old(connection, _OLD * len(items), now)
        return outcomes

    def _keep_item(self, connection: sqlite3.Connection, item: Item, now: float) -> bool:
        """Keep an item. Return False where all of its keys are ambiguous."""
        clear = []
        for key in item.keys:
            query = "SELECT id, digest, at FROM keys JOIN items ON items.id = item WHERE key = ?"
            row = connection.execute(query, (key,)).fetchone()
            if row is None:
                clear.append(key)
                continue
            connection.execute("DELETE FROM keys WHERE key = ?", (key,))
            query = "DELETE FROM items WHERE id = ? AND NOT EXISTS (SELECT 1 FROM keys WHERE item = ?)"
            connection.execute(query, (row[0], row[0]))
            if row[1] != item.digest and row[2] >= now - self._bounds.seconds:
                _insert(connection, Item(item.owner, b"", b"", [key]), now)
            else:
                clear.append(key)
        if clear:
            _insert(connection, Item(item.owner, item.digest, item.blob, clear), now)
        return bool(clear)

    def _evict(self, connection: sqlite3.Connection, owner: bytes) -> None:
        """Delete the oldest items of this identity, then of all, until the bounds hold."""
        bounds = self._bounds
        for identity, count, size in (
            (owner, bounds.identity_count, bounds.identity_bytes),
            (b"", bounds.count, bounds.bytes),
        ):
            query = "SELECT items, bytes FROM usage WHERE identity = ?"
            items, total = connection.execute(query, (identity,)).fetchone() or (0, 0)
            if items <= count and total <= size:
                continue
            where, values = ("identity = ?", (identity,)) if identity else ("TRUE", ())
            newest = None
            for id_, item_bytes in connection.execute(f"SELECT id, size FROM items WHERE {where} ORDER BY id", values):
                if items <= count and total <= size:
                    break
                items, total, newest = items - 1, total - item_bytes, id_
            connection.execute(f"DELETE FROM items WHERE {where} AND id <= ?", (*values, newest))

    def _drop_old(self, connection: sqlite3.Connection, most: int, now: float) -> None:
        """Delete some of the items that are too old."""
        rows = connection.execute("SELECT id, at FROM items ORDER BY id LIMIT ?", (most,)).fetchall()
        for id_, at in rows:
            if at >= now - self._bounds.seconds:
                break
            connection.execute("DELETE FROM items WHERE id = ?", (id_,))

    def _delete_item(self, file: DatabaseFile, key: bytes) -> bool:
        if not self._rows(file, [key]):
            return False
        file.execute("PRAGMA secure_delete = ON")
        try:
            with file.writing() as connection:
                query = "DELETE FROM items WHERE id = (SELECT item FROM keys WHERE key = ?)"
                return connection.execute(query, (key,)).rowcount > 0
        finally:
            file.execute("PRAGMA secure_delete = OFF")


def _insert(connection: sqlite3.Connection, item: Item, now: float) -> None:
    names = b"".join(item.keys)
    size, check = item_size(item.blob, len(item.keys)), check_of(names, item.blob)
    query = "INSERT INTO items (identity, at, digest, size, names, sum, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
    id = connection.execute(query, (item.owner, now, item.digest, size, names, check, item.blob)).lastrowid
    for key in item.keys:
        connection.execute("INSERT INTO keys VALUES (?, ?)", (key, id))


def _set_back(connection: sqlite3.Connection, now: float) -> None:
    """Let items from the future age from now on: the clock was set back since they were kept."""
    query = "SELECT at > ? FROM items ORDER BY id DESC LIMIT 1"
    if connection.execute(query, (now + _CLOCK_SECONDS,)).fetchone() == (1,):
        connection.execute("UPDATE items SET at = ? WHERE at > ?", (now, now))


def _code(error: CnllmError) -> int:
    """Return SQLite's primary result code behind an error; 0 where there is none."""
    code: int = getattr(error.__cause__, "sqlite_errorcode", 0)
    return code & 0xFF


def _is_damage(error: CnllmError) -> bool:
    return type(error) is _Damage or _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _is_whole(key: Any, digest: Any, data: Any, names: Any, check: Any) -> bool:
    """Whether a row is as it was written, and under a key of its own."""
    if not all(type(value) is bytes for value in (key, digest, data, names, check)) or check != check_of(names, data):
        return False
    return any(names[start : start + 16] == key for start in range(0, len(names), 16))
