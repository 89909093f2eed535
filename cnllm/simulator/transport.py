"""Simulate the network: a transport takes a plan and returns an endpoint's bytes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Protocol
from urllib.parse import unquote, urlsplit

from cnllm.registry.model import Model
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


def _respond_to_plan(plan: OutgoingRequest, registry: ModelLookup | None, strict: bool) -> SimulatedResponse:
    unlisted = strict and is_unlisted(registry, plan.model)
    path = unquote(urlsplit(plan.url).path)
    return respond(plan.model, plan.headers, plan.content, path, strict=strict, unlisted=unlisted)


class SimTransport:
    """A transport that answers from the registry; `pace` is the seconds between the pieces of a stream.

    If `strict`, it refuses everything that the flags deny, even if real endpoints are not known to refuse it.
    """

    def __init__(self, registry: ModelLookup | None = None, pace: float = 0.0, *, strict: bool = False) -> None:
        self.registry = registry
        self.pace = pace
        self.strict = strict

    def send(self, plan: OutgoingRequest) -> tuple[int, dict[str, str], Iterator[bytes]]:
        """Return status, headers, and the body in pieces."""
        response = _respond_to_plan(plan, self.registry, self.strict)
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
        self.registry = registry
        self.pace = pace
        self.strict = strict

    async def send(self, plan: OutgoingRequest) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Return status, headers, and the body in pieces."""
        response = _respond_to_plan(plan, self.registry, self.strict)
        return response.status, response.headers, self._paced(response.pieces)

    async def _paced(self, pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
        for index, piece in enumerate(pieces):
            if index and self.pace:
                import anyio  # comes with httpx; only a paced answer needs it

                await anyio.sleep(self.pace)
            yield piece

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
