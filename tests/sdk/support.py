"""Clients of the vendors' SDKs over simulated models, whose requests are kept, and over endpoints of a test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import cnllm
from cnllm import Plan, Registry
from cnllm.simulator.transport import AsyncSimTransport, SimTransport

MODELS = (
    "glm-4.7",
    "deepseek-flash",
    "kimi-k2.6",
    "MiniMax-M2.5",
    "qwen3.5-plus",
    "claude-haiku-5-5",
    "gemini-2.5-flash",
)
"""One of each vendor that the simulator refuses what it refuses."""

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
KEY = "sk-any-text-will-do"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@cache
def registry() -> Registry:
    """Return the built-in registry with a model of Gemini's own protocol, loaded once."""
    return Registry.load(str(Path(__file__).parent / "models.toml"))


class Sim:
    """The simulator, which keeps the plans that it is sent, and counts the bodies that were closed."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self._sim = SimTransport(registry())

    def send(self, plan: Plan) -> Any:
        self.plans.append(plan)
        return self._sim.send(plan)

    @property
    def last(self) -> str:
        """The body of the last request."""
        return msgspec.json.encode(self.plans[-1].body).decode()


class AsyncSim(Sim):
    """The same, awaited."""

    def __init__(self) -> None:
        self.plans = []
        self._sim = AsyncSimTransport(registry())  # type: ignore[assignment]

    async def send(self, plan: Plan) -> Any:
        self.plans.append(plan)
        return await self._sim.send(plan)  # type: ignore[misc]


def simulated(sim: Sim | None = None, **options: Any) -> Any:
    """Return an HTTP client over simulated models."""
    make = cnllm.sdk.async_http_client if isinstance(sim, AsyncSim) else cnllm.sdk.http_client
    return make(registry(), simulate=True, transport=sim, **options)


class Endpoint:
    """An endpoint of chat completions: answers with a status and pieces, and counts what it gets.

    A piece that is an event is waited for; a piece that is an error is raised.
    """

    def __init__(self, *pieces: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.pieces = pieces
        self.status = status
        self.headers = headers or {}
        self.plans: list[Plan] = []
        self.closed = 0

    def send(self, plan: Plan) -> Any:
        self.plans.append(plan)
        return self.status, self._head(), self._body()

    def _head(self) -> dict[str, str]:
        kind = "text/event-stream" if self.status == 200 else "application/json"
        return {"content-type": kind, **self.headers}

    def _body(self) -> Iterator[bytes]:
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                if not isinstance(piece, bytes):
                    piece.wait(20)
                else:
                    yield piece
        finally:
            self.closed += 1


class AsyncEndpoint(Endpoint):
    """The same, awaited."""

    async def send(self, plan: Plan) -> Any:
        self.plans.append(plan)
        return self.status, self._head(), self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                if not isinstance(piece, bytes):
                    await piece.wait()
                else:
                    yield piece
        finally:
            self.closed += 1


def chunk(text: str = "", finish: str | None = None) -> bytes:
    """Return a chunk of a stream of chat completions."""
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return b"data: " + msgspec.json.encode({"id": "up", "choices": [choice]}) + b"\n\n"


def over(endpoint: Endpoint, **options: Any) -> Any:
    """Return an HTTP client over an endpoint."""
    make = cnllm.sdk.async_http_client if isinstance(endpoint, AsyncEndpoint) else cnllm.sdk.http_client
    return make(registry(), transport=endpoint, **{"api_key": "sk-of-the-provider", **options})


@contextlib.contextmanager
def no_network() -> Iterator[None]:
    """Fail where a socket connects to another machine."""
    import socket

    def refuse(*_: Any) -> Any:
        raise AssertionError("the network was used")

    connect = socket.socket.connect
    socket.socket.connect = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        socket.socket.connect = connect  # type: ignore[method-assign]


def lost(sim: Sim, reasoning: str) -> str:
    """Return why the last request lacks the reasoning of the turn before; empty where it has what is wanted."""
    plan = sim.plans[-1]
    codes = {note.code for note in plan.notes} & {"reasoning-missing", "reasoning-foreign", "reasoning-filled"}
    if codes:
        return f"{plan.model.name}: {codes}"
    rules = plan.model.flags.reasoning
    if rules.replay in (None, "never", "unknown"):
        return ""
    seal = {"anthropic-messages": '"signature":"', "gemini": '"thoughtSignature":"'}.get(plan.model.protocol)
    proof = msgspec.json.encode(reasoning).decode()[1:-1] if seal is None else seal
    return "" if reasoning and proof in sim.last else f"{plan.model.name}: {proof!r} is not in {sim.last}"
