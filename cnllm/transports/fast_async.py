"""`AsyncFast`: the transport of `AsyncClient` on asyncio, over its streams' bottom layer and llhttp."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from cnllm.engine.encode.plan import Plan
from cnllm.errors import TransportError
from cnllm.system.closing import close_with_loop
from cnllm.system.processes import drop_after_fork, fork_safe
from cnllm.transports import errors
from cnllm.transports.address import Address, Destinations
from cnllm.transports.headers import encode_head
from cnllm.transports.httpx_async import AsyncHttpx
from cnllm.transports.loop_pool import AsyncioConnection, LoopPool, open_async_socket
from cnllm.transports.response_parser import FastBody
from cnllm.transports.sockets import (
    DRAIN_SECONDS,
    IDLE_CONNECTIONS,
    MAX_DRAIN_PIECES,
    Sends,
    idle_timeout,
    remaining_time,
)

__all__ = ["AsyncFast"]


class AsyncFast:
    """Keeps connections alive, separately for each event loop. At most `connections` are in use at once in one loop.

    At most `idle` wait for the next request, each for a minute.

    It leaves rare cases to httpx: event loops other than asyncio's, proxies of the environment, and headers that change
    a message's framing.
    """

    def __init__(self, *, connections: int = 4096, idle: int | None = None) -> None:
        self._limit, self._most_idle = connections, IDLE_CONNECTIONS if idle is None else idle
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPool] = weakref.WeakKeyDictionary()
        self._httpx = AsyncHttpx()
        self._destinations = Destinations()
        self._lock = fork_safe(threading.Lock())
        self._sends = Sends()
        drop_after_fork(self)

    async def send(self, plan: Plan) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        destination = self._destinations.known.get(plan.url) or self._destinations.find(plan.url)
        address = destination.address
        head = encode_head(plan, address)
        pool = await self._pool()
        if pool is None or head is None or destination.proxy is not None:
            return await self._httpx.send(plan)
        self._sends.begin(plan)
        try:
            connection = await self._request(pool, address, head, plan)
        finally:
            self._sends.end(plan)
        return connection.reader.status, connection.reader.headers, _AsyncFastBody(pool, connection, idle_timeout(plan))

    async def _request(self, pool: LoopPool, address: Address, head: bytes, plan: Plan) -> AsyncioConnection:
        """Send the request, and return its connection when the headers are complete."""
        await pool.acquire(address.host, plan.timeouts.first_byte)
        connection: AsyncioConnection | None = None
        try:
            connection = await pool.take_idle(address.key) or await self._connect(pool, address, plan.timeouts.connect)
            self._sends.use(plan, connection.close)
            await _request(connection, head, plan, address.host)
        except BaseException as error:
            pool.release(connection, reusable=False)
            if connection is None:
                error.sent = False  # type: ignore[attr-defined]  # also where the task is cancelled
            raise
        return connection

    def interrupt(self, plan: Plan) -> None:
        """End a request whose response has not begun, from another task."""
        self._sends.interrupt(plan)
        self._httpx.interrupt(plan)

    async def warm(self, plan: Plan) -> None:
        """Open a connection for a plan that will be sent later."""
        destination = self._destinations.find(plan.url)
        address, pool = destination.address, await self._pool()
        if pool is None or destination.proxy is not None:
            return
        await pool.acquire(address.host, plan.timeouts.first_byte)
        connection: AsyncioConnection | None = None
        try:
            connection = await pool.take_idle(address.key) or await self._connect(pool, address, plan.timeouts.connect)
        finally:
            pool.release(
                connection, reusable=connection is not None and (connection.idle or not connection.reader.began)
            )

    async def aclose(self) -> None:
        """Close the connections of the running loop. Those of a loop that ended were closed with it."""
        pool = await self._pool(create=False)
        if pool is not None:
            await pool.aclose()
        await self._httpx.aclose()

    def drop_inherited(self) -> None:
        """Start empty in a child process: connections and loops belong to the parent."""
        loops, self._loops = self._loops, weakref.WeakKeyDictionary()
        for pool in list(loops.values()):
            pool.drop_inherited()

    async def _pool(self, *, create: bool = True) -> LoopPool | None:
        """Return the pool of the running loop; None for a loop that is not asyncio's."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        pool = self._loops.get(loop)
        if pool is None and create:
            pool = LoopPool(self._limit, self._most_idle)
            with self._lock:
                self._loops[loop] = pool
            pool.cleanup = await close_with_loop(pool.aclose)
        return pool

    async def _connect(self, pool: LoopPool, address: Address, seconds: float | None) -> AsyncioConnection:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {}
        if address.encrypted:
            options = {"ssl": self._destinations.tls_context(), "server_hostname": address.host}
        try:
            async with asyncio.timeout(seconds):
                options["sock"] = await open_async_socket(loop, address.host, address.port)
                coroutine = loop.create_connection(lambda: AsyncioConnection(loop, pool.buffer, address.key), **options)
                _, connection = await coroutine
                return pool.add(connection)
        except (OSError, UnicodeError) as error:
            raise address.connect_error(error, seconds) from error


async def _request(connection: AsyncioConnection, head: bytes, plan: Plan, host: str) -> None:
    """Send the request and wait until the headers are complete."""
    reader, timeouts = connection.reader, plan.timeouts
    try:
        connection.begin_request()
        connection.write(head, plan.content)
        while connection.full and not reader.status and reader.fault is None:
            unsent_before = connection.unsent()
            if not await connection.wait(timeouts.idle) and connection.unsent() >= unsent_before:
                raise TimeoutError
        start = time.monotonic()
        while not reader.status:
            if reader.fault is not None:
                raise errors.error_before_status(host, reader.fault, began=reader.began)
            if not await connection.wait(
                remaining_time(timeouts.first_byte, start)
            ):  # a slow trickle of headers does not extend the wait
                raise TimeoutError
    except TimeoutError as error:
        raise errors.status_timeout(host, timeouts.first_byte) from error
    except OSError as error:
        raise errors.error_before_status(host, str(error) or type(error).__name__, began=reader.began) from error


class _AsyncFastBody(FastBody):
    """The bytes of a response."""

    _connection: AsyncioConnection | None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        return self._read()

    async def _read(self) -> bytes:
        """Return the next piece of content from the connection. Whatever else arrives does not extend the wait."""
        if self._ready:
            data, self._ready = self._ready, b""
            return data
        start: float | None = None  # when the first bytes without content arrived
        waited = False
        while True:
            connection = self._connection
            if connection is None:
                fault, self._fault = self._fault, None
                if fault is None or self._interrupted:
                    raise StopAsyncIteration
                raise errors.body_broken(fault)
            data = connection.take()
            self._release_if_done(connection)
            if data:
                return data
            if self._connection is None:
                continue
            if start is None and (waited or connection.reader.more):
                start = time.monotonic()
            waited = True
            if not await self._wait(connection, start):
                self._release(reusable=False)
                if self._remaining is not None:
                    raise StopAsyncIteration
                raise errors.body_stalled(self._idle, only_framing=start is not None)

    async def _wait(self, connection: AsyncioConnection, start: float | None) -> bool:
        """Wait for more bytes, or let other tasks run where bytes are still to be decoded. Return False at the end."""
        remaining = self._remaining
        try:
            idle = self._idle if start is None else remaining_time(self._idle, start)
        except TimeoutError:
            return False
        if connection.reader.more:
            await asyncio.sleep(0)
            return True
        if remaining is None:
            return await connection.wait(idle)
        if remaining <= 0:
            return False
        began = time.monotonic()
        try:
            return await connection.wait(remaining if idle is None else min(remaining, idle))
        finally:
            self._remaining = remaining - (time.monotonic() - began)

    def _release(self, *, reusable: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection, reusable=reusable)

    def set_read_deadline(self, seconds: float | None) -> None:
        """End the body after this many seconds of reading. With 0 end it at once, even during a read; None: never."""
        self._remaining = seconds
        if seconds is not None and seconds <= 0:
            self._interrupted = True
            if self._connection is not None:
                self._connection.close()

    async def drain(self) -> None:
        """Read the end of the body; see `Fast`."""
        if self._connection is None:
            return
        self.set_read_deadline(DRAIN_SECONDS)
        with contextlib.suppress(TransportError):
            for _ in range(MAX_DRAIN_PIECES):
                if await anext(self, None) is None:
                    break

    async def aclose(self) -> None:
        """Stop reading and close the connection."""
        self._release(reusable=False)
