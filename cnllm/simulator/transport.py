"""Simulate the network: a transport takes a plan and returns an endpoint's bytes."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from cnllm.registry.model import Model
from cnllm.registry.registry import Registry
from cnllm.simulator.respond import Change, Endpoints, SimulatedResponse

if TYPE_CHECKING:
    from cnllm.simulator.batch import BatchStore

__all__ = ["AsyncSimTransport", "SimTransport"]

_LONG = 32 * 1024  # bytes of a request that is answered in a thread: others on the event loop go on


class _Network:
    """The endpoints behind a transport, and their batches. A plan has a model, a URL, headers and its body as bytes.

    If `strict`, they refuse everything that the flags deny, even if real endpoints are not known to refuse it. `change`
    makes another reply of each, such as that of a host with faults (`cnllm.simulator.unfaithful`).
    """

    def __init__(self, registry: Registry | None = None, *, strict: bool = False, change: Change | None = None) -> None:
        self._endpoints = Endpoints(registry, strict, change)
        self._batches: BatchStore | None = None
        self._lock = threading.Lock()

    def respond(self, plan: Any) -> SimulatedResponse:
        """Return the response to a plan."""
        method: str = getattr(plan, "method", "POST")
        path = unquote(urlsplit(plan.url).path)
        if not _is_call(plan.model, method, path) and (response := self._respond_to_step(plan, method, path)):
            return response
        return self._endpoints.respond(plan.model, plan.headers, plan.content, path)

    def _respond_to_step(self, plan: Any, method: str, path: str) -> SimulatedResponse | None:
        """Return the response to a step of a batch; None for another request. The base URL may be any."""
        from cnllm.simulator.batch import BatchRequest, BatchStore, answer_step  # few need it

        registry = self._endpoints.registry
        if registry is None:
            return None
        with self._lock:
            self._batches = self._batches or BatchStore(registry, strict=self._endpoints.strict)
        for start in reversed([index for index, char in enumerate(path) if char == "/"]):
            if (step := self._batches.find_step(plan.model.provider, method, path[start:])) is not None:
                base_url = plan.url.partition("?")[0].removesuffix(path[start:])
                return answer_step(self._batches, step, BatchRequest(plan.url, plan.headers, plan.content, base_url))
        return None


def _is_call(model: Model, method: str, path: str) -> bool:
    """Whether a request is a single call, by its path. That is quick; the steps of batches take a look-up."""
    paths = (p.partition("?")[0].replace("{model}", model.id) for p in (model.flags.path, model.flags.stream_path) if p)
    return method == "POST" and path.endswith(tuple(paths))


async def _awaited(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


class SimTransport(_Network):
    """A transport that answers from the registry."""

    def send(self, plan: Any) -> tuple[int, dict[str, str], Iterator[bytes]]:
        """Return status, headers, and the body in pieces."""
        response = self.respond(plan)
        return response.status, response.headers, iter(response.pieces)

    def close(self) -> None:
        """Do nothing: no connection is open."""


class AsyncSimTransport(_Network):
    """The same for async code, under asyncio and trio."""

    async def send(self, plan: Any) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Return status, headers, and the body in pieces."""
        if len(plan.content) > _LONG:
            import anyio.to_thread  # comes with httpx; only a long request needs it

            response = await anyio.to_thread.run_sync(self.respond, plan)
        else:
            response = self.respond(plan)
        return response.status, response.headers, _awaited(response.pieces)

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
