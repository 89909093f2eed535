"""Bring rows to the vendor: pack them into parts and submit these, and go on with the parts of earlier runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

from cnllm.batch.jobs import Job
from cnllm.batch.rows import InputRow
from cnllm.batch.vendor.context import VendorContext
from cnllm.batch.vendor.parts import SUBMITTED, JobPart
from cnllm.batch.vendor.submission import NotSubmitted, Packer, UnsureJob, settle_part, submit_part
from cnllm.errors import CnllmError

__all__ = ["Outbox"]


class Outbox:
    """The parts at the vendor are in `open`. `refusal` is why the vendor takes no more; None while it does."""

    def __init__(self, context: VendorContext) -> None:
        self._context = context
        self._session = session = context.session
        self._budget = session.budget
        self._parts = session.parts
        self._first_seq = self._next_seq = session.state.last_seq() + 1
        self._packer = Packer(context.exchange.batch, session.number)
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
            size = 0 if job.outcome is not None else self._packer.size_of(job)
            if not size or not self._packer.fits_alone(size):  # nothing to ask, or too much for a job
                self._context.leftover.add(job.row.number)
                continue
            if not self._budget.has_room(job.reserved):
                await self._submit_part()
                self._held = job
                self.cap_reason = self._budget.refusal(job.reserved)
                return True
            if not self._packer.has_room(size):
                await self._submit_part()
            self._budget.reserve(job.reserved)
            self._packer.add(job, size, retake=job.row.number <= self._session.comparison.scanned)
        self.drop()
        return True

    def drop(self) -> None:
        """Forget the rows of a part that is not submitted."""
        for packed in self._packer.take():
            self._budget.settle(packed.cost, 0)

    async def _submit_part(self) -> None:
        """Store a part, and bring it to the vendor."""
        rows = self._packer.take()
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
