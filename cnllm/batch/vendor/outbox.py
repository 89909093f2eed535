"""Bring rows to the vendor: pack them into parts and submit these, and go on with the parts of earlier runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from cnllm.batch.budget import CAP_REACHED, Budget
from cnllm.batch.comparison import Bits
from cnllm.batch.jobs import Job
from cnllm.batch.rows import Row
from cnllm.batch.vendor.packing import Packer
from cnllm.batch.vendor.parts import SUBMITTED, Part, Parts
from cnllm.batch.vendor.submission import NotSubmitted, Submission, UnsureJob
from cnllm.errors import CnllmError

__all__ = ["Outbox"]


class Outbox:
    """The parts at the vendor are in `open`. `refusal` is why the vendor takes no more; None while it does.

    `make_job` turns a row into a job, `must_retake` says whether the state may know a line, `ask_again` gets the lines
    whose part was never submitted. `leftover` gets the lines that a job cannot hold.
    """

    def __init__(
        self,
        *,
        model: str,
        setting: int,
        first_seq: int,
        parts: Parts,
        packer: Packer,
        submission: Submission,
        budget: Budget,
        make_job: Callable[[Row, int], Job],
        must_retake: Callable[[int], bool],
        ask_again: Callable[[int], object],
        unsure: str,
        leftover: Bits,
        stopping: asyncio.Event,
    ) -> None:
        self._model = model
        self._setting = setting
        self._first_seq = self._next_seq = first_seq
        self._parts = parts
        self._packer = packer
        self._submission = submission
        self._budget = budget
        self._make_job = make_job
        self._must_retake = must_retake
        self._ask_again = ask_again
        self._unsure = unsure
        self._leftover = leftover
        self._stopping = stopping
        self._held: Job | None = None  # a row that waits for room below the cap
        self.open: list[Part] = []
        self.refusal: str | None = None
        self.messages: list[str] = []
        self.cap_reason = CAP_REACHED

    async def settle(self) -> None:
        """Find the jobs of parts that an earlier run left, and free the rows of those without one."""
        for part in self._parts.open_parts():
            if part.model != self._model:
                raise CnllmError(
                    f"{part.size:,} rows are in job {part.job or part.mark} of {part.model}, and this run is one of "
                    f"{self._model}",
                    hint=f"-m {part.model.partition(' ')[0]} goes on with it; another -o OUT asks all rows anew",
                )
            found: Part | None = part
            if part.state != SUBMITTED:
                try:
                    found = await self._submission.settle(part)
                except UnsureJob as error:
                    if self._unsure == "skip":
                        self.messages.append(f"{error}; its rows were left unanswered")
                        continue
                    self.messages.append(f"{error}; its rows are asked again")
                    found = None
            if found is None:
                for number in self.release(part):
                    self._ask_again(number)
            else:
                self.open.append(found)

    def release(self, part: Part) -> list[int]:
        """Free the rows of a part, and return their lines."""
        rows = self._parts.release(part)
        for row in rows:
            self._budget.settle(row.cost, 0)
        return [row.number for row in rows]

    async def submit(self, rows: AsyncIterator[Row]) -> bool:
        """Pack rows into parts and submit them, as far as the cap permits. Return whether rows are left."""
        while not self._stopping.is_set() and self.refusal is None:
            job, self._held = self._held, None
            if job is None:
                row = await anext(rows, None)
                if row is None:
                    await self._submit_part()
                    return False
                job = self._make_job(row, self._next_seq)
                self._next_seq += 1
            if job.outcome is not None:  # nothing to ask
                self._leftover.add(job.row.number)
                continue
            size = self._packer.size_of(job)
            if not self._packer.fits_alone(size):
                self._leftover.add(job.row.number)
                continue
            if not self._budget.has_room(job.reserved):
                await self._submit_part()
                self._held = job
                self.cap_reason = self._budget.refusal(job.reserved)
                return True
            if not self._packer.has_room(size):
                await self._submit_part()
            self._budget.reserve(job.reserved)
            self._packer.add(job, size, retake=self._must_retake(job.row.number))
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
        part, doubled = self._parts.intend(self._model, self._setting, marks, costs, self._first_seq)
        for index in doubled:
            self._budget.settle(rows[index].cost, 0)
            self._leftover.add(rows[index].number)
        kept = [packed for index, packed in enumerate(rows) if index not in set(doubled)]
        if not kept:
            self.release(part)
            return
        try:
            part = await self._submission.submit(part, kept)
        except NotSubmitted as failure:
            self.release(part)
            error = failure.error
            self.refusal = f"the vendor took no job: {type(error).__name__}: {error}"
            return
        self.open.append(part)
