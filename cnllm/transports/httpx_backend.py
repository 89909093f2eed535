"""A network backend under httpx's pools, for checks that httpx lacks.

- A connection with unread bytes after its response is not used again. h11 keeps bytes that were read too far, the
  stream bytes that TLS or the event loop read ahead, and the socket the rest.
- The headers of a response must be complete in time, even if they arrive in a slow trickle, and so must a connection:
  one deadline holds for the addresses of a name, the handshakes with a proxy, and TLS.
- Bytes of a body that hold no content extend no wait, and their number is limited.
- A forked child does not share a socket.

httpcore accepts our network backend. The private parts of h11 and anyio are read with care. Where one differs from
the versions that the tests run with, the connection serves one request.
"""

from __future__ import annotations

import importlib
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from cnllm.system.event_loop import loop_scheduler
from cnllm.system.processes import register_socket
from cnllm.transports.content_encoding import MAX_SILENT_BYTES
from cnllm.transports.headers import MAX_HEAD_BYTES
from cnllm.transports.sockets import (
    HEAD_START,
    LAST_LOOK,
    LOOKUPS,
    Target,
    alternate,
    known_targets,
    open_socket,
    shut_down,
)

if TYPE_CHECKING:
    import ssl

    import anyio

__all__ = ["OPENED", "SENDING", "WatchedAsyncStream", "WatchedStream", "install"]

OPENED: ContextVar[list[Any] | None] = ContextVar("OPENED", default=None)
"""The connections that a request opens through a proxy: httpcore leaves them open where SOCKS fails."""

SENDING: ContextVar[Callable[[Callable[[], object]], None] | None] = ContextVar("SENDING", default=None)
"""A function that takes what ends the request, as soon as it has a connection."""

Probes = list[Callable[[], Any]]
"""Functions whose result is true where bytes were read ahead of the response."""

_NO_ARGUMENT: Any = object()  # httpcore speaks SOCKS without timeouts
_DEPTH = 4  # of connections within connections: a tunnel, TLS within TLS


def install(transport: Any, core: Any, *, asynchronous: bool) -> Any:
    """Install our backend in a transport of httpx. Return its pool, or None where that is not possible."""
    pool = getattr(transport, "_pool", None)
    inner = getattr(pool, "_network_backend", None)
    if pool is None or not (hasattr(inner, "connect_tcp") and hasattr(pool, "connections")):
        return None
    if not hasattr(core, "ConnectionNotAvailable"):
        return None
    if asynchronous:
        pool._network_backend = _AsyncBackend(inner, core)
        return pool
    try:
        stream = importlib.import_module(f"{core.__name__}._backends.sync").SyncStream
    except (ImportError, AttributeError):
        return None
    pool._network_backend = _Backend(stream, core)
    return pool


