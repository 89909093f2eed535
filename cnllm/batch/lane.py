"""One endpoint with one key: its client, its bounds, and what its headers say of limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from cnllm.batch.controller import Controller
from cnllm.client.async_client import AsyncClient
from cnllm.client.async_stream import AsyncStream
from cnllm.engine.encode.plan import Plan
from cnllm.registry.model import Model

__all__ = ["Lane", "watch_headers"]


class Lane:
    """A way to the model. `closed` is why it is no longer used; None while it is."""

    def __init__(self, name: str, model: Model, client: AsyncClient, controller: Controller) -> None:
        self.name = name
        self.model = model
        self.client = client
        self.controller = controller
        self.closed: str | None = None

    def prepare(self, messages: Any, options: Mapping[str, Any]) -> AsyncStream[Any]:
        """Return a call whose request is built and not sent."""
        return self.client.prepare(self.model, messages, stream=False, **options)


Transport = Any


def watch_headers(transport: Transport, observe: Callable[[Mapping[str, str]], None]) -> Transport:
    """Return a transport that passes the headers of each response on to a function."""
    return _Watching(transport, observe)


class _Watching:
    def __init__(self, transport: Transport, observe: Callable[[Mapping[str, str]], None]) -> None:
        self._transport = transport
        self._observe = observe

    async def send(self, plan: Plan) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        status, headers, body = await self._transport.send(plan)
        self._observe(headers)
        return status, headers, body
