"""The part of a run that a vendor's batch interface does, round by round: pack, submit, poll, fetch.

A run that is stopped leaves its jobs at the vendor. The next one polls them before it submits more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from msgspec.structs import replace

from cnllm.batch.comparison import Bits
from cnllm.batch.jobs import JobMaker
from cnllm.batch.lanes import Lane
from cnllm.batch.pricing import request_price
from cnllm.batch.report import Tally, VendorProgress
from cnllm.batch.rows import InputRow
from cnllm.batch.settings import BatchSettings
from cnllm.batch.vendor.codec import VendorJob, poll_plan
from cnllm.batch.vendor.exchange import (
    Interrupted,
    SessionParts,
    UnreadableAnswer,
    VendorConnection,
    VendorContext,
    failure_reason,
)
from cnllm.batch.vendor.interface import discounted_model, discounted_price, require_interface
from cnllm.batch.vendor.outbox import Outbox
from cnllm.batch.vendor.parts import JobPart
from cnllm.batch.vendor.results import ResultCollector, fetch_results
from cnllm.client.base import is_httpx_transport
from cnllm.client.credentials import key_for
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, EndpointError, TransportError
from cnllm.simulator.transport import AsyncSimTransport
from cnllm.transports import AsyncHttpx, default_async_transport
from cnllm.types.checks import plural

__all__ = ["VendorPhase"]

_NO_KEY = "sk-no-key-is-needed-here"
_FIRST_POLL, _LONGEST_POLL, _GROWTH = 0.5, 60.0, 1.4


class VendorPhase:
    """The part of a session that a vendor does. `leftover` are the lines for single calls. Raises `NoBatchInterface`.

    `retake` are those among them that the state knows, because they were in a job. `stopped` is the kind of the reason
    why the phase ended early, and the reason; None where it did not. `answered` counts the rows that are finished.
    """

    def __init__(self, session: SessionParts, probe: str, options: Mapping[str, Any]) -> None:
        settings, lane = session.settings, session.lanes[0]
        _check_settings(settings)
        self._session = session
        self._batch = require_interface(lane.model, session.registry)
        self.window = self._batch.window
        """The hours after which the vendor gives a job up; None where they are not known."""
        model = discounted_model(lane.model)
        lane = Lane(model, lane.client, lane.controller)
        self._probe: Plan = lane.prepare(probe, options).plan
        if self._probe.stream:
            raise CnllmError(f"--vendor-batch: {model.name} only streams", hint="leave --vendor-batch out")
        factor = self._batch.price_factor
        if settings.assume_price is not None and factor is not None:
            settings = replace(settings, assume_price=discounted_price(settings.assume_price, factor))
        self.jobs = JobMaker(session.reader, lane, options, request_price(settings, model), session.cache)
        self.leftover = Bits()
        self.retake = Bits()
        self.messages: list[str] = []
        self.answered = 0
        self.stopped: tuple[str, str] | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause = ("", 0.0)  # why nothing is sent, and until when, by the monotonic clock
        self._failure = ""  # why the last question about a job has no answer
        self._open: list[JobPart] = []
        self._jobs: dict[int, VendorJob] = {}  # the last that was heard of each part

    @property
    def progress(self) -> VendorProgress:
        """Return where the vendor is."""
        jobs = [self._jobs.get(part.number) for part in self._open]
        served = sum(min(job.finished or 0, part.size) for job, part in zip(jobs, self._open, strict=True) if job)
        words = {job.word for job in jobs if job is not None}
        reason, end = self._pause
        return VendorProgress(
            jobs=len(self._open),
            rows=sum(part.size for part in self._open),
            served=served,
            word=", ".join(sorted(words)),
            waiting=reason,
            pause=max(0.0, end - time.monotonic()),
        )

    def interrupt(self) -> None:
        """Submit nothing more, and poll no longer. The second time, wait for no answer either."""
        if self._stopping.is_set() and self._task is not None:
            self._task.cancel()
        self._stopping.set()

    async def run(self, chunks: AsyncIterator[Sequence[InputRow]], tally: Tally) -> None:
        """Submit, poll and fetch, until nothing is left that the vendor can do."""
        session = self._session
        self._exchange = exchange = self._connect()
        session.reader.keep()
        context = VendorContext(session, exchange, self.jobs, tally, self.leftover, self.retake, self._stopping)
        self._collector, self._outbox = ResultCollector(context), Outbox(context)
        self._open = self._outbox.open
        self._task = asyncio.create_task(self._run(chunks))
        try:
            await asyncio.wait([self._task])
            if self._task.cancelled():
                self._stopping.set()
                self._stop_if_asked()
            else:
                self._task.result()
        finally:
            self._task.cancel()
            tally.requests += exchange.requests
            self.answered = tally.done + tally.failed
            self.messages = [*self._outbox.messages, *self._collector.messages()]
            await exchange.close()

    def _connect(self) -> VendorConnection:
        """Return the connection to the interface, or to one that is simulated in memory."""
        settings, registry = self._session.settings, self._session.registry
        transport, key = settings.transport, settings.api_keys[0] if settings.api_keys else None
        if settings.simulate:
            transport, key = AsyncSimTransport(registry), _NO_KEY
        key = key_for(self._probe, registry) if key is None else key
        if transport is None:
            transport = default_async_transport()
        elif is_httpx_transport(transport, is_async=True):
            transport = AsyncHttpx(transport)
        return VendorConnection(self._batch, self._probe, transport, key, settings.out, self._sleep)

    async def _sleep(self, seconds: float, reason: str) -> None:
        """Wait, for a reason that the progress shows. Raises `Interrupted` where the run is stopped."""
        self._pause = (reason, time.monotonic() + seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
        finally:
            self._pause = ("", 0.0)
        raise Interrupted

    async def _run(self, chunks: AsyncIterator[Sequence[InputRow]]) -> None:
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
                    del self._jobs[part.number]  # it may hold all results
                    pause = _FIRST_POLL
                if self._stop_if_asked():
                    return
            if self._open:
                await self._exchange.sleep(pause, self._failure)
                pause = min(pause * _GROWTH, _LONGEST_POLL)

    async def _ask(self, part: JobPart) -> VendorJob | None:
        """Return the job of a part; None where the vendor cannot be reached now."""
        assert part.job is not None
        self._failure = ""
        try:
            job = await self._exchange.poll(part.job)
        except (TransportError, EndpointError) as error:
            if isinstance(error, TransportError) or error.retryable:
                self._failure = failure_reason(error)
                return None
            error.hint = (
                f"job {part.job} holds {part.size:,} row{plural(part.size)}; is it the key of the same account?"
            )
            raise
        if job is None:
            hint = "check batch.job in the registry; the job goes on at the vendor"
            url = poll_plan(self._exchange.batch, self._exchange.probe, part.job).url
            raise UnreadableAnswer(f"{url}: the answer is not a job", hint=hint)
        return job

    async def _finish(self, part: JobPart, job: VendorJob) -> None:
        """Take in a job that has ended."""
        if job.state == "failed":
            self._report_failure(part, job)
            if not job.files and not job.rows:
                self._outbox.release(part)
                return
        with closing(await fetch_results(self._exchange, part, job)) as results:
            if job.state == "done" and not results.lines:
                raise UnreadableAnswer(
                    f"job {job.id} is {job.word}, and has no results for its {part.size:,} row{plural(part.size)}",
                    hint="run the same command again later: it looks for them again",
                )
            if await self._collector.collect(part, results, job.state) or job.state == "cancelled":
                self.stopped = self.stopped or ("vendor", f"job {job.id} was cancelled at the vendor")

    def _report_failure(self, part: JobPart, job: VendorJob) -> None:
        """Say why a job failed, and which line was at fault."""
        rows = {row.position: row.number for row in self._session.parts.rows_of(part)}
        reasons = []
        for error in job.errors[:3]:
            line = rows.get(error.line) if error.line is not None else None
            code = f" ({error.code})" if error.code and error.code not in error.message else ""
            place = f"line {error.line} of the job" if error.line is not None else ""
            place += f", which is row {line} of the input" if line is not None else ""
            reasons.append(f"{place}: {error.message}{code}" if place else f"{error.message}{code}")
        words = "; ".join(reasons) or f"it says only: {job.word}"
        failure = "refused job {} as a whole" if not job.files and not job.rows else "ended job {} before it was done"
        self.stopped = self.stopped or ("vendor", f"the vendor {failure.format(job.id)}: {words}")

    # ── stopping ─────────────────────────────────────────────────────────────

    def _stop_if_asked(self) -> bool:
        """Whether the run was interrupted; the reason says where its jobs are."""
        if self._stopping.is_set() and self.stopped is None:
            reason = "it was interrupted"
            if self._open:
                count, rows = len(self._open), sum(part.size for part in self._open)
                reason += f"; {count} job{'s' if count > 1 else ''} with {rows:,} rows go on at the vendor"
            self.stopped = ("interrupted", reason)
        return self._stopping.is_set()


def _check_settings(settings: BatchSettings) -> None:
    """Raise `CnllmError` for settings that a vendor's batch cannot follow."""
    if len(settings.models) > 1:
        raise CnllmError("--vendor-batch takes one model", hint="name one -m")
    if settings.max_steps is not None:
        raise CnllmError("--vendor-batch: a job at a vendor cannot run tools", hint="leave --vendor-batch out")


async def _single(chunks: AsyncIterator[Sequence[InputRow]]) -> AsyncGenerator[InputRow]:
    async for chunk in chunks:
        for row in chunk:
            yield row
