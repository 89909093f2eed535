"""The connections of an `AsyncFast` in one event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator

from cnllm.transports.asyncio_connection import AsyncioConnection
from cnllm.transports.headers import MAX_IDLE_CONNECTIONS
from cnllm.transports.liveness import is_unusable

__all__ = ["LoopPool"]

_SIZE = 16384  # bytes of one read: with 256 streams, all data of one loop iteration is in memory at once
_TURNS = 4  # loop iterations: one reads the bytes, and a waiting task may run before it


class LoopPool:
    """Connections in use, idle ones for later requests, and tasks that wait for a place, first come, first served."""

    def __init__(self, limit: int) -> None:
        self.buffer = memoryview(bytearray(_SIZE))
        self._places = asyncio.Semaphore(limit)
        self._idle: deque[AsyncioConnection] = deque()
        self._busy: set[AsyncioConnection] = set()
        self._cleanup: AsyncGenerator[None] | None = None

    async def watch(self) -> None:
        """Close the connections when the loop ends: it closes its async generators then."""
        self._cleanup = self._close_at_loop_end()
        await anext(self._cleanup)

    async def _close_at_loop_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.close()

    async def acquire(self, seconds: float | None) -> None:
        """Wait for a place. Raise `TimeoutError` after this many seconds."""
        if self._places.locked():
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        else:
            await self._places.acquire()

    async def take_idle(self, key: tuple[bool, str, int]) -> AsyncioConnection | None:
        """Remove and return a connection that is still good, the one used last first."""
        while (connection := self._pop_latest(key)) is not None:
            self._busy.add(connection)
            try:
                usable = await _is_usable(connection)
            except BaseException:
                self._discard(connection)
                raise
            if usable:
                return connection
            self._discard(connection)
        return None

    def _pop_latest(self, key: tuple[bool, str, int]) -> AsyncioConnection | None:
        idle = self._idle
        for index in range(len(idle) - 1, -1, -1):
            if idle[index].key == key:
                connection = idle[index]
                del idle[index]
                return connection
        return None

    def _discard(self, connection: AsyncioConnection) -> None:
        self._busy.discard(connection)
        connection.close()

    def add(self, connection: AsyncioConnection) -> AsyncioConnection:
        """Register a new connection."""
        self._busy.add(connection)
        return connection

    def release(self, connection: AsyncioConnection | None, reusable: bool) -> None:
        """Free a place, and keep the connection if it is reusable."""
        if connection is not None and connection.inherited:
            return
        self._places.release()
        if connection is None:
            return
        registered = connection in self._busy
        self._busy.discard(connection)
        if not (registered and reusable and connection.open):
            connection.close()
            return
        connection.cancel_wait()
        connection.idle = True
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE_CONNECTIONS:
            self._idle.popleft().close(at_once=False)

    def close(self) -> None:
        """Close all connections. Their readers notice."""
        idle, self._idle = self._idle, deque()
        busy, self._busy = self._busy, set()
        for connection in (*idle, *busy):
            connection.close()

    def drop_inherited(self) -> None:
        """Forget the connections in a child process: they and their loop belong to the parent."""
        inherited = [*self._idle, *self._busy]
        self._idle, self._busy = deque(), set()
        for connection in inherited:
            connection.detach()


async def _is_usable(connection: AsyncioConnection) -> bool:
    """Whether the connection can serve another request.

    Before its first response, unread bytes on an encrypted connection may belong to TLS: the loop gets a few iterations
    to read them.
    """
    for _ in range(_TURNS):
        if not connection.open or connection.reader.fault:
            return False
        if not is_unusable(connection.fileno(), connection.idle_since):
            return True
        if not connection.key[0] or connection.reader.complete:
            return False
        await asyncio.sleep(0)
    return False
