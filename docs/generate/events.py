"""The events of a stream, and those that `on_event` gets."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec
from msgspec import Struct

from cnllm.client import telemetry
from cnllm.types import Event
from docs.generate.markdown import cell, table

__all__ = ["page"]

_OWN = re.compile(r"\b(?:cnllm\.types(?:\.[a-z]\w*)?|cnllm\.\w+\.\w+|typing|msgspec\._core|msgspec|__init__)\.")


def page() -> str:
    """Return a page with every event and its fields."""
    watched = [getattr(telemetry, name) for name in telemetry.__all__]
    shown = [type_ for type_ in watched if isinstance(type_, type) and issubclass(type_, telemetry.TelemetryEvent)]
    return "\n\n".join(
        [
            "# Events",
            "## Of a stream",
            "`stream` and `run_stream` give these, `cnllm call --events` prints each as a line of JSON.",
            _table(list(get_args(Event))),
            "The text of all `TextDelta`s since the last `Restarted` is the reply's `text`; so it is with reasoning.",
            "## Of a client",
            "`on_event` of a client gets these ([watching](../how-to/watching.md)). "
            "None holds a key, a prompt or an answer.",
            _table([type_ for type_ in shown if type_ is not telemetry.TelemetryEvent]),
            "Each has `call`, a number of its own in this process, and `model` (`provider/id`) as well.",
        ]
    ) + "\n"  # fmt: skip


def _table(events: list[type[Struct]]) -> str:
    rows = []
    for event in events:
        tag = event.__struct_config__.tag
        fields = msgspec.structs.fields(event)
        inherited = {"call", "model"} if issubclass(event, telemetry.TelemetryEvent) else set()
        names = ", ".join(f"`{f.name}: {kind(f.type)}`" for f in fields if f.name not in inherited)
        rows.append([f"`{event.__name__}`", f"`{tag}`", names.replace("|", "\\|"), cell(event.__doc__ or "")])
    return table(["event", "type in JSON", "fields", "meaning"], rows)


def kind(type_of: Any) -> str:
    """Return a type as its author wrote it, in short."""
    name = type_of.__name__ if isinstance(type_of, type) and not get_args(type_of) else str(type_of)
    return _OWN.sub("", name)
