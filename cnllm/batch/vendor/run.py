"""Run the rows of a batch through a vendor's batch interface, round by round: pack, submit, poll, fetch.

    VendorRun(…).run(rows)      # what remains is in `leftover`, for single calls

A run that is stopped leaves its jobs at the vendor. The next one polls them before it submits more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from cnllm.batch.budget import Budget
from cnllm.batch.comparison import Bits
from cnllm.batch.job import Job
from cnllm.batch.rows import Row
from cnllm.batch.vendor.answers import VendorJob, read_job
from cnllm.batch.vendor.bodies import poll_plan
from cnllm.batch.vendor.collection import Collector
from cnllm.batch.vendor.exchange import Exchange, Interrupted, UnreadableAnswer
from cnllm.batch.vendor.packing import Packer
from cnllm.batch.vendor.parts import SUBMITTED, Part, Parts
from cnllm.batch.vendor.progress import VendorProgress
from cnllm.batch.vendor.results import fetch_results
from cnllm.batch.vendor.submission import NotSubmitted, Submission, UnsureJob
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, EndpointError, TransportError
from cnllm.registry.flags.batch import Batch

__all__ = ["VendorRun"]

_FIRST_POLL, _LONGEST_POLL, _GROWTH = 0.5, 60.0, 1.4


class VendorRun:
    """One run. `stopped` says why it ended early, with a kind as in `Stop`; None where it did not."""

    def __init__(
        self,
        *,
        batch: Batch,
        probe: Plan,
        exchange: Exchange,
        parts: Parts,
        collector: Collector,
        budget: Budget,
        make_job: Callable[[Row, int], Job],
        must_retake: Callable[[int], bool],
        ask_again: Callable[[int], object],
        setting: int,
        first_seq: int,
        out: Path,
        unsure: str,
        leftover: Bits,
        stopping: asyncio.Event,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self._batch = batch
        self._probe = probe
        self._model = f"{probe.model.name} over {probe.model.protocol}"
        self._exchange = exchange
        self._parts = parts
        self._collector = collector
        self._budget = budget
        self._make_job = make_job
        self._must_retake = must_retake
        self._ask_again = ask_again
        self._setting = setting
        self._first_seq = self._next_seq = first_seq
        self._out = out
        self._unsure = unsure
        self._leftover = leftover
        self._stopping = stopping
        self._sleep = sleep
        self._submission = Submission(batch, probe, exchange, parts, out, sleep)
        self._packer = Packer(batch, setting)
        self._jobs: dict[int, VendorJob] = {}
        self._open: list[Part] = []
        self.stopped: tuple[str, str] | None = None
        self.submitted: list[str] = []
        self.messages: list[str] = []

    @property
    def progress(self) -> VendorProgress:
        """Return where the vendor is."""
        jobs = [self._jobs.get(part.number) for part in self._open]
        served = sum(min(job.finished or 0, part.size) for job, part in zip(jobs, self._open, strict=True) if job)
        words = {job.word for job in jobs if job is not None}
        return VendorProgress(len(self._open), sum(part.size for part in self._open), served, ", ".join(sorted(words)))

    async def run(self, chunks: AsyncIterator[Sequence[Row]]) -> None:
        """Go on with the jobs of earlier runs, then submit the rows that are left, until all came back."""
        rows = _single(chunks)
        try:
            await self._settle()
            held: Job | None = None
            has_more = True
            while has_more and self.stopped is None:
                held, has_more = await self._submit(rows, held)
                waited = bool(self._open)
                await self._poll()
                if has_more and not waited and self.stopped is None:
                    self.stopped = ("cap", "the rest does not fit below the cap")
        except Interrupted:
            self._drop()
            self._stop_if_asked()
        finally:
            await rows.aclose()

    # ── jobs of earlier runs ─────────────────────────────────────────────────

    async def _settle(self) -> None:
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
                for number in self._release(part):
                    self._ask_again(number)
            else:
                self._open.append(found)

    def _release(self, part: Part) -> list[int]:
        """Free the rows of a part, and return their lines."""
        rows = self._parts.release(part)
        for row in rows:
            self._budget.settle(row.cost, 0)
        return [row.number for row in rows]

    # ── submitting ───────────────────────────────────────────────────────────

    async def _submit(self, rows: AsyncIterator[Row], held: Job | None) -> tuple[Job | None, bool]:
        """Pack rows into parts and submit them. Return the row that did not fit, and whether rows are left."""
        while not self._stopping.is_set() and self.stopped is None:
            job, held = held, None
            if job is None:
                row = await anext(rows, None)
                if row is None:
                    await self._submit_part()
                    return None, False
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
                return job, True
            if not self._packer.has_room(size):
                await self._submit_part()
            self._budget.reserve(job.reserved)
            self._packer.add(job, size, retake=self._must_retake(job.row.number))
        self._drop()
        self._stop_if_asked()
        return held, True

    def _drop(self) -> None:
        """Forget the rows of a part that is not submitted."""
        for packed in self._packer.take():
            self._budget.settle(packed.cost, 0)

    async def _submit_part(self) -> None:
        """Store a part, and bring it to the vendor."""
        if self._packer.is_too_small:
            for packed in self._packer.rows:
                self._leftover.add(packed.number)
            self._drop()
            return
        rows = self._packer.take()
        marks, costs = [packed.mark for packed in rows], [packed.cost for packed in rows]
        part, doubled = self._parts.intend(self._model, self._setting, marks, costs, self._first_seq)
        for index in doubled:
            self._budget.settle(rows[index].cost, 0)
            self._leftover.add(rows[index].number)
        kept = [packed for index, packed in enumerate(rows) if index not in set(doubled)]
        try:
            part = await self._submission.submit(part, kept)
        except NotSubmitted as failure:
            self._release(part)
            error = failure.error
            self.stopped = ("endpoint", f"the vendor took no job: {type(error).__name__}: {error}")
            return
        self._open.append(part)
        self.submitted.append(part.job or "")

    # ── polling ──────────────────────────────────────────────────────────────

    async def _poll(self) -> None:
        """Wait for all jobs, and fetch what they brought."""
        pause = _FIRST_POLL
        while self._open and not self._stop_if_asked():
            for part in list(self._open):
                job = await self._ask(part)
                if job is None:
                    continue
                self._jobs[part.number] = job
                if job.state != "pending":
                    await self._finish(part, job)
                    self._open.remove(part)
                    pause = _FIRST_POLL
                if self._stop_if_asked():
                    return
            if self._open:
                await self._sleep(pause)
                pause = min(pause * _GROWTH, _LONGEST_POLL)

    async def _ask(self, part: Part) -> VendorJob | None:
        """Return the job of a part; None where the vendor cannot be reached now."""
        assert part.job is not None
        try:
            return read_job(self._batch, await self._exchange.repeat(poll_plan(self._batch, self._probe, part.job)))
        except TransportError:
            return None
        except EndpointError as error:
            if error.retryable:
                return None
            error.hint = f"job {part.job} holds {part.size:,} rows; is it the key of the same account?"
            raise

    async def _finish(self, part: Part, job: VendorJob) -> None:
        """Take in a job that has ended."""
        if job.state == "failed":
            self._fail(part, job)
            return
        results = await fetch_results(self._exchange, self._batch, self._probe, part, job, self._out)
        try:
            if job.state == "done" and not results.lines:
                raise UnreadableAnswer(
                    f"job {job.id} is {job.word}, and has no results for its {part.size:,} rows",
                    hint="run the same command again later: it looks for them again",
                )
            if job.state == "cancelled":
                self.stopped = self.stopped or ("vendor", f"job {job.id} was cancelled at the vendor")
            await self._collector.collect(part, results, job.state)
        finally:
            results.close()

    def _fail(self, part: Part, job: VendorJob) -> None:
        """Free the rows of a job that the vendor refused as a whole, and say which line was at fault."""
        rows = {row.position: row.number for row in self._parts.rows_of(part)}
        reasons = []
        for error in job.errors[:3]:
            line = rows.get(error.line) if error.line is not None else None
            code = f" ({error.code})" if error.code and error.code not in error.message else ""
            place = f"line {error.line} of the job" if error.line is not None else ""
            place += f", which is row {line} of the input" if line is not None else ""
            reasons.append(f"{place}: {error.message}{code}" if place else f"{error.message}{code}")
        self._release(part)
        words = "; ".join(reasons) or f"it says only: {job.word}"
        self.stopped = self.stopped or ("vendor", f"the vendor refused job {job.id} as a whole: {words}")

    # ── stopping ─────────────────────────────────────────────────────────────

    def stop_now(self) -> None:
        """Say that the run ended in the middle of something."""
        self._stopping.set()
        self._stop_if_asked()

    def _stop_if_asked(self) -> bool:
        """Whether the run was interrupted; the reason says where its jobs are."""
        if self._stopping.is_set() and self.stopped is None:
            reason = "it was interrupted"
            if self._open:
                count, rows = len(self._open), sum(part.size for part in self._open)
                reason += f"; {count} job{'s' if count > 1 else ''} with {rows:,} rows go on at the vendor"
            self.stopped = ("interrupted", reason)
        return self._stopping.is_set()


async def _single(chunks: AsyncIterator[Sequence[Row]]) -> AsyncGenerator[Row]:
    async for chunk in chunks:
        for row in chunk:
            yield row
