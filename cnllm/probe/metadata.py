"""Read what an endpoint says of itself: its models, their windows, its software."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cnllm.jsonpath import get
from cnllm.probe.exchange import Answer

__all__ = ["SELF_PATHS", "model_ids", "stated_context", "stated_remarks"]

SELF_PATHS = ("/props", "/version")
"""Where servers of one's own describe themselves, below the root of the host."""

_WINDOWS = (
    "context_length",
    "context_window",
    "max_context_length",
    "max_model_len",
    "max_input_tokens",
    "inputTokenLimit",
    "meta.n_ctx",
    "default_generation_settings.n_ctx",
)
_SOFTWARE = ("build_info", "version")
_MOST_WORDS = 80


def model_ids(data: Any) -> Iterator[str]:
    """Yield the ids of the models in a list."""
    for entry in _entries(data):
        id = entry.get("id") or entry.get("name")
        if isinstance(id, str) and id and len(id) < 200:
            yield id.removeprefix("models/")


def _entries(data: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(data, dict):
        return
    entries = data.get("data") if isinstance(data.get("data"), list) else data.get("models")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            yield entry


def stated_context(answers: list[Answer], id: str) -> int | None:
    """Return the window that the endpoint states for a model. It is a hint and no fact: nobody tried it."""
    for answer in answers:
        own = [e for e in _entries(answer.data) if id in (e.get("id"), str(e.get("name")).removeprefix("models/"))]
        for entry in [*own, answer.data]:
            for path in _WINDOWS:
                value = get(entry, path) if isinstance(entry, dict) else None
                if type(value) is int and 256 <= value <= 20_000_000:
                    return value
    return None


def stated_remarks(answers: list[Answer]) -> Iterator[str]:
    """Yield what the endpoint says of its software, for people."""
    server = next((a.headers["server"] for a in answers if a.headers.get("server")), "")
    if server:
        yield f"the header server says: {_line(server)}"
    for answer in answers:
        for key in _SOFTWARE:
            value = answer.data.get(key) if isinstance(answer.data, dict) else None
            if isinstance(value, str) and value:
                yield f"it gives its {key.replace('_', ' ')} as: {_line(value)}"


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_MOST_WORDS]
