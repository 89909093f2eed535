"""Bound what clients hold of a gateway: connections, requests, bytes and time; for all of them and for one address."""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from cnllm.system import processes
from cnllm.types import checks
from cnllm.types.newest import Newest

__all__ = ["Bounds", "Clients", "Guesses", "Quota", "file_limit"]

_MOST_ADDRESSES = 10_000  # whose wrong keys are remembered; the oldest is forgotten first
_OWN_FILES = 24  # files that a process holds beside its connections: the store, the book of keys, the log, the loop


class Bounds(Struct, frozen=True):
    """The bounds of one process. Times are in seconds, sizes in bytes.

    A client has `head_seconds` to send the head of each request, and `body_seconds` for its body, of which
    `body_bytes` are taken. A connection without a request is closed after `idle_seconds`, and one whose client reads
    nothing after `write_seconds`. One address may hold `client_share` of the connections, of the requests in flight,
    and of the bytes. `held_bytes` bounds the bodies of all requests in flight, and by itself what is written and not
    read yet. `connections` None: 4,096, or fewer where the process may open fewer files.
    """

    head_seconds: float = 20.0
    idle_seconds: float = 75.0
    body_seconds: float = 120.0
    write_seconds: float = 60.0
    connections: int | None = None
    requests: int = 2048
    body_bytes: int = 64 * 1024 * 1024  # pictures are long
    held_bytes: int = 512 * 1024 * 1024
    client_share: float = 0.75

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise checks.wrong_value(name, value, "a number above 0")
        if self.client_share > 1:
            raise checks.wrong_value("client_share", self.client_share, "a number above 0, and 1 at most")

    def quota(self, most: int) -> Quota:
        """Return a quota of so many, of which one address may hold its share."""
        return Quota(most, max(1, int(most * self.client_share)))


class Quota:
    """Counts what clients hold of one thing. At most `most` are held, and at most `most_each` by one address."""

    __slots__ = ("_each", "_held", "_most", "_most_each")

    def __init__(self, most: int, most_each: int) -> None:
        self._most, self._most_each = most, most_each
        self._held = 0
        self._each: dict[str, int] = {}  # addresses that hold something

    def refusal(self, address: str | None, count: int = 1) -> int:
        """Return the status of a refusal: 503 where all hold too much, 429 where this address does, 0 for neither.

        None is the address of a trusted proxy, whose clients are counted one by one elsewhere.
        """
        if self._held + count > self._most:
            return 503
        if address is not None and self._each.get(address, 0) + count > self._most_each:
            return 429
        return 0

    def take(self, address: str | None, count: int = 1) -> None:
        """Count something that a client holds."""
        self._held += count
        if address is not None:
            self._each[address] = self._each.get(address, 0) + count

    def give(self, address: str | None, count: int = 1) -> None:
        """Count something that a client holds no more."""
        self._held -= count
        if address is not None:
            if (left := self._each[address] - count) > 0:
                self._each[address] = left
            else:
                del self._each[address]


class Clients:
    """Tells the address of the client behind each request. `trusted` are addresses and networks of proxies.

    Raises `ValueError` for anything else. A client of IPv6 has a network of 64 bits, so all of it counts as one.
    """

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(address, strict=False) for address in trusted]

    def peer(self, address: str) -> str | None:
        """Return the address under which a connection counts; None for a trusted proxy."""
        if self._networks and self._is_trusted(address):
            return None
        return _client(address) if ":" in address else address

    def of(self, scope: Mapping[str, Any]) -> str:
        """Return the address of a request's client: the last one that no trusted proxy has, where one forwarded it."""
        client = scope.get("client")
        address: str = client[0] if client else ""
        if self._networks and self._is_trusted(address):
            fields = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            for hop in reversed(b",".join(fields).decode("latin-1").split(",")):
                if _parsed(hop := _without_port(hop.strip())) is None:
                    break  # the client may have made up the addresses before it
                address = hop
                if not self._is_trusted(hop):
                    break
        return _client(address) if ":" in address else address

    def _is_trusted(self, address: str) -> bool:
        """Whether an address is that of a trusted proxy."""
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)


class Guesses:
    """Slows wrong keys and other refusals down, by their address: `burst` at once, then one each `seconds`."""

    def __init__(self, burst: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._seconds, self._clock = burst, seconds, clock
        self._free_at: Newest[str, float] = Newest(_MOST_ADDRESSES)  # when an address has its whole burst again
        self._proven: Newest[tuple[str, str], None] = Newest(_MOST_ADDRESSES)

    def wait(self, address: str) -> float:
        """Return the seconds until an address has its next turn, 0 for now."""
        free_at = self._free_at.get(address)
        if free_at is None:
            return 0.0
        return max(0.0, free_at - self._clock() - (self._burst - 1) * self._seconds)

    def add(self, address: str) -> None:
        """Count a wrong key, or another refusal."""
        now = self._clock()
        self._free_at[address] = max(now, self._free_at.get(address, now)) + self._seconds

    def is_proven(self, address: str, identity: str) -> bool:
        """Whether an address has sent a valid key before: others there may be slowed down, its client is not."""
        return (address, identity) in self._proven

    def prove(self, address: str, identity: str) -> None:
        """Remember that an address has sent a valid key."""
        self._proven[address, identity] = None


def file_limit() -> int | None:
    """Let the process open as many files as it may, and return how many connections fit; None where nobody knows.

    A request needs a connection to its endpoint, so that half of the files are for clients.
    """
    files = processes.raise_file_limit()
    return None if files is None else max(4, (files - _OWN_FILES) // 2)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address, None for a text that is none."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _client(address: str) -> str:
    """Return the address or the network under which a client counts."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
    return address if parsed is None else str(parsed)


def _without_port(hop: str) -> str:
    """Return an address of `X-Forwarded-For` without its port."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
