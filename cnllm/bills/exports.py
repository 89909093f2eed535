"""Read the descriptions of exports: `exports.toml` of the package, and files of the user in the same form."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from cnllm.bills.times import zone_of
from cnllm.errors import CnllmError
from cnllm.system.files import explain_errors, read_bounded
from cnllm.types.checks import matches_pattern

__all__ = ["Export", "Kind", "built_in_exports", "matches", "plain_text", "read_exports"]

Kind = Literal["input", "prompt", "cached", "cache_write", "cache_write_5m", "cache_write_1h", "output", "requests"]
"""The things that a number counts: tokens of a kind, or requests.

`input` is neither from the cache nor written to it, `prompt` is all of the input.
"""

_MOST_BYTES = 1 << 20


class Export(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns of an export. A name may hold several, `new | old`: the first one that the header has counts.

    `header` has the columns that tell the export from others, and `keys` those that are never read: keys, accounts and
    people. A row is for the day, the hour or the month of `time`, for the time from `time` to `end`, or for that of a
    cell with two times and `range` between them. `zone` is that of times without one. `only` has the values of the rows
    that count, where a bill has other products, too.

    A row counts tokens in one column (`count`, of the kind in `kind`, for `unit` of a number) or in several (`counts`).
    `pattern` has regular expressions by column, whose groups are `model`, `kind` and `tier`. `rate` is the price of
    `rate_for` tokens. `amount` are the columns of money, which are added, each rounded to `places`; `list_amount` is
    the amount before a discount. `tier` are columns with words for a price that is not the usual one: any but `usual`.
    `models` gives the log's names of models for those of the bill.
    """

    title: str
    providers: list[str]
    source: list[str]
    header: list[str]
    time: str
    keys: list[str] = []
    zone: str = "+00:00"
    end: str | None = None
    range: str | None = None
    only: dict[str, list[str]] = {}
    id: str | None = None
    model: str | None = None
    models: dict[str, str] = {}
    kind: str | None = None
    kinds: dict[str, Kind] = {}
    pattern: dict[str, str] = {}
    tier: list[str] = []
    usual: list[str] = []
    count: str | None = None
    unit: str | None = None
    units: dict[str, int] = {}
    counts: dict[Kind, str] = {}
    rate: str | None = None
    rate_for: int = 1
    amount: list[str] = []
    list_amount: str | None = None
    currency: str | None = None
    currency_column: str | None = None
    places: int = 9

    def kind_of(self, text: str) -> Kind | None:
        """Return what a word of the bill stands for; None where the export does not say it."""
        return next((kind for glob, kind in self.kinds.items() if matches(text, [glob])), None)


@lru_cache(maxsize=1)
def built_in_exports() -> dict[str, Export]:
    """Return the exports of the package by name."""
    content = Path(__file__).with_name("exports.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(content), dict[str, Export])


def read_exports(path: str) -> dict[str, Export]:
    """Return the exports of a file. Raises `CnllmError` with the place of a fault."""
    hint = "docs/how-to/bills.md has the keys; cnllm/bills/exports.toml has examples"
    with explain_errors(path, "name a file that can be read"):
        content = read_bounded(path, _MOST_BYTES)
    try:
        exports = msgspec.convert(tomllib.loads(content.decode("utf-8-sig")), dict[str, Export])
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # no UTF-8, no TOML, or too much of it
        raise CnllmError(f"{path}: {error}", hint=hint) from error
    if not exports:
        raise CnllmError(f"{path} describes no export", hint=hint)
    for name, export in exports.items():
        if fault := _fault(export):
            raise CnllmError(f"{path}: {name}: {fault}", hint=hint)
    return exports


def _fault(export: Export) -> str | None:
    """Return what is wrong with an export that a user has described; None where nothing is."""
    if not export.header:
        return "header is empty, so that every table would be this export"
    if not export.amount and not export.count and not export.counts:
        return "it names no column of an amount, nor one of a count"
    if export.amount and export.currency is None and export.currency_column is None:
        return "amount needs currency or currency_column"
    if export.count and not (export.kind or export.pattern):
        return "count needs kind or pattern"
    if export.rate_for < 1 or not 0 <= export.places <= 30:
        return "rate_for is at least 1, and places is 0 to 30"
    columns = {name for names in _used_columns(export) for name in columns_of(names)}
    if shared := sorted(columns & {plain_text(name) for name in export.keys}):
        return f"column {shared[0]} is among keys and is read, too"
    for column, pattern in export.pattern.items():
        try:
            groups = re.compile(pattern).groupindex
        except (re.error, OverflowError, RecursionError) as error:
            return f"pattern of {column}: {error}"
        if unknown := sorted({*groups} - {"model", "kind", "tier"}):
            return f"pattern of {column}: the group {unknown[0]} is none of model, kind and tier"
    if zone_of(export.zone) is None:
        return f"zone {export.zone} is neither like +08:00 nor like Asia/Shanghai"
    return None


def _used_columns(export: Export) -> list[str]:
    """Return the names of the columns that are read."""
    one = (export.time, export.end, export.id, export.model, export.kind, export.count, export.unit, export.rate)
    money = (export.list_amount, export.currency_column, *export.amount)
    return [
        name for name in (*one, *money, *export.counts.values(), *export.tier, *export.only, *export.pattern) if name
    ]


def columns_of(name: str) -> list[str]:
    """Return the columns that a name stands for, in the form of `plain_text`."""
    return [plain_text(column) for column in name.split("|")]


def plain_text(text: str) -> str:
    """Return a text of a bill in one form: full-width signs as usual ones, small letters, no spaces around it."""
    return unicodedata.normalize("NFKC", text).strip().casefold()


def matches(text: str, globs: list[str]) -> bool:
    """Whether a text is like one of the patterns, in which `*` stands for anything."""
    plain = plain_text(text)
    return any(matches_pattern(plain, plain_text(glob)) for glob in globs)
