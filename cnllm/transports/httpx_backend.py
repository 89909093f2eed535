"""A network backend under httpx's pools, for checks that httpx lacks.

- A connection with unread bytes after its response is not used again. h11 keeps bytes that were read too far, the
  stream bytes that TLS or the event loop read ahead, and the socket the rest.
- The headers of a response must be complete in time, even if they arrive in a slow trickle.
- A forked child does not share a socket.

httpcore accepts our network backend. The private parts of h11 and anyio are read with care. Where one differs from
the versions that the tests run with, the connection serves one request.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from cnllm.config import process

if TYPE_CHECKING:
    import ssl

__all__ = ["OPENED", "WatchedAsyncStream", "WatchedStream", "install"]

OPENED: ContextVar[list[Any] | None] = ContextVar("OPENED", default=None)
"""The connections that a request opens through a proxy: httpcore leaves them open where SOCKS fails."""

Probes = list[Callable[[], Any]]
"""Functions whose result is true where bytes were read ahead of the response."""

_DEPTH = 4  # of connections within connections: a tunnel, TLS within TLS


def install(transport: Any, core: Any, *, asynchronous: bool) -> Any:
    """Install our backend in a transport of httpx. Return its pool, or None where that is not possible."""
    pool = getattr(transport, "_pool", None)
    inner = getattr(pool, "_network_backend", None)
    if pool is None or not (hasattr(inner, "connect_tcp") and hasattr(pool, "connections")):
        return None
    if not hasattr(core, "ConnectionNotAvailable"):
        return None
    pool._network_backend = (_AsyncBackend if asynchronous else _Backend)(inner, core)
    return pool


class _ConnectionWatch:
    """Watches one connection. `probes` show whether bytes were read ahead; None where that is unknown."""

    def __init__(self, inner: Any, core: Any, probes: Probes | None) -> None:
        self._inner = inner
        self._core = core
        self.open = True
        opened = OPENED.get()
        if opened is not None:
            opened.append(self)
        self._h11: Any = None
        self._answered = False  # the headers of a response arrived, and the next request did not begin
        self._checked = False  # `check_leftovers` was called for this response
        self._unusable = False
        self._in_headers = False
        self._deadline: float | None = None  # for the headers
        self._probes = probes
        with suppress(AttributeError, OSError):
            process.register_socket(inner.get_extra_info("socket").fileno())

    def answer(self) -> None:
        """Record that the headers are complete."""
        self._answered = True
        self._in_headers = False

    def check_leftovers(self, pool: Any) -> None:
        """Check for bytes after the response. Call it before the response is closed."""
        self._checked = True
        if self._h11 is None:
            self._h11 = _h11_of(pool, self)
        try:
            surplus, closed = self._h11.trailing_data
        except (AttributeError, TypeError, ValueError):  # h11 differs from the tested versions
            self._unusable = True
            return
        if closed or surplus != b"":
            self._unusable = True

    def get_extra_info(self, info: str) -> Any:
        """Return information on the stream. The pool closes an idle connection that is readable."""
        if info == "is_readable":
            return self._unusable or self._unread()
        return self._inner.get_extra_info(info)

    def _unread(self) -> bool:
        probes = self._probes
        if probes is None or any(probe() for probe in probes):
            return True
        return bool(self._inner.get_extra_info("is_readable"))

    def _before_write(self) -> None:
        """Check for unread bytes before a request's first write. If any, the pool takes another connection."""
        if self._answered:
            checked, self._answered, self._checked = self._checked, False, False
            if self._unusable or not checked or self._unread():
                self._unusable = True
                raise self._core.ConnectionNotAvailable
        self._in_headers = True
        self._deadline = None

    def _header_timeout(self, timeout: float | None) -> float | None:
        """Return the remaining seconds for the headers."""
        if timeout is None:
            return None
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + timeout
        remaining = self._deadline - now
        if remaining <= 0:
            raise self._core.ReadTimeout("the headers did not arrive in time")
        return remaining


