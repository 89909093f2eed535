"""Bound what clients hold of a gateway: connections, requests, bytes and time; for all of them and for one address.

Names that clients send are bounded before anything is looked up by one, compared with one or quoted from one.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote

from msgspec import Struct

from cnllm.gateway.access import query_keys, repeated_header
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.protocols import PROTOCOLS, fields
from cnllm.system import processes
from cnllm.types import Request, ToolCall, checks
from cnllm.types.message_memory import MessageMemory, made_of
from cnllm.types.newest import Newest

__all__ = [
    "LONGEST",
    "MOST_FIELDS",
    "MOST_OPTIONS",
    "Bounds",
    "Clients",
    "Guesses",
    "Quota",
    "check_body",
    "check_head",
    "check_name",
    "check_request",
    "file_limit",
]


_MOST_ADDRESSES = 10_000  # whose wrong keys are remembered; the oldest is forgotten first
_OWN_FILES = 24  # files that a process holds beside its connections: the store, the book of keys, the log, the loop

Kind = Literal["model", "option", "tool", "id", "header"]

LONGEST: dict[Kind, int] = {"model": 256, "option": 128, "tool": 256, "id": 512, "header": 4096}
"""The most bytes of a name, by what it names; those of an id in a path or in `previous_response_id`, too."""
MOST_OPTIONS = 200
"""The most options of a body that no protocol knows."""
MOST_FIELDS = 100
"""The most fields of a query."""

_MOST_BYTES = 4  # of a character in UTF-8
_CALL_NAMES = "names of calls"  # under which a memory has the messages whose calls have short names
_EXCERPT_LENGTH = 40  # characters of a name that is refused


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
            if (rest := self._each[address] - count) > 0:
                self._each[address] = rest
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
                if _parse_address(hop := _without_port(hop.strip())) is None:
                    break  # the client may have made up the addresses before it
                address = hop
                if not self._is_trusted(hop):
                    break
        return _client(address) if ":" in address else address

    def _is_trusted(self, address: str) -> bool:
        """Whether an address is that of a trusted proxy."""
        parsed = _parse_address(address)
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


def _parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address, None for a text that is none."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _client(address: str) -> str:
    """Return the address or the network under which a client counts."""
    parsed = _parse_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
    return address if parsed is None else str(parsed)


def _without_port(hop: str) -> str:
    """Return an address of `X-Forwarded-For` without its port."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


# ── names ────────────────────────────────────────────────────────────────────


def check_name(kind: Kind, name: str, place: str) -> None:
    """Raise `RequestFailed` for a name that is too long, or that has a character nobody can print."""
    most = LONGEST[kind]
    if _is_longer(name, most):
        raise _bounds_failure(f"{place}: at most {most} bytes are allowed, and {_excerpt(name)} has more")
    if not name.isprintable() or ("%" in name and not unquote(name).isprintable()):
        raise _bounds_failure(f"{place}: {_excerpt(name)} has a control character")


def check_head(fields: Sequence[tuple[bytes, bytes]], headers: Mapping[str, str], query: str) -> None:
    """Raise `RequestFailed` for a head that a proxy in front may understand in another way, or with too many fields.

    `headers` are the fields by their names.
    """
    if len(headers) != len(fields) and (name := repeated_header(fields)) is not None:
        raise RequestFailed(Failure(400, f"{name}: the request has this header twice", "repeated_header"))
    if not query:
        return
    _check_query(query)
    if len(query_keys(query)) > 1:
        raise RequestFailed(Failure(400, "key: the query has it twice", "repeated_key"))


def _check_query(query: str) -> None:
    """Raise `RequestFailed` for a query with too many fields."""
    if query.count("&") >= MOST_FIELDS:
        raise _bounds_failure(f"the query has more than {MOST_FIELDS} fields")


def check_body(body: Mapping[str, Any]) -> None:
    """Raise `RequestFailed` for a body with too many options, or with a name of one, a model or an id out of bounds."""
    if type(model := body.get("model")) is str:
        check_name("model", model, "model")
    if type(id := body.get("previous_response_id")) is str:
        check_name("id", id, "previous_response_id")
    _check_options(body)
    for value in body.values():
        if type(value) is dict:
            _check_options(value)
    if len(body) > MOST_OPTIONS:
        known = frozenset().union(*(fields(protocol).body_keys for protocol in PROTOCOLS))
        if (count := sum(name not in known for name in body)) > MOST_OPTIONS:
            raise _bounds_failure(f"the body has {count:,} unknown options, and {MOST_OPTIONS} are allowed")


def check_request(request: Request, memory: MessageMemory | None = None) -> None:
    """Raise `RequestFailed` for a decoded request with names of tools or with headers that are too long.

    `memory` may know the tools, and the beginning of the conversation, from an earlier request.
    """
    if request.model:
        check_name("model", request.model, "model")
    options = request.options
    if headers := options.get("extra_headers"):
        for name, value in headers.items():
            check_name("header", value, name)
    made_of(memory, options.get("tools"), _check_tools)
    messages = request.messages
    start = 0 if memory is None else memory.find_start(_CALL_NAMES, messages)[0]
    for index in range(start, len(messages)):
        if messages[index].role == "assistant":
            for part in messages[index].parts:
                if type(part) is ToolCall and len(part.name) > LONGEST["tool"]:
                    raise _long_tool(part.name, f"messages[{index}]: the name of a call")
    if memory is not None and start < len(messages):
        memory.keep_start(_CALL_NAMES, messages, None, 0)


def _check_tools(tools: Sequence[Any] | None) -> None:
    """Raise `RequestFailed` for tools with a name that is too long."""
    for index, tool in enumerate(tools or ()):
        function = tool.get("function") if type(tool) is dict or isinstance(tool, Mapping) else None
        name = function.get("name") if type(function) is dict or isinstance(function, Mapping) else None
        if type(name) is str and len(name) > LONGEST["tool"]:
            raise _long_tool(name, f"tools[{index}]")


def _long_tool(name: str, place: str) -> RequestFailed:
    """Return the refusal of a tool's name that is too long."""
    return _bounds_failure(f"{place}: at most {LONGEST['tool']} characters are allowed, and {_excerpt(name)} has more")


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise `RequestFailed` for the name of an option that is too long."""
    most = LONGEST["option"]
    if not options or max(map(len, options)) * _MOST_BYTES <= most:
        return
    for name in options:
        if _is_longer(name, most):
            raise _bounds_failure(f"the name of an option has at most {most} bytes, and {_excerpt(name)} has more")


def _is_longer(name: str, most: int) -> bool:
    """Whether a name has more bytes than that. A long one is not encoded first."""
    return len(name) > most or (not name.isascii() and len(name.encode("utf-8", "surrogatepass")) > most)


def _excerpt(name: str) -> str:
    """Return the beginning of a name that is refused, in ASCII."""
    return ascii(name) if len(name) <= _EXCERPT_LENGTH else f"{name[:_EXCERPT_LENGTH]!a}…"


def _bounds_failure(message: str) -> RequestFailed:
    """Return the refusal of a request."""
    return RequestFailed(Failure(400, message, "invalid_request"))
