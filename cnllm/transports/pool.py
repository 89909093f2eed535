"""The connections of a `Fast`: those in use, those kept for the next request, and no more than were allowed."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import deque

from cnllm.config.process import INHERITED
from cnllm.transports.headers import IDLE
from cnllm.transports.liveness import KEPT, has_only_tls_data, is_unusable
from cnllm.transports.response_parser import ResponseParser

__all__ = ["Connection", "Key", "Pool"]

Key = tuple[bool, str, int]


class Connection:
    """A socket and what reads from it."""

    __slots__ = ("inherited", "key", "lock", "patience", "plug", "reader", "since", "used")

    def __init__(self, plug: socket.socket, key: Key) -> None:
        self.plug = plug
        self.key = key
        self.reader = ResponseParser()
        self.patience: float | None = -1.0  # the socket's timeout
        self.since = 0.0
        self.used = False
        self.inherited = False  # from the process that forked this one
        self.lock = threading.Lock()  # of the body that reads from it

    def wait(self, seconds: float | None) -> None:
        """How long the next steps may take each."""
        if seconds != self.patience:
            self.plug.settimeout(seconds)
            self.patience = seconds

    def is_usable(self) -> bool:
        """Can it be used again? Before its first response, what is there to read may be TLS's own."""
        if not is_unusable(self.plug.fileno(), self.since):
            return True
        if not isinstance(self.plug, ssl.SSLSocket) or self.reader.complete or time.monotonic() - self.since > KEPT:
            return False
        self.patience = 0
        return has_only_tls_data(self.plug)

    def interrupt(self) -> None:
        """Wake whoever reads from it. Not TLS's own goodbye, which a reading thread would not survive."""
        try:
            socket.socket.shutdown(self.plug, socket.SHUT_RDWR)
        except OSError:
            return  # it was over already

    def detach(self) -> None:
        """In a child process: close this side's copy, which says nothing to the peer."""
        self.inherited = True
        self.lock = threading.Lock()
        self.reader.connection_lost(INHERITED)
        self.plug.close()


class Pool:
    """Threads share it. A process that was forked off begins with an empty one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._taken = 0

    def acquire(self, key: Key) -> Connection | None:
        """A place, with a kept connection if there is a good one; waits while all places are taken."""
        stale: list[Connection] = []
        found: Connection | None = None
        with self._changed:
            while self._taken >= self._limit:
                self._changed.wait()
            self._taken += 1
            while (one := self._latest(key)) is not None:
                if one.is_usable():
                    found = one
                    self._busy.add(one)
                    break
                stale.append(one)
        for one in stale:
            one.plug.close()
        return found

    def _latest(self, key: Key) -> Connection | None:
        """The one used last is the most likely to be still there."""
        idle = self._idle
        for at in range(len(idle) - 1, -1, -1):
            if idle[at].key == key:
                one = idle[at]
                del idle[at]
                return one
        return None

    def add(self, connection: Connection) -> None:
        """A new connection, at the place that was entered."""
        with self._changed:
            self._busy.add(connection)

    def drop(self, connection: Connection) -> None:
        """Close a connection and keep its place, for another one."""
        with self._changed:
            self._busy.discard(connection)
        connection.plug.close()

    def release(self, connection: Connection | None, reusable: bool) -> None:
        """A place is free, and the connection is kept if it can be."""
        if connection is not None and connection.inherited:  # it is the parent's
            return
        spare = None if reusable else connection
        with self._changed:
            self._taken -= 1
            self._changed.notify()
            if connection is not None and connection in self._busy:
                self._busy.discard(connection)
                if reusable:
                    connection.since = time.monotonic()
                    connection.used = True
                    self._idle.append(connection)
                    if len(self._idle) > IDLE:
                        spare = self._idle.popleft()
            else:
                spare = connection  # the pool was closed meanwhile
        if spare is not None:
            spare.plug.close()

    def close(self) -> None:
        """Close what is kept, hang up what is in use; what reads there notices."""
        with self._changed:
            idle, self._idle = self._idle, deque()
            busy, self._busy = self._busy, set()
            for one in busy:  # under the lock: none of them is closed, and its number given to another, meanwhile
                one.interrupt()
        for one in idle:
            one.plug.close()

    def drop_inherited(self) -> None:
        """Begin anew in a child process."""
        inherited = [*self._idle, *self._busy]
        self._begin()
        for one in inherited:
            one.detach()
