"""The verbs `call`, `stream`, `run` and `fit` without a `Client`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from cnllm.client.sync_client import Client, Stream
from cnllm.client.sync_run import Run
from cnllm.engine.encode.build import build_request
from cnllm.registry.model import Model
from cnllm.registry.registry import resolve_model
from cnllm.types import Note, Reply

__all__ = ["Fitted", "call", "fit", "run", "stream"]


def call(model: str | Model, messages: Any, **options: Any) -> Reply:
    """Call a model with a temporary `Client`. For more than one call use one `Client`: it reuses its connections."""
    with Client() as client:
        return client.call(model, messages, **options)


@contextmanager
def stream(model: str | Model, messages: Any, **options: Any) -> Iterator[Stream]:
    """Stream a reply with a temporary `Client`; see `Client.stream`."""
    with Client() as client, client.stream(model, messages, **options) as events:
        yield events


def run(model: str | Model, messages: Any, **options: Any) -> Run:
    """Run the tool loop with a temporary `Client`; see `Client.run`. Raise `LoopStopped(run)` if it was stopped."""
    with Client() as client:
        return client.run(model, messages, **options)


class Fitted(Struct, frozen=True):
    """A history in the form that an endpoint accepts: `messages` as wire dicts, and a note for every change."""

    messages: list[dict[str, Any]]
    notes: list[Note]


def fit(model: str | Model, messages: Any, **options: Any) -> Fitted:
    """Return the messages that a request to this model would carry. The history may come from any model, also damaged.

    `options` are those of a call; with `tools`, the tools' schemas show which arguments were encoded twice.
    """
    resolved = resolve_model(model)
    plan = build_request(resolved, messages, **options)
    return Fitted(plan.turns, plan.notes)
