"""What both adapters of httpx share: the package, transports of it, requests, and its errors in our words."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from cnllm.config import process
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, TransportError
from cnllm.transports import errors, tls
from cnllm.transports.address import read_url
from cnllm.transports.first_byte import response_began
from cnllm.transports.headers import FRAMING, IDLE, URLS, end_to_end_headers, proxy_for
from cnllm.transports.httpx_backend import AsyncStream, Stream, install
from cnllm.types.policy import Timeouts

__all__ = [
    "OwnTransport",
    "ProcessState",
    "error_before_status",
    "error_during_body",
    "httpx_package",
    "httpx_timeouts",
    "make_transport",
    "refuse_inherited",
    "watch_response",
]

_CORES = {"httpx": "httpcore", "httpx2": "httpcore2"}


class OwnTransport(Struct, frozen=True):
    """A transport of httpx that we made."""

    transport: Any
    pool: Any  # None: what its connections hold cannot be seen, so each of them serves one request
    proxy: str | None
    encrypted: bool


class ProcessState:
    """What one process knows: the package that it sends with, URLs, proxies."""

    def __init__(self, httpx: Any) -> None:
        self.httpx = httpx
        self._urls: dict[str, Any] = {}
        self._proxies: dict[str, str | None] = {}

    def url(self, text: str) -> Any:
        """Return a URL in its parts. Raises `TransportError` for one that HTTP cannot go to."""
        return self._urls.get(text) or self._remember(text)

    def key(self, url: Any) -> tuple[bool, str | None]:
        """Return what two requests have in common that go over the same transport."""
        return url.scheme == "https", proxy_for(url.scheme, url.host, self._proxies, url.port)

    def request(self, url: Any, plan: Plan, waits: dict[str, float | None], own: OwnTransport | None) -> Any:
        """Build a request directly: `Client.build_request` would merge, parse and copy what is already as it must be.

        For httpx's `own` transports the headers are given as they go out, and not looked through for what may be
        missing; another may want to ask for the request's `content`.
        """
        httpx, headers, content, extensions = self.httpx, end_to_end_headers(plan), plan.content, {"timeout": waits}
        framing = FRAMING.intersection(map(str.lower, headers))
        if not framing.isdisjoint(("content-length", "transfer-encoding")):
            raise errors.framing_header(plan, framing)
        if own is not None and own.pool is None:
            headers["connection"] = "close"
        with contextlib.suppress(UnicodeEncodeError):  # it holds the header, and that may hold the key
            if own is None or framing or not content:
                return httpx.Request(plan.method, url, headers=headers, content=content, extensions=extensions)
            written = [(b"Host", url.netloc), *headers.items(), (b"Content-Length", b"%d" % len(content))]
            stream = httpx.ByteStream(content)
            return httpx.Request(plan.method, url, headers=written, stream=stream, extensions=extensions)
        raise errors.invalid_header(plan)

    def _remember(self, text: str) -> Any:
        if len(self._urls) >= URLS:
            self._urls.clear()
        found = self._urls[text] = read_url(self.httpx, text)
        return found


def watch_response(own: OwnTransport, response: Any, host: str) -> Callable[[], None] | None:
    """Take note of a response. Return what is to be called at its end; None where its connection cannot be watched.

    Raises `TransportError` when it is the proxy that refuses.
    """
    if own.proxy is not None and not own.encrypted and response.status_code == 407:
        raise errors.proxy_refused(host, own.proxy, "407 Proxy Authentication Required")
    stream = response.extensions.get("network_stream")
    if own.pool is None or not isinstance(stream, Stream | AsyncStream):
        return None
    stream.answer()
    return functools.partial(stream.look, own.pool)


def httpx_package(transport: object, name: str) -> Any:
    """Return the package that a transport belongs to; for none, the one of this name."""
    if transport is not None:
        second = sys.modules.get("httpx2")
        bases = () if second is None else (second.BaseTransport, second.AsyncBaseTransport)
        name = "httpx2" if isinstance(transport, bases) else "httpx"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CnllmError(f"{name} is not installed", hint=f"pip install {name}") from error


def make_transport(httpx: Any, key: tuple[bool, str | None], *, asynchronous: bool) -> OwnTransport:
    """Make a transport. What httpx finds wrong with a proxy is not repeated: a password may stand in its address."""
    encrypted, proxy = key
    core = importlib.import_module(_CORES[httpx.__name__])
    settings = _settings(httpx, encrypted, proxy)
    kind = httpx.AsyncHTTPTransport if asynchronous else httpx.HTTPTransport
    missing = False
    try:
        transport = kind(**settings)
    except ImportError:
        missing = True
    except (ValueError, httpx.InvalidURL, UnicodeError):
        pass
    else:
        return OwnTransport(transport, install(transport, core, asynchronous=asynchronous), proxy, encrypted)
    raise errors.invalid_proxy(proxy, missing=missing)


def refuse_inherited(httpx: Any, transport: Any, home: int) -> None:
    """Raise `TransportError` for a transport of httpx that the caller used before this process was forked off."""
    if process.generation() != home and isinstance(transport, (httpx.HTTPTransport, httpx.AsyncHTTPTransport)):
        raise TransportError(
            "this process was forked off: the connections of the transport that was given are its parent's",
            hint="make the transport and the client in the child",
        )


def httpx_timeouts(timeouts: Timeouts) -> dict[str, float | None]:
    """Return the timeouts as httpx wants them."""
    return {"connect": timeouts.connect, "read": timeouts.first_byte, "write": timeouts.idle, "pool": None}


def error_before_status(error: Exception, plan: Plan, httpx: Any, own: OwnTransport | None) -> TransportError:
    """Return what went wrong before the status line."""
    proxy = None if own is None else own.proxy
    host, timeouts = httpx.URL(plan.url).raw_host.decode("ascii"), plan.timeouts
    said = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectTimeout):
        made: TransportError = errors.connect_timeout(host, timeouts.connect)
    elif isinstance(error, httpx.TimeoutException):
        made = errors.status_timeout(host, timeouts.first_byte)
    elif isinstance(error, httpx.UnsupportedProtocol | UnicodeError):  # the latter: a host name with an empty label
        return errors.unsupported_url(plan.url)
    elif isinstance(error, httpx.ProxyError) and proxy is not None:
        return errors.proxy_refused(host, proxy, said)
    elif isinstance(error, httpx.ConnectError | httpx.ProxyError):
        made = errors.connect_failed(host, said)
    else:
        made = errors.error_before_status(host, said, response_began(error))
    return made if proxy is None else errors.name_proxy(made, proxy)


def error_during_body(error: Exception, idle: float | None, httpx: Any) -> TransportError:
    """Return what went wrong while the body came."""
    return errors.body_stalled(idle) if isinstance(error, httpx.TimeoutException) else errors.body_broken(error)


def _settings(httpx: Any, encrypted: bool, proxy: str | None) -> dict[str, Any]:
    """No ceiling on connections: whoever opens a thousand streams means it; a hundred idle ones are kept."""
    import ssl

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=IDLE)
    if encrypted or (proxy is not None and proxy.startswith("https:")):
        verify = tls.client_context()
        if proxy is not None and proxy.startswith("https:"):
            with contextlib.suppress(httpx.InvalidURL, ValueError):
                proxy = httpx.Proxy(url=proxy, ssl_context=tls.client_context())
    else:  # Reading the certificate store takes 20 ms. This context trusts nobody, and plain http never uses it.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {"limits": limits, "proxy": proxy, "verify": verify}
