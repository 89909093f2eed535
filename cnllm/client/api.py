"""The verbs `call`, `stream`, `run` and `fit` without a `Client`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Unpack, overload

from msgspec import Struct

from cnllm.client.sync_client import Client
from cnllm.client.sync_run import Run
from cnllm.client.sync_stream import Stream
from cnllm.client.verb_help import with_options, with_run_options
from cnllm.engine.encode.build import build_request
from cnllm.registry.model import Model
from cnllm.registry.registry import resolve_model
from cnllm.types import Note, Reply

if TYPE_CHECKING:
    from cnllm.types.call_options import Answer, CallOptions, RunOptions, TextUnit, TypedOptions, TypedRunOptions
    from cnllm.types.messages import Messages

__all__ = ["Fitted", "call", "fit", "run", "stream"]


@overload
def call(model: str | Model, messages: Messages, **options: Unpack[TypedOptions[Answer]]) -> Reply[Answer]: ...


@overload
def call(model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]: ...


@with_options
def call(model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]:
    """Call a model with a temporary `Client`. For more than one call use one `Client`: it reuses its connections."""
    with Client() as client:
        return client.call(model, messages, **options)


@overload
def stream(
    model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[TypedOptions[Answer]]
) -> AbstractContextManager[Stream[Answer]]: ...


@overload
def stream(
    model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[CallOptions]
) -> AbstractContextManager[Stream[Any]]: ...


@with_options
def stream(
    model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[CallOptions]
) -> AbstractContextManager[Stream[Any]]:
    """Return a context manager that streams a reply with a temporary `Client`; see `Client.stream`."""
    return _stream(model, messages, by, options)


@contextmanager
def _stream(model: str | Model, messages: Messages, by: TextUnit, options: CallOptions) -> Iterator[Stream[Any]]:
    with Client() as client, client.stream(model, messages, by=by, **options) as events:
        yield events


@overload
def run(model: str | Model, messages: Messages, **options: Unpack[TypedRunOptions[Answer]]) -> Run[Answer]: ...


@overload
def run(model: str | Model, messages: Messages, **options: Unpack[RunOptions]) -> Run[Any]: ...


@with_run_options
def run(model: str | Model, messages: Messages, **options: Unpack[RunOptions]) -> Run[Any]:
    """Run the tool loop with a temporary `Client`; see `Client.run`. Raise `LoopStopped(run)` if it was stopped."""
    with Client() as client:
        return client.run(model, messages, **options)


class Fitted(Struct, frozen=True):
    """A history in the form that an endpoint accepts: `messages` as wire dicts, and a note for every change."""

    messages: list[dict[str, Any]]
    notes: list[Note]


@with_options
def fit(model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Fitted:
    """Return the messages that a request to this model would carry. The history may come from any model, also damaged.

    `options` are those of a call; with `tools`, the tools' schemas show which arguments were encoded twice.
    """
    resolved = resolve_model(model)
    plan = build_request(resolved, messages, **options)
    return Fitted(plan.turns, plan.notes)
