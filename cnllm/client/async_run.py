"""The tool loop of `AsyncClient`: the same steps, awaited."""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Self

from cnllm.client.async_stream import AsyncCallRun, single_events
from cnllm.client.event_loop import loop_scheduler, run_in_thread
from cnllm.client.runs import RunState
from cnllm.client.tool_execution import (
    await_result,
    is_async,
    is_awaitable,
    timeout_text,
    tool_error_text,
    tool_result,
)
from cnllm.engine.run.effects import ApproveCalls, CallModel, ExecuteCalls, ReportStep
from cnllm.errors import CnllmError
from cnllm.system.closing import AsyncClosing
from cnllm.types import Answer_co, Event, Finished, ToolCall, ToolResult

__all__ = ["AsyncRun"]


class AsyncRun(RunState[Answer_co], AsyncClosing):
    """A tool loop: iterate over its events once; `reply`, `messages`, `steps` and `stopped` show its progress."""

    def _begin(self) -> None:
        self._effects = self._loop.effects()
        self._outcome: Any = None
        self._pending_events: deque[Event] = deque()
        self._current_call: tuple[Any, Any] | None = None  # the open call, and its events
        self._cancel_scope: Any = None  # around the current await
        self._post: Callable[..., Any] | None = None
        self._thread = 0
        self._exhausted = False
        self._busy = False  # some task awaits a step
        self._error: CnllmError | None = None  # raised after the events before it are delivered

    def cancel(self) -> None:
        """Stop at once, from any task or thread. Running work is cancelled; a running tool's result says so."""
        if self.stopped is not None:
            return
        self._loop.cancelled = True
        if self._post is not None:
            if threading.get_ident() == self._thread:
                self._wake()
            else:
                with contextlib.suppress(RuntimeError):  # the event loop has ended, with all its tasks
                    self._post(self._wake)

    def _wake(self) -> None:
        if self._cancel_scope is not None:
            self._cancel_scope.cancel()

    async def aclose(self) -> None:
        """End the run at any point."""
        self.cancel()
        if not self._busy:  # otherwise the busy task sees the cancellation itself
            await self._shut_down()

    async def _shut_down(self) -> None:
        import anyio

        self._exhausted = True
        self._pending_events.clear()
        current, self._current_call = self._current_call, None
        try:
            if current is not None:
                with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                    await current[1].aclose()
        finally:
            if inspect.getgeneratorstate(self._effects) != inspect.GEN_RUNNING:
                self._effects.close()
            self._loop.end()
            self._report_end()
            await self._release_tools()

    async def _release_tools(self) -> None:
        import anyio

        if (held := self._held) is not None:
            with anyio.CancelScope(shield=True):
                await run_in_thread(held.release)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._post is None:
            self._post, self._thread = loop_scheduler(), threading.get_ident()
        self._busy = True
        try:
            while True:
                if self._loop.cancelled:
                    self._pending_events.clear()
                if self._pending_events:
                    return self._pending_events.popleft()
                if self._exhausted:
                    raise StopAsyncIteration
                if self._error is not None:
                    raise self._error
                try:
                    await self._advance()
                except CnllmError as error:
                    self._error = error
                    self._pending_events.extend(self._flush_sentence())
        except CnllmError as error:
            error.run = self
            await self._shut_down()
            raise
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._loop.cancelled = self._loop.cancelled or not isinstance(error, Exception)
            await self._shut_down()
            raise
        finally:
            self._busy = False

    # ── driving ──────────────────────────────────────────────────────────────

    async def _advance(self) -> None:
        """Carry out the next effect, or read the next event."""
        if self._current_call is not None:
            await self._read_event(*self._current_call)
            return
        outcome, self._outcome = self._outcome, None
        try:
            effect = self._effects.send(outcome)
        except StopIteration:
            self._exhausted = True
            self._report_end()
            await self._release_tools()
            return
        match effect:
            case CallModel():
                begin = partial(self._begin_call, effect)
                if self._held is not None:  # its servers may have to start
                    setup = await self._await_unless_cancelled(run_in_thread, begin)
                    if self._loop.cancelled:
                        return
                else:
                    setup = begin()
                runner = AsyncCallRun(setup)
                self._current_call = runner, single_events(runner.batches())
            case ApproveCalls():
                self._outcome = await self._await_unless_cancelled(_call_back, self._options.approve, effect.call)
            case ExecuteCalls():
                await self._await_unless_cancelled(self._execute, effect)
            case ReportStep():
                self._report_tools(effect.step)
                if self._options.on_step is not None:
                    await _call_back(self._options.on_step, effect.step)
            case list():
                self._pending_events.extend(self._deliver(effect))

    async def _await_unless_cancelled(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Await a call; None when the run is cancelled meanwhile. The scope never spans the delivery of events."""
        import anyio

        with anyio.CancelScope() as scope:
            self._cancel_scope = scope
            try:
                if not self._loop.cancelled:
                    return await function(*args)
            finally:
                self._cancel_scope = None
        return None

    async def _read_event(self, runner: AsyncCallRun, events: Any) -> None:
        """Read the next event of the model's call."""
        try:
            event = await self._await_unless_cancelled(anext, events, None)
        except CnllmError as error:
            self._outcome, self._current_call = error, None
            return
        if event is None:
            self._current_call = None
            if self._loop.cancelled:
                await events.aclose()
            else:
                self._outcome = runner.finished
        elif type(event) is not Finished:
            self._loop.observe(event)
            self._pending_events.extend(self._deliver([event]))

    async def _execute(self, effect: ExecuteCalls) -> None:
        import anyio

        queue = deque(enumerate(effect.calls))  # in order, also with a small `max_parallel`
        exits: list[BaseException] = []  # raised alone, not in an exception group: the tool ends the program

        async def work() -> None:
            while queue:
                index, call = queue.popleft()
                start = time.monotonic()
                try:
                    effect.results[index] = await self._result(call)
                    effect.seconds[index] = time.monotonic() - start
                except (SystemExit, KeyboardInterrupt) as error:
                    exits.append(error)
                    group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for _ in range(min(self._options.max_parallel, len(effect.calls))):
                group.start_soon(work)
        if exits:
            raise exits[0]

    async def _result(self, call: ToolCall) -> ToolResult:
        import anyio

        tool = self._toolbox.find(call)
        limit = self._options.limit(tool)
        assert tool.function is not None
        with anyio.move_on_after(limit):
            try:
                if is_async(tool.function):
                    value = self._toolbox.execute(call)
                else:  # a daemon thread: the program could not end while one of anyio's threads runs
                    value = await run_in_thread(partial(copy_context().run, self._execute_in_thread, call))
                return tool_result(call, await await_result(value))
            except GeneratorExit:
                raise
            except BaseException as error:
                if isinstance(error, anyio.get_cancelled_exc_class()) and not _is_stray():
                    raise
                return tool_error_text(call, error, self._key)
        return timeout_text(call, limit)

    def _execute_in_thread(self, call: ToolCall) -> Any:
        """Return the result of a call, or an awaitable that gives it. A generator runs in this thread."""
        try:
            value = self._toolbox.execute(call)
            return value if is_awaitable(value) else tool_result(call, value)
        except BaseException as error:  # noqa: BLE001 the model gets it as the result
            return tool_error_text(call, error, self._key)


def _is_stray() -> bool:
    """Whether the awaited work was cancelled and not this task itself. Only asyncio confuses the two."""
    import asyncio

    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and not task.cancelling()


async def _call_back(callback: Any, value: Any) -> Any:
    """Return the answer of a callback, sync or async."""
    answer = callback(value)
    return await answer if inspect.isawaitable(answer) else answer
