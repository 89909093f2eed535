"""The state of a batch: an SQLite file beside its output, `OUT.state`, which one process at a time may have open.

The output file is the truth of what is finished. This file holds what the output cannot: which requests were sent and
have no answer, what they may cost, and where each line stands. Everything but that is made anew from the output where
this file is missing.

SQLite's exclusive mode is the lock of the writer: it ends with the process, whatever ends it. A commit is on the disk
when it returns (`synchronous = FULL`), because a request may be sent only after its mark cannot be lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.errors import CnllmError
from cnllm.system.sqlite import Database, is_busy, read_mark

__all__ = ["DONE", "FAILED", "RESULT", "RETRYABLE", "SENT", "BatchState", "Finish", "RowMark", "RowRecord"]

SENT, DONE, FAILED, RETRYABLE = 0, 1, 2, 3
"""The states of a row: sent and unanswered; answered; failed for good; failed, and may succeed later."""

_MARK = 0x636E6C62  # "cnlb", SQLite's application_id
_VERSION = 2
_BUSY_SECONDS = 0.2
_TABLES = """
CREATE TABLE IF NOT EXISTS settings (
  number INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL UNIQUE, data TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS rows (
  seq INTEGER PRIMARY KEY, id BLOB NOT NULL, number INTEGER NOT NULL, key BLOB, identity BLOB, setting INTEGER,
  state INTEGER NOT NULL, place INTEGER, length INTEGER, cost INTEGER, attempts INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS rows_by_id ON rows (id);
CREATE INDEX IF NOT EXISTS rows_unanswered ON rows (seq) WHERE state = 0;
CREATE INDEX IF NOT EXISTS rows_failed ON rows (state, place) WHERE state >= 2;
CREATE TABLE IF NOT EXISTS superseded (place INTEGER PRIMARY KEY, length INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS parts (
  number INTEGER PRIMARY KEY, mark TEXT NOT NULL UNIQUE, model TEXT NOT NULL, setting INTEGER NOT NULL,
  created REAL NOT NULL, size INTEGER NOT NULL, state TEXT NOT NULL, file TEXT, job TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS part_rows (
  seq INTEGER PRIMARY KEY, part INTEGER NOT NULL, position INTEGER NOT NULL, cost INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS part_rows_by_part ON part_rows (part, position);
"""
_INSERT = (
    "INSERT INTO rows (seq, id, number, key, identity, setting, state, cost, attempts) VALUES (?,?,?,?,?,?,0,?,0) "
    "ON CONFLICT (id) DO NOTHING"
)
_MARK_AGAIN = "UPDATE rows SET number=?, key=?, identity=?, setting=?, state=0, cost=? WHERE seq=?"
_SUPERSEDE = "INSERT OR IGNORE INTO superseded SELECT place, length FROM rows WHERE seq = ? AND place IS NOT NULL"
RESULT = ("state", "place", "length", "cost", "attempts")
"""The columns of what became of a row."""
_COLUMNS = "seq, id, number, key, identity, setting, state, place, length, cost, attempts"


class RowRecord(Struct, frozen=True, array_like=True):
    """A row of the state. `place` and `length` are those of its line in the output, in bytes; None: it has none.

    `cost` is in units of money: what it did cost, or while it is unanswered the most it can cost; None is unknown.
    """

    seq: int
    id: bytes
    number: int
    key: bytes | None
    identity: bytes | None
    setting: int | None
    state: int
    place: int | None
    length: int | None
    cost: int | None
    attempts: int


class RowMark(Struct, frozen=True):
    """A request that is about to be sent.

    `again`: this run marked the row before. `retake`: an earlier run may have.
    """

    seq: int
    id: bytes
    number: int
    key: bytes
    identity: bytes | None
    setting: int
    cost: int | None
    again: bool = False
    retake: bool = False

    def takes(self, record: RowRecord, first_seq: int) -> bool:
        """Whether the line may ask a row that is there: it did, or the row is its own, or from before `first_seq`."""
        return self.again or (self.retake and (record.seq < first_seq or record.number == self.number))


class Finish(Struct, frozen=True):
    """A row that is finished: its line, and what the state keeps of it. `again`: it may have an earlier line."""

    seq: int
    line: bytes
    state: int
    cost: int | None
    attempts: int
    again: bool = False


class BatchState(Database):
    """An open state file. It may be used by one thread at a time. Raises `CnllmError` where it cannot be used."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _BUSY_SECONDS, "choose another -o OUT", is_exclusive=True)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Take the lock of a file, and create the tables that it lacks."""
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("BEGIN IMMEDIATE")  # takes the lock
        with connection:
            version, is_ours = read_mark(connection, _MARK)
            if not is_ours:
                raise CnllmError(f"{self.path} is a database of another program", hint="choose another -o OUT")
            if version > _VERSION:
                raise CnllmError(f"{self.path} was written by a newer cnllm", hint="upgrade cnllm")
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_MARK}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")

    # ── facts ────────────────────────────────────────────────────────────────

    def fact(self, name: str) -> Any:
        """Return a stored value; None where there is none."""
        rows = self.execute("SELECT value FROM facts WHERE name = ?", name)
        return msgspec.json.decode(rows[0][0]) if rows else None

    def set_facts(self, **facts: Any) -> None:
        """Store values, each under its name."""
        with self.writing():
            self.put_facts(facts)

    def put_facts(self, facts: dict[str, Any]) -> None:
        """Store values by name. Call it in `writing`."""
        rows = [(name, msgspec.json.encode(value).decode()) for name, value in facts.items()]
        self.execute_many("INSERT OR REPLACE INTO facts VALUES (?, ?)", rows)

    def setting(self, fingerprint: bytes, data: Any) -> int:
        """Return the number of a setting, stored now if it is new."""
        with self.writing():
            self.execute(
                "INSERT OR IGNORE INTO settings (fingerprint, data) VALUES (?, ?)",
                fingerprint,
                msgspec.json.encode(data).decode(),
            )
            return int(self.execute("SELECT number FROM settings WHERE fingerprint = ?", fingerprint)[0][0])

    def settings(self) -> dict[int, Any]:
        """Return the settings of all runs so far, by number."""
        return {number: msgspec.json.decode(data) for number, data in self.execute("SELECT number, data FROM settings")}

    # ── rows ─────────────────────────────────────────────────────────────────

    def counts(self) -> dict[int, int]:
        """Return the number of rows in each state."""
        counts = {SENT: 0, DONE: 0, FAILED: 0, RETRYABLE: 0}
        counts[SENT] = self.execute("SELECT count(*) FROM rows WHERE state = 0")[0][0]
        counts |= dict(self.execute("SELECT state, count(*) FROM rows WHERE state >= 2 GROUP BY state"))
        counts[DONE] = self.execute("SELECT count(*) FROM rows")[0][0] - sum(counts.values())
        return counts

    def count(self) -> int:
        """Return the number of rows."""
        return sum(self.counts().values())

    def last_seq(self) -> int:
        """Return the highest number of a row; 0 where there is none."""
        return int(self.execute("SELECT coalesce(max(seq), 0) FROM rows")[0][0])

    def raw_records(self, after: int = 0) -> Iterator[tuple[Any, ...]]:
        """Return seq, number, key, setting and state of the rows after one."""
        return self.stream("SELECT seq, number, key, setting, state FROM rows WHERE seq > ? ORDER BY seq", after)

    def find(self, id: bytes) -> RowRecord | None:
        """Return the row of an id; None where it is new."""
        rows = self.execute(f"SELECT {_COLUMNS} FROM rows WHERE id = ?", id)
        return RowRecord(*rows[0]) if rows else None

    def record(self, seq: int) -> RowRecord:
        """Return the row of a number."""
        return RowRecord(*self.execute(f"SELECT {_COLUMNS} FROM rows WHERE seq = ?", seq)[0])

    def update_rows(self, columns: Sequence[str], values: Iterable[Sequence[Any]]) -> None:
        """Set columns of rows; each sequence ends with the row's `seq`. Call it in `writing`."""
        assignments = ", ".join(f"{name}=?" for name in columns)
        self.execute_many(f"UPDATE rows SET {assignments} WHERE seq=?", values)

    # ── the journal's writes, inside of `writing` ────────────────────────────

    def mark(self, marks: Sequence[RowMark], first_seq: int) -> list[RowRecord | None]:
        """Store that requests are about to be sent. Return for each the row as it was; None for a new one.

        A row that is there stays as it is where the mark does not take it: another line of this run, whose rows begin
        with `first_seq`, has its id.
        """
        found: list[RowRecord | None] = []
        with self.using() as connection:
            for mark in marks:
                if not mark.again:
                    values = (mark.seq, mark.id, mark.number, mark.key, mark.identity, mark.setting, mark.cost)
                    if connection.execute(_INSERT, values).rowcount:
                        found.append(None)
                        continue
                record = self.record(mark.seq) if mark.again else self.find(mark.id)
                assert record is not None
                if mark.takes(record, first_seq):
                    changed = (mark.number, mark.key, mark.identity, mark.setting, mark.cost, record.seq)
                    connection.execute(_MARK_AGAIN, changed)
                found.append(record)
        return found

    def finish(self, finishes: Sequence[Finish], places: Sequence[int]) -> None:
        """Store what became of rows, whose lines stand at these places. Earlier lines of the rows are superseded."""
        if again := [(finish.seq,) for finish in finishes if finish.again]:
            self.execute_many(_SUPERSEDE, again)
        rows = zip(finishes, places, strict=True)
        self.update_rows(RESULT, [(f.state, place, len(f.line), f.cost, f.attempts, f.seq) for f, place in rows])

    def drop(self, seqs: Sequence[int]) -> None:
        """Remove rows that are no longer in the input, and their lines from the output at its next rewriting."""
        self.execute_many(_SUPERSEDE, [(seq,) for seq in seqs])
        self.forget(seqs)

    def faults(self) -> list[tuple[int, bytes, int]]:
        """Return seq, id and line of the rows that were no requests."""
        return self.execute("SELECT seq, id, number FROM rows WHERE identity IS NULL AND state >= 2")

    def restore(self, records: Sequence[RowRecord]) -> None:
        """Put rows back as they were before they were marked: they were not sent."""
        self.update_rows(
            ("number", "key", "identity", "setting", "state", "cost"),
            [(r.number, r.key, r.identity, r.setting, r.state, r.cost, r.seq) for r in records],
        )

    def forget(self, seqs: Iterable[int]) -> None:
        """Remove rows that were marked for the first time, and not sent."""
        self.execute_many("DELETE FROM rows WHERE seq = ?", [(seq,) for seq in seqs])

    # ── SQLite ───────────────────────────────────────────────────────────────

    def execute_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run a statement for many values."""
        with self.using() as connection:
            connection.executemany(statement, values)

    def stream(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, of which there may be more than memory holds."""
        with self.using() as connection:
            cursor = connection.execute(query, values)
        while True:
            with self.using():
                chunk = cursor.fetchmany(5000)
            if not chunk:
                return
            yield from chunk

    def _readable(self, error: sqlite3.Error | OSError) -> CnllmError:
        if isinstance(error, OSError):
            return super()._readable(error)
        if isinstance(error, sqlite3.OperationalError):
            if is_busy(error):
                output = str(self.path).removesuffix(".state")
                return CnllmError(f"another process is writing {output}", hint="wait for it, or choose another -o OUT")
            hint = f"free disk space in {self.path.parent}, then run the same command again: it goes on"
            return CnllmError(f"{self.path}: {error}", hint=hint)
        return CnllmError(
            f"{self.path} cannot be read: {error}",
            hint="move it away: it is made anew from OUT, without the marks of unanswered requests",
        )
