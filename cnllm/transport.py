"""The only step that touches the world.

A transport is any object with `send(plan)`, which sends a plan (its method, url, headers and content, within its
timeouts) and returns (status, headers with names in lower case, an iterator of the body's bytes); for `AsyncClient` an
`async send` and an async iterator. It raises `TransportError`, before and while the body is read. If the iterator has
`close`/`aclose`, it is called when no more is read; if it has `hurry(seconds)`, reading is to end, as if the body did,
after that time; if it has `drain()`, it is called before `close` when a reply is complete, so that what little may
follow is read and the connection can serve again. Nothing that happens there is an error.

The default adapter is httpx, imported when the first request is sent.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cnllm.engine.plan import Plan
from cnllm.errors import IdleTimeout, Timeout, TransportError
from cnllm.policy import Timeouts
from cnllm.watchdog import Alarm, Watchdog

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncHttpx", "AsyncTransport", "Httpx", "Transport", "default_transport"]

_AGENT = "cnllm/0.1"
_DRAIN = 0.05  # seconds that a complete reply waits for the end of its body
_LEFTOVERS = 8  # pieces of a body after its end
_URLS = 256  # parsed addresses kept


class Transport(Protocol):
    """See the module."""

    def send(self, plan: Plan, /) -> tuple[int, Mapping[str, str], Iterator[bytes]]: ...


class AsyncTransport(Protocol):
    """See the module."""

    async def send(self, plan: Plan, /) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]: ...


def default_transport() -> Transport:
    """The transport a `Client` uses unless it is given one."""
    return Httpx()


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
        request = _request(httpx, self._urls, plan, waits)
        try:
            response = self._transport(httpx, request.url).handle_request(request)
        except httpx.LocalProtocolError:
            response = None
        except (httpx.HTTPError, UnicodeError) as error:
            raise _before(error, plan) from error
        if response is None:  # said out here: that error's message shows the header, and stays in the context of ours
            raise _unsendable(plan)
        waits["read"] = idle = _idle(plan)  # httpcore reads it when it begins with the body
        return response.status_code, dict(response.headers.items()), _Body(httpx, response, idle, self._watchdog)

    def _transport(self, httpx: Any, url: httpx.URL) -> httpx.BaseTransport:
        if self._given is not None:
            return self._given
        key = (url.scheme == "https", _proxy(url, self._proxies))
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

    def __init__(self, httpx: Any, response: httpx.Response, idle: float | None, watchdog: Watchdog) -> None:
        self._httpx = httpx
        self._response = response
        self._idle = idle
        self._bytes = response.iter_bytes()
        self._watchdog = watchdog
        self._alarm: Alarm | None = None
        self._hurried = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._bytes)
        except (self._httpx.HTTPError, self._httpx.StreamError) as error:
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
        self.hurry(_DRAIN)
        with contextlib.suppress(TransportError):
            for _ in itertools.islice(self, _LEFTOVERS):
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
        request = _request(httpx, self._urls, plan, waits)
        try:
            response = await self._transport(httpx, request.url).handle_async_request(request)
        except httpx.LocalProtocolError:
            response = None
        except (httpx.HTTPError, UnicodeError) as error:
            raise _before(error, plan) from error
        if response is None:  # said out here: that error's message shows the header, and stays in the context of ours
            raise _unsendable(plan)
        waits["read"] = idle = _idle(plan)
        return response.status_code, dict(response.headers.items()), _AsyncBody(httpx, response, idle)

    def _transport(self, httpx: Any, url: httpx.URL) -> httpx.AsyncBaseTransport:
        if self._given is not None:
            return self._given
        key = (url.scheme == "https", _proxy(url, self._proxies))
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

    def __init__(self, httpx: Any, response: httpx.Response, idle: float | None) -> None:
        self._httpx = httpx
        self._response = response
        self._idle = idle
        self._bytes = response.aiter_bytes()
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
        except (self._httpx.HTTPError, self._httpx.StreamError) as error:
            raise _during(error, self._idle) from error
        raise StopAsyncIteration

    def hurry(self, seconds: float) -> None:
        self._left = seconds

    async def drain(self) -> None:
        """As in `_Body`."""
        if self._response.is_closed:
            return
        self.hurry(_DRAIN)
        with contextlib.suppress(TransportError):
            for _ in range(_LEFTOVERS):
                if await anext(self, None) is None:
                    break

    async def aclose(self) -> None:
        await self._response.aclose()


def _proxy(url: httpx.URL, known: dict[str, str | None]) -> str | None:
    """The proxy that the environment (or the system) names for an address; looked up once for each host."""
    place = f"{url.scheme}://{url.host}"
    if place not in known:
        from urllib.request import getproxies, proxy_bypass

        named = getproxies()
        found = None if not named or proxy_bypass(url.host) else named.get(url.scheme) or named.get("all")
        known[place] = found if found is None or "://" in found else f"http://{found}"
    return known[place]


def _made(httpx: Any, kind: Any, encrypted: bool, proxy: str | None) -> Any:
    """A transport of httpx. What it finds wrong with a proxy is not repeated: a password may stand in its address."""
    with contextlib.suppress(ValueError, ImportError, httpx.InvalidURL):
        return kind(**_settings(httpx, encrypted, proxy))
    raise TransportError(
        "the proxy that the environment names cannot be used", hint="check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
    )


def _settings(httpx: Any, encrypted: bool, proxy: str | None) -> dict[str, Any]:
    """No ceiling on connections: whoever opens a thousand streams means it; a hundred idle ones are kept."""
    settings = {"limits": httpx.Limits(max_connections=None, max_keepalive_connections=100), "proxy": proxy}
    if not encrypted and proxy is None:
        # Reading the certificate store takes 20 ms. This context trusts nobody, and plain http never uses it.
        import ssl

        settings["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return settings


def _waits(timeouts: Timeouts) -> dict[str, float | None]:
    return {"connect": timeouts.connect, "read": timeouts.first_byte, "write": timeouts.idle, "pool": None}


def _idle(plan: Plan) -> float | None:
    """How long a body may be silent: a stream no longer than it may be without progress."""
    idle, progress = plan.timeouts.idle, plan.timeouts.progress if plan.stream else None
    return progress if idle is None else idle if progress is None else min(idle, progress)


def _request(httpx: Any, urls: dict[str, Any], plan: Plan, waits: dict[str, float | None]) -> Any:
    """Built directly: `Client.build_request` would merge, parse and copy what is already as it must be."""
    url = urls.get(plan.url)
    if url is None:
        if len(urls) >= _URLS:
            urls.clear()
        try:
            url = urls[plan.url] = httpx.URL(plan.url)
        except httpx.InvalidURL as error:
            raise TransportError(f"{plan.url} is no URL: {error}", hint="check base_url") from error
    # Server-sent events gain nothing from compression, and some servers hold them back for it.
    coding = "identity" if plan.stream else "gzip, deflate"
    headers = {"user-agent": _AGENT, "accept-encoding": coding, **plan.headers}
    with contextlib.suppress(UnicodeEncodeError):  # it holds the header, and that may hold the key
        return httpx.Request(plan.method, url, headers=headers, content=plan.content, extensions={"timeout": waits})
    raise _unsendable(plan)


def _unsendable(plan: Plan) -> TransportError:
    said = f"nothing was sent to {plan.url}: a header holds a character that no header can carry"
    return TransportError(said, hint="check the key and extra_headers")


def _before(error: httpx.HTTPError | UnicodeError, plan: Plan) -> TransportError:
    """What went wrong before the status line."""
    import httpx

    host, timeouts = httpx.URL(plan.url).host, plan.timeouts
    if isinstance(error, httpx.ConnectTimeout):
        said = f"no connection to {host} in {timeouts.connect} s"
        return Timeout(said, retryable=True, hint="check the network or a proxy")
    if isinstance(error, httpx.TimeoutException):
        return Timeout(f"{host} did not answer in {timeouts.first_byte} s", hint="give it more time (timeout)")
    if isinstance(error, httpx.UnsupportedProtocol | UnicodeError):  # the latter: a host name with an empty label
        return TransportError(f"{plan.url} is no http URL", hint="check base_url")
    said = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        said = f"no connection to {host}: {said}"
        return TransportError(said, retryable=True, hint="check the address and the network")
    return TransportError(f"{host} closed the connection before it answered: {said}", retryable=True, hint="try again")


def _during(error: Exception, idle: float | None) -> TransportError:
    """What went wrong while the body came."""
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return IdleTimeout(
            f"nothing came for {idle} s in the middle of the reply",
            hint="give it more time (timeout)",
        )
    return TransportError(f"the connection broke in the middle of the reply: {error}", hint="try again")
