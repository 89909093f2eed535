"""Restrict data files: updates and data releases may say what a model costs and holds, and nothing that moves a call.

A data file has no addresses, keys, headers, paths, aliases, routes or defaults: those keys do not exist in it. So a
hostile data file can name a wrong price; it cannot send a key or a call anywhere.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator
from typing import Any, Literal

from cnllm.registry.flags.describe import Base
from cnllm.registry.flags.endpoint import Status
from cnllm.registry.problem import ValueProblem

__all__ = [
    "INPUT_KINDS",
    "MAX_LIMIT",
    "MAX_PRICE",
    "MODEL_NAME",
    "DataFile",
    "DataModel",
    "ReleaseHead",
    "data_faults",
    "is_amount",
]

MAX_LIMIT = 10**9
"""Tokens: a larger limit is an error of the source."""

MAX_PRICE = 100_000.0
"""For a million tokens: a higher price is an error of the source."""

MODEL_NAME = re.compile(r"(?=.{3,200}\Z)[A-Za-z0-9][A-Za-z0-9_.-]*(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9_.~@:+-]+)+\Z")
"""The names of models in a data file: an id stands in the path of some requests, so it has no `..` and no query."""

INPUT_KINDS = ("text", "image", "audio", "video", "file")
"""The kinds of input that a data file may name."""


class DataLimits(Base, frozen=True):
    """The limits of a model."""

    context: int | None = None  # the tokens that fit into the window
    output: int | None = None  # the greatest number of tokens of a reply


class DataPrice(Base, frozen=True):
    """The prices of a model, for a million tokens."""

    currency: str | None = None  # the ISO 4217 code of the prices
    input: float | None = None  # the price of input
    output: float | None = None  # the price of output
    cached: float | None = None  # the price of input from the cache
    cache_write: float | None = None  # the price of input written to the cache


class DataReasoning(Base, frozen=True):
    """Whether a model reasons."""

    mode: Literal["never", "toggle", "always"] | None = None  # whether it reasons, and can be told


class DataSource(Base, frozen=True):
    """The source of facts in the same table."""

    url: str  # a URL, or the name of a file
    seen: datetime.date  # the day on which it was read
    how: Literal["docs", "code"]  # the kind of source
    backs: list[str]  # the flags of this table that it supports


class DataModel(Base, frozen=True):
    """The facts of a model that a data file may hold."""

    limits: DataLimits | None = None  # the limits of tokens
    price: DataPrice | None = None  # the prices of tokens
    input: list[Literal["text", "image", "audio", "video", "file"]] | None = None  # what it reads
    status: Status | None = None  # whether it is current, in preview or retired
    reasoning: DataReasoning | None = None  # whether it reasons
    sources: dict[str, DataSource] | None = None  # the sources of these facts


class ReleaseHead(Base, frozen=True):
    """The head of a data release."""

    date: datetime.date  # the day of the release
    serial: int  # its number, which grows with each release


class DataFile(Base, frozen=True):
    """A whole data file."""

    schema: int | None = None  # the version of this format
    made_for: str | None = None  # the version of the package whose data it corrects
    release: ReleaseHead | None = None  # the head of a data release
    models: dict[str, DataModel] | None = None  # the models, by "provider/id-on-the-wire"


def data_faults(data: dict[str, Any]) -> Iterator[ValueProblem]:
    """Yield the values of a data file that have the right type and cannot be meant."""
    serial = _table(data, "release").get("serial")
    if type(serial) is int and not 0 < serial <= MAX_LIMIT:
        yield ValueProblem(["release", "serial"], f"release.serial = {serial}; it is a number from 1")
    for name, table in _table(data, "models").items():
        path = ["models", name]
        if not MODEL_NAME.match(name):
            yield ValueProblem(path, f"models.{name!a}: no model has such a name in a data file")
        for key, most in (("limits", MAX_LIMIT), ("price", MAX_PRICE)):
            for flag_name, value in _table(table, key).items():
                if type(value) in (int, float) and not is_amount(value, most, zero=key == "price"):
                    yield ValueProblem(
                        [*path, key, flag_name], f"{key}.{flag_name} = {value}; no model has such a value"
                    )
        use = _table(table, "status").get("use")
        if type(use) is str and not MODEL_NAME.match(use):
            yield ValueProblem([*path, "status", "use"], "status.use is not a name of a model")
        currency = _table(table, "price").get("currency")
        if type(currency) is str and not re.fullmatch("[A-Z]{3}", currency):
            yield ValueProblem([*path, "price", "currency"], "price.currency is an ISO 4217 code")


def is_amount(value: float, most: float, *, zero: bool) -> bool:
    """Whether a number can be a limit or a price: it is finite, not negative, and not too large."""
    return math.isfinite(value) and (value >= 0 if zero else value > 0) and value <= most


def _table(table: object, key: str) -> dict[str, Any]:
    """Return a table in a table; empty where there is none, which the check of types reports."""
    inner = table.get(key) if type(table) is dict else None
    return inner if type(inner) is dict else {}
