"""The connections of an `AsyncFast` in one event loop: each is an asyncio protocol that feeds bytes to its parser.

Their sockets are opened here: asyncio's own race of addresses loses a socket that connects while its task is cancelled,
which stays open until the garbage collector finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import cast

from cnllm.system.processes import INHERITED
from cnllm.transports import errors
from cnllm.transports.response_parser import ResponseParser
from cnllm.transports.sockets import (
    HEAD_START,
    LAST_LOOK,
    LOOKUPS,
    Target,
    alternate,
    is_unusable,
    known_targets,
    pop_latest,
    pop_surplus,
)

__all__ = ["AsyncioConnection", "LoopPool", "open_async_socket"]

_SIZE = 16384  # bytes of one read: with 256 streams, all data of one loop iteration is in memory at once
_AHEAD = 65536  # number of unread bytes after which the connection stops reading
_TURNS = 4  # loop iterations: one reads the bytes, and a waiting task may run before it


class AsyncioConnection(asyncio.BufferedProtocol):
    """A connection. All connections of a loop read into one buffer, which each one parses at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, buffer: memoryview, key: tuple[bool, str, int]) -> None:
        self.key = key
        self.reader = ResponseParser()
        self.idle = False  # waits for the next request: no bytes are expected
        self.inherited = False  # from the process that forked this one
        self.full = False  # the send buffer is full
        self.idle_since = 0.0
        self._loop = loop
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[bool] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0

    # ── called by asyncio ────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that all connections of the loop share."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the bytes in the buffer. Pause reading when too many are unread."""
        if self.idle:  # these bytes answer no request
            self.close()
            return
        self.reader.feed(self._buffer[:nbytes])
        if self.reader.status:  # only body bytes are taken; the parser itself limits the headers
            self._unread += nbytes
        if self._unread > _AHEAD and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Report the end of the stream to the parser."""
        self.reader.end()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end or the loss of the connection to the parser."""
        if exc is None:
            self.reader.end()
        else:
            self.reader.connection_lost(str(exc) or type(exc).__name__)
        self._transport = None
        self.reader.release()
        self._wake()

    def pause_writing(self) -> None:
        """Remember that the send buffer is full."""
        self.full = True

    def resume_writing(self) -> None:
        """Remember that the send buffer has room, and wake the task."""
        self.full = False
        self._wake()

    # ── called by the task ───────────────────────────────────────────────────
    @property
    def open(self) -> bool:
        """Whether the connection is open."""
        return self._transport is not None and not self._transport.is_closing()

    def fileno(self) -> int:
        """Return the socket's file descriptor, or -1."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())

    def begin_request(self) -> None:
        """Prepare for a request. Bytes that arrived on a new connection before count as its answer."""
        if not self.open:
            raise ConnectionResetError("the peer closed the connection")
        if self.idle:
            self.reader.begin_response()
            self._unread = 0
            self.idle = False

    def write(self, head: bytes, content: bytes) -> None:
        """Send a request."""
        if self._transport is not None:
            self._transport.write(head + content if len(content) < _AHEAD else head)
            if len(content) >= _AHEAD:
                self._transport.write(content)

    def unsent(self) -> int:
        """Return the number of bytes that wait to be sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def take(self) -> bytes:
        """Return the body bytes since the last call."""
        data = self.reader.take()
        if self.reader.more:  # reading stays paused until all of it is taken
            return data
        if self._unread > _AHEAD and self._transport is not None:
            self._transport.resume_reading()
        self._unread = 0
        return data

    async def wait(self, seconds: float | None) -> bool:
        """Wait for the next event. Return False where none arrived in time."""
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        if seconds is not None:
            self._set_timer(seconds)
        else:
            self.cancel_wait()
        try:
            return await waiter
        finally:
            self._waiter = None

    def cancel_wait(self) -> None:
        """Cancel the pending timeout."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self, *, at_once: bool = True) -> None:
        """Close the connection; without `at_once` after the pending bytes were sent."""
        self.cancel_wait()
        if self._transport is not None:
            if at_once:
                self._transport.abort()
            else:
                self._transport.close()

    def detach(self) -> None:
        """Replace the socket in a child process, because it belongs to the parent.

        The transport's own `close` would remove the socket from the parent loop's selector, which both processes share.
        The file descriptor stays in use, since the loop still refers to it.
        """
        fd = self.fileno()
        self._transport = self._timer = self._waiter = None
        self.inherited = True
        self.reader.connection_lost(INHERITED)
        if fd >= 0:
            with socket.socket() as replacement:
                os.dup2(replacement.fileno(), fd, inheritable=False)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def _set_timer(self, seconds: float) -> None:
        """Set the timeout. One timer serves many waits: when it fires too early, it is set again."""
        self._deadline = deadline = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self, late: asyncio.Future[bool] | None = None) -> None:
        """End the wait, if its time is up. `late` is the wait whose time was up before the loop's last look."""
        self._timer = None
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._on_timer)
        elif waiter is late:
            waiter.set_result(False)
        else:  # a program that was stopped for a while has yet to read what arrived
            self._timer = self._loop.call_later(LAST_LOOK, self._on_timer, waiter)


