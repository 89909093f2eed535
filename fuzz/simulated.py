"""Answers to begin from: what the simulator says as a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from cnllm import engine
from cnllm.registry.model import Model
from cnllm.simulator.respond import Endpoints

from .given import pack
from .models import SCHEMA, TOOLS, covering

__all__ = ["packed"]

_ASKED: tuple[tuple[int, dict[str, Any]], ...] = (
    (1, {}),
    (2, {"tools": TOOLS}),
    (3, {"schema": SCHEMA}),
)


def packed(*, stream: bool) -> list[bytes]:
    """Return some answers of each of the models, as inputs of a target."""
    return [
        pack(content, which=which, mode=mode, how=0, most=which, seed=which)
        for which, model in enumerate(covering())
        for mode, content in _answers(model, stream)
    ]


def _answers(model: Model, stream: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes, each with the mode that asks for it (see `fuzz.models.request`)."""
    for mode, options in _ASKED:
        plan = engine.build_request(model, "Hi. Do it in parallel.", stream=stream, **options)
        answered = Endpoints().respond(plan.model, plan.headers, plan.content, unquote(urlsplit(plan.url).path))
        yield mode, b"".join(answered.pieces)
