"""The verbs without a client in hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from cnllm import checks
from cnllm.client import Client, Stream
from cnllm.engine.parser import sorted_out
from cnllm.engine.plan import build_request
from cnllm.model import Model
from cnllm.registry import Registry
from cnllm.runs_sync import Run
from cnllm.types import Note, Reply, ToolCall

__all__ = ["Fitted", "Sanitized", "call", "fit", "run", "sanitize", "stream"]


def call(model: str | Model, messages: Any, **options: Any) -> Reply:
    """`Client.call` with a client of its own. For more than one call, keep a `Client`: it keeps its connections."""
    with Client() as client:
        return client.call(model, messages, **options)


@contextmanager
def stream(model: str | Model, messages: Any, **options: Any) -> Iterator[Stream]:
    """`Client.stream` with a client of its own."""
    with Client() as client, client.stream(model, messages, **options) as events:
        yield events


def run(model: str | Model, messages: Any, **options: Any) -> Run:
    """`Client.run` with a client of its own: the tool loop. Raises `LoopStopped(run)` where it broke off."""
    with Client() as client:
        return client.run(model, messages, **options)


class Fitted(Struct, frozen=True):
    """A history as an endpoint will take it: `messages` as wire dicts, and what was changed."""

    messages: list[dict[str, Any]]
    notes: list[Note]


def fit(model: str | Model, messages: Any, **options: Any) -> Fitted:
    """The messages that a request to this model would carry: whoever wrote the history, and whatever broke in it.

    `options` are those of a call; with `tools`, arguments that were encoded twice are told by the tools' schemas.
    """
    found = _model(model)
    plan = build_request(found, messages, **options)
    return Fitted(plan.turns, plan.notes)


def _model(given: str | Model) -> Model:
    """The model, by its name or itself."""
    if isinstance(given, str):
        return Registry.load().resolve(given)
    checks.demand("model", given, Model, "a name or a cnllm.Model")
    return given


class Sanitized(Struct, frozen=True):
    """What a text that a model wrote comes to: the answer, the thinking, and the calls that were in it."""

    text: str
    reasoning: str
    tool_calls: list[ToolCall]
    notes: list[Note]


def sanitize(model: str | Model, text: str, tools: Sequence[Any] | None = None) -> Sanitized:
    """A text as the model wrote it, thinking tags and calls told apart as its registry entry says.

    Calls are recovered among `tools`, the functions that were offered; without any, their markup is taken out.
    The prompt is not known here: whether a block is quoted is judged by the text alone.
    """
    found = _model(model)
    checks.demand_text("text", text)
    reply = sorted_out(found, text, tools)
    return Sanitized(reply.text, reply.reasoning, reply.tool_calls, reply.notes)
