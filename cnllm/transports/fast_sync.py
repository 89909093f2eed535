"""`Fast`: the transport of `Client` over plain sockets and llhttp."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cnllm.engine.encode.plan import Plan
from cnllm.errors import TransportError
from cnllm.fork import drop_after_fork
from cnllm.transports import errors, tls
from cnllm.transports.address import Address, parse_address
from cnllm.transports.headers import DRAIN_SECONDS, MAX_DRAIN_PIECES, MAX_URLS, idle_timeout, remaining_time
from cnllm.transports.httpx_adapter import Httpx
from cnllm.transports.pool import Connection, Pool
from cnllm.transports.proxies import proxy_for
from cnllm.transports.request_head import encode_head
from cnllm.transports.sockets import open_socket

if TYPE_CHECKING:
    import ssl

__all__ = ["Fast"]

_SIZE = 65536  # bytes of one read


class Fast:
    """Keeps connections alive and shares them between threads. At most `connections` are in use at once.

    It leaves rare cases to httpx: proxies of the environment, and headers that change a message's framing.
    """

    def __init__(self, *, connections: int = 4096) -> None:
        self._pool = Pool(connections)
        self._httpx = Httpx()
        self._addresses: dict[str, Address] = {}
        self._proxies: dict[str, str | None] = {}
        self._tls_context: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        drop_after_fork(self)

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        address = self._addresses.get(plan.url) or self._cached_address(plan.url)
        head = encode_head(plan, address)
        if head is None or self._proxy(address) is not None:
            return self._httpx.send(plan)
        pool = self._pool
        connection = self._acquire(address, plan)
        try:
            while True:
                if connection is None:
                    connection = self._connect(address, plan.timeouts.connect)
                    pool.add(connection)
                if _request(connection, head, plan, address.host):
                    break
                pool.drop(connection)  # the peer closed it before it read a byte of this request
                connection = None
        except BaseException:
            pool.release(connection, False)
            raise
        reader = connection.reader
        return reader.status, reader.headers, _Body(pool, connection, idle_timeout(plan))

    def warm(self, plan: Plan) -> None:
        """Open a connection for a plan that will be sent later."""
        address = self._addresses.get(plan.url) or self._cached_address(plan.url)
        if self._proxy(address) is not None:
            return
        connection = self._acquire(address, plan)
        try:
            if connection is None:
                connection = self._connect(address, plan.timeouts.connect)
                self._pool.add(connection)
        except BaseException:
            self._pool.release(None, False)
            raise
        self._pool.release(connection, True)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()
        self._httpx.close()

    def drop_inherited(self) -> None:
        """Start empty in a child process: connections and locks belong to the parent."""
        self._lock = threading.Lock()
        self._pool.drop_inherited()

    def _acquire(self, address: Address, plan: Plan) -> Connection | None:
        try:
            return self._pool.acquire(address.key, plan.timeouts.first_byte)
        except TimeoutError as error:
            raise errors.no_free_connection(address.host, plan.timeouts.first_byte) from error

    def _proxy(self, address: Address) -> str | None:
        return proxy_for(address.scheme, address.host, self._proxies, address.port)

    def _cached_address(self, url: str) -> Address:
        if len(self._addresses) >= MAX_URLS:
            self._addresses.clear()
        address = self._addresses[url] = parse_address(url)
        return address

    def _connect(self, address: Address, seconds: float | None) -> Connection:
        sock: socket.socket | None = None
        try:
            start = time.monotonic()
            sock = open_socket(address.host, address.port, seconds)
            if address.encrypted:
                sock.settimeout(remaining_time(seconds, start))
                sock = self._shared_tls_context().wrap_socket(sock, server_hostname=address.host)
            return Connection(sock, address.key)
        except BaseException as error:
            if sock is not None:
                sock.close()
            if isinstance(error, TimeoutError):
                raise errors.connect_timeout(address.host, seconds) from error
            if isinstance(error, UnicodeError):  # a label of the host's name is empty or too long
                raise errors.unsupported_url(f"{address.scheme}://{address.name}") from error
            if isinstance(error, OSError):
                raise errors.connect_failed(address.host, str(error) or type(error).__name__) from error
            raise

    def _shared_tls_context(self) -> ssl.SSLContext:
        with self._lock:
            if self._tls_context is None:
                self._tls_context = tls.client_context()
            return self._tls_context


def _request(connection: Connection, head: bytes, plan: Plan, host: str) -> bool:
    """Send the request and read until the headers are complete. Return False where a stale connection sent nothing."""
    reader, timeouts = connection.reader, plan.timeouts
    reader.begin_response()
    try:
        # A request that fits into the socket's buffer is sent at once: its time counts as part of the wait.
        connection.wait(timeouts.idle if len(plan.content) >= _SIZE else timeouts.first_byte)
        if not _send_all(connection, head, plan.content):
            return False
        connection.wait(timeouts.first_byte)
        start = time.monotonic()
        receive, feed = connection.sock.recv, reader.feed
        while not reader.status:
            if reader.fault is not None:
                raise errors.error_before_status(host, reader.fault, reader.began)
            if data := receive(_SIZE):
                feed(data)
                if not reader.status:  # a slow trickle of headers does not extend the wait
                    connection.wait(remaining_time(timeouts.first_byte, start))
            else:
                reader.end()
    except TimeoutError as error:
        raise errors.status_timeout(host, timeouts.first_byte) from error
    except OSError as error:
        raise errors.error_before_status(host, str(error) or type(error).__name__, reader.began) from error
    return True


def _send_all(connection: Connection, head: bytes, content: bytes) -> bool:
    """Send each piece within the socket's timeout. Return False where a reused connection was closed before.

    A peer that stops reading may have answered already: the answer is read next.
    """
    sock = connection.sock
    data = head + content if len(content) < _SIZE else head
    try:
        count = sock.send(data)
    except TimeoutError:
        raise
    except OSError:  # ssl.SSLError is one
        if connection.used:
            return False
        raise
    with contextlib.suppress(ConnectionError):
        rest = memoryview(data)[count:]
        while rest:
            rest = rest[sock.send(rest) :]
        rest = memoryview(content) if data is head else rest
        while rest:
            rest = rest[sock.send(rest[: 4 * _SIZE]) :]
    return True


class _Body:
    """The bytes of a response. Only `set_read_deadline(0)` may come from another thread."""

    def __init__(self, pool: Pool, connection: Connection, idle: float | None) -> None:
        reader = connection.reader
        self._pool = pool
        self._connection: Connection | None = connection
        self._idle = idle
        self._ready = reader.take()  # body bytes that arrived with the headers
        self._fault: str | None = None
        self._remaining: float | None = None  # seconds that reads may still take; the caller's own time does not count
        self._interrupted = False
        self._release_if_done(connection)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        data = self._ready
        if data:
            self._ready = b""
            return data
        return self._read()

    def _read(self) -> bytes:
        """Return the next piece of content from the connection. Whatever else arrives does not extend the wait."""
        start: float | None = None  # when the first bytes without content arrived
        while True:
            connection = self._connection
            if connection is None:
                fault, self._fault = self._fault, None
                if fault is None or self._interrupted:
                    raise StopIteration
                raise errors.body_broken(fault)
            reader = connection.reader
            try:
                idle = self._idle if start is None else remaining_time(self._idle, start)
                if not reader.more:
                    self._receive(connection, idle)
            except TimeoutError as error:
                self.close()
                if self._remaining is not None:
                    raise StopIteration from None
                raise errors.body_stalled(self._idle, only_framing=start is not None) from error
            data = reader.take()
            self._release_if_done(connection)
            if data:
                return data
            start = start or time.monotonic()

    def _receive(self, connection: Connection, idle: float | None) -> None:
        """Read once from the socket and feed the parser."""
        reader = connection.reader
        try:
            if self._remaining is None:
                connection.wait(idle)
                data = connection.sock.recv(_SIZE)
            else:
                data = self._receive_before_deadline(connection, self._remaining, idle)
        except TimeoutError:
            raise
        except OSError as error:
            reader.connection_lost(str(error) or type(error).__name__)
            data = b""
        if data:
            reader.feed(data)
        else:
            reader.end()

    def _receive_before_deadline(self, connection: Connection, remaining: float, idle: float | None) -> bytes:
        """Read once before the deadline."""
        if remaining <= 0:
            raise TimeoutError
        connection.wait(remaining if idle is None else min(remaining, idle))
        start = time.monotonic()
        try:
            return connection.sock.recv(_SIZE)
        finally:
            self._remaining = remaining - (time.monotonic() - start)

    def _release_if_done(self, connection: Connection) -> None:
        """Release the connection when the body is complete, or close it when it is broken."""
        reader = connection.reader
        if reader.more:
            return  # its pieces are read first
        if reader.fault is not None:
            self._fault = reader.fault
            self._release(False)
        elif reader.complete:
            self._release(reader.reusable)

    def _release(self, reusable: bool) -> None:
        connection = self._connection
        if connection is not None:
            with connection.lock:  # after this no thread interrupts it: it may serve another request
                released, self._connection = self._connection, None
            if released is not None:
                self._pool.release(released, reusable)

    def set_read_deadline(self, seconds: float | None) -> None:
        """End the body after this many seconds of reading. With 0 end it at once, even during a read; None: never."""
        self._remaining = seconds
        if seconds is not None and seconds <= 0:
            self._interrupted = True
            connection = self._connection
            if connection is not None:
                with connection.lock:
                    if self._connection is connection:
                        connection.interrupt()

    def drain(self) -> None:
        """Read the end of the body, which mostly arrived already. A peer that withholds it is not waited for."""
        if self._connection is None:
            return
        self.set_read_deadline(DRAIN_SECONDS)
        with contextlib.suppress(TransportError):
            for _ in itertools.islice(self, MAX_DRAIN_PIECES):
                pass

    def close(self) -> None:
        """Stop reading and close the connection."""
        self._release(False)
