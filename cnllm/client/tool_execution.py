"""How a tool is executed, and what the model is told of it."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from cnllm.config import redact
from cnllm.engine.run.continuation import failed_result_text
from cnllm.tools import shown
from cnllm.types import Media, ToolCall, ToolResult
from cnllm.types.convert import result_text

__all__ = [
    "ToolThread",
    "await_result",
    "call_now",
    "is_async",
    "is_awaitable",
    "timeout_text",
    "tool_error_text",
    "tool_result",
]

_LONGEST = 2000  # characters of an error's message


class ToolThread:
    """Work in a thread of its own, which ends with the program; `done` is called there when it has ended.

    `told` makes the `value` of what the work gave, in the same thread: a generator runs only then. What is to be
    awaited is awaited in a loop of its own first, unless `awaits` is False: then it is the value, as it is.
    """

    def __init__(
        self,
        work: Callable[[], Any],
        told: Callable[[Any], Any],
        done: Callable[[ToolThread], None],
        awaits: bool = True,
    ) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._do = work
        self._told = told
        self._done = done
        self._awaits = awaits
        self._stop: Callable[[], Any] | None = None
        self._left = False

    def start(self) -> None:
        """Begin; the caller's context variables are seen there."""
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work,), name="cnllm-tool", daemon=True).start()

    def abandon(self) -> None:
        """It is not waited for any more. A coroutine is cancelled; nothing can stop a plain function."""
        self._left = True
        if self._stop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                self._stop()

    def _work(self) -> None:
        try:
            self.value = self._worked()
        except BaseException as error:  # noqa: BLE001 the model is told of it
            self.error = error
        self._done(self)

    def _worked(self) -> Any:
        value = self._do()
        if not is_awaitable(value):
            return self._told(value)
        if not self._awaits:
            return value

        import asyncio  # only where it is needed: importing it takes a while

        return self._told(asyncio.run(self._awaited(value)))

    async def _awaited(self, value: Any) -> Any:
        import asyncio

        if self._left and inspect.iscoroutine(value):  # it need not begin
            value.close()
            raise asyncio.CancelledError
        task, loop = asyncio.ensure_future(await_result(value)), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._left:
            self._stop()
        return await task


def is_awaitable(value: Any) -> bool:
    """Is it to be awaited before it is anything?"""
    return inspect.isawaitable(value) or inspect.isasyncgen(value)


async def await_result(value: Any) -> Any:
    """What comes of something to be awaited; of an async generator, the list of what it gives."""
    while is_awaitable(value):
        value = [each async for each in value] if inspect.isasyncgen(value) else await value
    return value


def call_now(value: Any) -> Any:
    """A callback's answer; one that is to be awaited is awaited in a loop of its own, in a thread that may have one."""
    if not inspect.isawaitable(value):
        return value
    ended = threading.Event()
    job = ToolThread(lambda: value, lambda answer: answer, lambda _: ended.set())
    job.start()
    try:
        ended.wait()
    finally:
        job.abandon()
    if job.error is not None:
        raise job.error
    return job.value


def is_async(function: Callable[..., Any]) -> bool:
    """Does calling it give what is to be awaited, for certain?"""
    return any(
        kind(each)
        for each in (function, type(function).__call__)
        for kind in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    )


def tool_result(call: ToolCall, value: Any) -> ToolResult:
    """What a tool returned, as the result of its call: pictures in it, or in a list of it, as pictures.

    Raises what the values of the caller's own raise while they are written.
    """
    if type(value) is ToolResult:
        return replace(value, id=call.id, name=call.name)
    if isinstance(value, Iterator):
        value = list(value)
    if type(value) is Media:
        value = [value]
    if isinstance(value, list | tuple) and any(type(each) is Media for each in value):
        texts = [_text(each) for each in value if type(each) is not Media]
        media = tuple(each for each in value if type(each) is Media)
        return ToolResult(call.id, result_text(texts), call.name, media=media)
    return ToolResult(call.id, _text(value), call.name)


def _text(value: Any) -> str:
    """Return what the model reads of a value. Raises what the value's own code raises."""
    try:
        return shown(value)
    except ValueError as error:
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise


def tool_error_text(call: ToolCall, error: BaseException, key: str | None) -> ToolResult:
    """What a tool raised: the kind and the message, without a traceback and without the key of the endpoint."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 a class of the caller's
        said = ""
    if key:
        said = redact.redact(said, [key])
    said = said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"
    kind = type(error).__name__
    return failed_result_text(call, f"{kind}: {said}" if said else kind)


def timeout_text(call: ToolCall, seconds: float | None) -> ToolResult:
    """What the model is told of a tool that took too long."""
    return failed_result_text(call, f"Timeout: it gave no result in {seconds:g} s")
