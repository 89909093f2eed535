"""Simulate the network: a transport takes a plan and returns an endpoint's bytes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Protocol
from urllib.parse import unquote, urlsplit

from cnllm.registry.model import Model
from cnllm.simulator.batch import BatchRequest, BatchStore, answer_step
from cnllm.simulator.respond import ModelLookup, SimulatedResponse, is_unlisted, respond

__all__ = ["AsyncSimTransport", "OutgoingRequest", "SimTransport"]


class OutgoingRequest(Protocol):
    """A request as a transport gets it: its destination and its bytes."""

    @property
    def model(self) -> Model:
        """Return the model."""

    @property
    def url(self) -> str:
        """Return the destination."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers."""

    @property
    def content(self) -> bytes:
        """Return the body as bytes."""


class _Endpoints:
    """The endpoints behind a transport, and their batches."""

    def __init__(self, registry: ModelLookup | None, strict: bool) -> None:
        self.registry = registry
        self.strict = strict
        self._batches = BatchStore()
        self._calls: set[tuple[str, str, str]] = set()  # requests that are no step of a batch, by provider

    def respond(self, plan: OutgoingRequest) -> SimulatedResponse:
        """Return the response to a plan."""
        method: str = getattr(plan, "method", "POST")
        path = unquote(urlsplit(plan.url).path)
        call = (plan.model.provider, method, path)
        if self.registry is not None and call not in self._calls:
            if (response := self._respond_to_step(self.registry, plan, method, path)) is not None:
                return response
            self._calls.add(call)
        unlisted = self.strict and is_unlisted(self.registry, plan.model)
        return respond(plan.model, plan.headers, plan.content, path, strict=self.strict, unlisted=unlisted)

    def _respond_to_step(
        self, registry: ModelLookup, plan: OutgoingRequest, method: str, path: str
    ) -> SimulatedResponse | None:
        """Return the response to a step of a batch; None for another request. The base URL may be any."""
        for start in reversed([index for index, char in enumerate(path) if char == "/"]):
            step = self._batches.offers.find_step(registry, plan.model.provider, method, path[start:])
            if step is not None:
                break
        else:
            return None
        base_url = plan.url.partition("?")[0].removesuffix(path[start:])
        request = BatchRequest(plan.url, plan.headers, plan.content, base_url)
        return answer_step(registry, self._batches, step, request, strict=self.strict)


class SimTransport:
    """A transport that answers from the registry; `pace` is the seconds between the pieces of a stream.

    If `strict`, it refuses everything that the flags deny, even if real endpoints are not known to refuse it.
    """

    def __init__(self, registry: ModelLookup | None = None, pace: float = 0.0, *, strict: bool = False) -> None:
        self.pace = pace
        self._endpoints = _Endpoints(registry, strict)

    def send(self, plan: OutgoingRequest) -> tuple[int, dict[str, str], Iterator[bytes]]:
        """Return status, headers, and the body in pieces."""
        response = self._endpoints.respond(plan)
        return response.status, response.headers, self._paced(response.pieces)

    def _paced(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for index, piece in enumerate(pieces):
            if index and self.pace:
                time.sleep(self.pace)
            yield piece

    def close(self) -> None:
        """Do nothing: no connection is open."""


class AsyncSimTransport:
    """The same for async code, under asyncio and trio."""

    def __init__(self, registry: ModelLookup | None = None, pace: float = 0.0, *, strict: bool = False) -> None:
        self.pace = pace
        self._endpoints = _Endpoints(registry, strict)

    async def send(self, plan: OutgoingRequest) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Return status, headers, and the body in pieces."""
        response = self._endpoints.respond(plan)
        return response.status, response.headers, self._paced(response.pieces)

    async def _paced(self, pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
        for index, piece in enumerate(pieces):
            if index and self.pace:
                import anyio  # comes with httpx; only a paced answer needs it

                await anyio.sleep(self.pace)
            yield piece

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
