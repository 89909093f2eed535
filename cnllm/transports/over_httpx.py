"""httpx's transports as ours: the adapter that is always there, and the one for proxies, trio and what is rare.

httpx is imported when the first request is sent.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cnllm.engine.plan import Plan
from cnllm.errors import TransportError
from cnllm.policy import Timeouts
from cnllm.transports import words
from cnllm.transports.coding import Spoiled, undo
from cnllm.transports.common import DRAIN, FRAMING, IDLE, LEFTOVERS, URLS, headers_of, idle_of, proxy_for
from cnllm.transports.first_byte import response_began
from cnllm.watchdog import Alarm, Watchdog

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncHttpx", "Httpx"]


class Httpx:
    """httpx's transports, which keep connections alive; a proxy that the environment names is used.

    They are driven directly: `httpx.Client` would add a third to the cost of a request for redirects, cookies and hooks
    that are not wanted here. A transport of the caller's own takes every request.
    """

    def __init__(self, transport: httpx.BaseTransport | None = None) -> None:
        self._given = transport
        self._made: dict[tuple[bool, str | None], httpx.BaseTransport] = {}
        self._urls: dict[str, httpx.URL] = {}
        self._proxies: dict[str, str | None] = {}
        self._watchdog = Watchdog()

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        import httpx

        waits = _waits(plan.timeouts)
        request = _request(httpx, self._urls, plan, waits, self._given is None)
        try:
            response = self._transport(httpx, request.url).handle_request(request)
        except httpx.LocalProtocolError:
            response = None
        except (httpx.HTTPError, UnicodeError) as error:
            raise _before(error, plan) from error
        if response is None:  # said out here: that error's message shows the header, and stays in the context of ours
            raise words.unsendable(plan)
        waits["read"] = idle = idle_of(plan)  # httpcore reads it when it begins with the body
        headers = _headers(response.headers)
        return response.status_code, headers, _Body(httpx, response, headers, idle, self._watchdog)

    def _transport(self, httpx: Any, url: httpx.URL) -> httpx.BaseTransport:
        if self._given is not None:
            return self._given
        key = (url.scheme == "https", proxy_for(url.scheme, url.host, self._proxies))
        found = self._made.get(key)
        if found is None:
            made = _made(httpx, httpx.HTTPTransport, *key)
            found = self._made.setdefault(key, made)  # threads agree on one
        return found

    def close(self) -> None:
        """Close the connections."""
        for transport in (self._given, *self._made.values()):
            if transport is not None:
                transport.close()


class _Body:
    """The bytes of a response."""

    def __init__(
        self, httpx: Any, response: httpx.Response, headers: dict[str, str], idle: float | None, watchdog: Watchdog
    ) -> None:
        self._httpx = httpx
        self._response = response
        self._idle = idle
        self._bytes = _plain(response, headers)
        self._watchdog = watchdog
        self._alarm: Alarm | None = None
        self._hurried = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._bytes)
        except StopIteration:
            self._response.close()
            raise
        except (self._httpx.HTTPError, self._httpx.StreamError, Spoiled) as error:
            if self._hurried:
                raise StopIteration from None
            raise _during(error, self._idle) from error

    def hurry(self, seconds: float) -> None:
        """Wake a read that would wait longer, by shutting the socket down."""
        stream = self._response.extensions.get("network_stream")
        plug = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(plug, socket.socket):
            self._calm()
            self._alarm = self._watchdog.after(seconds, lambda: self._shut(plug))

    def drain(self) -> None:
        """The end of the body mostly came with its last bytes; a peer that keeps it back is not waited for."""
        if self._response.is_closed or self._hurried:
            return
        self.hurry(DRAIN)
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
        self._response.close()


class AsyncHttpx:
    """The same for `AsyncClient`, on asyncio or trio."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._given = transport
        self._made: dict[tuple[bool, str | None], httpx.AsyncBaseTransport] = {}
        self._urls: dict[str, httpx.URL] = {}
        self._proxies: dict[str, str | None] = {}

    async def send(self, plan: Plan) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        import httpx

        waits = _waits(plan.timeouts)
        request = _request(httpx, self._urls, plan, waits, self._given is None)
        try:
            response = await self._transport(httpx, request.url).handle_async_request(request)
        except httpx.LocalProtocolError:
            response = None
        except (httpx.HTTPError, UnicodeError) as error:
            raise _before(error, plan) from error
        if response is None:  # said out here: that error's message shows the header, and stays in the context of ours
            raise words.unsendable(plan)
        waits["read"] = idle = idle_of(plan)
        headers = _headers(response.headers)
        return response.status_code, headers, _AsyncBody(httpx, response, headers, idle)

    def _transport(self, httpx: Any, url: httpx.URL) -> httpx.AsyncBaseTransport:
        if self._given is not None:
            return self._given
        key = (url.scheme == "https", proxy_for(url.scheme, url.host, self._proxies))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = _made(httpx, httpx.AsyncHTTPTransport, *key)
        return found

    async def aclose(self) -> None:
        """Close the connections."""
        for transport in (self._given, *self._made.values()):
            if transport is not None:
                await transport.aclose()


