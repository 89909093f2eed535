"""The tool loop of `AsyncClient`: the same steps, awaited."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from cnllm.client.runs import RunOptions, RunState, loop_stopped_error, prepare_loop
from cnllm.client.tool_execution import ToolThread, await_result, is_async, timeout_text, tool_error_text, tool_result
from cnllm.engine.run.effects import ApproveCalls, CallModel, ExecuteCalls, ReportStep
from cnllm.engine.run.tool_loop import Loop
from cnllm.errors import CnllmError
from cnllm.registry.model import Model
from cnllm.types import Event, Finished, ToolCall, ToolResult

__all__ = ["AsyncRun", "AsyncRunMethods"]


class AsyncRunMethods:
    """The loop's verbs of `AsyncClient`."""

    _opened: Callable[..., Any]
    _on_event: Callable[..., Any] | None

    async def run(
        self,
        model: str | Model,
        messages: Any,
        *,
        tools: Sequence[Any] | None = None,
        max_steps: int = 10,
        max_repeats: int | None = 3,
        max_parallel: int = 8,
        tool_timeout: float | None = None,
        on_step: Callable[..., Any] | None = None,
        approve: Callable[..., Any] | None = None,
        **options: Any,
    ) -> AsyncRun:
        """As `Client.run`. Tools, `approve` and `on_step` may be async functions."""
        rules = RunOptions(
            max_steps, max_repeats, max_parallel, tool_timeout, on_step, approve, on_event=self._on_event
        )
        async with AsyncRun(*prepare_loop(self._opened, rules, model, messages, tools, options, stream=False)) as run:
            async for _ in run:
                pass
        if run.stopped != "done":
            raise loop_stopped_error(run)
        return run

    def run_stream(
        self,
        model: str | Model,
        messages: Any,
        *,
        tools: Sequence[Any] | None = None,
        max_steps: int = 10,
        max_repeats: int | None = 3,
        max_parallel: int = 8,
        tool_timeout: float | None = None,
        on_step: Callable[..., Any] | None = None,
        approve: Callable[..., Any] | None = None,
        by: Literal["sentence"] | None = None,
        **options: Any,
    ) -> AsyncRun:
        """As `Client.run_stream`, with `async with` and `async for`."""
        rules = RunOptions(max_steps, max_repeats, max_parallel, tool_timeout, on_step, approve, by, self._on_event)
        return AsyncRun(*prepare_loop(self._opened, rules, model, messages, tools, options, stream=True))


