"""The tool loop of `Client`: a thin driver of the steps in `cnllm.engine.run.tool_loop`."""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from cnllm.client.runs import RunOptions, RunState, loop_stopped_error, prepare_loop
from cnllm.client.tool_execution import ToolThread, call_now, timeout_text, tool_error_text, tool_result
from cnllm.engine.run.effects import ApproveCalls, CallModel, ExecuteCalls, ReportStep
from cnllm.engine.run.tool_loop import Loop
from cnllm.errors import CnllmError
from cnllm.registry.model import Model
from cnllm.types import Event, Finished

if TYPE_CHECKING:
    from queue import SimpleQueue

__all__ = ["Run", "RunMethods"]


class RunMethods:
    """The loop's verbs of `Client`."""

    _opened: Callable[..., Any]
    _on_event: Callable[..., Any] | None

    def run(
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
    ) -> Run:
        """Call the model, execute the tools it calls, tell it their results, and so on until it is done.

        Raises `LoopStopped(run)` when it was not done: after `max_steps` calls of the model, or when the same calls
        gave the same results `max_repeats` times in a row (None: as often as it likes), or its last reply is not whole.
        `run.stopped` says which, and `run.messages` is a history that can be gone on with. Other errors are those of
        `call`, and carry the run as `.run`.

        `tools` are functions, or `cnllm.Tool`s with one: async ones are awaited, others get a thread, at most
        `max_parallel` at a time. One that takes longer than its `timeout` (or `tool_timeout` seconds) is not waited
        for. Whatever goes wrong with a call is told to the model as its result. `approve(call)` is asked before a tool
        runs: True, or False, or in words why not. `on_step(step)` is told of each step. The rest is as for `call`.
        """
        rules = RunOptions(
            max_steps, max_repeats, max_parallel, tool_timeout, on_step, approve, on_event=self._on_event
        )
        with Run(*prepare_loop(self._opened, rules, model, messages, tools, options, stream=False)) as run:
            for _ in run:
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
    ) -> Run:
        """`run` as a context manager over the events of every step; each step ends with a `Finished`.

        It ends without an error when the loop was stopped: `run.stopped` says why. `run.cancel()` ends it from
        anywhere; so does leaving the `with` block. A step whose stream is cut is taken again without streaming, and
        what was delivered already is not delivered again. With `by="sentence"` its text comes in whole sentences.
        """
        rules = RunOptions(max_steps, max_repeats, max_parallel, tool_timeout, on_step, approve, by, self._on_event)
        return Run(*prepare_loop(self._opened, rules, model, messages, tools, options, stream=True))


class Run(RunState):
    """A tool loop: iterate over its events once; `reply`, `messages`, `steps` and `stopped` tell how far it came."""

    def __init__(self, loop: Loop, rules: RunOptions, toolbox: Any, opened: Callable[[CallModel], Any]) -> None:
        super().__init__(loop, rules, toolbox, opened)
        from queue import SimpleQueue

        self._mail: SimpleQueue[Any] = SimpleQueue()  # all that this thread waits for comes here
        self._events = self._drive()

    def cancel(self) -> None:
        """Stop at once, from any thread. A tool that is running is not waited for; its result is "cancelled"."""
        if self.stopped is None:
            self._loop.cancelled = True
            self._mail.put((None, None))

    def close(self) -> None:
        """End the run, wherever it is."""
        self.cancel()
        # Where it is running, in another thread or up the stack, it sees that it was cancelled.
        if inspect.getgeneratorstate(self._events) != inspect.GEN_RUNNING:
            self._events.close()
            self._loop.end()
            self._end()

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
                        outcome = yield from self._ask(effect)
                    case ApproveCalls():
                        assert self._rules.approve is not None
                        outcome = call_now(self._rules.approve(effect.call))
                    case ExecuteCalls():
                        self._execute(effect)
                    case ReportStep() if self._rules.on_step is not None:
                        call_now(self._rules.on_step(effect.step))
                    case list():
                        yield from self._while_wanted(self._shaped(effect))
        except CnllmError as error:
            error.run = self
            yield from self._held()
            raise
        except (GeneratorExit, KeyboardInterrupt):
            self._loop.cancelled = True
            raise
        finally:
            effects.close()
            self._end()

    def _while_wanted(self, events: Sequence[Event]) -> Iterator[Event]:
        for event in events:
            if self._loop.cancelled:
                return
            yield event

    def _ask(self, ask: CallModel) -> Generator[Event, None, Any]:
        """The model's call, in a thread of its own, so that waiting for it can end at any time."""
        call, runner = self._opened(ask)
        self._began(call.plan, runner.key)
        mail, context = self._mail, contextvars.copy_context()

        def read() -> None:
            try:
                for event in runner.events():
                    mail.put((runner, event))
                mail.put((runner, _Over(runner.finished)))
            except BaseException as error:  # noqa: BLE001 it is raised where it was called for
                mail.put((runner, _Over(error)))

        if self._loop.cancelled:
            return None
        threading.Thread(target=context.run, args=(read,), name="cnllm-call", daemon=True).start()
        try:
            while True:
                whose, event = mail.get()
                if self._loop.cancelled:
                    return None
                if whose is not runner:
                    continue
                if type(event) is _Over:
                    if isinstance(event.outcome, BaseException) and not isinstance(event.outcome, CnllmError):
                        raise event.outcome
                    return event.outcome
                if type(event) is not Finished:
                    self._loop.observe(event)
                    yield from self._while_wanted(self._shaped([event]))
        finally:
            runner.leave()

    def _execute(self, todo: ExecuteCalls) -> None:
        """The calls in threads, as many at a time as may be."""
        waiting = deque(range(len(todo.calls)))
        running: dict[ToolThread, tuple[int, float | None]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._rules.max_parallel:
                    place = waiting.popleft()
                    call = todo.calls[place]
                    limit = self._rules.limit(self._toolbox.find(call))
                    job = ToolThread(partial(self._toolbox.execute, call), partial(tool_result, call), self._post)
                    running[job] = (place, None if limit is None else time.monotonic() + limit)
                    job.start()
                job = self._first(running)
                if self._loop.cancelled:
                    return
                if job is None:
                    self._expire(running, todo)
                elif job in running:
                    place, _ = running.pop(job)
                    call = todo.calls[place]
                    todo.results[place] = (
                        job.value if job.error is None else tool_error_text(call, job.error, self._key)
                    )
        finally:
            for job in running:
                job.abandon()

    def _post(self, job: ToolThread) -> None:
        self._mail.put((job, None))

    def _first(self, running: dict[ToolThread, tuple[int, float | None]]) -> Any:
        """The next one to end; None when the time of one of them is up."""
        ends = [until for _, until in running.values() if until is not None]
        wait = min(max(0.0, min(ends) - time.monotonic()), threading.TIMEOUT_MAX) if ends else None
        from queue import Empty

        try:
            return self._mail.get(timeout=wait)[0]
        except Empty:
            return None

    def _expire(self, running: dict[ToolThread, tuple[int, float | None]], todo: ExecuteCalls) -> None:
        now = time.monotonic()
        for job, (place, until) in list(running.items()):
            if until is not None and until <= now:
                del running[job]
                job.abandon()
                call = todo.calls[place]
                todo.results[place] = timeout_text(call, self._rules.limit(self._toolbox.find(call)))


class _Over:
    """The end of a call: the reply, or the error it ended with."""

    __slots__ = ("outcome",)

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
