"""Bound what a server makes this process keep: the answers to its own requests, where it does not read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

__all__ = ["bounded_streams"]

_MAX_WAITING = 1000  # messages to a server that does not read


@asynccontextmanager
async def bounded_streams(transport: Any) -> AsyncIterator[tuple[_Reader, _Writer]]:
    """Yield the streams of a transport. Nothing is read from a server while too many messages to it wait."""
    async with transport as (read, write):
        writer = _Writer(write)
        yield _Reader(read, writer.has_room), writer


class _Stream:
    """A stream of messages in front of another one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Writer(_Stream):
    """The messages to a server. `has_room` is set while few of them wait."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.has_room = asyncio.Event()
        self.has_room.set()
        self._waiting = 0

    async def send(self, message: Any) -> None:
        self._count(1)
        try:
            await self._stream.send(message)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._waiting += change
        if self._waiting < _MAX_WAITING:
            self.has_room.set()
        else:
            self.has_room.clear()


class _Reader(_Stream):
    """The messages from a server."""

    def __init__(self, stream: Any, has_room: asyncio.Event) -> None:
        super().__init__(stream)
        self._has_room = has_room

    async def receive(self) -> Any:
        await self._has_room.wait()
        return await self._stream.receive()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        await self._has_room.wait()
        return await anext(self._stream)
