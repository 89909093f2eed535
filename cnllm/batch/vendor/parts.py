"""The parts of an output in its state file: one for each job at the vendor, with the rows that wait for it.

A part is stored before anything of it is sent. Its rows are unanswered rows of the state; they wait for the part, and
are not asked otherwise until it is fetched or released.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import astuple, replace

from cnllm.batch.comparison import Bits
from cnllm.batch.state import RETRYABLE, BatchState, RowMark

__all__ = ["FETCHED", "INTENT", "SUBMITTED", "UPLOADED", "JobPart", "VendorParts", "WaitingRow"]

INTENT, UPLOADED, SUBMITTED, FETCHED = "intent", "uploaded", "submitted", "fetched"
"""The states of a part: stored; its file is at the vendor, so that it may be submitted; its job is known; finished."""

_COLUMNS = "number, mark, model, setting, created, size, state, file, job"
_MARK_BYTES = 8


class JobPart(Struct, frozen=True, array_like=True):
    """A part. `mark` is what its job carries, `file` the vendor's id of its upload, `job` that of its job."""

    number: int
    mark: str
    model: str
    setting: int
    created: float
    size: int
    state: str
    file: str | None = None
    job: str | None = None

    def row_id(self, position: int) -> str:
        """Return the id of a row in the job; positions count from 1."""
        return f"{self.mark}-{position}"

    def position_of(self, id: str) -> int | None:
        """Return the position of the row with an id; None for an id of another part."""
        mark, _, digits = id.rpartition("-")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(self.size))
        return int(digits) if mark == self.mark and is_number else None


class WaitingRow(Struct, frozen=True, array_like=True):
    """A row that waits for a part. `cost` is the most that it can cost, in units; `place` that of an earlier line."""

    position: int
    seq: int
    id: bytes
    number: int
    identity: bytes | None
    cost: int | None
    attempts: int
    place: int | None


class VendorParts:
    """The parts of a state."""

    def __init__(self, state: BatchState) -> None:
        self._state = state
        with state.writing():  # a crash may have left lines in the output whose rows still wait here
            state.execute("DELETE FROM part_rows WHERE seq NOT IN (SELECT seq FROM rows WHERE state = 0)")

    def open_parts(self) -> list[JobPart]:
        """Return the parts that are not finished, the oldest first."""
        query = f"SELECT {_COLUMNS} FROM parts WHERE state != ? ORDER BY number"
        return [JobPart(*row) for row in self._state.execute(query, FETCHED)]

    def known_jobs(self) -> frozenset[str]:
        """Return the ids of the jobs of all parts, finished ones too."""
        return frozenset(job for (job,) in self._state.execute("SELECT job FROM parts WHERE job IS NOT NULL"))

    def waiting(self) -> Bits:
        """Return the rows that wait, by their `seq`."""
        found = Bits()
        for (seq,) in self._state.stream("SELECT seq FROM part_rows"):
            found.add(seq)
        return found

    def highest_cost(self) -> int:
        """Return the most that all waiting rows can cost, in units."""
        return int(self._state.execute("SELECT total(cost) FROM part_rows")[0][0])

    def rows_of(self, part: JobPart) -> list[WaitingRow]:
        """Return the rows that wait for a part, in their order."""
        query = (
            "SELECT position, part_rows.seq, rows.id, rows.number, rows.identity, part_rows.cost, rows.attempts, place "
            "FROM part_rows JOIN rows ON rows.seq = part_rows.seq WHERE part = ? ORDER BY position"
        )
        return [WaitingRow(*row) for row in self._state.execute(query, part.number)]

    # ── steps of a part, each on the disk when it returns ────────────────────

    def intend(
        self, model: str, setting: int, marks: Sequence[RowMark], costs: Sequence[int | None], first_seq: int
    ) -> tuple[JobPart, list[int]]:
        """Store a part and mark its rows. Return it, and the indexes of the rows whose ids earlier rows have."""
        state = self._state
        created, mark = time.time(), secrets.token_hex(_MARK_BYTES)
        doubled: list[int] = []
        with state.writing():
            found = state.mark(marks, first_seq)
            number = int(state.execute("SELECT coalesce(max(number), 0) + 1 FROM parts")[0][0])
            position = 0
            for index, (row_mark, record) in enumerate(zip(marks, found, strict=True)):
                if record is not None and not row_mark.takes(record, first_seq):
                    doubled.append(index)
                    continue
                position += 1
                seq = row_mark.seq if record is None else record.seq
                state.execute("INSERT INTO part_rows VALUES (?, ?, ?, ?)", seq, number, position, costs[index])
            part = JobPart(number, mark, model, setting, created, position, INTENT)
            state.execute(f"INSERT INTO parts ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)", *astuple(part))
        return part, doubled

    def advance(self, part: JobPart, state: str, *, file: str | None = None, job: str | None = None) -> JobPart:
        """Store the next state of a part, and return the part as it is now."""
        after = replace(part, state=state, file=file or part.file, job=job or part.job)
        with self._state.writing():
            self._state.execute(
                "UPDATE parts SET state=?, file=?, job=? WHERE number=?", state, after.file, after.job, part.number
            )
        return after

    def remove_rows(self, seqs: Sequence[int]) -> None:
        """Let rows wait no longer. Call it in `writing`, with what became of them."""
        self._state.execute_many("DELETE FROM part_rows WHERE seq = ?", [(seq,) for seq in seqs])

    def ask_again(self, seqs: Sequence[int]) -> None:
        """Let rows be asked again: they came back without an answer. Call it in `writing`."""
        self._state.execute_many("UPDATE rows SET state = ? WHERE seq = ?", [(RETRYABLE, seq) for seq in seqs])
        self.remove_rows(seqs)

    def release(self, part: JobPart) -> list[WaitingRow]:
        """Finish a part whose rows were not served: they are as if they had not been sent. Return them."""
        rows, state = self.rows_of(part), self._state
        with state.writing():
            state.forget([row.seq for row in rows if row.place is None])
            self.ask_again([row.seq for row in rows])
            state.execute("UPDATE parts SET state = ? WHERE number = ?", FETCHED, part.number)
        return rows
