"""The connections of a `Fast`: those in use, the idle ones for later requests, and a limit on their number."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque

from cnllm.fork import INHERITED
from cnllm.transports.headers import MAX_IDLE_CONNECTIONS, remaining_time
from cnllm.transports.liveness import MAX_IDLE, has_only_tls_data, is_unusable
from cnllm.transports.response_parser import ResponseParser

__all__ = ["Connection", "Key", "Pool"]

Key = tuple[bool, str, int]


class Connection:
    """A socket with its response parser."""

    __slots__ = ("idle_since", "inherited", "key", "lock", "reader", "sock", "timeout", "used")

    def __init__(self, sock: socket.socket, key: Key) -> None:
        self.sock = sock
        self.key = key
        self.reader = ResponseParser()
        self.timeout: float | None = -1.0  # of the socket; -1: not set yet
        self.idle_since = 0.0
        self.used = False
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
        if not self.is_encrypted or self.reader.complete or time.monotonic() - self.idle_since > MAX_IDLE:
            return False
        self.timeout = 0
        return has_only_tls_data(self.sock)

    @property
    def is_encrypted(self) -> bool:
        """Whether the socket is one of `ssl`."""
        return self.key[0]

    def interrupt(self) -> None:
        """Wake the thread that reads from it. A TLS shutdown would crash that thread, so this skips it."""
        try:
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        except OSError:
            return  # it was closed already

    def detach(self) -> None:
        """Close the child process's copy of the socket, without a message to the peer."""
        self.inherited = True
        self.lock = threading.Lock()
        self.reader.connection_lost(INHERITED)
        self.sock.close()


class Pool:
    """Connections shared by threads. A forked process starts with an empty pool."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._place_freed = threading.Condition(self._lock)
        self._waiting = 0  # threads that wait for a place
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._used_places = 0

    def acquire(self, key: Key, seconds: float | None) -> Connection | None:
        """Take a place and return a good idle connection, or None. Wait while all places are taken.

        Raise `TimeoutError` after this many seconds.
        """
        start = time.monotonic()
        stale: list[Connection] = []
        usable: Connection | None = None
        with self._lock:
            while self._used_places >= self._limit:
                self._waiting += 1
                try:
                    self._place_freed.wait(remaining_time(seconds, start))
                finally:
                    self._waiting -= 1
            self._used_places += 1
            while (connection := self._pop_latest(key)) is not None:
                if connection.is_usable():
                    usable = connection
                    self._busy.add(connection)
                    break
                stale.append(connection)
        for closed in stale:
            closed.sock.close()
        return usable

    def _pop_latest(self, key: Key) -> Connection | None:
        """Remove and return the connection used last, which is the most likely to be alive."""
        idle = self._idle
        for index in range(len(idle) - 1, -1, -1):
            if idle[index].key == key:
                connection = idle[index]
                del idle[index]
                return connection
        return None

    def add(self, connection: Connection) -> None:
        """Register a new connection for a place that was acquired."""
        with self._lock:
            self._busy.add(connection)

    def drop(self, connection: Connection) -> None:
        """Close a connection and keep its place for another one."""
        with self._lock:
            self._busy.discard(connection)
        connection.sock.close()

    def release(self, connection: Connection | None, reusable: bool) -> None:
        """Free a place, and keep the connection if it is reusable."""
        if connection is not None and connection.inherited:  # it belongs to the parent
            return
        discarded = None if reusable else connection
        with self._lock:
            self._used_places -= 1
            if self._waiting:
                self._place_freed.notify()
            if connection is not None and connection in self._busy:
                self._busy.discard(connection)
                if reusable:
                    connection.idle_since = time.monotonic()
                    connection.used = True
                    self._idle.append(connection)
                    if len(self._idle) > MAX_IDLE_CONNECTIONS:
                        discarded = self._idle.popleft()
            else:
                discarded = connection  # the pool was closed meanwhile
        if discarded is not None:
            discarded.sock.close()

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