class LoopPool:
    """Connections in use, idle ones for later requests, and tasks that wait for a place, first come, first served."""

    def __init__(self, limit: int, most_idle: int) -> None:
        self._most_idle = most_idle
        self.buffer = memoryview(bytearray(_SIZE))
        self._places = asyncio.Semaphore(limit)
        self._idle: deque[AsyncioConnection] = deque()
        self._busy: set[AsyncioConnection] = set()
        self.cleanup: AsyncGenerator[None] | None = None  # closes the connections when the loop ends

    async def acquire(self, host: str, seconds: float | None) -> None:
        """Wait for a place. Raise `Timeout` after this many seconds."""
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise errors.no_free_connection(host, seconds) from error

    async def take_idle(self, key: tuple[bool, str, int]) -> AsyncioConnection | None:
        """Remove and return a connection that is still good, the one used last first."""
        while (connection := pop_latest(self._idle, key)) is not None:
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

    def _discard(self, connection: AsyncioConnection) -> None:
        self._busy.discard(connection)
        connection.close()

    def add(self, connection: AsyncioConnection) -> AsyncioConnection:
        """Register a new connection."""
        self._busy.add(connection)
        return connection

    def release(self, connection: AsyncioConnection | None, *, reusable: bool) -> None:
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
        connection.idle_since = now = time.monotonic()
        self._idle.append(connection)
        for surplus in pop_surplus(self._idle, self._most_idle, now):
            surplus.close(at_once=False)

    async def aclose(self) -> None:
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


# ── opening ───────────────────────────────────────────────────────────────────


async def open_async_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Return a connected socket that does not block. One that is not returned is closed.

    Raise `OSError`, or `UnicodeError` for an impossible name.
    """
    targets = alternate(await _resolve(loop, host, port))
    return await (_connect(loop, targets[0]) if len(targets) == 1 else _race(loop, targets))


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Target]:
    """Return the addresses of a host."""
    if (known := known_targets(host, port)) is not None:
        return known
    found: asyncio.Future[list[Target] | Exception] = loop.create_future()

    def deliver(result: list[Target] | Exception) -> None:
        if not found.done():
            found.set_result(result)

    def take(result: list[Target] | Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(deliver, result)

    LOOKUPS.start(host, port, take)
    if isinstance(result := await found, Exception):
        raise result
    return result


async def _race(loop: asyncio.AbstractEventLoop, targets: list[Target]) -> socket.socket:
    """Return the first socket that connects. Addresses start one after another, and none stops those before it."""
    waiting = list(reversed(targets))
    tasks: list[asyncio.Task[socket.socket]] = []
    winner: asyncio.Task[socket.socket] | None = None
    failure: BaseException = OSError("the name has no address")
    try:
        pending: set[asyncio.Task[socket.socket]] = set()
        while winner is None and (waiting or pending):
            if waiting:
                tasks.append(loop.create_task(_connect(loop, waiting.pop())))
                pending.add(tasks[-1])
            seconds = HEAD_START if waiting else None
            done, pending = await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (error := task.exception()) is not None:
                    failure = error
                elif winner is None:
                    winner = task
    finally:
        for task in tasks:
            if task is winner or task.cancel() or task.cancelled():
                continue
            if task.exception() is None:
                task.result().close()
    if winner is None:
        raise failure
    return winner.result()


async def _connect(loop: asyncio.AbstractEventLoop, target: Target) -> socket.socket:
    """Return a socket that is connected to one address."""
    family, kind, protocol, _, address = target
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
