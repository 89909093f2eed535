"""Run the rows of a batch through a vendor's batch interface, round by round: pack, submit, poll, fetch.

    VendorRun(…).run(rows)      # what remains is in `leftover`, for single calls

A run that is stopped leaves its jobs at the vendor. The next one polls them before it submits more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from cnllm.batch.rows import Row
from cnllm.batch.vendor.answers import VendorJob, read_job
from cnllm.batch.vendor.bodies import poll_plan
from cnllm.batch.vendor.collection import Collector
from cnllm.batch.vendor.exchange import Interrupted, UnreadableAnswer, VendorConnection
from cnllm.batch.vendor.outbox import Outbox
from cnllm.batch.vendor.parts import Part, Parts
from cnllm.batch.vendor.progress import VendorProgress
from cnllm.batch.vendor.results import fetch_results
from cnllm.engine.encode.plan import Plan
from cnllm.errors import EndpointError, TransportError
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
        exchange: VendorConnection,
        parts: Parts,
        outbox: Outbox,
        collector: Collector,
        out: Path,
        stopping: asyncio.Event,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self._batch = batch
        self._probe = probe
        self._exchange = exchange
        self._parts = parts
        self._outbox = outbox
        self._collector = collector
        self._out = out
        self._stopping = stopping
        self._sleep = sleep
        self._jobs: dict[int, VendorJob] = {}
        self._open = outbox.open
        self.stopped: tuple[str, str] | None = None

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
            await self._outbox.settle()
            has_more = True
            while has_more and self.stopped is None:
                has_more = await self._outbox.submit(rows)
                if self._outbox.refusal is not None:
                    self.stopped = ("endpoint", self._outbox.refusal)
                waited = bool(self._open)
                await self._poll()
                if has_more and not waited and self.stopped is None:
                    self.stopped = ("cap", self._outbox.cap_reason)
        except Interrupted:
            self._outbox.drop()
            self._stop_if_asked()
        finally:
            await rows.aclose()

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
        plan = poll_plan(self._batch, self._probe, part.job)
        try:
            job = read_job(self._batch, await self._exchange.repeat(plan))
        except TransportError:
            return None
        except EndpointError as error:
            if error.retryable:
                return None
            error.hint = f"job {part.job} holds {part.size:,} rows; is it the key of the same account?"
            raise
        if job is None:
            hint = "check batch.job in the registry; the job goes on at the vendor"
            raise UnreadableAnswer(f"{plan.url}: the answer is no job", hint=hint)
        return job

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
        self._outbox.release(part)
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
