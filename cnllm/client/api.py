"""The verbs without a client in hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from cnllm.client.sanitizer import resolve_model
from cnllm.client.sync_client import Client, Stream
from cnllm.client.sync_run import Run
from cnllm.engine.encode.build import build_request
from cnllm.registry.model import Model
from cnllm.types import Note, Reply

__all__ = ["Fitted", "call", "fit", "run", "stream"]


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
    found = resolve_model(model)
    plan = build_request(found, messages, **options)
    return Fitted(plan.turns, plan.notes)
