"""Open sockets for the blocking adapters, check idle connections, and hold the waits that all adapters share.

One deadline holds for a name and all its addresses. Event loops have such a function.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cnllm.engine.encode.plan import Plan
from cnllm.system.files import wait_readable
from cnllm.system.processes import fork_safe
from cnllm.transports import errors

__all__ = [
    "DRAIN_SECONDS",
    "HEAD_START",
    "IDLE_CONNECTIONS",
    "LAST_LOOK",
    "MAX_DRAIN_PIECES",
    "MAX_IDLE",
    "Sends",
    "Target",
    "alternate",
    "has_only_tls_data",
    "idle_timeout",
    "is_unusable",
    "open_socket",
    "pop_latest",
    "pop_surplus",
    "remaining_time",
    "shut_down",
]

MAX_IDLE = 60.0  # seconds that an idle connection is kept; a server may close it sooner, which is noticed
IDLE_CONNECTIONS = 500
"""The most idle connections that are kept, where the setting CNLLM_IDLE_CONNECTIONS says nothing."""
DRAIN_SECONDS = 0.05  # seconds that a complete reply waits for the end of its body
MAX_DRAIN_PIECES = 8  # number of body pieces read after the end of a reply
HEAD_START = 0.25  # seconds before the next address is tried too (RFC 8305)
LAST_LOOK = 0.01  # seconds between a timeout and its effect, in which an event loop reads what has arrived
_LONGEST_LABEL = 64  # a label of a host's name has fewer characters
_STARTED = {0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR}

Target = tuple[Any, ...]
"""Family, kind, protocol, canonical name and address, as `socket.getaddrinfo` returns them."""


class _HasKey(Protocol):
    key: tuple[bool, str, int]
    idle_since: float


_Connection = TypeVar("_Connection", bound=_HasKey)


class Sends:
    """The requests whose responses have not begun, each with what ends it, for another thread or task."""

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())  # held while one is ended: its connection may serve others later
        self._ends: dict[int, Callable[[], object] | None] = {}

    def begin(self, plan: Plan) -> None:
        """Add a request, which has no connection yet."""
        self._ends[id(plan)] = None

    def use(self, plan: Plan, end: Callable[[], object]) -> None:
        """Set what ends the request. Raise `TransportError` where it was interrupted."""
        with self._lock:
            if self._ends.get(id(plan)) is _nothing:
                raise errors.interrupted()
            self._ends[id(plan)] = end

    def end(self, plan: Plan) -> None:
        """Remove a request."""
        with self._lock:
            self._ends.pop(id(plan), None)

    def interrupt(self, plan: Plan) -> None:
        """End a request that is in the table, from any thread."""
        with self._lock:
            if id(plan) in self._ends:
                end, self._ends[id(plan)] = self._ends[id(plan)], _nothing
                if end is not None:
                    end()


def _nothing() -> None:
    """Do nothing: it stands for the end of a request that was interrupted."""


def open_socket(host: str, port: int, seconds: float | None) -> socket.socket:
    """Return a connected socket without delay (TCP_NODELAY).

    Raise `OSError`, `TimeoutError` where no address answered in time, or `UnicodeError` for an impossible name.
    """
    start = time.monotonic()
    is_plain = host.isascii() and all(0 < len(label) < _LONGEST_LABEL for label in host.split("."))
    name = host.encode() if is_plain else host  # bytes need no codec of international names
    sock = _race(alternate(_resolve(name, port, seconds)), seconds, start)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _resolve(host: str | bytes, port: int, seconds: float | None) -> list[Target]:
    """Return the addresses of a host. Only a thread can leave the system's resolver when the time is over.

    Where no thread can start, this one resolves the name, however long that takes.
    """
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    results: list[list[Target] | Exception] = []

    def resolve() -> None:
        try:
            results.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 raised below
            results.append(error)

    thread = threading.Thread(target=resolve, name="cnllm-resolver", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread can start: there are too many, or the program ends
        resolve()
    else:
        thread.join(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
    if not results:
        raise TimeoutError(f"{host!r} was not resolved in time")
    if isinstance(result := results[0], Exception):
        raise result
    return result


def alternate(targets: list[Target]) -> list[Target]:
    """Return the addresses with their families in turn: one of them may be unreachable altogether."""
    seen: Counter[int] = Counter()
    ranks = []
    for target in targets:
        ranks.append(seen[target[0]])
        seen[target[0]] += 1
    return [target for _, target in sorted(zip(ranks, targets, strict=True), key=lambda pair: pair[0])]


def _race(targets: list[Target], seconds: float | None, start: float) -> socket.socket:
    """Return the first socket that connects. Addresses start one after another, and none stops those before it."""
    waiting = list(reversed(targets))
    pending: list[socket.socket] = []
    winner: socket.socket | None = None
    failure = OSError("the name has no address")
    try:
        while winner is None and (waiting or pending):
            remaining = remaining_time(seconds, start)
            try:
                if waiting:
                    pending.append(_begin(waiting.pop()))
                    if waiting and (remaining is None or remaining > HEAD_START):
                        remaining = HEAD_START
                winner = _first_connected(pending, remaining)
            except OSError as error:
                failure = error
    finally:
        for sock in pending:
            if sock is not winner:
                sock.close()
    if winner is None:
        raise failure
    return winner


def _first_connected(pending: list[socket.socket], seconds: float | None) -> socket.socket | None:
    """Wait for the sockets. Return one that connected; close one that failed, and raise its error."""
    with selectors.DefaultSelector() as selector:
        for sock in pending:
            selector.register(sock, selectors.EVENT_WRITE, sock)
        for key, _ in selector.select(seconds):
            ready: socket.socket = key.data
            code = ready.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == 0:
                return ready
            pending.remove(ready)
            ready.close()
            raise OSError(code, os.strerror(code))
    return None


def _begin(target: Target) -> socket.socket:
    """Return a socket that is about to connect."""
    family, kind, protocol, _, address = target
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code not in _STARTED:
            raise OSError(code, os.strerror(code))
    except BaseException:
        sock.close()
        raise
    return sock


def shut_down(sock: socket.socket) -> None:
    """Wake the thread that reads from a socket. A TLS shutdown would crash that thread, so this skips it."""
    with contextlib.suppress(OSError):  # it was closed already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


# ── idle connections ──────────────────────────────────────────────────────────


def pop_latest(idle: deque[_Connection], key: tuple[bool, str, int]) -> _Connection | None:
    """Remove and return the connection used last, which is the most likely to be alive."""
    for index in range(len(idle) - 1, -1, -1):
        if idle[index].key == key:
            connection = idle[index]
            del idle[index]
            return connection
    return None


def pop_surplus(idle: deque[_Connection], most: int, now: float) -> list[_Connection]:
    """Remove and return the connections beyond the number that is kept, and those that are idle for too long."""
    surplus: list[_Connection] = []
    while idle and (len(idle) > most or now - idle[0].idle_since > MAX_IDLE):
        surplus.append(idle.popleft())
    return surplus


def is_unusable(fd: int, idle_since: float) -> bool:
    """Whether a connection was idle for too long, or has bytes to read, mostly the peer's close."""
    return fd < 0 or time.monotonic() - idle_since > MAX_IDLE or wait_readable(fd, 0, is_socket=True) is True


def has_only_tls_data(sock: socket.socket) -> bool:
    """Whether the unread bytes belong to TLS only, such as session tickets. Afterwards the timeout is 0."""
    from ssl import SSLWantReadError

    sock.settimeout(0)
    try:
        sock.recv(1)
    except SSLWantReadError:
        return True
    except OSError:
        pass
    return False


# ── waits ─────────────────────────────────────────────────────────────────────


def idle_timeout(plan: Plan) -> float | None:
    """Return the seconds that a body may be silent. For a stream the progress timeout is a second limit."""
    idle, progress = plan.timeouts.idle, plan.timeouts.progress if plan.stream else None
    return progress if idle is None else idle if progress is None else min(idle, progress)


def remaining_time(seconds: float | None, start: float) -> float | None:
    """Return the remaining seconds of a wait. Raise `TimeoutError` when it is over."""
    if seconds is None:
        return None
    remaining = start + seconds - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining
