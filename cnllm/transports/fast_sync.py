"""`Fast`: the transport of `Client` over plain sockets and llhttp."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cnllm.engine.encode.plan import Plan
from cnllm.errors import TransportError
from cnllm.system.processes import INHERITED, cached_property, drop_after_fork
from cnllm.transports import errors
from cnllm.transports.address import Address, Destinations
from cnllm.transports.headers import encode_head
from cnllm.transports.response_parser import FastBody, ResponseParser
from cnllm.transports.sockets import (
    DRAIN_SECONDS,
    IDLE_CONNECTIONS,
    MAX_DRAIN_PIECES,
    MAX_IDLE,
    Sends,
    has_only_tls_data,
    idle_timeout,
    is_unusable,
    open_socket,
    pop_latest,
    pop_surplus,
    remaining_time,
    shut_down,
)

if TYPE_CHECKING:
    from cnllm.transports.httpx_adapter import Httpx

__all__ = ["Fast"]

_SIZE = 65536  # bytes of one read
_PATIENCE = 0.25  # seconds that a write waits before it is known whether the peer has answered already


class _Connection:
    """A socket with its response parser."""

    __slots__ = ("idle_since", "inherited", "is_unsent", "key", "lock", "reader", "sock", "take", "timeout", "used")

    def __init__(self, sock: socket.socket, key: tuple[bool, str, int]) -> None:
        self.sock = sock
        self.key = key
        self.reader = ResponseParser()
        self.take = self.reader.take
        self.timeout: float | None = -1.0  # of the socket; -1: not set yet
        self.idle_since = 0.0
        self.used = False
        self.is_unsent = False  # a part of a request is missing: the connection serves no other one
        self.inherited = False  # from the process that forked this one
        self.lock = threading.Lock()  # held by the body that reads from it

    def wait(self, seconds: float | None) -> None:
        """Set the time that each of the next socket operations may take."""
        if seconds != self.timeout:
            self.sock.settimeout(seconds)
            self.timeout = seconds

    def is_usable(self) -> bool:
        """Whether the connection can serve another request.

        Before its first response, unread bytes may belong to TLS itself.
        """
        if not is_unusable(self.sock.fileno(), self.idle_since):
            return True
        is_encrypted = self.key[0]
        if not is_encrypted or self.reader.complete or time.monotonic() - self.idle_since > MAX_IDLE:
            return False
        self.timeout = 0
        return has_only_tls_data(self.sock)

    def interrupt(self) -> None:
        """Wake the thread that reads from it."""
        shut_down(self.sock)

    def has_answer(self) -> bool:
        """Read what has arrived, without waiting. Return whether an answer has begun, or none can come any more."""
        self.wait(0)
        try:
            data = self.sock.recv(_SIZE)
        except OSError:  # nothing has arrived, or the next write finds the connection broken
            return False
        if data:
            self.reader.feed(data)
        else:
            self.reader.end()
        return bool(self.reader.status) or self.reader.fault is not None

    def detach(self) -> None:
        """Close the child process's copy of the socket, without a message to the peer."""
        self.inherited = True
        self.lock = threading.Lock()
        self.reader.connection_lost(INHERITED)
        self.sock.close()