class WatchedStream(_ConnectionWatch):
    """A connection of a blocking pool."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read bytes; headers within their deadline."""
        data: bytes = self._inner.read(max_bytes, self._header_timeout(timeout) if self._in_headers else timeout)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write bytes, after the check for unread ones."""
        self._before_write()
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        """Close the connection."""
        self.open = False
        self._inner.close()

    def start_tls(self, *args: Any, **options: Any) -> WatchedStream:
        """Return a watched TLS connection over this one."""
        self.open = False
        return _stream(self._inner.start_tls(*args, **options), self._core)


class WatchedAsyncStream(_ConnectionWatch):
    """A connection of an event loop's pool."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read bytes; headers within their deadline."""
        try:
            data: bytes = await self._inner.read(
                max_bytes, self._header_timeout(timeout) if self._in_headers else timeout
            )
        except OSError as error:  # an error of TLS, which no lower layer translates
            raise self._core.ReadError(str(error)) from error
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write bytes, after the check for unread ones."""
        self._before_write()
        try:
            await self._inner.write(buffer, timeout)
        except OSError as error:
            raise self._core.WriteError(str(error)) from error

    async def aclose(self) -> None:
        """Close the connection."""
        self.open = False
        await self._inner.aclose()

    async def start_tls(self, *args: Any, **options: Any) -> WatchedAsyncStream:
        """Return a watched TLS connection over this one."""
        self.open = False
        return _async_stream(await self._inner.start_tls(*args, **options), self._core)


def _stream(inner: Any, core: Any) -> WatchedStream:
    """Watch a blocking stream."""
    return WatchedStream(inner, core, _probes_of(inner))


def _async_stream(inner: Any, core: Any) -> WatchedAsyncStream:
    """Watch an event loop's stream."""
    return WatchedAsyncStream(inner, core, _async_probes_of(inner))


def _probes_of(inner: Any) -> Probes | None:
    """Return functions that show whether TLS has read ahead; None where that is unknown."""
    import ssl

    probes: Probes = []
    sock, tls = inner.get_extra_info("socket"), inner.get_extra_info("ssl_object")
    if isinstance(sock, ssl.SSLSocket):
        probes.append(sock.pending)
    if isinstance(tls, ssl.SSLObject):  # TLS within TLS
        incoming = getattr(inner, "_incoming", None)
        if not isinstance(incoming, ssl.MemoryBIO):
            return None
        probes += [tls.pending, _pending(incoming)]
    return probes


def _async_probes_of(inner: Any) -> Probes | None:
    """Return functions that show whether TLS or the event loop has read ahead, for anyio and trio."""
    import ssl

    probes: Probes = []
    stream = getattr(inner, "_stream", None)
    for _ in range(_DEPTH):
        inner_stream = getattr(stream, "transport_stream", None)
        if inner_stream is None:
            break
        tls = getattr(stream, "_ssl_object", None)
        incoming = getattr(stream, "_read_bio", None) or getattr(stream, "_incoming", None)
        if not (isinstance(tls, ssl.SSLObject) and isinstance(incoming, ssl.MemoryBIO)):
            return None
        probes += [tls.pending, _pending(incoming)]
        stream = inner_stream
    library = type(stream).__module__.partition(".")[0]
    if library == "trio" and hasattr(stream, "socket"):
        return probes  # trio does not read ahead
    queue = getattr(getattr(stream, "_protocol", None), "read_queue", None)
    if library != "anyio" or not isinstance(queue, deque):
        return None
    return [*probes, queue.__len__]


class _AnyBackend:
    """A backend that opens watched connections."""

    def __init__(self, inner: Any, core: Any) -> None:
        self._inner = inner
        self._core = core


class _Backend(_AnyBackend):
    """Opens watched connections."""

    def connect_tcp(self, *args: Any, **options: Any) -> WatchedStream:
        """Open a watched connection."""
        return _stream(self._inner.connect_tcp(*args, **options), self._core)

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        self._inner.sleep(seconds)


class _AsyncBackend(_AnyBackend):
    """Opens watched connections in an event loop."""

    async def connect_tcp(self, *args: Any, **options: Any) -> WatchedAsyncStream:
        """Open a watched connection."""
        return _async_stream(await self._inner.connect_tcp(*args, **options), self._core)

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await self._inner.sleep(seconds)


def _pending(incoming: ssl.MemoryBIO) -> Callable[[], int]:
    return lambda: incoming.pending


def _h11_of(pool: Any, stream: _ConnectionWatch) -> Any:
    """Return the h11 state of this stream. New connections stand at the end of the pool."""
    for connection in reversed(pool.connections):
        for _ in range(_DEPTH):
            inner = getattr(connection, "_connection", None)
            if inner is None:
                break
            connection = inner
        if getattr(connection, "_network_stream", None) is stream:
            return getattr(connection, "_h11_state", None)
    return None
