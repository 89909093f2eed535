"""The parts that both httpx adapters share: the package, transports, requests and error translation."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from types import FrameType
from typing import Any

from msgspec import Struct

from cnllm.config.settings import read_setting
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, TransportError
from cnllm.system.processes import fork_safe, generation
from cnllm.transports import address, errors
from cnllm.transports.address import MAX_URLS, proxy_for, read_url, through_proxy
from cnllm.transports.content_encoding import DecodingError, body_decoder
from cnllm.transports.headers import FRAMING, end_to_end_headers, header_lines
from cnllm.transports.httpx_backend import WatchedAsyncStream, WatchedStream, install
from cnllm.transports.sockets import IDLE_CONNECTIONS, MAX_IDLE, Sends

__all__ = [
    "HttpxAdapter",
    "HttpxBody",
    "ProcessState",
    "TransportEntry",
    "TransportTable",
    "error_before_status",
]

Key = tuple[bool, str | None]
"""What selects a transport: whether the address is encrypted, and its proxy."""

_CORES = {"httpx": "httpcore", "httpx2": "httpcore2"}


class TransportEntry(Struct, frozen=True):
    """A transport of httpx that cnllm created."""

    transport: Any
    pool: Any  # None: unread bytes of its connections are invisible, so each of them serves one request
    proxy: str | None
    encrypted: bool


class ProcessState:
    """The state of one process: the package that sends, and where URLs lead.

    `transports` are those of `Httpx`, `loops` those of `AsyncHttpx`: its event loops follow one another, or run in
    several threads, which hold `lock` to change the table.
    """

    def __init__(self, httpx: Any) -> None:
        self.httpx = httpx
        self.transports = TransportTable(httpx, asynchronous=False)
        self.loops: weakref.WeakKeyDictionary[Any, TransportTable] = weakref.WeakKeyDictionary()
        self.lock = fork_safe(threading.Lock())
        self._known: dict[str, tuple[Any, Key]] = {}

    def find(self, text: str) -> tuple[Any, Key]:
        """Return a parsed URL, and what selects its transport. Raise `TransportError` for one that HTTP cannot use."""
        if (known := self._known.get(text)) is None:
            if len(self._known) >= MAX_URLS:
                self._known.clear()
            url = read_url(self.httpx, text)
            known = self._known[text] = url, (url.scheme == "https", proxy_for(url.scheme, url.host, url.port))
        return known

    def request(self, url: Any, plan: Plan, entry: TransportEntry | None) -> tuple[Any, dict[str, float | None]]:
        """Return a request and its timeouts. `Client.build_request` would merge, parse and copy values that are ready.

        For a transport that cnllm created the headers are passed as they go out, without a search for missing ones. A
        caller's transport may read the request's `content`.
        """
        httpx, headers, content, limits = self.httpx, end_to_end_headers(plan), plan.content, plan.timeouts
        timeouts = {"connect": limits.connect, "read": limits.first_byte, "write": limits.idle, "pool": None}
        extensions = {"timeout": timeouts}
        if header_lines(tuple(headers.items())) is None:  # httpx's error shows the header, which may hold the key
            raise errors.invalid_header(plan)
        framing = FRAMING.intersection(map(str.lower, headers))
        if not framing.isdisjoint(("content-length", "transfer-encoding")):
            raise errors.framing_header(plan, framing)
        if entry is not None and entry.pool is None:
            headers["connection"] = "close"
        if entry is None or framing or not content:
            request = httpx.Request(plan.method, url, headers=headers, content=content, extensions=extensions)
            return request, timeouts
        raw_headers = [(b"Host", url.netloc), *headers.items(), (b"Content-Length", b"%d" % len(content))]
        stream = httpx.ByteStream(content)
        request = httpx.Request(plan.method, url, headers=raw_headers, stream=stream, extensions=extensions)
        return request, timeouts


class TransportTable:
    """The transports that cnllm created, by what selects them. Threads share one of them."""

    def __init__(self, httpx: Any, *, asynchronous: bool) -> None:
        self._httpx = httpx
        self._asynchronous = asynchronous
        self.entries: dict[Key, TransportEntry] = {}
        self.cleanup: AsyncGenerator[None] | None = None  # closes those of an event loop at its end

    def entry(self, key: Key) -> TransportEntry:
        """Return the transport that a key selects."""
        entry = self.entries.get(key)
        if entry is None:  # `setdefault` makes all threads use the same transport
            transport = _make_transport(self._httpx, key, asynchronous=self._asynchronous)
            entry = self.entries.setdefault(key, transport)
        return entry

    def watch(self, entry: TransportEntry, response: Any, host: str) -> WatchedStream | WatchedAsyncStream | None:
        """Register a response. Return its connection, or None where that cannot be watched.

        Raise `TransportError` when the proxy refuses.
        """
        if entry.proxy is not None and not entry.encrypted and response.status_code == 407:
            raise errors.proxy_refused(host, entry.proxy, "407 Proxy Authentication Required")
        if entry.pool is None:
            return None
        stream = response.extensions.get("network_stream")
        if isinstance(stream, WatchedStream | WatchedAsyncStream):
            stream.answer(entry.pool)
            return stream
        self.entries = {key: value for key, value in self.entries.items() if value is not entry}  # the next is new
        return None

    async def aclose(self) -> None:
        """Close the transports of an event loop."""
        entries, self.entries = self.entries, {}
        for entry in entries.values():
            with contextlib.suppress(Exception):
                await entry.transport.aclose()


class HttpxAdapter:
    """The part that the adapters of httpx's blocking and async transports share: a state for each process."""

    def __init__(self, transport: Any, family: str) -> None:
        self._caller_transport = transport
        self._family = family
        self._home = generation()
        self._states: dict[int, ProcessState] = {}  # one for each process, which never touches those of its parents
        self._sends = Sends()

    def interrupt(self, plan: Plan) -> None:
        """End a request whose response has not begun. A caller's blocking transport goes on."""
        self._sends.interrupt(plan)

    def _state(self) -> ProcessState:
        """Return the state of this process. Raise `TransportError` where the caller's transport is a parent's."""
        current, transport = generation(), self._caller_transport
        state = self._states.get(current)
        if state is None:  # `setdefault` makes all threads use the same state
            state = self._states.setdefault(current, ProcessState(_package(transport, self._family)))
        if current != self._home and isinstance(transport, (state.httpx.HTTPTransport, state.httpx.AsyncHTTPTransport)):
            raise TransportError(
                "this process was forked: the connections of the transport belong to its parent",
                hint="create the transport and the client in the child process",
            )
        return state


