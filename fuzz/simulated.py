"""Answers to begin from: what the simulator says as a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from cnllm import engine
from cnllm.model import Model
from cnllm.simulator.transport import respond

from .models import SCHEMA, TOOLS

__all__ = ["answers"]

_ASKED: tuple[tuple[int, dict[str, Any]], ...] = (
    (1, {}),
    (2, {"tools": TOOLS}),
    (3, {"schema": SCHEMA}),
)


def answers(model: Model, *, stream: bool) -> Iterator[tuple[int, bytes]]:
    """The bytes of some answers, each with the mode that asks for it (see `fuzz.models.request`)."""
    for mode, options in _ASKED:
        plan = engine.build_request(model, "Hi. Do it in parallel.", stream=stream, **options)
        answered = respond(plan.model, plan.headers, plan.content, unquote(urlsplit(plan.url).path))
        yield mode, b"".join(answered.pieces)
