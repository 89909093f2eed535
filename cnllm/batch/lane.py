"""One endpoint with one key: its client, its bounds, and what its headers say of limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.batch.controller import Controller
from cnllm.client.async_client import AsyncClient
from cnllm.client.async_stream import AsyncStream
from cnllm.engine.encode.plan import Plan
from cnllm.registry.model import Model
from cnllm.types import Reply

__all__ = ["Lane", "ObservedTransport"]


class Lane(Struct, eq=False):
    """A way to the model. `closed` is why it is no longer used; None while it is."""

    name: str
    model: Model
    client: AsyncClient
    controller: Controller
    closed: str | None = None

    def is_burst(self, code: str | None) -> bool:
        """Whether the code of a refusal says that requests became more too quickly."""
        rates = self.model.flags.rates
        return code is not None and rates is not None and code in (rates.burst_codes or ())

    def prepare(self, messages: Any, options: Mapping[str, Any]) -> AsyncStream[Any]:
        """Return a call whose request is built and not sent."""
        return self.client.prepare(self.model, messages, stream=False, **options)

    async def run_loop(self, messages: Any, options: Mapping[str, Any], loop_options: Mapping[str, Any]) -> Reply[Any]:
        """Run a tool loop, and return its last reply with the usage and the cost of all its steps."""
        run = await self.client.run(self.model, messages, **options, **loop_options)
        reply = run.reply
        return replace(reply, usage=run.usage, cost=run.cost)


class ObservedTransport(Struct, frozen=True):
    """A transport that adds a header to each request, and passes the headers of each response on."""

    transport: Any
    observe: Callable[[Mapping[str, str]], None] | None
    add_header: Callable[[Plan], tuple[str, str]] | None

    async def send(self, plan: Plan) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        if self.add_header is not None:
            name, value = self.add_header(plan)
            plan = replace(plan, headers={**plan.headers, name: value})
        status, headers, body = await self.transport.send(plan)
        if self.observe is not None:
            self.observe(headers)
        return status, headers, body

    async def aclose(self) -> None:
        """Close the connections."""
        if hasattr(self.transport, "aclose"):
            await self.transport.aclose()
