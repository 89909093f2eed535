"""HTTP over uvicorn and httptools, with bounds: heads, deadlines, connections, and clients that do not read.

httptools has no bounds of its own. Here a head may have 64 KB and 100 fields, every head and every idle connection has
a deadline, and one timer watches the deadlines of all connections.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from cnllm.gateway.bounds import Bounds, Clients, file_limit
from cnllm.gateway.endpoints import NO_WIRE
from cnllm.gateway.exchange import error_body
from cnllm.gateway.failures import Failure

__all__ = ["BoundedProtocol", "Connections"]

_HEAD_BYTES = 64 * 1024
_MOST_FIELDS = 100
_MOST_QUEUED = 16  # requests that a client has sent without waiting for the answers
_DISCARDED = 1024 * 1024  # bytes that are read after a refusal, so that the client sees it and not a reset
_DISCARD_SECONDS = 1.0
_READ_BYTES = 64 * 1024  # a client that reads takes so much in `write_seconds`
_STOP_SECONDS = 2.0  # a client that does not read keeps the server from its end for so long
_SWEEP_SECONDS = 0.5
_LARGEST_READ = 65_536  # bytes that pause reading until the request takes them
_MOST_CONNECTIONS = 4096
_REFUSED_AT_ONCE = 32  # connections beyond the bound that get an answer; further ones are closed without one
_LARGE_HEAD = f"the head of the request has more than {_HEAD_BYTES:,} bytes"
_CHUNKED = b"transfer-encoding: chunked\r\n"
_CONTINUE = b"HTTP/1.1 100"  # the interim response that asks for a body
_AUTHORITY = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
_DEFAULT_PORT = re.compile(rb":(?:80|443)?\Z")


class Connections:
    """The open connections of one process: how many there are, whose they are, and how long each may wait."""

    def __init__(self, bounds: Bounds, clients: Clients) -> None:
        self.bounds = bounds
        self.clients = clients
        files = file_limit()
        most = bounds.connections or _MOST_CONNECTIONS
        most = most if files is None else min(most, files)
        self._quota = bounds.quota(most)
        self._refused_most = min(_REFUSED_AT_ONCE, max(1, most // 4))
        self._refused = 0
        self._open: dict[BoundedProtocol, str | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._write_seconds = bounds.write_seconds
        shortest = min(bounds.head_seconds, bounds.idle_seconds, bounds.write_seconds)
        self._interval = min(_SWEEP_SECONDS, shortest / 4)

    def add(self, connection: BoundedProtocol, address: str) -> int:
        """Count a connection. Return the status of its refusal, 0 where it may stay, 1 where it gets no answer."""
        peer = self.clients.peer(address)
        if self._timer is None:
            self._timer = connection.loop.call_later(self._interval, self._sweep, connection.loop)
        status = self._quota.refusal(peer)
        if status and self._refused >= self._refused_most:
            return 1
        if status:
            self._refused += 1
            peer = "refused"
        else:
            self._quota.take(peer)
        self._open[connection] = peer
        return status

    def remove(self, connection: BoundedProtocol) -> None:
        """Count a connection no more."""
        if connection not in self._open:
            return
        peer = self._open.pop(connection)
        if peer == "refused":
            self._refused -= 1
        else:
            self._quota.give(peer)

    def stop(self) -> None:
        """Give clients that do not read up sooner: the server stops."""
        self._write_seconds = min(self._write_seconds, _STOP_SECONDS)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connections whose time is over."""
        self._timer = loop.call_later(self._interval, self._sweep, loop) if self._open else None
        now = loop.time()
        unread: list[tuple[float, int, BoundedProtocol]] = []
        for connection in list(self._open):
            if connection.deadline is not None and now >= connection.deadline:
                connection.expire()
            if size := connection.output.unread(now):
                unread.append((connection.output.since, size, connection))
        total = sum(size for _, size, _ in unread)
        for since, size, connection in sorted(unread, key=lambda entry: entry[0]):
            if now - since > self._write_seconds or total > self.bounds.held_bytes:
                connection.output.abort()
                total -= size


