"""Run a batch: read, mark, send, write. One task for each request on its way, none for a row that waits.

A row goes from the reader to the journal, which marks it on the disk; then it is ready. As many rows are marked ahead
as are sent while one group of marks is written, so that a crash leaves few marks of rows that were not sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from cnllm.batch.budget import RunBudget
from cnllm.batch.controller import Ticket
from cnllm.batch.identity import AnswerCache
from cnllm.batch.jobs import Job, JobMaker
from cnllm.batch.journal import Journal, WriteGroup
from cnllm.batch.lanes import Lane
from cnllm.batch.output import FAULT, Outcome, fault_outcome
from cnllm.batch.report import Tally
from cnllm.batch.rows import InputRow, line_digest
from cnllm.batch.sender import AttemptResult, Sender
from cnllm.batch.settings import BatchSettings
from cnllm.batch.state import Finish, RowMark, RowRecord
from cnllm.errors import CnllmError
from cnllm.types.json_form import encode_json

__all__ = ["RunParts", "Runner"]

_FIRST_STOCK, _MOST_STOCK = 4, 4096
_CACHE_GROUP = 500  # answers that are put into the cache at once

_Picked = tuple[Job, Lane, Ticket]


class RunParts(Protocol):
    """The parts of a session that a run uses."""

    settings: BatchSettings
    lanes: list[Lane]
    budget: RunBudget
    cache: AnswerCache | None
    jobs: JobMaker
    number: int


class Runner:
    """The moving parts of one run. `must_retake` says whether the state may know a line from an earlier run.

    `stopped` is the kind of the reason why the run ended, and the reason; the kind is "ended" where all rows were read.
    """

    def __init__(
        self, session: RunParts, journal: Journal, tally: Tally, sender: Sender, must_retake: Callable[[int], bool]
    ) -> None:
        self._lanes = session.lanes
        self._budget = session.budget
        self._setting = session.number
        self._make_job = session.jobs.make
        self._strict = session.settings.strict
        self._cache = session.cache
        self._journal = journal
        self._tally = tally
        self._sender = sender
        self._must_retake = must_retake
        self._first_seq, self._next_seq = journal.first_seq, journal.state.last_seq() + 1
        self._to_cache: list[tuple[bytes, bytes]] = []
        self._marking = 0
        self._finishing = 0
        self._fed = False
        self._sends = 0  # since the last group was written
        self._stock = _FIRST_STOCK
        self._wake_feeder = asyncio.Event()
        self._settled = asyncio.Event()
        self._failure: BaseException | None = None
        self._input_failure: BaseException | None = None
        self.messages: list[str] = []
        self.stopped: tuple[str, str] | None = None
        self._is_hurried = False  # requests on their way are not waited for
        self._interrupted: list[Job] = []
        self._ready: deque[Job] = deque()
        self._in_flight = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._wake_at = 0.0  # kept here: a loop may return a handle without `when()` for a short time, as uvloop does

    # ── the run ──────────────────────────────────────────────────────────────

    async def run(self, rows: AsyncIterator[Sequence[InputRow]]) -> None:
        """Ask every row. Raises `CnllmError` where the disk does not take what came back, and what the input raises."""
        journal = asyncio.create_task(self._journal.run(self._continue_group))
        feeder = asyncio.create_task(self._feed(rows))
        journal.add_done_callback(self._on_end)
        feeder.add_done_callback(self._on_input_end)
        try:
            while self._failure is None and not (self._fed and self._is_idle()):
                self._settled.clear()
                if self._is_hurried or (self.stopped and not self._in_flight and not self._finishing):
                    break
                await self._settled.wait()
        finally:
            self._stop("ended", "")
            feeder.cancel()
            if self._timer is not None:
                self._timer.cancel()
            for worker in self._workers:
                worker.cancel()
            await asyncio.gather(feeder, *self._workers, return_exceptions=True)
            if self._failure is None:
                await self._journal.drain()
                await self._unmark()
                await self._fill_cache()
                for job in self._interrupted:  # not before: the next run charges them by their marks
                    self._budget.settle(job.reserved, None)
            journal.cancel()
            await asyncio.gather(journal, return_exceptions=True)
        if (error := self._failure or self._input_failure) is not None:
            raise error

    def interrupt(self) -> None:
        """Send nothing more. The second time, do not wait for what is on its way."""
        self._is_hurried = self.stopped is not None and self.stopped[0] == "interrupted"
        self._stop("interrupted", "it was interrupted")

    def _stop(self, kind: str, reason: str) -> None:
        """Send nothing more. The first reason stays."""
        self.stopped = self.stopped or (kind, reason)
        self._settled.set()

    def _is_idle(self) -> bool:
        return not (self._ready or self._marking or self._in_flight or self._finishing)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._workers.discard(task)
        error = None if task.cancelled() else task.exception()  # which no row has caused
        self._failure = self._failure or error
        self._settled.set()

    def _on_input_end(self, task: asyncio.Task[None]) -> None:
        """Send nothing more where the input cannot be read on. What is on its way is waited for, and written."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._input_failure = error
            self._stop("ended", "")
        self._settled.set()

    async def _unmark(self) -> None:
        """Take back the marks of rows that were not sent."""
        jobs = [job for job in self._ready if not job.charged]
        self._interrupted += [job for job in self._ready if job.charged]
        if not jobs:
            return
        state = self._journal.state
        new = [job.seq for job in jobs if job.record is None]
        known = [job.record for job in jobs if job.record is not None]

        def write() -> None:
            with state.writing():
                state.forget(new)
                state.restore(known)

        await self._journal.call(write)

    async def _fill_cache(self) -> None:
        """Share the answers since the last time with other runs. A cache that cannot be written stops no run."""
        answers, self._to_cache = self._to_cache, []
        if self._cache is not None and answers:
            try:
                await self._journal.call(self._cache.store, answers)
            except CnllmError as error:
                self._cache = None
                self.messages.append(f"{error.message}: the last answers of this run are not in the cache")

    # ── feeding ──────────────────────────────────────────────────────────────

    async def _feed(self, rows: AsyncIterator[Sequence[InputRow]]) -> None:
        async for chunk in rows:
            for row in chunk:
                while len(self._ready) + self._marking >= self._stock and self.stopped is None:
                    self._wake_feeder.clear()
                    await self._wake_feeder.wait()
                if self.stopped is not None:
                    return
                if len(self._to_cache) >= _CACHE_GROUP:
                    await self._fill_cache()
                seq = self._next_seq
                self._next_seq += 1
                await self._admit(self._make_job(row, seq))
        self._fed = True
        self._settled.set()

    async def _admit(self, job: Job) -> None:
        """Reserve what a request may cost, and mark it."""
        is_sent = job.outcome is None
        while is_sent and not self._budget.has_room(job.reserved):
            if not self._in_flight and not self._marking and not self._ready:
                self._stop("cap", self._budget.refusal(job.reserved))
            if self.stopped is not None:
                return
            self._wake_feeder.clear()
            await self._wake_feeder.wait()
            job.estimate(self._sender.price)  # an answer may have taught how much input the endpoint adds
        self._budget.reserve(job.reserved)
        self._mark(job)

    def _mark(self, job: Job) -> None:
        self._marking += 1
        retake = not job.asked and self._must_retake(job.row.number)
        mark = job.mark(self._setting, job.reserved, retake=retake)
        self._journal.hurry = len(self._ready) < 2
        self._journal.mark(mark, job)

    def _continue_row(self, job: Job, mark: RowMark, record: RowRecord | None) -> None:
        """Go on with a row whose mark is on the disk."""
        self._marking -= 1
        if record is not None and not mark.again:
            if not mark.takes(record, self._first_seq):
                self._refuse_duplicate(job, record)
                return
            job.record, job.seq = record, record.seq
            job.attempts = record.attempts
        job.asked = True
        if job.outcome is not None:
            self._finish(job, job.outcome, 0)
            return
        self._ready.append(job)

    def _continue_group(self, group: WriteGroup) -> None:
        """Send what is ready now. Mark as many rows ahead as were sent while the group was written."""
        for _, job, outcome in group.finishes:
            self._finish_row(job, outcome)
        for (mark, job), record in zip(group.marks, group.records, strict=True):
            self._continue_row(job, mark, record)
        if self._sends:
            self._stock = max(_FIRST_STOCK, min(2 * self._sends, _MOST_STOCK))
            self._sends = 0
        self._wake_feeder.set()
        self._dispatch()

    def _refuse_duplicate(self, job: Job, record: RowRecord) -> None:
        """Finish a row whose id an earlier row has. Its line in the output names it by its line in the input."""
        self._budget.settle(job.reserved, 0)
        number = job.row.number
        message = f"line {number}: the id {job.row_id!r} is that of line {record.number}"
        job.row_id, job.line, job.digest = None, number, line_digest(number)
        job.reserved, job.identity, job.prepared = None, None, None
        job.outcome = fault_outcome(message)
        self._mark(job)

    # ── sending ──────────────────────────────────────────────────────────────

    def _dispatch(self) -> None:
        """Send what may be sent now, in a task for each request."""
        while (picked := self._pick()) is not None:
            worker = asyncio.create_task(self._work(picked))
            self._workers.add(worker)
            worker.add_done_callback(self._on_end)

    def _pick(self) -> _Picked | None:
        """Return the next request and where it goes; None where none may be sent now."""
        if not self._ready or self.stopped is not None:
            return None
        if not self._budget.has_room(0):  # an answer cost more than its worst case
            self._stop("cap", self._budget.refusal(self._ready[0].reserved))
            return None
        now, soonest, free = time.monotonic(), None, list[Lane]()
        for lane in self._lanes:
            if lane.closed is not None:
                continue
            wait = lane.controller.wait(now)
            if wait == 0.0:
                free.append(lane)
            elif wait is not None:
                soonest = wait if soonest is None else min(soonest, wait)
        found = self._match(free)
        if found is None:
            if soonest is not None:
                self._wake_in(soonest)
            return None
        job, best = found
        self._in_flight += 1
        self._sends += 1
        if len(self._ready) + self._marking < self._stock:
            self._wake_feeder.set()
        return job, best, best.controller.send(now, job.tokens)

    def _match(self, free: Sequence[Lane]) -> tuple[Job, Lane] | None:
        """Take the first request that one of these lanes may send, and return both; None where there is none.

        The run ends where all lanes are closed whose models can take a request.
        """
        for index, job in enumerate(self._ready if free else ()):
            lanes = [lane for lane in free if lane.model.name not in job.unfit] if job.unfit else free
            if lanes:
                del self._ready[index]
                return job, min(lanes, key=lambda lane: lane.controller.in_flight)
            closed = [lane.closed for lane in self._lanes if lane.model.name not in job.unfit]
            if None not in closed:
                self._stop("endpoint", f"{closed[0]}; no other model can take line {job.row.number}")
                return None
        return None

    def _wake_in(self, seconds: float) -> None:
        """Try again after some seconds, or at an earlier time that is set."""
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._timer is not None:
            if self._wake_at <= at:
                return
            self._timer.cancel()
        self._wake_at = at
        self._timer = loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._dispatch()

    async def _work(self, picked: _Picked | None) -> None:
        """Send a request, and then others as long as they may be sent at once."""
        while picked is not None:
            try:
                await self._ask(*picked)
            finally:
                self._in_flight -= 1
            if self._ready:
                self._dispatch()
            picked = self._pick()

    async def _ask(self, job: Job, lane: Lane, ticket: Ticket) -> None:
        self._tally.requests += 1
        try:
            attempt = await self._sender.send(job, lane)
        except BaseException as error:
            lane.controller.fail(time.monotonic(), ticket)
            if isinstance(error, asyncio.CancelledError):
                self._interrupted.append(job)
            raise
        now = time.monotonic()
        lane.controller.end(now, ticket, attempt.kind, attempt.tokens, attempt.retry_after)
        if attempt.kind == "accepted" and attempt.outcome.reply is not None:
            self._tally.answer(now, attempt.seconds, attempt.outcome.reply)
        if attempt.kind in ("rate", "burst"):
            self._tally.refusal(now)
        if attempt.next == "close":
            self._close_lane(lane, attempt.outcome)
            if attempt.cost != 0:
                self._charge(job, attempt)
        if attempt.next in ("wait", "close"):
            self._ready.appendleft(job)
        elif attempt.next == "retry" and self.stopped is None:
            self._retry(job, attempt)
        else:
            self._finish(job, attempt.outcome, attempt.cost)

    def _retry(self, job: Job, attempt: AttemptResult) -> None:
        """Mark a row again; or write its failure, where the cap leaves no room for another attempt."""
        if self._charge(job, attempt):
            self._mark(job)
        else:
            self._finish(job, attempt.outcome, 0)

    def _charge(self, job: Job, attempt: AttemptResult) -> bool:
        """Charge an attempt, and reserve for another one; return whether the cap leaves room for it."""
        charged = job.reserved if attempt.cost is None else attempt.cost
        self._budget.settle(job.reserved, attempt.cost)
        job.charged += charged or 0
        has_room = self._budget.has_room(job.reserved)
        self._budget.reserve(job.reserved)
        return has_room

    def _close_lane(self, lane: Lane, outcome: Outcome) -> None:
        """Stop using a key that does not work. Without another one the run ends."""
        assert outcome.error is not None
        lane.closed = f"{outcome.error.type}: {outcome.error.message}"
        if all(other.closed is not None for other in self._lanes):
            self._stop("endpoint", lane.closed)

    # ── finishing ────────────────────────────────────────────────────────────

    def _finish(self, job: Job, outcome: Outcome, cost: int | None) -> None:
        """Write the line of a row. `cost` is in units; None is unknown."""
        charged = job.reserved if cost is None else cost
        self._budget.settle(job.reserved, cost)
        total = None if charged is None else charged + job.charged
        self._finishing += 1
        finish = Finish(job.seq, job.line_of(outcome), outcome.state, total, job.attempts, job.record is not None)
        self._journal.finish(finish, job, outcome)

    def _finish_row(self, job: Job, outcome: Outcome) -> None:
        """Count a row whose line is on the disk."""
        self._finishing -= 1
        self._tally.finish(time.monotonic(), outcome.error, job.notes)
        if outcome.error is None:
            self._tally.cached_rows += outcome.cached is not None
            is_shared = self._cache is not None and job.is_own_answer
            if is_shared and outcome.reply is not None and job.identity is not None:
                self._to_cache.append((job.identity, encode_json(outcome.reply.to_dict())))
        elif self._strict and outcome.error.type == FAULT:
            self._stop("strict", outcome.error.message)
        if self._fed or self.stopped is not None or self._budget.cap is not None:
            self._settled.set()
