"""httpx's transports as ours: the adapter that is always there, and the one for proxies, trio and what is rare.

httpx is imported when the first request is sent.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import sys
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

from cnllm.config import process
from cnllm.engine.encode.plan import Plan
from cnllm.errors import TransportError
from cnllm.transports import errors
from cnllm.transports.content_encoding import DecodingError, body_decoder
from cnllm.transports.headers import DRAIN, LEFTOVERS, idle_timeout
from cnllm.transports.httpx_backend import OPENED
from cnllm.transports.httpx_parts import (
    OwnTransport,
    ProcessState,
    error_before_status,
    error_during_body,
    httpx_package,
    httpx_timeouts,
    make_transport,
    refuse_inherited,
    watch_response,
)
from cnllm.transports.watchdog import Alarm, Watchdog

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncHttpx", "Httpx"]

Key = tuple[bool, str | None]


class Httpx:
    """httpx's transports, which keep connections alive; a proxy that the environment names is used.

    They are driven directly: `httpx.Client` would add a third to the cost of a request for redirects, cookies and hooks
    that are not wanted here. A transport of the caller's own takes every request; it may be one of httpx2, its
    successor, which `family="httpx2"` takes where none is given. A forked process begins with connections of its own.
    """

    def __init__(self, transport: httpx.BaseTransport | None = None, *, family: str = "httpx") -> None:
        self._given = transport
        self._family = family
        self._home = process.generation()
        self._states: dict[int, _State] = {}  # one for each process: those of its parents are never touched

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        state = self._state()
        httpx, given, waits, url = state.httpx, self._given, httpx_timeouts(plan.timeouts), state.url(plan.url)
        if given is not None:
            refuse_inherited(httpx, given, self._home)
        own = state.own(url) if given is None else None
        transport: Any = given if own is None else own.transport
        request = state.request(url, plan, waits, own)
        try:
            if own is not None and own.proxy is not None:
                OPENED.set([])
            response = transport.handle_request(request)
        except httpx.LocalProtocolError:
            response = None
        except Exception as error:
            if own is None and not isinstance(error, httpx.HTTPError | UnicodeError):
                raise  # a transport of the caller's raises what it likes
            for stream in OPENED.get() or ():
                if stream.open:
                    stream.close()
            raise error_before_status(error, plan, httpx, own) from error
        finally:
            OPENED.set(None)
        if response is None:  # said out here: that error's message shows the header, and stays in the context of ours
            raise errors.invalid_header(plan)
        waits["read"] = idle = idle_timeout(plan)  # httpcore reads it when it begins with the body
        body = _Body(httpx, response, idle, state.watchdog)
        if own is not None:
            try:
                body.look = watch_response(own, response, url.host)
            except TransportError:
                body.close()
                raise
            if body.look is None and own.pool is not None:
                state.forget(own)
        return response.status_code, body.headers, body

    def _state(self) -> _State:
        generation = process.generation()
        found = self._states.get(generation)
        if found is None:  # threads agree on one
            found = self._states.setdefault(generation, _State(httpx_package(self._given, self._family)))
        return found

    def close(self) -> None:
        """Close the connections. Those of a parent process are its own."""
        if self._given is not None:
            if self._home == process.generation():
                self._given.close()
            return
        state = self._states.get(process.generation())
        for own in () if state is None else list(state.made.values()):
            own.transport.close()


class _State(ProcessState):
    """Of one process that blocks."""

    def __init__(self, httpx: Any) -> None:
        super().__init__(httpx)
        self.made: dict[Key, OwnTransport] = {}
        self.watchdog = Watchdog()

    def own(self, url: Any) -> OwnTransport:
        """Return the transport for an address."""
        key = self.key(url)
        found = self.made.get(key)
        if found is None:
            found = self.made.setdefault(
                key, make_transport(self.httpx, key, asynchronous=False)
            )  # threads agree on one
        return found

    def forget(self, own: OwnTransport) -> None:
        """Send nothing more over a transport."""
        self.made = {key: value for key, value in self.made.items() if value is not own}


class _Body:
    """The bytes of a response."""

    def __init__(self, httpx: Any, response: httpx.Response, idle: float | None, watchdog: Watchdog) -> None:
        self.headers = _headers(response.headers)
        self.look: Callable[[], None] | None = None  # whether anything stands behind the response
        self._httpx = httpx
        self._response = response
        self._idle = idle
        self._bytes = _plain(response, self.headers)
        self._watchdog = watchdog
        self._alarm: Alarm | None = None
        self._hurried = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._bytes)
        except StopIteration:
            self._end()
            raise
        except (self._httpx.HTTPError, self._httpx.StreamError, DecodingError) as error:
            if self._hurried:
                raise StopIteration from None
            raise error_during_body(error, self._idle, self._httpx) from error

    def set_read_deadline(self, seconds: float) -> None:
        """Wake a read that would wait longer, by shutting the socket down."""
        stream = self._response.extensions.get("network_stream")
        plug = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(plug, socket.socket):
            self._calm()
            self._alarm = self._watchdog.schedule(seconds, lambda: self._shut(plug))

    def drain(self) -> None:
        """The end of the body mostly came with its last bytes; a peer that keeps it back is not waited for."""
        if self._response.is_closed or self._hurried:
            return
        self.set_read_deadline(DRAIN)
        with contextlib.suppress(TransportError):
            for _ in itertools.islice(self, LEFTOVERS):
                pass

    def _shut(self, plug: socket.socket) -> None:
        if self._response.is_closed:
            return  # read to its end: the connection may serve another request already
        self._hurried = True
        with contextlib.suppress(OSError):  # it was closed already
            socket.socket.shutdown(plug, socket.SHUT_RDWR)  # not TLS's own, which a reading thread would not survive

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()  # in the next moment the connection may serve another request

    def close(self) -> None:
        self._calm()
        self._end()

    def _end(self) -> None:
        """Give the connection back, or close it if there is more to read."""
        look, self.look = self.look, None
        if look is not None:
            look()
        self._response.close()


class AsyncHttpx:
    """The same for `AsyncClient`, on asyncio or trio; each event loop has connections of its own."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None, *, family: str = "httpx") -> None:
        self._given = transport
        self._family = family
        self._home = process.generation()
        self._states: dict[int, _AsyncState] = {}

    async def send(self, plan: Plan) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        state = self._state()
        httpx, given, waits, url = state.httpx, self._given, httpx_timeouts(plan.timeouts), state.url(plan.url)
        if given is not None:
            refuse_inherited(httpx, given, self._home)
        loop = await state.loop() if given is None else None
        own = None if loop is None else loop.own(state, url)
        transport: Any = given if own is None else own.transport
        request = state.request(url, plan, waits, own)
        try:
            if own is not None and own.proxy is not None:
                OPENED.set([])
            response = await transport.handle_async_request(request)
        except httpx.LocalProtocolError:
            response = None
        except Exception as error:
            if own is None and not isinstance(error, httpx.HTTPError | UnicodeError):
                raise
            for stream in OPENED.get() or ():
                if stream.open:
                    await stream.aclose()
            raise error_before_status(error, plan, httpx, own) from error
        finally:
            OPENED.set(None)
        if response is None:  # said out here: that error's message shows the header, and stays in the context of ours
            raise errors.invalid_header(plan)
        waits["read"] = idle = idle_timeout(plan)
        body = _AsyncBody(httpx, response, idle)
        if own is not None and loop is not None:
            try:
                body.look = watch_response(own, response, url.host)
            except TransportError:
                await body.aclose()
                raise
            if body.look is None and own.pool is not None:
                loop.forget(own)
        return response.status_code, body.headers, body

    def _state(self) -> _AsyncState:
        generation = process.generation()
        found = self._states.get(generation)
        if found is None:
            found = self._states.setdefault(generation, _AsyncState(httpx_package(self._given, self._family)))
        return found

    async def aclose(self) -> None:
        """Close the connections of the running loop; those of a loop that ended were closed with it."""
        if self._given is not None:
            if self._home == process.generation():
                await self._given.aclose()
            return
        state = self._states.get(process.generation())
        loop = None if state is None else state.loops.pop(running_loop(), None)
        if loop is not None:
            await loop.aclose()


