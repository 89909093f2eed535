"""The parts of a gateway that its requests share, and the types of ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from cnllm.client.async_client import AsyncClient
from cnllm.gateway.access import Access
from cnllm.gateway.access_log import AccessLog
from cnllm.gateway.admission import Admission
from cnllm.gateway.bounds import Bounds, Clients, Guesses, Pace, Quota
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.monitoring.monitor import Monitor
from cnllm.gateway.prefixes import Prefixes
from cnllm.gateway.state import State
from cnllm.store.call_log import CallLog

__all__ = ["Headers", "Receive", "Scope", "Send", "Service"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Service(Struct, frozen=True):
    """The parts of a gateway that its requests share. `ping` is in seconds.

    `requests` and `held` count the requests in flight and the bytes of their bodies, `pace` slows floods of refusals
    down, `logins` wrong keys at `/ui`, and `threads` work on long bodies. `prefixes` notices lost caches, and `calls`
    is the log of calls on disk. `client` returns the client that calls the endpoints; it is made at its first use,
    after a fork of the server.
    """

    names: ModelNames
    access: Access
    admission: Admission
    state: State
    log: AccessLog
    monitor: Monitor
    client: Callable[[], AsyncClient]
    prefixes: Prefixes
    calls: CallLog | None
    identity: str | None
    simulate: bool
    ping: float
    bounds: Bounds
    clients: Clients
    requests: Quota
    held: Quota
    pace: Pace
    logins: Guesses
    threads: ThreadPoolExecutor
