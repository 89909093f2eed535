"""Execute tools and turn their results into values for the model."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from cnllm.config import redact
from cnllm.engine.run.continuation import failed_result_text
from cnllm.tools import shown
from cnllm.types import Media, Text, ToolCall, ToolResult
from cnllm.types.checks import struct_fault
from cnllm.types.convert import result_of

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
_PARTS = (Media, Text)
Content = TypeVar("Content", Media, Text, ToolResult)


class ToolThread:
    """Work in its own daemon thread, which ends with the program. `on_end` is called in that thread at the end.

    `convert` makes `value` from the work's result, in the same thread: a generator runs only then. An awaitable is
    awaited in its own event loop first.
    """

    def __init__(
        self,
        work: Callable[[], Any],
        convert: Callable[[Any], Any],
        on_end: Callable[[ToolThread], None],
    ) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.seconds: float | None = None  # how long it ran
        self._call = work
        self._convert = convert
        self._on_end = on_end
        self._stop: Callable[[], Any] | None = None
        self._abandoned = False

    def start(self) -> None:
        """Start the thread. It sees the caller's context variables. Where none can start, do the work here."""
        context = contextvars.copy_context()
        try:
            threading.Thread(target=context.run, args=(self._main,), name="cnllm-tool", daemon=True).start()
        except RuntimeError:  # there are too many, or the program ends
            context.run(self._main)

    def abandon(self) -> None:
        """Stop waiting for the thread. A coroutine is cancelled, a generator is closed after its next item.

        Nothing can stop a plain function.
        """
        self._abandoned = True
        if self._stop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                self._stop()

    def _main(self) -> None:
        start = time.monotonic()
        try:
            self.value = self._result()
        except BaseException as error:  # noqa: BLE001 the model gets it as the result
            self.error = error
        self.seconds = time.monotonic() - start
        self._on_end(self)

    def _result(self) -> Any:
        value = self._call()
        if not is_awaitable(value):
            return self._convert(value)
        import asyncio  # slow to import, and needed only for awaitables

        return self._convert(asyncio.run(self._await(value)))

    def is_abandoned(self) -> bool:
        """Whether nobody waits for the thread any more."""
        return self._abandoned

    async def _await(self, value: Any) -> Any:
        import asyncio

        if self._abandoned and inspect.iscoroutine(value):  # it need not start
            value.close()
            raise asyncio.CancelledError
        task, loop = asyncio.ensure_future(await_result(value)), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._abandoned:
            self._stop()
        return await task


def is_awaitable(value: Any) -> bool:
    """Whether a value must be awaited first."""
    return inspect.isawaitable(value) or inspect.isasyncgen(value)


async def await_result(value: Any) -> Any:
    """Return the result of an awaitable; of an async generator, the list of its items."""
    while is_awaitable(value):
        value = [item async for item in value] if inspect.isasyncgen(value) else await value
    return value


def call_now(value: Any) -> Any:
    """Return a callback's answer. An awaitable is awaited in its own event loop, in a thread that may have one."""
    if not inspect.isawaitable(value):
        return value
    finished = threading.Event()
    job = ToolThread(lambda: value, lambda answer: answer, lambda _: finished.set())
    job.start()
    try:
        finished.wait()
    finally:
        job.abandon()
    if job.error is not None:
        raise job.error
    return job.value


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function certainly returns an awaitable."""
    return any(
        check(target)
        for target in (function, type(function).__call__)
        for check in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    )


def tool_result(call: ToolCall, value: Any, is_abandoned: Callable[[], bool]) -> ToolResult:
    """Return a tool's return value as the result of its call. Media and texts stay what they are, alone or in a list.

    An iterator is read, until `is_abandoned` says that nobody waits for the result any more. Raise the errors of the
    caller's own value classes, and `TypeError` or `ValueError` for parts that are not valid.
    """
    if type(value) is ToolResult:
        return _check_part(replace(value, id=call.id, name=call.name))
    if isinstance(value, Iterator):
        value = _items(value, is_abandoned)
    if type(value) in _PARTS:
        value = [value]
    if isinstance(value, list | tuple) and any(type(item) in _PARTS for item in value):
        parts = [item if type(item) in _PARTS else Text(_value_text(item)) for item in value]
        for part in parts:
            _check_part(part)
        return result_of(call.id, parts, call.name, error=False)
    return ToolResult(call.id, _value_text(value), call.name)


def _items(iterator: Iterator[Any], is_abandoned: Callable[[], bool]) -> list[Any]:
    """Return the items of an iterator, which may have no end. A generator that nobody waits for is closed."""
    items: list[Any] = []
    for item in iterator:
        if is_abandoned():
            if inspect.isgenerator(iterator):
                iterator.close()
            break
        items.append(item)
    return items


def _check_part(value: Content) -> Content:
    """Return a part of a result. Raise `TypeError` or `ValueError` for one that cannot be sent."""
    if (fault := struct_fault("the result", value)) is not None:
        raise fault
    return value


def _value_text(value: Any) -> str:
    """Return the text of a value for the model. Raise the errors of the value's own code."""
    try:
        return shown(value)
    except ValueError as error:
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise


def tool_error_text(call: ToolCall, error: BaseException, key: str | None) -> ToolResult:
    """Return a tool's error for the model: class and message, without traceback and without the endpoint's key."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 a class of the caller's
        message = ""
    if key:
        message = redact.redact(message, [key])
    message = message if len(message) <= _LONGEST else message[: _LONGEST - 1] + "…"
    kind = type(error).__name__
    return failed_result_text(call, f"{kind}: {message}" if message else kind)


def timeout_text(call: ToolCall, seconds: float | None) -> ToolResult:
    """Return the result for the model of a tool that took too long."""
    return failed_result_text(call, f"Timeout: it gave no result in {seconds:g} s")
