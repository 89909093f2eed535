"""The parts of a gateway that its requests share."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from cnllm.client.async_client import AsyncClient
from cnllm.gateway.access import Access
from cnllm.gateway.access_log import AccessLog
from cnllm.gateway.admission import Admission
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.state import State

__all__ = ["Service"]


class Service(Struct, frozen=True):
    """The parts of a gateway that its requests share. Times are in seconds, `max_body` is in bytes.

    `client` returns the client that calls the endpoints; it is made at its first use, after a fork of the server.
    """

    names: ModelNames
    access: Access
    admission: Admission
    state: State
    log: AccessLog
    client: Callable[[], AsyncClient]
    identity: str | None
    simulate: bool
    ping: float
    patience: float
    max_body: int
