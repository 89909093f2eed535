"""Define types that `--json` prints. `schemas/` holds them as JSON Schemas. null is unknown."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from cnllm.registry.flags import Price
from cnllm.registry.param_rules import State
from cnllm.types import Note

__all__ = ["Alias", "Card", "FlagDifference", "FlagFact", "Key", "KeyTest", "ModelRow"]


class ModelRow(TypedDict):
    """A model in `models list`."""

    name: str
    id: str
    provider: str
    protocol: str
    short: list[str]
    title: str | None
    context: int | None
    input_limit: int | None
    output: int | None
    input: list[str] | None
    reasoning: Literal["unknown", "never", "toggle", "always"] | None
    price: Price | None
    status: Literal["current", "preview", "retired"] | None
    capabilities: dict[str, bool | None]


class Card(ModelRow):
    """A model in `models show`: with the state of each parameter by mode, every flag and all notes.

    The modes are "reasoning" and "no-reasoning", or "any" where it is unknown whether the model can reason.
    """

    parameters: dict[str, dict[str, State]]
    flags: dict[str, Any]
    notes: list[Note]


class FlagFact(TypedDict):
    """The value of a flag for one of two models, and its origin."""

    value: Any
    layer: str
    where: str
    source: str | None
    seen: str | None
    how: str | None


class FlagDifference(TypedDict):
    """A flag that differs between two models. null if nothing is known about it."""

    flag: str
    a: FlagFact | None
    b: FlagFact | None


class Key(TypedDict):
    """A stored key, and which one is used: the file's, or the variable of the same name."""

    name: str
    used: Literal["file", "environment"]


class Alias(TypedDict):
    """A short name, its model, and the file that sets it. null: it is built in."""

    alias: str
    model: str
    file: str | None


class KeyTest(TypedDict):
    """The result of `keys test`. `works` is null if the endpoint's answer says nothing about the key.

    `status` is that of HTTP, and `message` the endpoint's own sentence.
    """

    name: str
    provider: str
    url: str
    model: str
    works: bool | None
    status: int | None
    message: str
