"""Send a request with a permit, and decide what its end means: for the endpoint's bounds, the money and the row.

Requests that are ready go to tasks as the bounds of the endpoints permit: one task for each request on its way.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from cnllm.batch.budget import RetryBudget
from cnllm.batch.controller import Controller, Kind, Ticket
from cnllm.batch.jobs import Job, RowRequest
from cnllm.batch.lanes import Lane
from cnllm.batch.output import Outcome, outcome_of_error, outcome_of_reply
from cnllm.batch.pricing import RequestPrice
from cnllm.errors import CnllmError, RateLimited, TransportError
from cnllm.types import Reply

__all__ = [
    "AttemptResult",
    "Dispatcher",
    "LanePermit",
    "Permit",
    "Sender",
]


RowAction = Literal["finish", "wait", "retry", "close"]
"""The next step of a row after its request.

- finish: the outcome of the row is written.
- wait: the endpoint refused the rate and charged nothing. The row waits for its next turn; this is no retry.
- retry: the endpoint failed, and the row is sent again.
- close: the key does not work. No more requests go out with it, and the row waits for another key.
"""


class AttemptResult(Struct, frozen=True):
    """The end of a request that was sent once. `kind` is for the bounds of the endpoint, `next` for the row.

    `cost` is in units; None is unknown. `tokens` are those that the endpoint counted.
    """

    kind: Kind
    next: RowAction
    outcome: Outcome
    cost: int | None
    seconds: float
    reply: Reply | None = None
    error: CnllmError | None = None
    tokens: float | None = None
    retry_after: float | None = None


class Permit(Protocol):
    """The permission to send one request, from the bounds of an endpoint in this process or in another one."""

    def end(self, attempt: AttemptResult) -> None:
        """Take in what became of the request."""

    def drop(self) -> None:
        """Take in that the request ended in the middle: it was cancelled, or an error of ours ended the run."""


class LanePermit(Struct, frozen=True):
    """The permit of a request, from the bounds of a lane."""

    controller: Controller
    ticket: Ticket

    def end(self, attempt: AttemptResult) -> None:
        """Take in what became of the request."""
        self.controller.end(time.monotonic(), self.ticket, attempt.kind, attempt.tokens, attempt.retry_after)

    def drop(self) -> None:
        """Take in that the request ended in the middle."""
        self.controller.end(time.monotonic(), self.ticket, "failed")


class Sender:
    """Sends the requests of a run, each up to `attempts` times. With `loop_options` a request is a tool loop."""

    def __init__(self, attempts: int, price: RequestPrice, loop_options: Mapping[str, Any] | None = None) -> None:
        self.price = price
        self._attempts = attempts
        self._loop_options = loop_options
        self._retries = RetryBudget()

    async def send(self, request: RowRequest, lane: Lane, permit: Permit) -> AttemptResult:
        """Send a request once, and return what became of it. The permit ends with it."""
        start = time.monotonic()
        request.attempts += 1
        try:
            reply = await self._ask(request, lane)
        except CnllmError as error:
            attempt = self._read_failure(request, lane, error, time.monotonic() - start)
        except BaseException:
            permit.drop()
            raise
        else:
            self._retries.answer()
            seconds, outcome = time.monotonic() - start, outcome_of_reply(reply)
            attempt = AttemptResult(
                "accepted", "finish", outcome, self.price.paid(reply), seconds, reply, tokens=_tokens_of(reply)
            )
        permit.end(attempt)
        return attempt

    async def _ask(self, request: RowRequest, lane: Lane) -> Reply:
        prepared, request.prepared = request.prepared, None
        if self._loop_options is not None:
            return await lane.run_loop(request.messages, request.options, self._loop_options)
        if prepared is None or request.lane is not lane:
            prepared = lane.prepare(request.messages, request.options)
        reply: Reply = await prepared.complete()
        self.price.learn(prepared.plan, reply)
        return reply

    def _read_failure(self, request: RowRequest, lane: Lane, error: CnllmError, seconds: float) -> AttemptResult:
        meaning, retry_after = error.meaning, error.retry_after
        kind: Kind = "overloaded" if meaning.load else "failed"
        following: RowAction = "finish"
        if isinstance(error, RateLimited):
            kind = "burst" if lane.is_burst(error.code) else "rate"
        if kind in ("rate", "burst") and not meaning.charged:
            following = "wait"
        elif meaning.key:
            kind, following = "failed", "close"
        elif meaning.again and meaning.elsewhere:  # elsewhere: the endpoint is what failed
            is_lost = isinstance(error, TransportError) and error.worker_lost
            request.failures += not is_lost
            if request.failures < self._attempts and (is_lost or self._retries.take()):
                following = "retry"
        cost = None if meaning.charged else 0
        return AttemptResult(kind, following, outcome_of_error(error), cost, seconds, None, error, None, retry_after)


# ── tasks ────────────────────────────────────────────────────────────────────


_Picked = tuple[Job, Lane, LanePermit]


class Dispatcher:
    """Holds what is ready. `ask` sends a request, `taken` is called when one leaves, `idle` when a task has nothing."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        ask: Callable[[Job, Lane, LanePermit], Awaitable[None]],
        *,
        taken: Callable[[], None],
        idle: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._lanes = lanes
        self._ask = ask
        self._taken = taken
        self._idle = idle
        self._failed = failed
        self._waiters: list[asyncio.Future[_Picked]] = []
        self._workers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._wake_at = 0.0  # kept here: a loop may return a handle without `when()` for a short time, as uvloop does
        self.ready: deque[Job] = deque()
        self.in_flight = 0
        self.stopped = False

    def dispatch(self) -> None:
        """Give ready requests to tasks that wait, or to new ones."""
        while (picked := self._pick()) is not None:
            while self._waiters:
                waiter = self._waiters.pop()
                if not waiter.done():
                    waiter.set_result(picked)
                    break
            else:
                worker = asyncio.create_task(self._work(picked))
                self._workers.add(worker)
                worker.add_done_callback(self._worker_ended)

    async def cancel(self) -> None:
        """End all tasks, those that wait for an answer too."""
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for worker in [*self._workers]:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def _pick(self) -> _Picked | None:
        """Return the next request and where it goes; None where none may be sent now."""
        if not self.ready or self.stopped:
            return None
        now, best, soonest = time.monotonic(), None, None
        for lane in self._lanes:
            if lane.closed is not None:
                continue
            wait = lane.controller.wait(now)
            if wait == 0.0:
                if best is None or lane.controller.in_flight < best.controller.in_flight:
                    best = lane
            elif wait is not None:
                soonest = wait if soonest is None else min(soonest, wait)
        if best is None:
            if soonest is not None:
                self._wake_in(soonest)
            return None
        job = self.ready.popleft()
        self.in_flight += 1
        self._taken()
        return job, best, LanePermit(best.controller, best.controller.send(now, job.tokens))

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
        self.dispatch()

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        self._workers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def _work(self, picked: _Picked) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._ask(*picked)
            finally:
                self.in_flight -= 1
            if self.ready:
                self.dispatch()
            following = self._pick()
            if following is None:
                self._idle()
                waiter: asyncio.Future[_Picked] = loop.create_future()
                self._waiters.append(waiter)
                following = await waiter
            picked = following


def _tokens_of(reply: Reply) -> float | None:
    """Return the tokens that a reply counts for; None where they are not known."""
    usage = reply.usage
    if usage.total is not None:
        return usage.total
    return None if usage.input is None or usage.output is None else usage.input + usage.output
