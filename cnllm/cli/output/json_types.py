"""What `--json` prints of each listing, as types: `schemas/` holds them as JSON Schemas. null is unknown."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from cnllm.registry.check import Problem
from cnllm.registry.compare import Disagreement
from cnllm.registry.flags import Price
from cnllm.registry.model import Fact
from cnllm.registry.param_rules import State
from cnllm.registry.sources import Cited, Unbacked
from cnllm.types import Note

__all__ = ["LISTINGS", "Card", "Difference", "Key", "Row", "Said"]


class Row(TypedDict):
    """A model as `models list` tells it."""

    name: str
    id: str
    provider: str
    protocol: str
    short: list[str]
    title: str | None
    context: int | None
    output: int | None
    input: list[str] | None
    reasoning: Literal["unknown", "never", "toggle", "always"] | None
    price: Price | None
    status: Literal["current", "preview", "retired"] | None
    capabilities: dict[str, bool | None]


class Card(Row):
    """A model as `models show` tells it: with the state of each parameter by mode ("reasoning", "no-reasoning", or
    "any" where nobody knows whether it can reason), every flag, and what there is to note.
    """

    parameters: dict[str, dict[str, State]]
    flags: dict[str, Any]
    notes: list[Note]


class Said(TypedDict):
    """What is known of a flag for one of two models, and what says so."""

    value: Any
    layer: str
    where: str
    source: str | None
    seen: str | None
    how: str | None


class Difference(TypedDict):
    """A flag that two models do not share; null where nothing is known of it."""

    flag: str
    a: Said | None
    b: Said | None


class Key(TypedDict):
    """A key that is kept, and which is used: the file's, or the variable of that name."""

    name: str
    used: Literal["file", "environment"]


LISTINGS: dict[str, Any] = {
    "models-list": list[Row],
    "models-show": Card,
    "models-show-explain": list[Fact],
    "models-diff": list[Difference],
    "registry-check": list[Problem],
    "registry-check-older": list[Cited],
    "registry-check-unbacked": list[Unbacked],
    "registry-check-against": list[Disagreement],
    "registry-path": list[str],
    "keys-list": list[Key],
}
"""The command whose `--json` it is → its shape."""