class _AsyncState(ProcessState):
    """Of one process with event loops, one after the other or in several threads."""

    def __init__(self, httpx: Any) -> None:
        super().__init__(httpx)
        self.loops: weakref.WeakKeyDictionary[Any, _Loop] = weakref.WeakKeyDictionary()
        self._lock = process.fork_safe(Lock())

    async def loop(self) -> _Loop:
        """Return what belongs to the running loop."""
        running = running_loop()
        found = self.loops.get(running)
        if found is None:
            found = _Loop()
            with self._lock:
                for other in list(self.loops):  # one that was closed in haste keeps itself alive by its connections
                    if getattr(other, "is_closed", bool)():
                        del self.loops[other]
                self.loops[running] = found
            await found.watch()
        return found


class _Loop:
    """The transports of one event loop. Its end closes them."""

    def __init__(self) -> None:
        self._made: dict[Key, OwnTransport] = {}
        self._end: AsyncGenerator[None] | None = None

    async def watch(self) -> None:
        """Have them closed when the loop ends: it ends its generators then."""
        self._end = self._until_the_end()
        await anext(self._end)

    async def _until_the_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            made, self._made = self._made, {}
            for own in made.values():
                with contextlib.suppress(Exception):
                    await own.transport.aclose()

    def own(self, state: ProcessState, url: Any) -> OwnTransport:
        """Return the transport for an address."""
        key = state.key(url)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make_transport(state.httpx, key, asynchronous=True)
        return found

    def forget(self, own: OwnTransport) -> None:
        """Send nothing more over a transport."""
        self._made = {key: value for key, value in self._made.items() if value is not own}

    async def aclose(self) -> None:
        """Close them now."""
        if self._end is not None:
            await self._end.aclose()