class HttpxBody:
    """The part that the bodies of both adapters share. `watch` is the connection, where it can be watched."""

    def __init__(self, httpx: Any, response: Any, idle: float | None) -> None:
        self.headers = _decode_headers(response.headers)
        self.watch: WatchedStream | WatchedAsyncStream | None = None
        self._httpx = httpx
        self._response = response
        self._idle = idle
        self._errors = (httpx.HTTPError, httpx.StreamError, DecodingError, TimeoutError)

    def _pieces(
        self, kind: type, read: Callable[[], Any], begin: Callable[[Any], Any], decode: Callable[..., Any]
    ) -> Any:
        """Return the body, decompressed in bounded pieces: httpx would expand each compressed piece as a whole.

        A body without compression is read from the transport's own stream, which saves two generators for each piece.
        """
        decoder, stream = body_decoder(self.headers.get("content-encoding")), self._response.stream
        if self._response.is_stream_consumed or not isinstance(stream, kind):
            return read()  # a caller's transport may have read it
        return begin(stream) if decoder is None else decode(stream, decoder, self._idle)

    def _check_leftovers(self) -> None:
        """Let a connection with unread bytes serve no other request."""
        watch, self.watch = self.watch, None
        if watch is not None:
            watch.check_leftovers()

    def _failure(self, error: Exception) -> TransportError:
        """Return the error for a failure during the body."""
        if isinstance(error, self._httpx.TimeoutException | TimeoutError):
            only_framing = isinstance(error, TimeoutError) or (self.watch is not None and self.watch.silent_size > 0)
            return errors.body_stalled(self._idle, only_framing=only_framing)
        return errors.body_broken(str(error) or type(error).__name__)


def _package(transport: object, name: str) -> Any:
    """Return the package of a transport; without one, the package of this name."""
    if transport is not None:
        # It may be there without its content: an import waits for the thread that imports it.
        httpx2 = importlib.import_module("httpx2") if "httpx2" in sys.modules else None
        bases = () if httpx2 is None else (httpx2.BaseTransport, httpx2.AsyncBaseTransport)
        name = "httpx2" if isinstance(transport, bases) else "httpx"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CnllmError(f"{name} is not installed", hint=f"pip install {name}") from error


