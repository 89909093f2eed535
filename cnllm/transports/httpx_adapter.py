"""`Httpx`: the adapter of httpx's blocking transports. It is always available, and also serves proxies.

httpx is imported when the first request is sent.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from cnllm.engine.encode.plan import Plan
from cnllm.errors import TransportError
from cnllm.system.processes import fork_safe, generation
from cnllm.transports.content_encoding import CodingEnd, Decoder
from cnllm.transports.httpx_backend import OPENED, SENDING
from cnllm.transports.httpx_parts import (
    HttpxAdapter,
    HttpxBody,
    error_before_status,
)
from cnllm.transports.sockets import DRAIN_SECONDS, MAX_DRAIN_PIECES, idle_timeout, remaining_time, shut_down

if TYPE_CHECKING:
    import httpx

__all__ = ["Httpx"]


class Httpx(HttpxAdapter):
    """Sends plans over httpx's transports. They keep connections alive and use a proxy of the environment.

    It calls them directly: `httpx.Client` would add a third to the cost of a request, for redirects, cookies and hooks
    that cnllm does not use. A caller's transport serves every request; it may be one of httpx2, the successor, which
    `family="httpx2"` selects where no transport is passed. A forked process opens its own connections.
    """

    def __init__(self, transport: httpx.BaseTransport | None = None, *, family: str = "httpx") -> None:
        super().__init__(transport, family)

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        self._sends.begin(plan)
        SENDING.set(partial(self._sends.use, plan))
        try:
            return self._send(plan)
        finally:
            SENDING.set(None)
            self._sends.end(plan)

    def _send(self, plan: Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        state = self._state()
        httpx, (url, key) = state.httpx, state.find(plan.url)
        entry = None if self._caller_transport is not None else state.transports.entry(key)
        transport = self._caller_transport if entry is None else entry.transport
        request, timeouts = state.request(url, plan, entry)
        try:
            if entry is not None and entry.proxy is not None:
                OPENED.set([])
            response = transport.handle_request(request)
        except Exception as error:
            if entry is None and not isinstance(error, httpx.HTTPError | UnicodeError):
                raise  # a caller's transport may raise any error
            for stream in OPENED.get() or ():
                if stream.open:
                    stream.close()
            raise error_before_status(error, plan, httpx, entry) from error
        finally:
            OPENED.set(None)
        timeouts["read"] = idle_timeout(plan)  # httpcore reads this timeout when the body begins
        body = _HttpxBody(httpx, response, timeouts["read"])
        if entry is not None:
            try:
                body.watch = state.transports.watch(entry, response, url.host)
            except TransportError:
                body.close()
                raise
        return response.status_code, body.headers, body

    def close(self) -> None:
        """Close the connections, but not those of a parent process."""
        if self._caller_transport is not None:
            if self._home == generation():
                self._caller_transport.close()
            return
        state = self._states.get(generation())
        for entry in () if state is None else list(state.transports.entries.values()):
            entry.transport.close()


class _HttpxBody(HttpxBody):
    """The bytes of a response."""

    def __init__(self, httpx: Any, response: httpx.Response, idle: float | None) -> None:
        super().__init__(httpx, response, idle)
        self._bytes: Iterator[bytes] = self._pieces(Iterable, response.iter_bytes, iter, _plain_pieces)
        self._lock = fork_safe(threading.Lock())  # held while the socket is shut down: it may serve others later
        self._timer: threading.Timer | None = None  # for a connection that is not watched
        self._interrupted = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._bytes)
        except StopIteration:
            self.close()
            raise
        except self._errors as error:
            if self._interrupted or (self.watch is not None and self.watch.is_overdue()):
                raise StopIteration from None
            raise self._failure(error) from error
        if self.watch is not None:
            self.watch.silent_size = 0
        return chunk

    def set_read_deadline(self, seconds: float | None) -> None:
        """End the body after this many seconds of reading. With 0 end it at once, even during a read; None: never."""
        if self._timer is not None:
            self._timer.cancel()
        if self.watch is not None and seconds != 0:
            self.watch.read_seconds = seconds
            return
        stream = self._response.extensions.get("network_stream")
        sock = stream.get_extra_info("socket") if stream is not None else None
        if seconds is not None and isinstance(sock, socket.socket):
            self._timer = threading.Timer(seconds, self._shut_down, (sock,))
            self._timer.daemon = True
            self._timer.start()

    def drain(self) -> None:
        """Read the end of the body, which mostly arrived already. A peer that withholds it is not waited for."""
        if self._response.is_closed or self._interrupted:
            return
        self.set_read_deadline(DRAIN_SECONDS)
        with contextlib.suppress(TransportError):
            for _ in itertools.islice(self, MAX_DRAIN_PIECES):
                pass

    def _shut_down(self, sock: socket.socket) -> None:
        with self._lock:
            if self._response.is_closed:
                return  # the body is complete: the connection may serve another request already
            self._interrupted = True
            shut_down(sock)

    def close(self) -> None:
        """Stop reading. Return the connection to its pool, or close it if the body has unread bytes."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._check_leftovers()
            self._response.close()


def _plain_pieces(stream: Iterable[bytes], decode: Decoder, idle: float | None) -> Iterator[bytes]:
    """Yield decoded pieces. Raise `TimeoutError` where none comes for too long, although bytes arrive."""
    start: float | None = None
    with contextlib.suppress(CodingEnd):
        for piece in stream:
            for plain in decode(piece):
                if plain:
                    start = None
                    yield plain
                elif start is None:
                    start = time.monotonic()
                else:
                    remaining_time(idle, start)