class AsyncRun(RunState):
    """A tool loop: iterate over its events once; `reply`, `messages`, `steps` and `stopped` tell how far it came."""

    def __init__(self, loop: Loop, rules: RunOptions, toolbox: Any, opened: Callable[[CallModel], Any]) -> None:
        super().__init__(loop, rules, toolbox, opened)
        self._effects = loop.effects()
        self._outcome: Any = None
        self._ready: deque[Event] = deque()
        self._reading: tuple[Any, Any] | None = None  # a call that is being made, and its events
        self._scope: Any = None  # of what is awaited
        self._post: Callable[..., Any] | None = None
        self._thread = 0
        self._over = False
        self._busy = False  # something is awaited, in whatever task
        self._failed: CnllmError | None = None  # raised once what came before it is delivered

    def cancel(self) -> None:
        """Stop at once, from any task or thread. What is running is cancelled; a call that it was is told so."""
        if self.stopped is not None:
            return
        self._loop.cancelled = True
        if self._post is not None:
            if threading.get_ident() == self._thread:
                self._wake()
            else:
                with contextlib.suppress(RuntimeError):  # the event loop is over, and so is all that ran in it
                    self._post(self._wake)

    def _wake(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def aclose(self) -> None:
        """End the run, wherever it is."""
        self.cancel()
        if not self._busy:  # otherwise it is seen there that it was cancelled
            await self._shut()

    async def _shut(self) -> None:
        import anyio

        self._over = True
        self._ready.clear()
        reading, self._reading = self._reading, None
        try:
            if reading is not None:
                with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                    await reading[1].aclose()
        finally:
            if inspect.getgeneratorstate(self._effects) != inspect.GEN_RUNNING:
                self._effects.close()
            self._loop.end()
            self._end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._post is None:
            self._post, self._thread = _poster(), threading.get_ident()
        self._busy = True
        try:
            while True:
                if self._loop.cancelled:
                    self._ready.clear()
                if self._ready:
                    return self._ready.popleft()
                if self._over:
                    raise StopAsyncIteration
                if self._failed is not None:
                    raise self._failed
                await self._step()
        except CnllmError as error:
            error.run = self
            await self._shut()
            raise
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._loop.cancelled = self._loop.cancelled or not isinstance(error, Exception)
            await self._shut()
            raise
        finally:
            self._busy = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ── driving ──────────────────────────────────────────────────────────────

    async def _step(self) -> None:
        try:
            await self._advance()
        except CnllmError as error:
            self._failed = error
            self._ready.extend(self._held())

    async def _advance(self) -> None:
        """Do the next thing."""
        if self._reading is not None:
            await self._read(*self._reading)
            return
        outcome, self._outcome = self._outcome, None
        try:
            effect = self._effects.send(outcome)
        except StopIteration:
            self._over = True
            self._end()
            return
        match effect:
            case CallModel():
                call, runner = self._opened(effect)
                self._began(call.plan, runner.key)
                self._reading = runner, runner.events()
            case ApproveCalls():
                self._outcome = await self._unless_cancelled(_answer, self._rules.approve, effect.call)
            case ExecuteCalls():
                await self._unless_cancelled(self._execute, effect)
            case ReportStep() if self._rules.on_step is not None:
                await _answer(self._rules.on_step, effect.step)
            case list():
                self._ready.extend(self._shaped(effect))

    async def _unless_cancelled(self, what: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Await it; None when the run is cancelled meanwhile. The scope never spans what is delivered."""
        import anyio

        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                if not self._loop.cancelled:
                    return await what(*args)
            finally:
                self._scope = None
        return None

    async def _read(self, runner: Any, events: Any) -> None:
        """The next event of the model's call."""
        try:
            event = await self._unless_cancelled(anext, events, None)
        except CnllmError as error:
            self._outcome, self._reading = error, None
            return
        if event is None:
            self._reading = None
            if self._loop.cancelled:
                await events.aclose()
            else:
                self._outcome = runner.finished
        elif type(event) is not Finished:
            self._loop.observe(event)
            self._ready.extend(self._shaped([event]))

    async def _execute(self, todo: ExecuteCalls) -> None:
        import anyio

        waiting = deque(enumerate(todo.calls))  # in their order, where it matters how many run at a time
        exits: list[BaseException] = []  # a tool that ends the program does so as in any other place, not in a group

        async def work() -> None:
            while waiting:
                place, call = waiting.popleft()
                try:
                    todo.results[place] = await self._result(call)
                except (SystemExit, KeyboardInterrupt) as error:
                    exits.append(error)
                    group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for _ in range(min(self._rules.max_parallel, len(todo.calls))):
                group.start_soon(work)
        if exits:
            raise exits[0]

    async def _result(self, call: ToolCall) -> ToolResult:
        import anyio

        tool = self._toolbox.find(call)
        limit = self._rules.limit(tool)
        assert tool.function is not None
        with anyio.move_on_after(limit):
            try:
                if is_async(tool.function):
                    return tool_result(call, await await_result(self._toolbox.execute(call)))
                job = await self._in_thread(call)
                if job.error is not None:
                    return tool_error_text(call, job.error, self._key)
                return tool_result(call, await await_result(job.value))
            except GeneratorExit:
                raise
            except BaseException as error:
                if isinstance(error, anyio.get_cancelled_exc_class()) and not _is_stray():
                    raise
                return tool_error_text(call, error, self._key)
        return timeout_text(call, limit)

    async def _in_thread(self, call: ToolCall) -> ToolThread:
        """A thread of one's own, not one of anyio's, which the program could not end without."""
        import anyio

        ended, post = anyio.Event(), self._post
        assert post is not None

        def done(_: ToolThread) -> None:
            try:
                post(ended.set)
            except RuntimeError:
                return  # nobody waits: the event loop is over

        job = ToolThread(partial(self._toolbox.execute, call), partial(tool_result, call), done, awaits=False)
        job.start()
        await ended.wait()
        return job


def _is_stray() -> bool:
    """Was this task itself not cancelled, but something that it waited for? Only asyncio mixes the two up."""
    import asyncio

    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and not task.cancelling()


async def _answer(callback: Any, about: Any) -> Any:
    """What a callback says, async or not."""
    said = callback(about)
    return await said if inspect.isawaitable(said) else said


def _poster() -> Callable[..., Any]:
    """What calls a function in this event loop, from any thread."""
    import asyncio

    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon
