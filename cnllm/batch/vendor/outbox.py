"""Bring rows to the vendor: pack them into parts and submit these, and go on with the parts of earlier runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

from cnllm.batch.jobs import Job
from cnllm.batch.rows import InputRow
from cnllm.batch.state import RowMark
from cnllm.batch.vendor.codec import encode_row
from cnllm.batch.vendor.context import VendorContext
from cnllm.batch.vendor.parts import SUBMITTED, JobPart
from cnllm.batch.vendor.submission import NotSubmitted, Packed, UnsureJob, settle_part, submit_part
from cnllm.errors import CnllmError

__all__ = ["Outbox"]

_MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of a part, whatever the vendor takes: it is held in memory while it is sent."""
_MARGIN = 1024  # bytes for what stands around the rows
_MOST_ROWS = 50_000
_LONGEST_ID = "0123456789abcdef-0000000"


class Outbox:
    """The parts at the vendor are in `open`. `refusal` is why the vendor takes no more; None while it does."""

    def __init__(self, context: VendorContext) -> None:
        self._context = context
        self._session = session = context.session
        self._budget = session.budget
        self._parts = session.parts
        self._first_seq = self._next_seq = session.state.last_seq() + 1
        self._batch = batch = context.exchange.batch
        self._most_rows = min(batch.max_rows or _MOST_ROWS, _MOST_ROWS)
        self._most_bytes = min(batch.max_bytes or _MOST_BYTES, _MOST_BYTES) - _MARGIN
        self._packed: list[Packed] = []  # the part that is being filled
        self._bytes = 0
        probe = context.exchange.probe
        self._model = f"{probe.model.name} over {probe.model.protocol}"
        self._held: Job | None = None  # a row that waits for room below the cap
        self.open: list[JobPart] = []
        self.refusal: str | None = None
        self.messages: list[str] = []
        self.cap_reason = ""

    async def settle(self) -> None:
        """Find the jobs of parts that an earlier run left, and free the rows of those without one."""
        for part in self._parts.open_parts():
            if part.model != self._model:
                raise CnllmError(
                    f"{part.size:,} rows are in job {part.job or part.mark} of {part.model}, and this run is one of "
                    f"{self._model}",
                    hint=f"-m {part.model.partition(' ')[0]} goes on with it; another -o OUT asks all rows anew",
                )
            found: JobPart | None = part
            if part.state != SUBMITTED:
                try:
                    found = await settle_part(self._context.exchange, self._parts, part)
                except UnsureJob as error:
                    if self._session.settings.unsure == "skip":
                        self.messages.append(f"{error}; its rows were left unanswered")
                        continue
                    self.messages.append(f"{error}; its rows are asked again")
                    found = None
            if found is None:
                for number in self.release(part):
                    self._session.comparison.ask.add(number)
            else:
                self.open.append(found)

    def release(self, part: JobPart) -> list[int]:
        """Free the rows of a part, and return their lines."""
        rows = self._parts.release(part)
        for row in rows:
            self._budget.settle(row.cost, 0)
        return [row.number for row in rows]

    async def submit(self, rows: AsyncIterator[InputRow]) -> bool:
        """Pack rows into parts and submit them, as far as the cap permits. Return whether rows are left."""
        while not self._context.stopping.is_set() and self.refusal is None:
            job, self._held = self._held, None
            if job is None:
                row = await anext(rows, None)
                if row is None:
                    await self._submit_part()
                    return False
                job = self._context.jobs.make(row, self._next_seq)
                self._next_seq += 1
            size = 0 if job.outcome is not None else self._size_of(job)
            if not 0 < size <= min(self._batch.max_row_bytes or size, self._most_bytes):  # nothing, or too much
                self._context.leftover.add(job.row.number)
                continue
            if not self._budget.has_room(job.reserved):
                await self._submit_part()
                self._held = job
                self.cap_reason = self._budget.refusal(job.reserved)
                return True
            if len(self._packed) >= self._most_rows or self._bytes + size > self._most_bytes:
                await self._submit_part()
            self._budget.reserve(job.reserved)
            self._pack(job, size)
        self.drop()
        return True

    def _size_of(self, job: Job) -> int:
        """Return the bytes of a row."""
        assert self._batch.row is not None
        return len(encode_row(self._batch.row, _LONGEST_ID, job.prepared.plan.content)) + 1

    def _pack(self, job: Job, size: int) -> None:
        """Put a row into the part."""
        row, setting = job.row, self._session.number
        retake = row.number <= self._session.comparison.scanned
        mark = RowMark(job.seq, job.digest, row.number, row.key, job.identity, setting, None, retake=retake)
        self._packed.append(Packed(mark, job.prepared.plan.content, job.reserved))
        self._bytes += size

    def _take(self) -> list[Packed]:
        """Return the rows of the part, and begin another."""
        rows, self._packed, self._bytes = self._packed, [], 0
        return rows

    def drop(self) -> None:
        """Forget the rows of a part that is not submitted."""
        for packed in self._take():
            self._budget.settle(packed.cost, 0)

    async def _submit_part(self) -> None:
        """Store a part, and bring it to the vendor."""
        rows = self._take()
        if not rows:
            return
        marks, costs = [packed.mark for packed in rows], [packed.cost for packed in rows]
        part, doubled = self._parts.intend(self._model, self._session.number, marks, costs, self._first_seq)
        for index in doubled:
            self._budget.settle(rows[index].cost, 0)
            self._context.leftover.add(rows[index].mark.number)
        kept = [packed for index, packed in enumerate(rows) if index not in set(doubled)]
        if not kept:
            self.release(part)
            return
        try:
            part = await submit_part(self._context.exchange, self._parts, part, kept)
        except NotSubmitted as failure:
            self.release(part)
            error = failure.error
            self.refusal = f"the vendor took no job: {type(error).__name__}: {error}"
            return
        self.open.append(part)