def _make_transport(httpx: Any, key: Key, *, asynchronous: bool) -> TransportEntry:
    """Make a transport."""
    encrypted, proxy = key
    core = importlib.import_module(_CORES[httpx.__name__])
    settings = _settings(httpx, proxy, encrypted=encrypted)
    kind = httpx.AsyncHTTPTransport if asynchronous else httpx.HTTPTransport
    transport = through_proxy(httpx, proxy, lambda: kind(**settings))
    return TransportEntry(transport, install(transport, core, asynchronous=asynchronous), proxy, encrypted)


def error_before_status(error: Exception, plan: Plan, httpx: Any, entry: TransportEntry | None) -> TransportError:
    """Return the error for a failure before the status line."""
    proxy = None if entry is None else entry.proxy
    host, timeouts = httpx.URL(plan.url).raw_host.decode("ascii"), plan.timeouts
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectTimeout):
        result: TransportError = errors.connect_timeout(host, timeouts.connect)
    elif isinstance(error, httpx.TimeoutException):
        result = errors.status_timeout(host, timeouts.first_byte)
    elif isinstance(error, httpx.UnsupportedProtocol | UnicodeError):  # UnicodeError: a host name with an empty label
        return errors.unsupported_url(plan.url) if proxy is None else errors.invalid_proxy(proxy, missing=False)
    elif isinstance(error, httpx.LocalProtocolError):  # a caller's transport takes fewer headers than ours
        return errors.invalid_header(plan)
    elif isinstance(error, httpx.ProxyError) and proxy is not None:
        return errors.proxy_refused(host, proxy, reason)
    elif isinstance(error, httpx.ConnectError | httpx.ProxyError):
        result = errors.connect_failed(httpx.URL(plan.url).netloc.decode("ascii"), reason)
    else:
        result = errors.error_before_status(host, reason, began=_response_began(error))
    return result if proxy is None else errors.name_proxy(result, proxy)


def _settings(httpx: Any, proxy: str | None, *, encrypted: bool) -> dict[str, Any]:
    """Return the settings of a transport: no limit on connections, and one on those that are idle."""
    import ssl

    idle = read_setting("idle_connections") or IDLE_CONNECTIONS
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=idle, keepalive_expiry=MAX_IDLE)
    if encrypted or (proxy is not None and proxy.startswith("https:")):
        verify = address.client_context()
        if proxy is not None and proxy.startswith("https:"):
            with contextlib.suppress(httpx.InvalidURL, ValueError):
                proxy = httpx.Proxy(url=proxy, ssl_context=address.client_context())
    else:  # Reading the certificate store takes 20 ms. This context trusts no certificate; plain http never uses it.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {"limits": limits, "proxy": proxy, "verify": verify}


def _decode_headers(headers: Any) -> dict[str, str]:
    """Return `headers.items()` as a dict, faster: httpx detects the encoding once for every header."""
    raw = headers.raw
    with contextlib.suppress(UnicodeDecodeError):
        decoded = {name.decode("ascii").lower(): value.decode("ascii") for name, value in raw}
        if len(decoded) == len(raw):
            return decoded
    return dict(headers.items())


# ── the first byte of a response ──────────────────────────────────────────────
# Errors of httpx do not say whether a response had begun, and a retry depends on it. httpcore reads a response's head
# in two functions. Their local variables are read from the error's traceback: successful requests pay nothing.


def _response_began(error: BaseException) -> bool:
    """Whether a byte of a response arrived before this error. False also for transports that hide it."""
    current: BaseException | None = error
    while current is not None:
        # h11 refuses received bytes; httpcore reports missing ones.
        if type(current).__module__.partition(".")[0] == "h11":
            return True
        traceback = current.__traceback__
        while traceback is not None:
            if _has_bytes(traceback.tb_frame):
                return True
            traceback = traceback.tb_next
        current = current.__cause__ or current.__context__
    return False


def _has_bytes(frame: FrameType) -> bool:
    name = frame.f_code.co_name
    if name == "_receive_response_headers":  # an interim response arrived
        return frame.f_locals.get("event") is not None
    if name == "_receive_event":  # a part of a head arrived
        state = getattr(frame.f_locals.get("self"), "_h11_state", None)
        data = getattr(state, "trailing_data", (b"",))
        return bool(data[0])
    return False