class _ConnectionWatch:
    """Watches one connection. `probes` show whether bytes were read ahead; None where that is unknown.

    `deadline` is when the connection must be established, with all handshakes; None: at any time.
    """

    def __init__(self, inner: Any, core: Any, probes: Probes | None, deadline: float | None) -> None:
        self._inner = inner
        self._core = core
        self.open = True
        opened = OPENED.get()
        if opened is not None:
            opened.append(self)
        self.silent_size = 0  # bytes of the body since the last content; the adapter sets it to 0 for each piece
        self._silent_since: float | None = None
        self.read_seconds: float | None = None  # that reads of the body may still take; other time does not count
        self._read_start = 0.0
        self._h11: Any = None
        self._pool: Any = None
        self._answered = False  # the headers of a response arrived, and the next request did not begin
        self._checked = False  # `check_leftovers` was called for this response
        self._unusable = False
        self._in_headers = False
        self._head_size = 0
        self._header_deadline: float | None = None
        self._connect_deadline = deadline
        self._request = b""  # the last bytes that were written in a handshake with a proxy
        self._probes = probes
        with suppress(AttributeError, OSError):
            register_socket(inner.get_extra_info("socket").fileno())

    def answer(self, pool: Any) -> None:
        """Record that the headers are complete."""
        self._pool = pool
        self._answered = True
        self._in_headers = False
        self.silent_size = 0
        self.read_seconds = None

    def is_overdue(self) -> bool:
        """Whether the last read took all the seconds that were left."""
        return self.read_seconds is not None and time.monotonic() - self._read_start >= self.read_seconds

    def check_leftovers(self) -> None:
        """Check for bytes after the response. Call it before the response is closed."""
        self._checked = True
        if self._h11 is None:
            self._h11 = _h11_of(self._pool, self)
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

    def _before_write(self, data: bytes, timeout: float | None) -> float | None:
        """Return the timeout of a write. Before a request's first one check for unread bytes.

        If there are any, the pool takes another connection.
        """
        if self._answered:
            checked, self._answered, self._checked = self._checked, False, False
            if self._unusable or not checked or self._unread():
                self._unusable = True
                raise self._core.ConnectionNotAvailable
        if not data:  # the end of a request
            return timeout
        is_socks = timeout is _NO_ARGUMENT
        self._request = data if is_socks or data.startswith(b"CONNECT ") else b""
        self._in_headers = not is_socks
        self._head_size = 0
        self._header_deadline = None
        return self._handshake_timeout(None) if is_socks else timeout

    def _before_read(self, timeout: float | None) -> float | None:
        """Return the timeout of a read. Raise the errors of httpcore where the limits are reached."""
        if self._request:
            return self._handshake_timeout(None if timeout is _NO_ARGUMENT else timeout)
        if self._in_headers:
            return self._header_timeout(timeout)
        if self.read_seconds is not None:
            self._read_start = time.monotonic()
            if self.read_seconds <= 0:
                raise self._core.ReadTimeout("the time is over")
            timeout = self.read_seconds if timeout is None else min(timeout, self.read_seconds)
        if not self.silent_size:
            self._silent_since = None
            return timeout
        if self.silent_size > MAX_SILENT_BYTES:
            raise self._core.ReadError(f"more than {MAX_SILENT_BYTES:,} bytes of its body hold no content")
        if self._silent_since is None:
            self._silent_since = time.monotonic()
        return self._remaining(None if timeout is None else self._silent_since + timeout, self._core.ReadTimeout)

    def _after_read(self, data: bytes) -> None:
        if self._in_headers:
            self._head_size += len(data)
        else:
            self.silent_size += len(data)
        if self.read_seconds is not None:
            self.read_seconds -= time.monotonic() - self._read_start

    def _header_timeout(self, timeout: float | None) -> float | None:
        """Return the remaining seconds for the headers, which count with the interim responses before them."""
        if self._head_size > MAX_HEAD_BYTES:
            raise self._core.RemoteProtocolError(f"its headers have more than {MAX_HEAD_BYTES:,} bytes")
        if timeout is not None and self._header_deadline is None:
            self._header_deadline = time.monotonic() + timeout
        return self._remaining(self._header_deadline, self._core.ReadTimeout)

    def _handshake_timeout(self, timeout: float | None) -> float | None:
        """Return the remaining seconds for establishing the connection; where they are unlimited, `timeout`."""
        remaining = self._remaining(self._connect_deadline, self._core.ConnectTimeout)
        return timeout if remaining is None else remaining

    def _remaining(self, deadline: float | None, error_class: type[Exception]) -> float | None:
        if deadline is None:
            return None
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise error_class("the time is over")
        return remaining

    def _write_error(self, error: Exception) -> Exception:
        """Return the error of a write that took too long. A peer that has answered need not read on: httpcore reads."""
        return self._core.WriteError("the peer has answered already") if self._unread() else error

    def _timeout_error(self, error: Exception) -> Exception:
        """Return the error of a read that took too long: in a handshake there is no connection yet."""
        return self._core.ConnectTimeout(str(error)) if self._request else error


class WatchedStream(_ConnectionWatch):
    """A connection of a blocking pool."""

    def read(self, max_bytes: int, timeout: float | None = _NO_ARGUMENT) -> bytes:
        """Read bytes within their deadline; without a timeout a whole message of SOCKS."""
        data = b""
        try:
            while True:
                piece: bytes = self._inner.read(max_bytes, self._before_read(timeout))
                self._after_read(piece)
                data += piece
                if timeout is not _NO_ARGUMENT or not piece or _is_socks_reply(data, self._request):
                    return data
        except self._core.ReadTimeout as error:
            raise self._timeout_error(error) from error

    def write(self, buffer: bytes, timeout: float | None = _NO_ARGUMENT) -> None:
        """Write bytes, after the check for unread ones."""
        if (use := SENDING.get()) is not None:
            use(self._interrupt)
        limit = self._before_write(buffer, timeout)
        try:
            self._inner.write(buffer, limit)
        except self._core.WriteTimeout as error:
            raise self._write_error(error) from error

    def _interrupt(self) -> None:
        """Wake the thread that reads from it."""
        shut_down(self._inner.get_extra_info("socket"))

    def close(self) -> None:
        """Close the connection. A thread that reads from it wakes: closing alone would let it wait."""
        self.open = False
        self._interrupt()
        self._inner.close()

    def start_tls(self, ssl_context: Any, server_hostname: Any, timeout: float | None) -> WatchedStream:
        """Return a watched TLS connection over this one."""
        self.open = False
        inner = self._inner.start_tls(ssl_context, server_hostname, self._handshake_timeout(timeout))
        return WatchedStream(inner, self._core, _probes_of(inner), self._connect_deadline)


