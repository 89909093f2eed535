"""The stream of a call whose tools have to be fetched first, such as those of an MCP server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, Self

from cnllm.client.async_stream import AsyncStream
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.types import Event, Reply

__all__ = ["DeferredStream"]


class DeferredStream(AsyncStream[Any]):
    """An `AsyncStream` whose request is built when it is entered or iterated, once its tools are known."""

    def __init__(self, open_call: Callable[[], Awaitable[tuple[Any, Any]]], by: str | None = None) -> None:
        self._open_call = open_call
        self._by = by
        self._is_open = False

    async def _open(self) -> None:
        if not self._is_open:
            call, runner = await self._open_call()
            super().__init__(call, runner, self._by)
            self._is_open = True

    def _fail(self) -> NoReturn:
        raise CnllmError(
            "the request is not built yet, because its tools are not known", hint="enter or iterate the stream first"
        )

    @property
    def plan(self) -> Plan:
        """Return the request. Raise `CnllmError` before the stream is entered or iterated."""
        return super().plan if self._is_open else self._fail()

    @property
    def reply(self) -> Reply:
        """Return the reply, once all events have been read; see `AsyncStream.reply`."""
        return super().reply if self._is_open else self._fail()

    async def batches(self) -> AsyncGenerator[list[Event]]:
        """Return the events in lists; see `AsyncStream.batches`."""
        await self._open()
        async for batch in self._batches:
            yield batch

    async def stop(self) -> Reply | None:
        """End the call; see `AsyncStream.stop`."""
        return await super().stop() if self._is_open else None

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events if self._is_open else self._open_events()

    async def _open_events(self) -> AsyncGenerator[Event]:
        await self._open()
        async for event in self._events:
            yield event

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def aclose(self) -> None:
        """End the call at any point."""
        if self._is_open:
            await super().aclose()
