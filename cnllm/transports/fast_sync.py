"""`Fast`: the transport of `Client` over plain sockets and llhttp."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Iterator

from cnllm.config.process import drop_after_fork
from cnllm.engine.encode.plan import Plan
from cnllm.errors import TransportError
from cnllm.transports import errors, tls
from cnllm.transports.address import Address, parse_address
from cnllm.transports.headers import DRAIN, LEFTOVERS, URLS, idle_timeout, proxy_for, time_left
from cnllm.transports.httpx_adapter import Httpx
from cnllm.transports.pool import Connection, Pool
from cnllm.transports.request_head import encode_head

__all__ = ["Fast"]

_SIZE = 65536  # bytes of one read


class Fast:
    """Keeps connections alive and shares them between threads; `connections` at most are in use at once.

    What is rare goes over httpx: proxies that the environment names, and headers that change a message's framing.
    """

    def __init__(self, *, connections: int = 4096) -> None:
        self._pool = Pool(connections)
        self._httpx = Httpx()
        self._addresses: dict[str, Address] = {}
        self._proxies: dict[str, str | None] = {}
        self._trust: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        drop_after_fork(self)

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        to = self._addresses.get(plan.url) or self._remember(plan.url)
        head = encode_head(plan, to)
        if head is None or proxy_for(to.scheme, to.host, self._proxies, to.port) is not None:
            return self._httpx.send(plan)
        pool = self._pool
        connection = pool.acquire(to.key)
        try:
            while True:
                if connection is None:
                    connection = self._connect(to, plan.timeouts.connect)
                    pool.add(connection)
                if _ask(connection, head, plan, to.host):
                    break
                pool.drop(connection)  # the peer gave it up before a byte of this was taken
                connection = None
        except BaseException:
            pool.release(connection, False)
            raise
        reader = connection.reader
        return reader.status, reader.headers, _Body(pool, connection, idle_timeout(plan))

    def warm(self, plan: Plan) -> None:
        """Have a connection ready for a plan that is going to be sent."""
        to = self._addresses.get(plan.url) or self._remember(plan.url)
        if proxy_for(to.scheme, to.host, self._proxies, to.port) is not None:
            return
        connection = self._pool.acquire(to.key)
        try:
            if connection is None:
                connection = self._connect(to, plan.timeouts.connect)
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
        """Begin anew in a child process: connections and locks are the parent's."""
        self._lock = threading.Lock()
        self._pool.drop_inherited()

    def _remember(self, url: str) -> Address:
        if len(self._addresses) >= URLS:
            self._addresses.clear()
        found = self._addresses[url] = parse_address(url)
        return found

    def _connect(self, to: Address, patience: float | None) -> Connection:
        plug: socket.socket | None = None
        try:
            plug = socket.create_connection((to.host, to.port), patience)
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if to.encrypted:
                plug = self._trusting().wrap_socket(plug, server_hostname=to.host)
            return Connection(plug, to.key)
        except BaseException as error:
            if plug is not None:
                plug.close()
            if isinstance(error, TimeoutError):
                raise errors.connect_timeout(to.host, patience) from error
            if isinstance(error, UnicodeError):  # a label of the host's name is empty or too long
                raise errors.unsupported_url(f"{to.scheme}://{to.name}") from error
            if isinstance(error, OSError):
                raise errors.connect_failed(to.host, str(error) or type(error).__name__) from error
            raise

    def _trusting(self) -> ssl.SSLContext:
        with self._lock:
            if self._trust is None:
                self._trust = tls.client_context()
            return self._trust


def _ask(connection: Connection, head: bytes, plan: Plan, host: str) -> bool:
    """Send the request and read until the headers are complete. False: nothing was sent, the connection was stale."""
    reader, timeouts = connection.reader, plan.timeouts
    reader.begin_response()
    try:
        connection.wait(timeouts.idle)
        if not _sent(connection, head, plan.content):
            return False
        connection.wait(timeouts.first_byte)
        began = time.monotonic()
        receive, feed = connection.plug.recv, reader.feed
        while not reader.status:
            if reader.fault is not None:
                raise errors.error_before_status(host, reader.fault, reader.began)
            if data := receive(_SIZE):
                feed(data)
                if not reader.status:  # drops of headers are no answer
                    connection.wait(time_left(timeouts.first_byte, began))
            else:
                reader.end()
    except TimeoutError as error:
        raise errors.status_timeout(host, timeouts.first_byte) from error
    except OSError as error:
        raise errors.error_before_status(host, str(error) or type(error).__name__, reader.began) from error
    return True