class WatchedAsyncStream(_ConnectionWatch):
    """A connection of an event loop's pool."""

    async def read(self, max_bytes: int, timeout: float | None = _NO_ARGUMENT) -> bytes:
        """Read bytes within their deadline; without a timeout a whole message of SOCKS."""
        data = b""
        try:
            while True:
                piece = await self._piece(max_bytes, self._before_read(timeout))
                self._after_read(piece)
                data += piece
                if timeout is not _NO_ARGUMENT or not piece or _is_socks_reply(data, self._request):
                    return data
        except self._core.ReadTimeout as error:
            raise self._timeout_error(error) from error
        except OSError as error:  # an error of TLS, which no lower layer translates
            raise self._core.ReadError(str(error)) from error

    async def _piece(self, max_bytes: int, timeout: float | None) -> bytes:
        """Read bytes. A program that was stopped for longer than the timeout has yet to read what arrived."""
        piece: bytes
        try:
            piece = await self._inner.read(max_bytes, timeout)
        except self._core.ReadTimeout:
            piece = await self._inner.read(max_bytes, LAST_LOOK)
        return piece

    async def write(self, buffer: bytes, timeout: float | None = _NO_ARGUMENT) -> None:
        """Write bytes, after the check for unread ones."""
        limit = self._before_write(buffer, timeout)
        try:
            await self._inner.write(buffer, limit)
        except self._core.WriteTimeout as error:
            raise self._write_error(error) from error
        except OSError as error:
            raise self._core.WriteError(str(error)) from error

    async def aclose(self) -> None:
        """Close the connection."""
        self.open = False
        await self._inner.aclose()

    async def start_tls(self, ssl_context: Any, server_hostname: Any, timeout: float | None) -> WatchedAsyncStream:
        """Return a watched TLS connection over this one."""
        self.open = False
        inner = await self._inner.start_tls(ssl_context, server_hostname, self._handshake_timeout(timeout))
        return WatchedAsyncStream(inner, self._core, _async_probes_of(inner), self._connect_deadline)


def _is_socks_reply(data: bytes, request: bytes) -> bool:
    """Whether a message of SOCKS5 is complete: the choice of a method, the word on a password, or on an address."""
    if request[:2] != b"\x05\x01" or len(request) < 5:
        return len(data) >= 2
    sizes = {1: 10, 3: 7 + data[4] if len(data) > 4 else 7, 4: 22}
    return len(data) > 4 and len(data) >= sizes.get(data[3], 0)


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


class _Backend:
    """Opens watched connections. `stream` is httpcore's class of streams over a socket."""

    def __init__(self, stream: Any, core: Any) -> None:
        self._stream = stream
        self._core = core

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> WatchedStream:
        """Open a watched connection."""
        deadline = _deadline(timeout)
        try:
            inner = self._stream(open_socket(host, port, timeout))
        except TimeoutError as error:
            raise self._core.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise self._core.ConnectError(str(error)) from error
        return WatchedStream(inner, self._core, _probes_of(inner), deadline)


class _AsyncBackend:
    """Opens watched connections in an event loop."""

    def __init__(self, inner: Any, core: Any) -> None:
        self._inner = inner
        self._core = core

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, **options: Any
    ) -> WatchedAsyncStream:
        """Open a watched connection."""
        import anyio

        deadline = _deadline(timeout)
        inner = None
        try:
            with anyio.move_on_after(timeout):
                inner = await self._race(alternate(await _resolve(host, port)), port, options)
        except OSError as error:
            raise self._core.ConnectError(str(error)) from error
        if inner is None:
            raise self._core.ConnectTimeout("the time is over")
        return WatchedAsyncStream(inner, self._core, _async_probes_of(inner), deadline)

    async def _race(self, targets: list[Target], port: int, options: dict[str, Any]) -> Any:
        """Return the first stream that connects. Addresses start one after another, and none stops those before it."""
        import anyio

        streams: list[Any] = []
        kept = 0
        failure: Exception = self._core.ConnectError("the name has no address")

        async def connect(host: str, ended: anyio.Event) -> None:
            nonlocal failure
            try:
                streams.append(await self._inner.connect_tcp(host, port, None, **options))
                group.cancel_scope.cancel()
            except self._core.ConnectError as error:
                failure = error
            ended.set()

        try:
            async with anyio.create_task_group() as group:
                for number, (*_, address) in enumerate(targets, 1):
                    ended = anyio.Event()
                    group.start_soon(connect, address[0], ended)
                    with anyio.move_on_after(HEAD_START if number < len(targets) else None):
                        await ended.wait()
            kept = 1
        finally:
            with anyio.CancelScope(shield=True):
                for surplus in streams[kept:]:
                    await surplus.aclose()
        if not streams:
            raise failure
        return streams[0]


async def _resolve(host: str, port: int) -> list[Target]:
    """Return the addresses of a host. The loop does not wait for a name at its end."""
    if (known := known_targets(host, port)) is not None:
        return known
    import anyio

    results: list[list[Target] | Exception] = []
    found, post = anyio.Event(), loop_scheduler()

    def take(result: list[Target] | Exception) -> None:
        results.append(result)
        with suppress(RuntimeError):  # the loop has ended
            post(found.set)

    LOOKUPS.start(host, port, take)
    await found.wait()
    if isinstance(result := results[0], Exception):
        raise result
    return result


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


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
