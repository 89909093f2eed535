"""The connections of an `AsyncFast` in one event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator

from cnllm.transports.asyncio_connection import AsyncioConnection
from cnllm.transports.headers import IDLE
from cnllm.transports.liveness import is_unusable

__all__ = ["LoopPool"]

_SIZE = 16384  # bytes of one read: of 256 streams, all that one turn of the loop brings lies in memory
_TURNS = 4  # of the loop: one reads what was there, and whoever waits may have been woken before it


class LoopPool:
    """Those in use, those kept for the next request, and who waits for a place: first come, first served."""

    def __init__(self, limit: int) -> None:
        self.buffer = memoryview(bytearray(_SIZE))
        self._free = asyncio.Semaphore(limit)
        self._idle: deque[AsyncioConnection] = deque()
        self._busy: set[AsyncioConnection] = set()
        self._end: AsyncGenerator[None] | None = None

    async def watch(self) -> None:
        """Have the connections closed when the loop ends: it ends its generators then."""
        self._end = self._until_the_end()
        await anext(self._end)

    async def _until_the_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.close()

    async def acquire(self) -> None:
        """A place."""
        await self._free.acquire()

    async def take_idle(self, key: tuple[bool, str, int]) -> AsyncioConnection | None:
        """A connection that is still good; the one used last is the most likely to be."""
        while (wire := self._latest(key)) is not None:
            self._busy.add(wire)
            try:
                good = await _good(wire)
            except BaseException:
                self._give_up(wire)
                raise
            if good:
                return wire
            self._give_up(wire)
        return None

    def _latest(self, key: tuple[bool, str, int]) -> AsyncioConnection | None:
        idle = self._idle
        for at in range(len(idle) - 1, -1, -1):
            if idle[at].key == key:
                wire = idle[at]
                del idle[at]
                return wire
        return None

    def _give_up(self, wire: AsyncioConnection) -> None:
        self._busy.discard(wire)
        wire.close()

    def add(self, wire: AsyncioConnection) -> AsyncioConnection:
        """A new connection."""
        self._busy.add(wire)
        return wire

    def release(self, wire: AsyncioConnection | None, reusable: bool) -> None:
        """A place is free, and the connection is kept if it can be."""
        if wire is not None and wire.inherited:
            return
        self._free.release()
        if wire is None:
            return
        known = wire in self._busy
        self._busy.discard(wire)
        if not (known and reusable and wire.open):
            wire.close()
            return
        wire.cancel_wait()
        wire.idle = True
        wire.since = time.monotonic()
        self._idle.append(wire)
        if len(self._idle) > IDLE:
            self._idle.popleft().close(at_once=False)

    def close(self) -> None:
        """Close what is kept and what is in use; what reads there notices."""
        idle, self._idle = self._idle, deque()
        busy, self._busy = self._busy, set()
        for wire in (*idle, *busy):
            wire.close()

    def drop_inherited(self) -> None:
        """In a child process: the connections are the parent's, and so is their loop."""
        inherited = [*self._idle, *self._busy]
        self._idle, self._busy = deque(), set()
        for wire in inherited:
            wire.detach()


async def _good(wire: AsyncioConnection) -> bool:
    """Can it be used again?

    Before its first response, what there is to read on an encrypted one may be TLS's own: the loop gets turns to see.
    """
    for _ in range(_TURNS):
        if not wire.open or wire.reader.fault:
            return False
        if not is_unusable(wire.fileno(), wire.since):
            return True
        if not wire.key[0] or wire.reader.complete:
            return False
        await asyncio.sleep(0)
    return False
