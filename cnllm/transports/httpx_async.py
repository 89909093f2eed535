"""`AsyncHttpx`: the adapter of httpx's async transports, on asyncio or trio. It also serves proxies.

httpx is imported when the first request is sent.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any

from cnllm.engine.encode.plan import Plan
from cnllm.errors import TransportError
from cnllm.system.closing import close_with_loop
from cnllm.system.processes import generation
from cnllm.transports import errors
from cnllm.transports.content_encoding import CodingEnd, Decoder
from cnllm.transports.httpx_backend import OPENED
from cnllm.transports.httpx_parts import (
    HttpxAdapter,
    HttpxBody,
    ProcessState,
    TransportTable,
    error_before_status,
)
from cnllm.transports.sockets import DRAIN_SECONDS, MAX_DRAIN_PIECES, idle_timeout, remaining_time

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncHttpx", "plain_pieces"]


class AsyncHttpx(HttpxAdapter):
    """`Httpx` for `AsyncClient`, on asyncio or trio. Each event loop has its own connections."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None, *, family: str = "httpx") -> None:
        super().__init__(transport, family)

    async def send(self, plan: Plan) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        import anyio

        self._sends.begin(plan)
        try:
            with anyio.CancelScope() as scope:
                self._sends.use(plan, scope.cancel)
                return await self._send(plan)
        finally:
            self._sends.end(plan)
        raise errors.interrupted()

    async def _send(self, plan: Plan) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        state = self._state()
        httpx, (url, key) = state.httpx, state.find(plan.url)
        table = await _table(state) if self._caller_transport is None else None
        entry = None if table is None else table.entry(key)
        transport = self._caller_transport if entry is None else entry.transport
        request, timeouts = state.request(url, plan, entry)
        try:
            if entry is not None and entry.proxy is not None:
                OPENED.set([])
            response = await transport.handle_async_request(request)
        except Exception as error:
            if entry is None and not isinstance(error, httpx.HTTPError | UnicodeError):
                raise
            for stream in OPENED.get() or ():
                if stream.open:
                    await stream.aclose()
            raise error_before_status(error, plan, httpx, entry) from error
        finally:
            OPENED.set(None)
        timeouts["read"] = idle_timeout(plan)
        body = _AsyncHttpxBody(httpx, response, timeouts["read"])
        if entry is not None and table is not None:
            try:
                body.watch = table.watch(entry, response, url.host)
            except TransportError:
                await body.aclose()
                raise
        return response.status_code, body.headers, body

    async def aclose(self) -> None:
        """Close the connections of the running loop. Those of a loop that ended were closed with it."""
        if self._caller_transport is not None:
            if self._home == generation():
                await self._caller_transport.aclose()
            return
        state = self._states.get(generation())
        table = None if state is None else state.loops.pop(running_loop(), None)
        if table is not None and table.cleanup is not None:
            await table.cleanup.aclose()


async def _table(state: ProcessState) -> TransportTable:
    """Return the transports of the running loop, whose end closes them."""
    current = running_loop()
    table = state.loops.get(current)
    if table is None:
        table = TransportTable(state.httpx, asynchronous=True)
        with state.lock:
            for other in list(state.loops):  # a loop closed without cleanup stays alive by its connections
                if getattr(other, "is_closed", bool)():
                    del state.loops[other]
            state.loops[current] = table
        table.cleanup = await close_with_loop(table.aclose)
    return table


def running_loop() -> Any:
    """Return an object that identifies the running event loop, of asyncio or trio."""
    # While another thread imports trio, this module is there without its content.
    find_token = getattr(sys.modules.get("trio.lowlevel"), "current_trio_token", None)
    if find_token is not None:
        with contextlib.suppress(RuntimeError):
            return find_token()
    import asyncio

    return asyncio.get_running_loop()


class _AsyncHttpxBody(HttpxBody):
    """The bytes of a response, asynchronously."""

    def __init__(self, httpx: Any, response: httpx.Response, idle: float | None) -> None:
        super().__init__(httpx, response, idle)
        self._bytes: AsyncIterator[bytes] = self._pieces(AsyncIterable, response.aiter_bytes, aiter, plain_pieces)
        self._remaining: float | None = None  # seconds that reads may still take; the caller's own time does not count
        self._interrupted = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            if self._remaining is None:
                chunk = await self._bytes.__anext__()
                if self.watch is not None:
                    self.watch.silent_size = 0
                return chunk
            import anyio

            began = time.monotonic()
            with anyio.move_on_after(max(self._remaining, 0)):
                chunk = await self._bytes.__anext__()
                self._remaining -= time.monotonic() - began
                if self.watch is not None:
                    self.watch.silent_size = 0
                return chunk
        except StopAsyncIteration:
            await self.aclose()
            raise
        except self._errors as error:
            if self._interrupted:
                raise StopAsyncIteration from None
            raise self._failure(error) from error
        raise StopAsyncIteration

    def set_read_deadline(self, seconds: float | None) -> None:
        """End the body after this many seconds of reading. With 0 end it at once, even during a read; None: never."""
        self._remaining = seconds
        if seconds is not None and seconds <= 0 and not self._response.is_closed:
            self._interrupted = True
            stream = self._response.extensions.get("network_stream")
            sock = stream.get_extra_info("socket") if stream is not None else None
            if sock is not None and hasattr(sock, "shutdown"):
                with contextlib.suppress(OSError):  # it was closed already
                    sock.shutdown(socket.SHUT_RDWR)

    async def drain(self) -> None:
        """Read the end of the body; see `Httpx`."""
        if self._response.is_closed:
            return
        self.set_read_deadline(DRAIN_SECONDS)
        with contextlib.suppress(TransportError):
            for _ in range(MAX_DRAIN_PIECES):
                if await anext(self, None) is None:
                    break

    async def aclose(self) -> None:
        """Stop reading and release the connection."""
        self._check_leftovers()
        await self._response.aclose()


async def plain_pieces(stream: AsyncIterable[bytes], decode: Decoder, idle: float | None) -> AsyncIterator[bytes]:
    """Yield decoded pieces, and let other tasks run meanwhile; see `cnllm.transports.httpx_adapter`."""
    import anyio.lowlevel

    start: float | None = None
    with contextlib.suppress(CodingEnd):
        async for piece in stream:
            for plain in decode(piece):
                if plain:
                    start = None
                    yield plain
                    continue
                if start is None:
                    start = time.monotonic()
                else:
                    remaining_time(idle, start)
                await anyio.lowlevel.checkpoint()
