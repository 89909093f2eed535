"""The parts of a gateway that its requests share, and the types of ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from cnllm.client.async_client import AsyncClient
from cnllm.gateway.access import Access
from cnllm.gateway.access_log import AccessLog
from cnllm.gateway.admission import Admission
from cnllm.gateway.bounds import Bounds, Clients, Guesses, Quota
from cnllm.gateway.conversations import Conversations
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.monitoring.monitor import Monitor
from cnllm.gateway.state import State
from cnllm.gateway.tokens import TokenKeys
from cnllm.store.call_log import CallLog
from cnllm.types.message_memory import MessageMemory
from cnllm.types.newest import Newest

__all__ = ["Headers", "Memories", "Receive", "Scope", "Send", "Service", "header_values"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_MOST_MEMORIES = 8
_MEMORY_BYTES = 16 * 1024 * 1024


class Memories:
    """Holds what was worked out from the long conversations of clients. Not for several threads at once.

    Each identity has a memory of its own: nobody learns from the time of an answer what somebody else has sent.
    """

    def __init__(self) -> None:
        self._memories: Newest[str, MessageMemory] = Newest(_MOST_MEMORIES)

    def of(self, identity: str) -> MessageMemory:
        """Return the memory of an identity. Those that came last are kept."""
        memory = self._memories.get(identity)
        self._memories[identity] = memory = MessageMemory(_MEMORY_BYTES) if memory is None else memory
        return memory


class Service(Struct, frozen=True):
    """The parts of a gateway that its requests share. `keys` seal tokens, `ping` is in seconds.

    `requests` and `held` count the requests in flight and the bytes of their bodies, `pace` slows floods of refusals
    down, `logins` wrong keys at `/ui`, and `threads` work on long bodies. `memories` are those of long conversations,
    `conversations` notices lost caches, and `calls` is the log of calls on disk. `client` returns the client that calls
    the endpoints; it is made at its first use, after a fork of the server.
    """

    names: ModelNames
    access: Access
    admission: Admission
    state: State
    keys: TokenKeys | None
    log: AccessLog
    monitor: Monitor
    client: Callable[[], AsyncClient]
    memories: Memories
    conversations: Conversations
    calls: CallLog | None
    identity: str | None
    simulate: bool
    ping: float
    bounds: Bounds
    clients: Clients
    requests: Quota
    held: Quota
    pace: Guesses
    logins: Guesses
    threads: ThreadPoolExecutor


def header_values(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the values of headers by their names. Several fields of one name are one list, as HTTP has it."""
    headers: dict[str, str] = {}
    for field_name, field_value in fields:
        name, value = field_name.decode("latin-1"), field_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
