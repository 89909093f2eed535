"""Compare the registry with a public file of limits and prices, and list their differences for a person to settle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

from msgspec import Struct

from cnllm.registry.flags import Flags
from cnllm.registry.model import Fact, Model
from cnllm.registry.public_lists import CURRENCY, PublishedModel
from cnllm.registry.registry import Registry

__all__ = [
    "Cause",
    "Comparison",
    "Disagreement",
    "compare",
    "is_near",
    "is_rounded",
    "matching",
    "number_pairs",
]

FLAGS = ("limits.context", "limits.output", "price.input", "price.output", "price.cached", "price.cache_write")
_LEAST_ROUNDED = 10_000  # tokens; smaller limits are written out
_ROUNDING = 0.005  # of a ratio
_LOCAL = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?![\w.])")


State = Literal["same", "rounded", "off-peak", "different"]
"""Whether a number agrees."""

Cause = Literal["context", "output", "price-higher", "price-lower", "price-zero"]
"""How a number differs: the window, the limit of the output, or the price, of which theirs is higher, lower or zero."""


class Disagreement(Struct, frozen=True):
    """A number that differs: `fact` is ours, with line and source, `there` is the file's name of the model."""

    model: str
    flag: str
    ours: float
    theirs: float
    there: str
    fact: Fact | None
    cause: Cause


class Comparison(Struct, frozen=True):
    """The result of a comparison: `found` of `models` are in the file, `numbers` could be compared.

    `rounded` of the numbers agree up to the meaning of K and M (1,000 or 1,024), or are ones that we round, as their
    citation says. `off_peak` are our prices of idle hours or of a promotion. The disagreements are ordered by cause,
    then by model.
    """

    models: int
    found: int
    numbers: int
    rounded: int
    off_peak: int
    disagreements: tuple[Disagreement, ...]


def compare(registry: Registry, published: Iterable[PublishedModel]) -> Comparison:
    """Compare every model that is in the file, number by number. Prices in another currency are skipped."""
    index: dict[str, list[PublishedModel]] = {}
    for entry in published:
        index.setdefault(entry.id.casefold(), []).append(entry)
    match_count, states, disagreements = 0, Counter[State](), list[Disagreement]()
    names = registry.names()
    for name in names:
        model = registry.resolve(name)
        matches = matching(model, index.get(model.id.casefold(), []))
        match_count += bool(matches)
        for match in matches:
            there = f"{match.provider}/{match.id}"
            for flag, ours, theirs, state in number_pairs(model.flags, match):
                fact = _fact(model, flag) if state == "different" else None
                if fact is not None and fact.rounded:
                    state = "rounded"
                states[state] += 1
                if state == "different":
                    disagreements.append(
                        Disagreement(name, flag, ours, theirs, there, fact, _cause(flag, ours, theirs))
                    )
    order = get_args(Cause)
    sorted_ones = sorted(dict.fromkeys(disagreements), key=lambda d: order.index(d.cause))
    return Comparison(
        len(names), match_count, states.total(), states["rounded"], states["off-peak"], tuple(sorted_ones)
    )


def matching(model: Model, entries: list[PublishedModel], *, by_key: bool = True) -> list[PublishedModel]:
    """Return the entries for the same id at the same provider.

    A provider is the same by its name; otherwise by its URL, unless that is of this machine, where every server may
    answer; otherwise if the model's key is named after it, unless `by_key` is False: plans of one vendor share a key.
    """
    flags = model.flags
    address = _address(flags.base_url or "")
    words = {_plain(key.removesuffix("_KEY").removesuffix("_API")) for key in flags.keys or () if by_key}
    for matches in (
        [entry for entry in entries if _plain(entry.provider) == _plain(model.provider)],
        [entry for entry in entries if entry.base_url and _address(entry.base_url) == address != ""],
        [entry for entry in entries if _plain(entry.provider) in words],
    ):
        if matches:
            return matches
    return []


def _plain(name: str) -> str:
    """Return a name without case and punctuation."""
    return "".join(c for c in name.casefold() if c.isalnum())


def _address(url: str) -> str:
    """Return a URL without case and scheme; "" for one of this machine."""
    address = url.casefold().partition("://")[2].rstrip("/")
    return "" if _LOCAL.match(address) else address


def number_pairs(flags: Flags, match: PublishedModel) -> Iterator[tuple[str, float, float, State]]:
    """Yield (flag, ours, theirs, whether they agree) for the numbers that both have."""
    has_price = flags.price is not None and flags.price.currency == CURRENCY
    for flag in FLAGS:
        table, _, name = flag.partition(".")
        if table == "price" and not has_price:
            continue
        ours, theirs = getattr(getattr(flags, table), name, None), match.values.get(flag)
        if ours is None or theirs is None:
            continue
        state: State = "same" if is_near(ours, theirs) else "different"
        if flag == "limits.context" and match.input_only and flags.limits is not None:
            output = max(flags.limits.output or 0, match.values.get("limits.output", 0))
            state = "same" if theirs <= ours <= theirs + output else state
        if state == "different" and table == "limits" and is_rounded(ours, theirs):
            state = "rounded"
        elif state == "different" and flags.price is not None and table == "price":
            times = (flags.price.off_peak, flags.price.promotion)
            if any(is_near(theirs, time.get(name) or 0.0) for time in times if time is not None and theirs):
                state = "off-peak"
        yield flag, ours, theirs, state


def is_rounded(a: float, b: float) -> bool:
    """Whether two limits are the same number of K or M, once by 1,000 and once by 1,024, or rounded to three digits."""
    small, large = sorted((a, b))
    if small < _LEAST_ROUNDED:
        return False
    ratio = large / small
    return any(abs(ratio - 1.024**power) <= _ROUNDING for power in (0, 1, 2))


def _cause(flag: str, ours: float, theirs: float) -> Cause:
    """Return how a number differs."""
    if flag.startswith("limits."):
        return "context" if flag == "limits.context" else "output"
    if not theirs or not ours:
        return "price-zero"
    return "price-higher" if theirs > ours else "price-lower"


def is_near(a: float, b: float) -> bool:
    """Whether two numbers are equal up to rounding."""
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def _fact(model: Model, flag: str) -> Fact | None:
    """Return the fact on a flag."""
    return next((fact for fact in model.explain() if fact.flag == flag), None)