def _sent(connection: Connection, head: bytes, content: bytes) -> bool:
    """Each piece within the socket's timeout. A peer that stops reading may have answered: that is read next."""
    plug = connection.plug
    data = head + content if len(content) < _SIZE else head
    try:
        gone = plug.send(data)
    except TimeoutError:
        raise
    except (OSError, ssl.SSLError):
        if connection.used:
            return False
        raise
    with contextlib.suppress(ConnectionError):
        left = memoryview(data)[gone:]
        while left:
            left = left[plug.send(left) :]
        left = memoryview(content) if data is head else left
        while left:
            left = left[plug.send(left[: 4 * _SIZE]) :]
    return True


class _Body:
    """The bytes of a response. Only `set_read_deadline(0)` may come from another thread."""

    def __init__(self, pool: Pool, connection: Connection, idle: float | None) -> None:
        reader = connection.reader
        self._pool = pool
        self._connection: Connection | None = connection
        self._idle = idle
        self._ready = reader.take()  # what came with the headers
        self._fault: str | None = None
        self._left: float | None = None  # seconds that reading may still take; the reader's own time does not count
        self._hurried = False
        self._settle(connection)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        data = self._ready
        if data:
            self._ready = b""
            return data
        return self._read()

    def _read(self) -> bytes:
        """The next piece as it comes over the wire."""
        while True:
            connection = self._connection
            if connection is None:
                fault, self._fault = self._fault, None
                if fault is None or self._hurried:
                    raise StopIteration
                raise errors.body_broken(fault)
            reader = connection.reader
            if not reader.more:
                self._receive(connection)
            data = reader.take()
            self._settle(connection)
            if data:
                return data

    def _receive(self, connection: Connection) -> None:
        """One read, for the reader."""
        reader = connection.reader
        try:
            if self._left is None:
                connection.wait(self._idle)
                data = connection.plug.recv(_SIZE)
            else:
                data = self._last(connection, self._left)
        except TimeoutError as error:
            self.close()
            if self._left is not None:
                raise StopIteration from None
            raise errors.body_stalled(self._idle) from error
        except OSError as error:
            reader.connection_lost(str(error) or type(error).__name__)
            data = b""
        if data:
            reader.feed(data)
        else:
            reader.end()

    def _last(self, connection: Connection, left: float) -> bytes:
        """A read that ends in time."""
        if left <= 0:
            raise TimeoutError
        connection.wait(left if self._idle is None else min(left, self._idle))
        began = time.monotonic()
        try:
            return connection.plug.recv(_SIZE)
        finally:
            self._left = left - (time.monotonic() - began)

    def _settle(self, connection: Connection) -> None:
        """Give the connection back when the body is complete, or up when it is broken."""
        reader = connection.reader
        if reader.more:
            return  # what it has is taken first
        if reader.fault is not None:
            self._fault = reader.fault
            self._let_go(False)
        elif reader.complete:
            self._let_go(reader.reusable)

    def _let_go(self, reusable: bool) -> None:
        connection = self._connection
        if connection is not None:
            with connection.lock:  # from here on nobody hangs it up: it may serve another request
                held, self._connection = self._connection, None
            if held is not None:
                self._pool.release(held, reusable)

    def set_read_deadline(self, seconds: float) -> None:
        """Let reading end after so many seconds of it; at once, even if a thread is reading, for none."""
        self._left = seconds
        if seconds <= 0:
            self._hurried = True
            connection = self._connection
            if connection is not None:
                with connection.lock:
                    if self._connection is connection:
                        connection.interrupt()

    def drain(self) -> None:
        """The end of the body mostly came with its last bytes; a peer that keeps it back is not waited for."""
        if self._connection is None:
            return
        self.set_read_deadline(DRAIN)
        with contextlib.suppress(TransportError):
            for _ in itertools.islice(self, LEFTOVERS):
                pass

    def close(self) -> None:
        """Read no more."""
        self._let_go(False)
