"""Give ready requests to tasks as the bounds of the endpoints permit: one task for each request on its way."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from cnllm.batch.jobs import Job
from cnllm.batch.lane import Lane
from cnllm.batch.sender import LanePermit

__all__ = ["Dispatcher"]

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