class _Pool:
    """Connections shared by threads. A forked process starts with an empty pool."""

    def __init__(self, limit: int, most_idle: int) -> None:
        self._limit, self._most_idle = limit, most_idle
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._place_freed = threading.Condition(self._lock)
        self._waiting = 0  # threads that wait for a place
        self._idle: deque[_Connection] = deque()
        self._busy: set[_Connection] = set()
        self._used_places = 0

    def acquire(self, address: Address, seconds: float | None) -> _Connection | None:
        """Take a place and return a good idle connection, or None. Wait while all places are taken.

        Raise `Timeout` after this many seconds.
        """
        start = time.monotonic()
        stale: list[_Connection] = []
        usable: _Connection | None = None
        with self._lock:
            while self._used_places >= self._limit:
                self._waiting += 1
                try:
                    self._place_freed.wait(remaining_time(seconds, start))
                except TimeoutError as error:
                    raise errors.no_free_connection(address.host, seconds) from error
                finally:
                    self._waiting -= 1
            self._used_places += 1
            while (connection := pop_latest(self._idle, address.key)) is not None:
                if connection.is_usable():
                    usable = connection
                    self._busy.add(connection)
                    break
                stale.append(connection)
        for closed in stale:
            closed.sock.close()
        return usable

    def add(self, connection: _Connection) -> _Connection:
        """Register a new connection for a place that was acquired."""
        with self._lock:
            self._busy.add(connection)
        return connection

    def drop(self, connection: _Connection) -> None:
        """Close a connection and keep its place for another one."""
        with self._lock:
            self._busy.discard(connection)
        connection.sock.close()

    def release(self, connection: _Connection | None, *, reusable: bool) -> None:
        """Free a place, and keep the connection if it is reusable."""
        if connection is not None and connection.inherited:  # it belongs to the parent
            return
        discarded = [] if reusable or connection is None else [connection]
        with self._lock:
            self._used_places -= 1
            if self._waiting:
                self._place_freed.notify()
            if connection is not None and connection in self._busy:
                self._busy.discard(connection)
                if reusable:
                    connection.idle_since = now = time.monotonic()
                    connection.used = True
                    self._idle.append(connection)
                    discarded = pop_surplus(self._idle, self._most_idle, now)
            elif connection is not None:
                discarded = [connection]  # the pool was closed meanwhile
        for surplus in discarded:
            surplus.sock.close()

    def close(self) -> None:
        """Close idle connections, and interrupt those in use; their readers notice."""
        with self._lock:
            idle, self._idle = self._idle, deque()
            busy, self._busy = self._busy, set()
            for connection in busy:  # under the lock, so that none is closed and its number reused meanwhile
                connection.interrupt()
        for connection in idle:
            connection.sock.close()

    def drop_inherited(self) -> None:
        """Start empty in a child process."""
        inherited = [*self._idle, *self._busy]
        self._reset()
        for connection in inherited:
            connection.detach()


class Fast:
    """Keeps connections alive and shares them between threads. At most `connections` are in use at once.

    At most `idle` wait for the next request, each for a minute.

    It leaves rare cases to httpx: proxies of the environment, and headers that change a message's framing.
    """

    def __init__(self, *, connections: int = 4096, idle: int | None = None) -> None:
        self._pool = _Pool(connections, IDLE_CONNECTIONS if idle is None else idle)
        self._destinations = Destinations()
        self._sends = Sends()
        drop_after_fork(self)

    @cached_property
    def _httpx(self) -> Httpx:
        """Return the transport of the rare cases, which no other one loads."""
        from cnllm.transports.httpx_adapter import Httpx

        return Httpx()

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        destination = self._destinations.known.get(plan.url) or self._destinations.find(plan.url)
        address, pool = destination.address, self._pool
        head = encode_head(plan, address)
        if head is None or destination.proxy is not None:
            return self._httpx.send(plan)
        self._sends.begin(plan)
        try:
            connection = self._request(address, head, plan)
        finally:
            self._sends.end(plan)  # before its connection may serve another request
        reader = connection.reader
        return reader.status, reader.headers, _FastBody(pool, connection, idle_timeout(plan))

    def _request(self, address: Address, head: bytes, plan: Plan) -> _Connection:
        """Send the request, and return its connection when the headers are complete."""
        pool, timeouts = self._pool, plan.timeouts
        connection = pool.acquire(address, timeouts.first_byte)
        try:
            while True:
                if connection is None:
                    connection = self._connect(address, timeouts.connect)
                self._sends.use(plan, connection.interrupt)
                if _request(connection, head, plan, address.host):
                    return connection
                pool.drop(connection)  # the peer closed it before it read a byte of this request
                connection = None
        except BaseException:
            pool.release(connection, reusable=False)
            raise

    def interrupt(self, plan: Plan) -> None:
        """End a request whose response has not begun, from any thread."""
        self._sends.interrupt(plan)
        if "_httpx" in vars(self):
            self._httpx.interrupt(plan)

    def warm(self, plan: Plan) -> None:
        """Open a connection for a plan that will be sent later."""
        destination = self._destinations.find(plan.url)
        address = destination.address
        if destination.proxy is not None:
            return
        connection = self._pool.acquire(address, plan.timeouts.first_byte)
        try:
            connection = connection or self._connect(address, plan.timeouts.connect)
        finally:
            self._pool.release(connection, reusable=True)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()
        if "_httpx" in vars(self):
            self._httpx.close()

    def drop_inherited(self) -> None:
        """Start empty in a child process: connections and locks belong to the parent."""
        self._pool.drop_inherited()

    def _connect(self, address: Address, seconds: float | None) -> _Connection:
        """Return a new connection of the pool."""
        sock: socket.socket | None = None
        try:
            start = time.monotonic()
            sock = open_socket(address.host, address.port, seconds)
            if address.encrypted:
                sock.settimeout(remaining_time(seconds, start))
                sock = self._destinations.tls_context().wrap_socket(sock, server_hostname=address.host)
            return self._pool.add(_Connection(sock, address.key))
        except BaseException as error:
            if sock is not None:
                sock.close()
            if isinstance(error, OSError | UnicodeError):
                raise address.connect_error(error, seconds) from error
            raise


