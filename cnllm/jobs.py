"""How a tool is executed, and what the model is told of it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from cnllm import redact
from cnllm.engine.chain import failed
from cnllm.tools import shown
from cnllm.types import Media, ToolCall, ToolResult

__all__ = ["Job", "at_once", "failure", "is_async", "outlasted", "result"]

_LONGEST = 2000  # characters of an error's message


class Job:
    """A function in a thread of its own, which ends with the program; `done` is called there when it has ended.

    What it returns is awaited in a loop of its own if that must be, unless `awaits` is False.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: dict[str, Any],
        done: Callable[[Job], None],
        awaits: bool = True,
    ) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._function = function
        self._arguments = arguments
        self._done = done
        self._awaits = awaits
        self._stop: Callable[[], Any] | None = None
        self._left = False

    def start(self) -> None:
        """Begin; the caller's context variables are seen there."""
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work,), name="cnllm-tool", daemon=True).start()

    def leave(self) -> None:
        """It is not waited for any more. A coroutine is cancelled; nothing can stop a plain function."""
        self._left = True
        if self._stop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                self._stop()

    def _work(self) -> None:
        try:
            value = self._function(**self._arguments)
            self.value = asyncio.run(self._awaited(value)) if self._awaits and inspect.isawaitable(value) else value
        except BaseException as error:  # noqa: BLE001 the model is told of it
            self.error = error
        self._done(self)

    async def _awaited(self, value: Awaitable[Any]) -> Any:
        task, loop = asyncio.ensure_future(value), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._left:
            task.cancel()
        return await task


def at_once(value: Any) -> Any:
    """A callback's answer; one that is to be awaited is awaited in a loop of its own."""
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def is_async(function: Callable[..., Any]) -> bool:
    """Does calling it give a coroutine, for certain?"""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def result(call: ToolCall, value: Any) -> ToolResult:
    """What a tool returned, as the result of its call."""
    if type(value) is ToolResult:
        return replace(value, id=call.id, name=call.name)
    if type(value) is Media:
        return ToolResult(call.id, "", call.name, media=(value,))
    return ToolResult(call.id, shown(value), call.name)


def failure(call: ToolCall, error: BaseException, key: str | None) -> ToolResult:
    """What a tool raised: the kind and the message, without a traceback and without the key of the endpoint."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    said = str(error)
    if key:
        said = redact.redact(said, [key])
    said = said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"
    kind = type(error).__name__
    return failed(call, f"{kind}: {said}" if said else kind)


def outlasted(call: ToolCall, seconds: float | None) -> ToolResult:
    """What the model is told of a tool that took too long."""
    return failed(call, f"Timeout: it gave no result in {seconds:g} s")
