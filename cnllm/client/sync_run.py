"""The tool loop of `Client`: a thin driver of the steps in `cnllm.engine.run.tool_loop`."""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from cnllm.client.runs import RunState
from cnllm.client.sync_stream import CallRun
from cnllm.client.tool_execution import ToolThread, call_now, timeout_text, tool_error_text, tool_result
from cnllm.engine.run.effects import ApproveCalls, CallModel, ExecuteCalls, ReportStep
from cnllm.errors import CnllmError
from cnllm.system.closing import Closing
from cnllm.types import Answer_co, Event, Finished, ToolCall

if TYPE_CHECKING:
    from queue import SimpleQueue


__all__ = ["Run"]


class Run(RunState[Answer_co], Closing):
    """A tool loop: iterate over its events once; `reply`, `messages`, `steps` and `stopped` show its progress."""

    def _begin(self) -> None:
        from queue import SimpleQueue

        self._queue: SimpleQueue[Any] = SimpleQueue()  # events and results for the thread that reads the run
        self._events = self._drive()

    def cancel(self) -> None:
        """Stop at once, from any thread. A running tool is abandoned; its result says so."""
        if self.stopped is None:
            self._loop.cancelled = True
            self._queue.put((None, None))

    def close(self) -> None:
        """End the run at any point."""
        self.cancel()
        # A generator that runs in another thread or up the stack sees the cancellation itself.
        if not self._is_read_elsewhere():
            self._events.close()
            self._end()

    def __iter__(self) -> Iterator[Event]:
        if self._is_read_elsewhere():
            raise CnllmError("another thread reads this run", hint="each event is delivered once: use one reader")
        return self._events

    def _is_read_elsewhere(self) -> bool:
        """Whether another thread, or a callback of this one, runs within the run."""
        return inspect.getgeneratorstate(self._events) == inspect.GEN_RUNNING

    # ── driving ──────────────────────────────────────────────────────────────

    def _drive(self) -> Generator[Event, None, None]:
        effects = self._loop.effects()
        outcome: Any = None
        try:
            while True:
                try:
                    effect = effects.send(outcome)
                except StopIteration:
                    return
                outcome = None
                match effect:
                    case CallModel():
                        outcome = yield from self._call_model(effect)
                    case ApproveCalls():
                        assert self._options.approve is not None
                        outcome = call_now(self._options.approve(effect.call))
                    case ExecuteCalls():
                        self._execute(effect)
                    case ReportStep():
                        self._report_tools(effect.step)
                        if self._options.on_step is not None:
                            call_now(self._options.on_step(effect.step))
                    case list():
                        yield from self._deliver(effect)
        except CnllmError as error:
            error.run = self
            yield from self._flush_sentence()
            raise
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            effects.close()
            self._end()

    def _end(self) -> None:
        self._end_loop()
        if self._held is not None:
            self._held.release()

    def _call_model(self, effect: CallModel) -> Generator[Event, None, Any]:
        """Call the model in its own thread, so that the wait for it can end at any time."""
        try:
            runner = CallRun(self._begin_call(effect))
        except CnllmError as error:  # nothing was sent
            return error
        queue, context = self._queue, contextvars.copy_context()
        outcome: Any = None

        def deliver() -> None:
            nonlocal outcome
            try:
                for event in runner.events():
                    queue.put((runner, event))
                outcome = runner.finished
            except BaseException as error:  # noqa: BLE001 the reading thread raises it
                outcome = error
            queue.put((runner, None))

        if self._loop.cancelled:
            return None
        try:
            try:
                threading.Thread(target=context.run, args=(deliver,), name="cnllm-call", daemon=True).start()
            except RuntimeError:  # none can start: there are too many, or the program ends
                context.run(deliver)
            while True:
                source, event = queue.get()
                if self._loop.cancelled:
                    return None
                if source is not runner:
                    continue
                if event is None:
                    if isinstance(outcome, BaseException) and not isinstance(outcome, CnllmError):
                        raise outcome
                    return outcome
                if type(event) is not Finished:
                    self._loop.observe(event)
                    yield from self._deliver([event])
        finally:
            runner.leave()

    def _execute(self, effect: ExecuteCalls) -> None:
        """Execute the calls in threads, at most `max_parallel` at a time."""
        queue = deque(range(len(effect.calls)))
        running: dict[ToolThread, tuple[int, float | None]] = {}
        try:
            while queue or running:
                while queue and len(running) < self._options.max_parallel:
                    index = queue.popleft()
                    call = effect.calls[index]
                    limit = self._options.limit(self._toolbox.find(call))
                    job = self._make_job(call)
                    running[job] = (index, None if limit is None else time.monotonic() + limit)
                    job.start()
                job = self._next_job(running)
                if self._loop.cancelled:
                    return
                if job is None:
                    self._expire(running, effect)
                elif job in running:
                    index, _ = running.pop(job)
                    call = effect.calls[index]
                    effect.seconds[index] = job.seconds
                    effect.results[index] = (
                        job.value if job.error is None else tool_error_text(call, job.error, self._key)
                    )
        finally:
            for job in running:
                job.abandon()

    def _make_job(self, call: ToolCall) -> ToolThread:
        job = ToolThread(
            partial(self._toolbox.execute, call),
            lambda value: tool_result(call, value, job.is_abandoned),
            self._post_job,
        )
        return job

    def _post_job(self, job: ToolThread) -> None:
        self._queue.put((job, None))

    def _next_job(self, running: dict[ToolThread, tuple[int, float | None]]) -> Any:
        """Return the next job to end; None when the time of one of them is up."""
        deadlines = [deadline for _, deadline in running.values() if deadline is not None]
        wait = min(max(0.0, min(deadlines) - time.monotonic()), threading.TIMEOUT_MAX) if deadlines else None
        from queue import Empty

        try:
            return self._queue.get(timeout=wait)[0]
        except Empty:
            return None

    def _expire(self, running: dict[ToolThread, tuple[int, float | None]], effect: ExecuteCalls) -> None:
        now = time.monotonic()
        for job, (index, deadline) in list(running.items()):
            if deadline is not None and deadline <= now:
                del running[job]
                job.abandon()
                call = effect.calls[index]
                limit = effect.seconds[index] = self._options.limit(self._toolbox.find(call))
                effect.results[index] = timeout_text(call, limit)