class _AsyncBody:
    """The bytes of a response, asynchronously."""

    def __init__(self, httpx: Any, response: httpx.Response, headers: dict[str, str], idle: float | None) -> None:
        self._httpx = httpx
        self._response = response
        self._idle = idle
        self._bytes = _aplain(response, headers)
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
            await self._response.aclose()
            raise
        except (self._httpx.HTTPError, self._httpx.StreamError, Spoiled) as error:
            raise _during(error, self._idle) from error
        raise StopAsyncIteration

    def hurry(self, seconds: float) -> None:
        self._left = seconds

    async def drain(self) -> None:
        """As in `_Body`."""
        if self._response.is_closed:
            return
        self.hurry(DRAIN)
        with contextlib.suppress(TransportError):
            for _ in range(LEFTOVERS):
                if await anext(self, None) is None:
                    break

    async def aclose(self) -> None:
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
    step = undo(coding)
    if response.is_stream_consumed or not isinstance(response.stream, Iterable):
        return response.iter_bytes()  # a transport of the caller's own may have read it
    if step is not None:
        return (plain for piece in response.stream for plain in step(piece))
    return iter(response.stream) if coding is None else response.iter_bytes()


def _aplain(response: httpx.Response, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """As in `_plain`."""
    coding = headers.get("content-encoding")
    step = undo(coding)
    if response.is_stream_consumed or not isinstance(response.stream, AsyncIterable):
        return response.aiter_bytes()
    if step is not None:
        return (plain async for piece in response.stream for plain in step(piece))
    return aiter(response.stream) if coding is None else response.aiter_bytes()


def _made(httpx: Any, kind: Any, encrypted: bool, proxy: str | None) -> Any:
    """A transport of httpx. What it finds wrong with a proxy is not repeated: a password may stand in its address."""
    with contextlib.suppress(ValueError, ImportError, httpx.InvalidURL):
        return kind(**_settings(httpx, encrypted, proxy))
    raise TransportError(
        "the proxy that the environment names cannot be used", hint="check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
    )


def _settings(httpx: Any, encrypted: bool, proxy: str | None) -> dict[str, Any]:
    """No ceiling on connections: whoever opens a thousand streams means it; a hundred idle ones are kept."""
    settings = {"limits": httpx.Limits(max_connections=None, max_keepalive_connections=IDLE), "proxy": proxy}
    if not encrypted and proxy is None:
        # Reading the certificate store takes 20 ms. This context trusts nobody, and plain http never uses it.
        import ssl

        settings["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return settings


def _waits(timeouts: Timeouts) -> dict[str, float | None]:
    return {"connect": timeouts.connect, "read": timeouts.first_byte, "write": timeouts.idle, "pool": None}


def _request(httpx: Any, urls: dict[str, Any], plan: Plan, waits: dict[str, float | None], own: bool) -> Any:
    """Built directly: `Client.build_request` would merge, parse and copy what is already as it must be.

    For httpx's `own` transports the headers are given as they go out, and not looked through for what may be missing;
    another may want to ask for the request's `content`.
    """
    url = urls.get(plan.url)
    if url is None:
        if len(urls) >= URLS:
            urls.clear()
        try:
            url = urls[plan.url] = httpx.URL(plan.url)
        except httpx.InvalidURL as error:
            raise words.no_url(plan.url, error) from error
    headers, content, extensions = headers_of(plan), plan.content, {"timeout": waits}
    with contextlib.suppress(UnicodeEncodeError):  # it holds the header, and that may hold the key
        if not (own and content and FRAMING.isdisjoint(map(str.lower, headers))):
            return httpx.Request(plan.method, url, headers=headers, content=content, extensions=extensions)
        written = [(b"Host", url.netloc), *headers.items(), (b"Content-Length", b"%d" % len(content))]
        stream = httpx.ByteStream(content)
        return httpx.Request(plan.method, url, headers=written, stream=stream, extensions=extensions)
    raise words.unsendable(plan)


def _before(error: httpx.HTTPError | UnicodeError, plan: Plan) -> TransportError:
    """What went wrong before the status line."""
    import httpx

    host, timeouts = httpx.URL(plan.url).host, plan.timeouts
    if isinstance(error, httpx.ConnectTimeout):
        return words.slow_connection(host, timeouts.connect)
    if isinstance(error, httpx.TimeoutException):
        return words.slow(host, timeouts.first_byte)
    if isinstance(error, httpx.UnsupportedProtocol | UnicodeError):  # the latter: a host name with an empty label
        return words.no_http(plan.url)
    said = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        return words.no_connection(host, said)
    return words.before_status(host, said, response_began(error))


def _during(error: Exception, idle: float | None) -> TransportError:
    """What went wrong while the body came."""
    import httpx

    return words.fell_silent(idle) if isinstance(error, httpx.TimeoutException) else words.broke(error)
