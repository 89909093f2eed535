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
from cnllm.system.processes import drop_after_fork, fork_safe
from cnllm.transports import errors

__all__ = [
    "DRAIN_SECONDS",
    "HEAD_START",
    "IDLE_CONNECTIONS",
    "LAST_LOOK",
    "LOOKUPS",
    "MAX_DRAIN_PIECES",
    "MAX_IDLE",
    "Sends",
    "Target",
    "alternate",
    "has_only_tls_data",
    "idle_timeout",
    "is_unusable",
    "known_targets",
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
    sock = _race(alternate(_resolve(host, port, seconds)), seconds, start)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _resolve(host: str, port: int, seconds: float | None) -> list[Target]:
    """Return the addresses of a host. Raise `TimeoutError` where none was known in time."""
    if (known := known_targets(host, port)) is not None:
        return known
    results: list[list[Target] | Exception] = []
    found = threading.Event()

    def take(result: list[Target] | Exception) -> None:
        results.append(result)
        found.set()

    LOOKUPS.start(host, port, take)
    if not found.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX)):
        raise TimeoutError(f"{host} was not resolved in time")
    if isinstance(result := results[0], Exception):
        raise result
    return result


def known_targets(host: str, port: int) -> list[Target] | None:
    """Return the addresses of a host that is an address itself; None for a name. Raise `UnicodeError`."""
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(_encoded(host), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return None


def _encoded(host: str) -> str | bytes:
    """Return a name in ASCII as bytes, which need no codec of international names."""
    is_plain = host.isascii() and all(0 < len(label) < _LONGEST_LABEL for label in host.split("."))
    return host.encode() if is_plain else host


class _Lookups:
    """Names that daemon threads resolve, one for each name. Nobody can stop the system's resolver.

    So no name waits for another one, and neither an event loop nor the process waits for a name at its end.
    """

    def __init__(self) -> None:
        self.drop_inherited()
        drop_after_fork(self)

    def drop_inherited(self) -> None:
        """Start empty in a child process, which does not have the threads."""
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, int], list[Callable[[list[Target] | Exception], object]]] = {}

    def start(self, host: str, port: int, take: Callable[[list[Target] | Exception], object]) -> None:
        """Call `take` with the addresses of a host, or with an error, in another thread. Where none can start, here."""
        key = host, port
        with self._lock:
            if (waiting := self._waiting.get(key)) is not None:
                waiting.append(take)
                return
            self._waiting[key] = [take]
        try:
            threading.Thread(target=self._run, args=key, name="cnllm-resolver", daemon=True).start()
        except RuntimeError:  # there are too many, or the program ends
            self._run(host, port)

    def _run(self, host: str, port: int) -> None:
        result: list[Target] | Exception
        try:
            result = socket.getaddrinfo(_encoded(host), port, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001 those who wait raise it
            result = error
        with self._lock:
            waiting = self._waiting.pop((host, port), [])
        for take in waiting:
            take(result)


LOOKUPS = _Lookups()


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
