"""`AsyncFast`: the transport of `AsyncClient` on asyncio, over its streams' bottom layer and llhttp."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
import weakref
from collections.abc import AsyncIterator
from typing import Any

from cnllm.config.process import drop_after_fork
from cnllm.engine.encode.plan import Plan
from cnllm.errors import TransportError
from cnllm.transports import errors, tls
from cnllm.transports.address import Address, parse_address
from cnllm.transports.asyncio_connection import AsyncioConnection
from cnllm.transports.headers import DRAIN, LEFTOVERS, URLS, idle_timeout, proxy_for, time_left
from cnllm.transports.httpx_adapter import AsyncHttpx
from cnllm.transports.loop_pool import LoopPool
from cnllm.transports.request_head import encode_head

__all__ = ["AsyncFast"]


class AsyncFast:
    """Keeps connections alive, those of each event loop apart; `connections` at most are in use at once in one loop.

    What is rare goes over httpx: other loops than asyncio's, proxies that the environment names, and headers that
    change a message's framing.
    """

    def __init__(self, *, connections: int = 4096) -> None:
        self._limit = connections
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPool] = weakref.WeakKeyDictionary()
        self._httpx = AsyncHttpx()
        self._addresses: dict[str, Address] = {}
        self._proxies: dict[str, str | None] = {}
        self._trust: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        drop_after_fork(self)

    async def send(self, plan: Plan) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        to = self._addresses.get(plan.url) or self._remember(plan.url)
        head = encode_head(plan, to)
        here = await self._here()
        if here is None or head is None or proxy_for(to.scheme, to.host, self._proxies, to.port) is not None:
            return await self._httpx.send(plan)
        await here.acquire()
        wire: AsyncioConnection | None = None
        try:
            wire = await here.take_idle(to.key) or await self._connect(here, to, plan.timeouts.connect)
            await _ask(wire, head, plan, to.host)
        except BaseException:
            here.release(wire, False)
            raise
        return wire.reader.status, wire.reader.headers, _Body(here, wire, idle_timeout(plan))

    async def warm(self, plan: Plan) -> None:
        """Have a connection ready for a plan that is going to be sent."""
        to = self._addresses.get(plan.url) or self._remember(plan.url)
        here = await self._here()
        if here is None or proxy_for(to.scheme, to.host, self._proxies, to.port) is not None:
            return
        await here.acquire()
        wire: AsyncioConnection | None = None
        try:
            wire = await here.take_idle(to.key) or await self._connect(here, to, plan.timeouts.connect)
        finally:
            here.release(wire, wire is not None and (wire.idle or not wire.reader.began))

    async def aclose(self) -> None:
        """Close the connections of the running loop; those of a loop that ended were closed with it."""
        here = await self._here(make=False)
        if here is not None:
            here.close()
        await self._httpx.aclose()

    def drop_inherited(self) -> None:
        """Begin anew in a child process: connections, loops and locks are the parent's."""
        self._lock = threading.Lock()
        loops, self._loops = self._loops, weakref.WeakKeyDictionary()
        for here in list(loops.values()):
            here.drop_inherited()

    async def _here(self, make: bool = True) -> LoopPool | None:
        """What belongs to the running loop; None where it is none of asyncio's."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        found = self._loops.get(loop)
        if found is None and make:
            found = LoopPool(self._limit)
            with self._lock:
                self._loops[loop] = found
            await found.watch()
        return found

    def _remember(self, url: str) -> Address:
        if len(self._addresses) >= URLS:
            self._addresses.clear()
        found = self._addresses[url] = parse_address(url)
        return found

    async def _connect(self, here: LoopPool, to: Address, patience: float | None) -> AsyncioConnection:
        loop = asyncio.get_running_loop()
        how: dict[str, Any] = {}
        if to.encrypted:
            how = {"ssl": self._trusting(), "server_hostname": to.host}
        if isinstance(loop, asyncio.BaseEventLoop):  # uvloop's does not know it
            how["happy_eyeballs_delay"] = 0.25
        try:
            async with asyncio.timeout(patience):
                made = loop.create_connection(
                    lambda: AsyncioConnection(loop, here.buffer, to.key), to.host, to.port, **how
                )
                _, wire = await made
                return here.add(wire)
        except TimeoutError as error:
            raise errors.connect_timeout(to.host, patience) from error
        except UnicodeError as error:  # a label of the host's name is empty or too long
            raise errors.unsupported_url(f"{to.scheme}://{to.name}") from error
        except OSError as error:
            raise errors.connect_failed(to.host, str(error) or type(error).__name__) from error

    def _trusting(self) -> ssl.SSLContext:
        with self._lock:
            if self._trust is None:
                self._trust = tls.client_context()
            return self._trust


async def _ask(wire: AsyncioConnection, head: bytes, plan: Plan, host: str) -> None:
    """Send the request and wait until the headers are complete."""
    reader, timeouts = wire.reader, plan.timeouts
    try:
        wire.begin_request()
        wire.write(head, plan.content)
        while wire.full and not reader.status and reader.fault is None:
            before = wire.unsent()
            if not await wire.wait(timeouts.idle) and wire.unsent() >= before:
                raise TimeoutError
        began = time.monotonic()
        while not reader.status:
            if reader.fault is not None:
                raise errors.error_before_status(host, reader.fault, reader.began)
            if not await wire.wait(time_left(timeouts.first_byte, began)):  # drops of headers are no answer
                raise TimeoutError
    except TimeoutError as error:
        raise errors.status_timeout(host, timeouts.first_byte) from error
    except OSError as error:
        raise errors.error_before_status(host, str(error) or type(error).__name__, reader.began) from error


class _Body:
    """The bytes of a response."""

    def __init__(self, here: LoopPool, wire: AsyncioConnection, idle: float | None) -> None:
        self._here = here
        self._wire: AsyncioConnection | None = wire
        self._idle = idle
        self._fault: str | None = None
        self._left: float | None = None  # seconds that reading may still take; the reader's own time does not count
        self._ready = wire.take()  # what came with the headers
        self._settle(wire)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        data = self._ready
        if data:
            self._ready = b""
            return data
        return await self._read()

    async def _read(self) -> bytes:
        """The next piece as it comes over the wire."""
        while True:
            wire = self._wire
            if wire is None:
                fault, self._fault = self._fault, None
                if fault is None:
                    raise StopAsyncIteration
                raise errors.body_broken(fault)
            data = wire.take()
            self._settle(wire)
            if data:
                return data
            if self._wire is not None and not wire.reader.more and not await self._came(wire):
                self._let_go(False)
                if self._left is not None:
                    raise StopAsyncIteration
                raise errors.body_stalled(self._idle)

    async def _came(self, wire: AsyncioConnection) -> bool:
        """Wait for more. False: it did not come in time."""
        left = self._left
        if left is None:
            return await wire.wait(self._idle)
        if left <= 0:
            return False
        began = time.monotonic()
        try:
            return await wire.wait(left if self._idle is None else min(left, self._idle))
        finally:
            self._left = left - (time.monotonic() - began)

    def _settle(self, wire: AsyncioConnection) -> None:
        """Give the connection back when the body is complete, or up when it is broken."""
        if wire.reader.more:
            return  # what it has is taken first
        if wire.reader.fault is not None:
            self._fault = wire.reader.fault
            self._let_go(False)
        elif wire.reader.complete:
            self._let_go(wire.reader.reusable)

    def _let_go(self, reusable: bool) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            self._here.release(wire, reusable)

    def set_read_deadline(self, seconds: float) -> None:
        """Let reading end after so many seconds of it."""
        self._left = seconds

    async def drain(self) -> None:
        """As in the other one."""
        if self._wire is None:
            return
        self.set_read_deadline(DRAIN)
        with contextlib.suppress(TransportError):
            for _ in range(LEFTOVERS):
                if await anext(self, None) is None:
                    break

    async def aclose(self) -> None:
        """Read no more."""
        self._let_go(False)
