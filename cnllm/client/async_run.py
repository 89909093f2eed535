"""The tool loop of `AsyncClient`: the same steps, awaited."""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from cnllm.client.async_stream import AsyncCallRun, single_events
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
from cnllm.system.closing import AsyncClosing, first_of
from cnllm.system.event_loop import loop_scheduler, run_in_thread
from cnllm.tools import Tool
from cnllm.types import Answer_co, Event, Finished, ToolCall, ToolResult

if TYPE_CHECKING:
    from types import AsyncGeneratorType

__all__ = ["AsyncRun"]


class AsyncRun(RunState[Answer_co], AsyncClosing):
    """A tool loop: iterate over its events once; `reply`, `messages`, `steps` and `stopped` show its progress."""

    def _begin(self) -> None:
        self._events = self._drive()
        self._outcome: Any = None  # the reply to the last call of the model, or its error
        self._cancel_scope: Any = None  # around the current await
        self._post: Callable[..., Any] | None = None
        self._thread = 0

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
        if not self._is_read_elsewhere():  # a busy task sees the cancellation itself
            await self._events.aclose()
            await self._end()

    def _is_read_elsewhere(self) -> bool:
        """Whether another task waits for events."""
        return cast("AsyncGeneratorType[Event]", self._events).ag_running

    async def _end(self) -> None:
        import anyio

        self._end_loop()
        if (sets := self._held) is not None:
            with anyio.CancelScope(shield=True):
                await run_in_thread(sets.release)

    def __aiter__(self) -> Self:
        if self._is_read_elsewhere():
            raise CnllmError("another task reads this run", hint="each event is delivered once: use one reader")
        return self

    def __anext__(self) -> Awaitable[Event]:
        return self._events.__anext__()

    # ── driving ──────────────────────────────────────────────────────────────

    async def _drive(self) -> AsyncGenerator[Event]:
        self._post, self._thread = loop_scheduler(), threading.get_ident()
        effects = self._loop.effects()
        try:
            while True:
                outcome, self._outcome = self._outcome, None
                try:
                    effect = effects.send(outcome)
                except StopIteration:
                    return
                match effect:
                    case CallModel():
                        async with contextlib.aclosing(self._call_model(effect)) as events:
                            if (first := await first_of(events)) is not None:
                                yield first
                            async for event in events:
                                yield event
                    case ApproveCalls():
                        self._outcome = await self._unless_cancelled(_call_back, self._options.approve, effect.call)
                    case ExecuteCalls():
                        await self._unless_cancelled(self._execute, effect)
                    case ReportStep():
                        self._report_tools(effect.step)
                        if self._options.on_step is not None:
                            await _call_back(self._options.on_step, effect.step)
                    case list():
                        for event in self._deliver(effect):
                            yield event
        except CnllmError as error:
            error.run = self
            for event in self._flush_sentence():
                yield event
            raise
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            effects.close()
            await self._end()

    async def _call_model(self, effect: CallModel) -> AsyncGenerator[Event]:
        """Call the model and yield its events. The wait for each can end at any time."""
        import anyio

        begin = partial(self._begin_call, effect)
        try:
            if self._held is not None:  # its servers may have to start
                setup = await self._unless_cancelled(run_in_thread, begin)
                if self._loop.cancelled:
                    return
            else:
                setup = begin()
        except CnllmError as error:  # nothing was sent
            self._outcome = error
            return
        runner = AsyncCallRun(setup)
        events = single_events(runner.batches())
        try:
            event = await self._unless_cancelled(first_of, events)
            while event is not None:
                if type(event) is not Finished:
                    self._loop.observe(event)
                    for part in self._deliver([event]):
                        yield part
                event = await self._unless_cancelled(anext, events, None)
            self._outcome = None if self._loop.cancelled else runner.finished
        except CnllmError as error:
            self._outcome = error
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await events.aclose()

    async def _unless_cancelled(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
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
        abandoned = threading.Event()
        try:
            with anyio.move_on_after(limit):
                return await self._run_tool(tool, call, abandoned.is_set)
            return timeout_text(call, limit)
        finally:
            abandoned.set()

    async def _run_tool(self, tool: Tool, call: ToolCall, is_abandoned: Callable[[], bool]) -> ToolResult:
        """Return the result of a call, also of one that fails."""
        import anyio

        assert tool.function is not None
        task = anyio.get_current_task()
        try:
            if is_async(tool.function):
                value = self._toolbox.execute(call)
            else:  # a daemon thread: the program could not end while one of anyio's threads runs
                work = partial(self._execute_in_thread, call, is_abandoned)
                value = await run_in_thread(partial(copy_context().run, work))
            value = await await_result(value)
            convert = partial(tool_result, call, value, is_abandoned)
            if isinstance(value, Iterator):  # its items may take their time
                return await run_in_thread(partial(copy_context().run, convert))
            return convert()
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not _is_current(task):  # nobody awaits this coroutine any more
                raise
            if isinstance(error, anyio.get_cancelled_exc_class()) and not _is_stray():
                raise
            return tool_error_text(call, error, self._key)

    def _execute_in_thread(self, call: ToolCall, is_abandoned: Callable[[], bool]) -> Any:
        """Return the result of a call, or an awaitable that gives it. A generator runs in this thread."""
        try:
            value = self._toolbox.execute(call)
            return value if is_awaitable(value) else tool_result(call, value, is_abandoned)
        except BaseException as error:  # noqa: BLE001 the model gets it as the result
            return tool_error_text(call, error, self._key)


def _is_current(task: Any) -> bool:
    """Whether this code runs in a task, and not while the garbage collector closes it."""
    import anyio

    try:
        return bool(anyio.get_current_task() == task)
    except RuntimeError:  # no event loop runs
        return False


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
