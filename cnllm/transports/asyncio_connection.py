"""One connection of `AsyncFast`, as asyncio's protocol: bytes go to the reader as they come, and wake one task."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import cast

from cnllm.config.process import INHERITED
from cnllm.transports.response_parser import ResponseParser

__all__ = ["AsyncioConnection"]

_AHEAD = 65536  # bytes that may lie here unread; then the peer has to wait, and nobody else


class AsyncioConnection(asyncio.BufferedProtocol):
    """All wires of a loop read into one buffer: what is in it is parsed before the next one's turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, buffer: memoryview, key: tuple[bool, str, int]) -> None:
        self.key = key
        self.reader = ResponseParser()
        self.idle = False  # kept for the next request: no byte is awaited
        self.inherited = False  # from the process that forked this one
        self.full = False  # more is to be sent than the system takes
        self.since = 0.0
        self._loop = loop
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[bool] | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0

    # ── asyncio's side ───────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.idle:  # whatever it is, it answers no request that is to come
            self.close()
            return
        self.reader.feed(self._buffer[:nbytes])
        if self.reader.status:  # nobody takes headers, and the reader bounds them
            self._unread += nbytes
        if self._unread > _AHEAD and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self.reader.end()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self.reader.end()
        else:
            self.reader.connection_lost(str(exc) or type(exc).__name__)
        self._transport = None
        self._wake()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self._wake()

    # ── the task's side ──────────────────────────────────────────────────────
    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def fileno(self) -> int:
        """The socket's, to look whether something is there."""
        plug = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if plug is None else int(plug.fileno())

    def begin_request(self) -> None:
        """A request goes out. What a new connection brought before that answers it, as it would a moment later."""
        if not self.open:
            raise ConnectionResetError("the peer closed the connection")
        if self.idle:
            self.reader.begin_response()
            self._unread = 0
            self.idle = False

    def write(self, head: bytes, content: bytes) -> None:
        if self._transport is not None:
            self._transport.write(head + content if len(content) < _AHEAD else head)
            if len(content) >= _AHEAD:
                self._transport.write(content)

    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def take(self) -> bytes:
        """What has been read of the body since the last time."""
        data = self.reader.take()
        if self.reader.more:  # the peer waits until it has been taken
            return data
        if self._unread > _AHEAD and self._transport is not None:
            self._transport.resume_reading()
        self._unread = 0
        return data

    async def wait(self, seconds: float | None) -> bool:
        """Until something happens. False: nothing did in time."""
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        if seconds is not None:
            self._set(seconds)
        else:
            self.cancel_wait()
        try:
            return await waiter
        finally:
            self._waiter = None

    def cancel_wait(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self, at_once: bool = True) -> None:
        self.cancel_wait()
        if self._transport is not None:
            if at_once:
                self._transport.abort()
            else:
                self._transport.close()

    def detach(self) -> None:
        """In a child process: put another socket in the place of this one, which is its parent's.

        The transport's own `close` would take the socket out of what the parent's loop waits for: both processes share
        that. The number stays taken, since the loop still knows it.
        """
        number = self.fileno()
        self._transport = self._timer = self._waiter = None
        self.inherited = True
        self.reader.connection_lost(INHERITED)
        if number >= 0:
            with socket.socket() as other:
                os.dup2(other.fileno(), number, inheritable=False)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def _set(self, seconds: float) -> None:
        """One timer serves many waits: it looks at the clock when it rings, and is set anew if it was too early."""
        self._until = until = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= until:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(until, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._ring)
        else:
            self._waiter.set_result(False)