def _request(connection: _Connection, head: bytes, plan: Plan, host: str) -> bool:
    """Send the request and read until the headers are complete. Return False where a stale connection sent nothing."""
    reader, timeouts = connection.reader, plan.timeouts
    is_large = len(plan.content) >= _SIZE
    reader.begin_response()
    try:
        # A request that fits into the socket's buffer is sent at once: its time counts as part of the wait.
        connection.wait(timeouts.idle if is_large else timeouts.first_byte)
        if not _send_all(connection, head, plan.content):
            return False
        connection.wait(timeouts.first_byte)
        start = time.monotonic()
        receive, feed = connection.sock.recv, reader.feed
        while not reader.status:
            if reader.fault is not None:
                raise errors.error_before_status(host, reader.fault, began=reader.began)
            if data := receive(_SIZE):
                feed(data)
                if not reader.status:  # a slow trickle of headers does not extend the wait
                    connection.wait(remaining_time(timeouts.first_byte, start))
            else:
                reader.end()
    except TimeoutError as error:
        raise errors.status_timeout(host, timeouts.first_byte) from error
    except OSError as error:
        raise errors.error_before_status(host, str(error) or type(error).__name__, began=reader.began) from error
    return True


def _send_all(connection: _Connection, head: bytes, content: bytes) -> bool:
    """Send each piece within the socket's timeout. Return False where a reused connection was closed before.

    A peer that stops reading may have answered already: the answer is read next.
    """
    sock, seconds = connection.sock, connection.timeout
    data = head + content if len(content) < _SIZE else head
    try:
        count = sock.send(data)
    except TimeoutError:
        raise
    except OSError:  # ssl.SSLError is one
        if connection.used:
            return False
        raise
    if count == len(data) and data is not head:  # as nearly always
        return True
    connection.is_unsent = True
    with contextlib.suppress(ConnectionError):
        is_sent = _send(connection, memoryview(data)[count:], seconds)
        if is_sent and data is head:
            is_sent = _send(connection, memoryview(content), seconds)
        connection.is_unsent = not is_sent
    return True


def _send(connection: _Connection, rest: memoryview, seconds: float | None) -> bool:
    """Send bytes, each piece within some seconds. Return False where an answer came before all were sent."""
    since, patience = time.monotonic(), _PATIENCE if seconds is None else min(seconds, _PATIENCE)
    connection.wait(patience)
    while rest:
        try:
            rest = rest[connection.sock.send(rest[: 4 * _SIZE]) :]
            since = time.monotonic()
        except TimeoutError:
            if connection.has_answer():
                return False
            if seconds is not None and time.monotonic() - since >= seconds:
                raise
            connection.wait(patience)
    return True


class _FastBody(FastBody):
    """The bytes of a response. Only `set_read_deadline(0)` may come from another thread."""

    _connection: _Connection | None

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

    def _receive(self, connection: _Connection, idle: float | None) -> None:
        """Read once from the socket, before the deadline, and feed the parser."""
        reader, remaining = connection.reader, self._remaining
        if remaining is not None:
            if remaining <= 0:
                raise TimeoutError
            idle = remaining if idle is None else min(remaining, idle)
        start = time.monotonic()
        try:
            connection.wait(idle)
            data = connection.sock.recv(_SIZE)
        except TimeoutError:
            raise
        except OSError as error:
            reader.connection_lost(str(error) or type(error).__name__)
            data = b""
        finally:
            if remaining is not None:
                self._remaining = remaining - (time.monotonic() - start)
        if data:
            reader.feed(data)
        else:
            reader.end()

    def _release(self, *, reusable: bool) -> None:
        connection = self._connection
        if connection is not None:
            with connection.lock:  # after this no thread interrupts it: it may serve another request
                released, self._connection = self._connection, None
            if released is not None:
                self._pool.release(released, reusable=reusable and not released.is_unsent)

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
        if self._connection is not None:
            self._release(reusable=False)
