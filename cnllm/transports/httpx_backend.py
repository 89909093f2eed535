"""The network under the pools of httpx: it watches what httpx does not look at.

- A connection with anything unread behind its response is not used again. h11 keeps what was read too far, the stream
  what TLS or the event loop has read ahead, the socket the rest.
- The headers of a response are complete in time, even if they come in drops.
- A forked child does not share a socket.

httpcore takes a network backend of ours; the parts of h11 and anyio are looked at with care. Where one is not as in the
versions that the tests run with, the connection serves one request.
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

__all__ = ["OPENED", "AsyncStream", "Stream", "install"]

OPENED: ContextVar[list[Any] | None] = ContextVar("OPENED", default=None)
"""The connections that a request opens by way of a proxy: httpcore leaves them open where SOCKS goes wrong."""

Probes = list[Callable[[], Any]]
"""Functions that return what is true where something was read ahead of the response."""

_DEPTH = 4  # of connections within connections: a tunnel, TLS within TLS


def install(transport: Any, core: Any, *, asynchronous: bool) -> Any:
    """Put our backend under a transport of httpx. Return its pool, or None where that is not possible."""
    pool = getattr(transport, "_pool", None)
    inner = getattr(pool, "_network_backend", None)
    if not (hasattr(inner, "connect_tcp") and hasattr(pool, "connections")):
        return None
    if not hasattr(core, "ConnectionNotAvailable"):
        return None
    pool._network_backend = (_AsyncBackend if asynchronous else _Backend)(inner, core)  # type: ignore[union-attr]
    return pool


class _ConnectionWatch:
    """Watch one connection. `probes` tell what was read ahead; None where that cannot be known."""

    def __init__(self, inner: Any, core: Any, probes: Probes | None) -> None:
        self._inner = inner
        self._core = core
        self.open = True
        opened = OPENED.get()
        if opened is not None:
            opened.append(self)
        self._h11: Any = None
        self._answered = False  # the headers of a response came, and the next request did not begin
        self._looked = False  # whether anything was read behind it
        self._spoilt = False
        self._in_headers = False
        self._end: float | None = None  # when they must be complete
        self._probes = probes
        with suppress(AttributeError, OSError):
            process.register_socket(inner.get_extra_info("socket").fileno())

    def answer(self) -> None:
        """Take note that the headers are complete."""
        self._answered = True
        self._in_headers = False

    def look(self, pool: Any) -> None:
        """See whether anything was read behind a response. It must be done before the response is closed."""
        self._looked = True
        if self._h11 is None:
            self._h11 = _h11_of(pool, self)
        try:
            left, closed = self._h11.trailing_data
        except (AttributeError, TypeError, ValueError):  # not as in the versions we know
            self._spoilt = True
            return
        if closed or left != b"":
            self._spoilt = True

    def get_extra_info(self, info: str) -> Any:
        """Return what the stream knows. An idle connection that is readable is closed by its pool."""
        if info == "is_readable":
            return self._spoilt or self._unread()
        return self._inner.get_extra_info(info)

    def _unread(self) -> bool:
        probes = self._probes
        if probes is None or any(probe() for probe in probes):
            return True
        return bool(self._inner.get_extra_info("is_readable"))

    def _begin(self) -> None:
        """See that nothing is unread where a write begins a request; if so, the pool takes another connection."""
        if self._answered:
            looked, self._answered, self._looked = self._looked, False, False
            if self._spoilt or not looked or self._unread():
                self._spoilt = True
                raise self._core.ConnectionNotAvailable
        self._in_headers = True
        self._end = None

    def _left(self, timeout: float | None) -> float | None:
        """Return the seconds that are left for the headers."""
        if timeout is None:
            return None
        now = time.monotonic()
        if self._end is None:
            self._end = now + timeout
        left = self._end - now
        if left <= 0:
            raise self._core.ReadTimeout("the headers did not come in time")
        return left


class Stream(_ConnectionWatch):
    """A connection of a pool that blocks."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._inner.read(max_bytes, self._left(timeout) if self._in_headers else timeout)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._begin()
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        self.open = False
        self._inner.close()

    def start_tls(self, *args: Any, **options: Any) -> Stream:
        self.open = False
        return _stream(self._inner.start_tls(*args, **options), self._core)


class AsyncStream(_ConnectionWatch):
    """A connection of a pool of an event loop."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            data: bytes = await self._inner.read(max_bytes, self._left(timeout) if self._in_headers else timeout)
        except OSError as error:  # TLS's, which no one below translates
            raise self._core.ReadError(str(error)) from error
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._begin()
        try:
            await self._inner.write(buffer, timeout)
        except OSError as error:
            raise self._core.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self.open = False
        await self._inner.aclose()

    async def start_tls(self, *args: Any, **options: Any) -> AsyncStream:
        self.open = False
        return _async_stream(await self._inner.start_tls(*args, **options), self._core)


def _stream(inner: Any, core: Any) -> Stream:
    """Watch a stream that blocks."""
    return Stream(inner, core, _probes_of(inner))


def _async_stream(inner: Any, core: Any) -> AsyncStream:
    """Watch a stream of an event loop."""
    return AsyncStream(inner, core, _async_probes_of(inner))


def _probes_of(inner: Any) -> Probes | None:
    """Return what tells whether TLS has read ahead; None where that cannot be known."""
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
    """Return what tells whether TLS or the event loop has read ahead, for anyio's streams and trio's."""
    import ssl

    probes: Probes = []
    stream = getattr(inner, "_stream", None)
    for _ in range(_DEPTH):
        below = getattr(stream, "transport_stream", None)
        if below is None:
            break
        tls = getattr(stream, "_ssl_object", None)
        incoming = getattr(stream, "_read_bio", None) or getattr(stream, "_incoming", None)
        if not (isinstance(tls, ssl.SSLObject) and isinstance(incoming, ssl.MemoryBIO)):
            return None
        probes += [tls.pending, _pending(incoming)]
        stream = below
    made_by = type(stream).__module__.partition(".")[0]
    if made_by == "trio" and hasattr(stream, "socket"):
        return probes  # it reads when it is asked to
    queue = getattr(getattr(stream, "_protocol", None), "read_queue", None)
    if made_by != "anyio" or not isinstance(queue, deque):
        return None
    return [*probes, queue.__len__]


class _Backend:
    """Opens connections."""

    def __init__(self, inner: Any, core: Any) -> None:
        self._inner = inner
        self._core = core

    def connect_tcp(self, *args: Any, **options: Any) -> Stream:
        return _stream(self._inner.connect_tcp(*args, **options), self._core)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _AsyncBackend(_Backend):
    """The same for an event loop."""

    async def connect_tcp(self, *args: Any, **options: Any) -> AsyncStream:  # type: ignore[override]
        return _async_stream(await self._inner.connect_tcp(*args, **options), self._core)

    async def sleep(self, seconds: float) -> None:  # type: ignore[override]
        await self._inner.sleep(seconds)


def _pending(incoming: ssl.MemoryBIO) -> Callable[[], int]:
    return lambda: incoming.pending


def _h11_of(pool: Any, stream: _ConnectionWatch) -> Any:
    """Return the state of HTTP/1.1 that reads from this stream. New connections stand at the end."""
    for connection in reversed(pool.connections):
        for _ in range(_DEPTH):
            below = getattr(connection, "_connection", None)
            if below is None:
                break
            connection = below
        if getattr(connection, "_network_stream", None) is stream:
            return getattr(connection, "_h11_state", None)
    return None