class _Output:
    """The transport of a connection's responses.

    It holds the head of a response until its first piece, so that both go out in one write, and it knows whether the
    client reads.
    """

    __slots__ = ("_connection", "_head", "_is_lost", "_mark", "_transport", "_written", "since")

    def __init__(self, transport: Any, connection: BoundedProtocol) -> None:
        self._transport = transport
        self._connection = connection
        self._head: bytes | None = None  # b"" when it is written
        self._written = 0
        self._mark = 0  # the bytes that the client had read at `since`
        self.since = 0.0

    def write(self, data: bytes) -> None:
        """Write data, or hold it if it is the head."""
        if self._head is None and not data.startswith(_CONTINUE):
            self._head = data
            return
        if self._head:
            data, self._head = self._head + data, b""
        self._written += len(data)
        self._transport.write(data)

    def end(self) -> None:
        """End a response: what is written next is the head of another one."""
        if self._head:  # an answer without a body
            self.write(b"")
        self._head = None

    def close(self) -> None:
        """Write a head that is held, and close."""
        if not self._transport.is_closing():
            self.end()
            self._connection.close()

    def close_now(self) -> None:
        """Close when the client has read what is written, and read nothing more."""
        self._transport.close()

    def end_writing(self) -> None:
        """Close this side of the connection alone."""
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def unread(self, now: float) -> int:
        """Return the bytes that are written and not read. `since` is the time at which the client last read enough."""
        size: int = self._transport.get_write_buffer_size()
        if not size:
            self.since = 0.0
        elif not self.since or self._written - size - self._mark >= _READ_BYTES:
            self.since, self._mark = now, self._written - size
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Unframed:
    """The transport of an answer to HTTP/1.0, which has no chunks: one of unknown length ends with its connection."""

    def __init__(self, output: _Output) -> None:
        self._output = output
        self._has_begun = self._is_chunked = False

    def write(self, data: bytes) -> None:
        """Write the head, or a piece of the body without what makes a chunk of it."""
        if not self._has_begun:
            self._has_begun, self._is_chunked = True, _CHUNKED in data
            data = data.replace(_CHUNKED, b"")
        elif self._is_chunked:
            size, _, rest = data.partition(b"\r\n")
            data = rest[: int(size, 16)]
        self._output.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