def running_loop() -> Any:
    """Return what stands for the running event loop."""
    trio = sys.modules.get("trio")
    if trio is not None:
        with contextlib.suppress(RuntimeError):
            return trio.lowlevel.current_trio_token()
    import asyncio

    return asyncio.get_running_loop()


class _AsyncBody:
    """The bytes of a response, asynchronously."""

    def __init__(self, httpx: Any, response: httpx.Response, idle: float | None) -> None:
        self.headers = _headers(response.headers)
        self.look: Callable[[], None] | None = None
        self._httpx = httpx
        self._response = response
        self._idle = idle
        self._bytes = _aplain(response, self.headers)
        self._left: float | None = None  # seconds that reading may still take; the reader's own time does not count

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            if self._left is None:
                return await self._bytes.__anext__()
            import anyio

            began = time.monotonic()
            with anyio.move_on_after(max(self._left, 0)):
                chunk = await self._bytes.__anext__()
                self._left -= time.monotonic() - began
                return chunk
        except StopAsyncIteration:
            await self.aclose()
            raise
        except (self._httpx.HTTPError, self._httpx.StreamError, DecodingError) as error:
            raise error_during_body(error, self._idle, self._httpx) from error
        raise StopAsyncIteration

    def set_read_deadline(self, seconds: float) -> None:
        self._left = seconds

    async def drain(self) -> None:
        """As in `_Body`."""
        if self._response.is_closed:
            return
        self.set_read_deadline(DRAIN)
        with contextlib.suppress(TransportError):
            for _ in range(LEFTOVERS):
                if await anext(self, None) is None:
                    break

    async def aclose(self) -> None:
        look, self.look = self.look, None
        if look is not None:
            look()
        await self._response.aclose()


def _headers(headers: httpx.Headers) -> dict[str, str]:
    """What `headers.items()` says; it finds out for each header what they are all encoded in."""
    raw = headers.raw
    with contextlib.suppress(UnicodeDecodeError):
        found = {name.decode("ascii").lower(): value.decode("ascii") for name, value in raw}
        if len(found) == len(raw):
            return found
    return dict(headers.items())


def _plain(response: httpx.Response, headers: dict[str, str]) -> Iterator[bytes]:
    """The body, uncompressed in bounded pieces: httpx makes one of all that a piece of the wire stands for.

    One that is not compressed is read from the transport's own stream: two generators less for each piece.
    """
    coding = headers.get("content-encoding")
    step = body_decoder(coding)
    if response.is_stream_consumed or not isinstance(response.stream, Iterable):
        return response.iter_bytes()  # a transport of the caller's own may have read it
    if step is not None:
        return (plain for piece in response.stream for plain in step(piece))
    return iter(response.stream)


def _aplain(response: httpx.Response, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """As in `_plain`."""
    coding = headers.get("content-encoding")
    step = body_decoder(coding)
    if response.is_stream_consumed or not isinstance(response.stream, AsyncIterable):
        return response.aiter_bytes()
    if step is not None:
        return (plain async for piece in response.stream for plain in step(piece))
    return aiter(response.stream)