class _HeadRefused(Exception):
    """The head of a request is refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BoundedProtocol(HttpToolsProtocol):
    """A connection of a client. `open_connections` are all of its process."""

    output: _Output
    deadline: float | None = None  # a time of the event loop at which the connection is closed
    is_ending = False  # no further request is read, and what still comes is thrown away
    _in_head = False  # a head has begun and not ended
    _is_between = True  # the next byte belongs to a head
    _is_idle = True  # no byte of the next head is there
    _head_size = 0  # of the fields that are whole
    _fed = 0  # bytes of a head that came in several pieces
    _fields = 0
    _plain_head: bytes | None = None  # that of a request that offers another protocol, without the offer
    _rest: int | None = None  # bytes of a refused request that are still thrown away
    _closing: asyncio.TimerHandle | None = None
    _running: RequestResponseCycle | None = None  # the request that is being answered; `cycle` is the last one

    def __init__(self, *arguments: Any, open_connections: Connections, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.open_connections = open_connections

    # ── the connection ───────────────────────────────────────────────────────

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.output = _Output(transport, self)
        self.transport = self.output  # type: ignore[assignment]
        self.deadline = self.loop.time() + self.open_connections.bounds.head_seconds
        status = self.open_connections.add(self, self.client[0] if self.client else "")
        if status == 1:
            transport.abort()
        elif status:
            self._refuse(status, "too many connections are open")

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no more."""
        self.open_connections.remove(self)
        if self._closing is not None:
            self._closing.cancel()
        self.is_ending = True
        if (running := self._running) is not None and not running.response_complete:  # others wait behind it
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)
        # Nothing of the last request is kept until the collector finds the circle of these objects.
        self.pipeline.clear()
        self.cycle = self.scope = self.headers = self._running = None  # type: ignore[assignment]
        self.transport = None  # type: ignore[assignment]
        del self.output

    def expire(self) -> None:
        """Close a connection whose time is over."""
        self.deadline = None
        self.output.close_now()

    def shutdown(self) -> None:
        """Close the connection after the request that runs."""
        self.open_connections.stop()
        super().shutdown()

    def close(self) -> None:
        """Close. A client that still sends may go on for a moment: its system would throw the answer away."""
        if self._rest is not None or (self.cycle is not None and self.cycle.more_body):
            self._linger(_DISCARDED)
        elif self._closing is None:
            self.output.close_now()

    def _linger(self, rest: int) -> None:
        """Close the side of the answers, and throw so many bytes of the client away, for a second at most."""
        if self._closing is not None:
            return
        self.is_ending = True
        self.deadline = None
        self.output.end_writing()
        self._closing = self.loop.call_later(_DISCARD_SECONDS, self.output.close_now)
        self._rest = rest
        self.flow.resume_reading()

    def _end_requests(self) -> None:
        """Read no further request, and close after the answers to those that are read."""
        self.is_ending = True
        self._rest = _DISCARDED
        self.cycle.keep_alive = False

    def _refuse(self, status: int, message: str) -> None:
        """Answer a head or a body that is refused, and close. Requests that were read before are answered first."""
        if self.pipeline and self.cycle.more_body:  # its body is what is refused, and it has not begun
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else self._running  # type: ignore[assignment]
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or not cycle.more_body:
                self._end_requests()  # those before it are answered first
                return
            cycle.disconnected = True  # its body is what is refused
            cycle.waiting_for_100_continue = False
            cycle.message_event.set()
        content = error_body(NO_WIRE, Failure(status, message))
        again = "retry-after: 1\r\n" if status in (429, 503) else ""
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n{again}\r\n"
        )
        self.output.write(head.encode() + content)
        self._rest = _DISCARDED
        self.output.close()

    # ── reading ──────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        """Read a piece of a head or of a body."""
        if self.is_ending:
            self._discard(len(data))
            return
        try:
            for start in range(0, len(data), _HEAD_BYTES):  # so that a long field is noticed before it is whole
                piece = data[start : start + _HEAD_BYTES]
                is_head = self._in_head or self._is_between
                self._feed(piece)
                if self._in_head and is_head:
                    self._fed += len(piece)
                    if self._fed > _HEAD_BYTES:
                        raise _HeadRefused(431, _LARGE_HEAD)
            if self._is_idle:  # a head has begun and not ended
                self._is_idle = False
                self.deadline = self.loop.time() + self.open_connections.bounds.head_seconds
        except httptools.HttpParserUpgrade:
            self._end_requests()  # CONNECT: nothing that follows is HTTP
        except (_HeadRefused, httptools.HttpParserError) as error:
            reason = error if isinstance(error, _HeadRefused) else error.__context__
            if isinstance(reason, _HeadRefused):
                self._refuse(reason.status, str(reason))
            else:
                self._refuse(400, "this is not an HTTP request")

    def _feed(self, data: bytes) -> None:
        """Parse a piece. A parser reads nothing behind a head that offers another protocol, which nobody has to take.

        Raises `HttpParserError`.
        """
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as error:
                if self._plain_head is None:
                    raise
                data = self._plain_head + data[error.args[0] :]
            self._plain_head, self.parser = None, httptools.HttpRequestParser(self)

    def _discard(self, size: int) -> None:
        """Drop data, and read no more where it is too much."""
        self._rest = (self._rest or 0) - size
        if self._rest < 0:
            self.flow.pause_reading()

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_head = True
        self._is_between = False
        self._head_size = self._fields = self._fed = 0

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target in."""
        self._head_size += len(url)
        if self._head_size > _HEAD_BYTES:
            raise _HeadRefused(431, f"the target of the request has more than {_HEAD_BYTES:,} bytes")
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field in. Those after a body are counted and dropped."""
        self._head_size += len(name) + len(value) + 4
        self._fields += 1
        if self._head_size > _HEAD_BYTES:
            raise _HeadRefused(431, _LARGE_HEAD)
        if self._fields > _MOST_FIELDS:
            raise _HeadRefused(431, f"the head of the request has more than {_MOST_FIELDS} fields")
        if not self._in_head:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise _HeadRefused(501, "transfer-encoding: chunked is the only coding that is read")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """End a head, and begin the request or let it wait for the one before it."""
        self._in_head = False
        if self.parser.should_upgrade() and (method := self.parser.get_method()) != b"CONNECT":
            lines = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
            first = b"%b %b HTTP/%b\r\n" % (method, self.url, self.parser.get_http_version().encode())
            self._plain_head = b"".join([first, *lines, b"\r\n"])
            return
        if not self.url.startswith(b"/"):
            self._check_target()
        if len(self.pipeline) >= _MOST_QUEUED:
            raise _HeadRefused(429, f"more than {_MOST_QUEUED} requests wait on this connection")
        is_old = self.parser.get_http_version() == "1.0"
        if is_old:  # such a client knows no interim response
            self.expect_100_continue = False
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle
        if is_old:
            self.cycle.transport = _Unframed(self.output)  # type: ignore[assignment]
        self._is_idle = False
        self.deadline = None

    def _check_target(self) -> None:
        """Refuse a target with another host than the one that the head names: a proxy may have checked either."""
        target = _AUTHORITY.match(self.url)
        hosts = [value for name, value in self.headers if name == b"host"]
        if target is None or len(hosts) != 1 or _host(target[1]) != _host(hosts[0]):
            raise _HeadRefused(400, "the target of the request and its Host are not the same")

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body in, or throw it away where the request is answered."""
        cycle = self.cycle
        if cycle.response_complete:
            self._rest = (self._rest or 0) - len(body)
            if self._rest < 0:
                self._linger(0)
            return
        cycle.body += body
        if len(cycle.body) > _LARGEST_READ:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """End a body."""
        if self._plain_head is not None:  # it has not begun
            return
        cycle = self.cycle
        cycle.more_body = False
        self._is_between = True
        if cycle.response_complete:
            self._rest = None
            self._wait()
        else:
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Begin the next request, or wait for it."""
        self.output.end()
        self.server_state.total_requests += 1
        if self._closing is not None or self.output.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._running = cycle
            task = self.loop.create_task(cycle.run_asgi(app))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
        elif self.cycle.more_body:
            self._rest = _DISCARDED
            self.deadline = self.loop.time() + _DISCARD_SECONDS
        else:
            self._wait()

    def _wait(self) -> None:
        """Wait for the next head."""
        bounds = self.open_connections.bounds
        self._is_idle = not self._in_head
        self.deadline = self.loop.time() + (bounds.head_seconds if self._in_head else bounds.idle_seconds)


def _host(authority: bytes) -> bytes:
    """Return a host in the form in which two are compared."""
    return _DEFAULT_PORT.sub(b"", authority.strip().lower())
