"""Compare the registry with a public file of models, and list their differences for a person to settle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Literal, get_args

from msgspec import Struct

from cnllm.registry.flags import Flags
from cnllm.registry.model import Fact, Model
from cnllm.registry.registry import Registry
from cnllm.registry_files.public_lists import PublishedModel

__all__ = [
    "FLAGS",
    "Cause",
    "Disagreement",
    "ListComparison",
    "compare",
    "entries_for",
    "flag_number",
    "index_by_id",
    "is_near",
    "is_rounded",
    "number_states",
    "plain_name",
    "same_input",
    "url_address",
]

LIMITS = ("limits.context", "limits.output")
PRICES = ("price.input", "price.output", "price.cached", "price.cache_write")
FLAGS = (*LIMITS, *PRICES)
"""The flags whose values are numbers that both files have."""
OFF_PEAK = tuple(flag.replace("price.", "price.off_peak.") for flag in PRICES)
_LEAST_PRICES = 5  # from which the rate of a file is computed
_RATE_TOLERANCE = 0.25  # files convert at rates of different days


State = Literal["same", "rounded", "off-peak", "currency", "different"]
"""Whether a value agrees. A "currency" is a price in another one that agrees at the file's own rate."""

Cause = Literal[
    "context",
    "output",
    "price-higher",
    "price-lower",
    "price-zero",
    "price-currency",
    "input-more",
    "input-less",
    "reasoning",
    "reasoning-off",
    "tools",
]
"""How a value differs: the window, the limit of the output, the price (theirs is higher, lower, zero, or in another
currency and far from ours), the kinds of input (theirs are more or fewer), reasoning and tools."""

Value = float | bool | str | tuple[str, ...]
"""A value of either side: a number, a yes or no, a word, an amount with its currency, or kinds of input."""


class _ValuePair(Struct, frozen=True):
    """The values of a flag on both sides, whether it agrees, and how it differs if it does not."""

    flag: str
    ours: Value
    theirs: Value
    state: State
    cause: Cause


class Disagreement(Struct, frozen=True):
    """A value that differs: `fact` is ours, with line and source, `there` is the file's name of the model."""

    model: str
    flag: str
    ours: Value
    theirs: Value
    there: str
    fact: Fact | None
    cause: Cause


class ListComparison(Struct, frozen=True):
    """The result of a comparison: `found` of `models` are in the file, `values` could be compared.

    `rounded` of the values agree up to the meaning of K and M (1,000 or 1,024), or are ones that we round, as their
    citation says. `off_peak` are our prices of idle hours or of a promotion, `currency` are prices in another currency
    that agree at `rates`: the ratio by currency in the middle of all prices of the file. The disagreements are ordered
    by cause, then by model.
    """

    models: int
    found: int
    values: int
    rounded: int
    off_peak: int
    currency: int
    rates: dict[str, float]
    disagreements: tuple[Disagreement, ...]


def compare(registry: Registry, published: Iterable[PublishedModel]) -> ListComparison:
    """Compare every model that is in the file, value by value."""
    index = index_by_id(published)
    names = registry.names()
    models = ((name, registry.resolve(name)) for name in names)
    found = [(name, model, entries_for(model, index.get(model.id.casefold(), []))) for name, model in models]
    rates = _rates((model.flags, match) for _, model, matches in found for match in matches)
    states, disagreements = Counter[State](), list[Disagreement]()
    for name, model, matches in found:
        for match in matches:
            for p in _pairs(model.flags, match, rates):
                fact = _fact(model, p.flag) if p.state == "different" else None
                state: State = "rounded" if fact is not None and fact.rounded else p.state
                states[state] += 1
                if state == "different":
                    there = f"{match.provider}/{match.id}"
                    disagreements.append(Disagreement(name, p.flag, p.ours, p.theirs, there, fact, p.cause))
    order = get_args(Cause)
    unique = {(d.model, d.flag, d.ours, d.theirs, d.there): d for d in disagreements}
    return ListComparison(
        len(names),
        sum(bool(matches) for *_, matches in found),
        states.total(),
        states["rounded"],
        states["off-peak"],
        states["currency"],
        rates,
        tuple(sorted(unique.values(), key=lambda d: order.index(d.cause))),
    )


def index_by_id(models: Iterable[PublishedModel]) -> dict[str, list[PublishedModel]]:
    """Return the models by their ids in lower case."""
    index: dict[str, list[PublishedModel]] = {}
    for entry in models:
        index.setdefault(entry.id.casefold(), []).append(entry)
    return index


def entries_for(model: Model, entries: Sequence[PublishedModel], *, by_key: bool = True) -> list[PublishedModel]:
    """Return those entries of one id that are of the model's provider.

    A provider is the same by its name; otherwise by its URL, unless that is of this machine, where every server may
    answer; otherwise if the model's key is named after it, unless `by_key` is False: plans of one vendor share a key.
    """
    flags = model.flags
    address = url_address(flags.base_url or "")
    words = {plain_name(key.removesuffix("_KEY").removesuffix("_API")) for key in flags.keys or () if by_key}
    for matches in (
        [entry for entry in entries if plain_name(entry.provider) == plain_name(model.provider)],
        [entry for entry in entries if entry.base_url and url_address(entry.base_url) == address != ""],
        [entry for entry in entries if plain_name(entry.provider) in words],
    ):
        if matches:
            return matches
    return []


def number_states(flags: Flags, match: PublishedModel) -> dict[str, State]:
    """Return by flag whether the numbers agree that both have, prices in one currency."""
    return {pair.flag: pair.state for pair in (*_limits(flags, match), *_prices(flags, match, {}))}


def _pairs(flags: Flags, match: PublishedModel, rates: dict[str, float]) -> Iterator[_ValuePair]:
    """Yield what both say."""
    yield from _limits(flags, match)
    yield from _prices(flags, match, rates)
    if match.input is not None and flags.input is not None:
        ours, theirs = frozenset(flags.input), match.input
        cause: Cause = "input-more" if theirs - ours else "input-less"
        yield _ValuePair("input", _words(ours), _words(theirs), _state(same_input(ours, theirs, flags)), cause)
    mode = flags.reasoning.mode
    if mode is not None and mode != "unknown" and match.reasoning is not None:
        yield _ValuePair(
            "reasoning.mode", mode, match.reasoning, _state(match.reasoning == (mode != "never")), "reasoning"
        )
    if mode in ("toggle", "always") and match.reasoning_off:
        yield _ValuePair("reasoning.mode", mode, "toggle", _state(mode == "toggle"), "reasoning-off")
    if (supported := flags.tools.supported) is not None and match.tools is not None:
        yield _ValuePair("tools.supported", supported, match.tools, _state(supported == match.tools), "tools")


def same_input(ours: Iterable[str], theirs: Iterable[str], flags: Flags) -> bool:
    """Whether two lists of kinds of input mean the same.

    A file does not count where the endpoint turns files into text or pictures: some lists name it for such a model.
    """
    files = flags.messages.files
    different = frozenset(ours) ^ frozenset(theirs)
    reads_files = files == "all" or (files == "vision" and "image" in frozenset(ours))
    return not (different - {"file"} if reads_files else different)


def _state(agrees: bool) -> State:
    """Return the state of values that are equal or not."""
    return "same" if agrees else "different"


def _limits(flags: Flags, match: PublishedModel) -> Iterator[_ValuePair]:
    """Yield what both say of limits."""
    for flag in LIMITS:
        ours, theirs = flag_number(flags, flag), match.values.get(flag)
        if ours is None or theirs is None:
            continue
        state = _state(is_near(ours, theirs))
        if flag == "limits.context" and match.input_only:
            output = max(flags.limits.output or 0, match.values.get("limits.output", 0))
            state = "same" if theirs <= ours <= theirs + output else state
        if state == "different" and is_rounded(ours, theirs):
            state = "rounded"
        yield _ValuePair(flag, ours, theirs, state, "context" if flag == "limits.context" else "output")


def _prices(flags: Flags, match: PublishedModel, rates: dict[str, float]) -> Iterator[_ValuePair]:
    """Yield what both say of prices. One in another currency is compared where the file shows a rate."""
    price = flags.price
    if price is None or price.currency is None:
        return
    for flag in (*PRICES, *OFF_PEAK):
        ours, theirs = flag_number(flags, flag), match.values.get(flag)
        if ours is None or theirs is None:
            continue
        if price.currency != match.currency:
            if not ours and not theirs:
                yield _ValuePair(flag, ours, theirs, "same", "price-currency")
            elif (rate := rates.get(price.currency)) is not None:
                agrees = bool(theirs) and abs(ours / theirs / rate - 1) <= _RATE_TOLERANCE
                amounts = f"{ours:g} {price.currency}", f"{theirs:g} {match.currency}"
                yield _ValuePair(flag, *amounts, "currency" if agrees else "different", "price-currency")
            continue
        state = _state(is_near(ours, theirs))
        if state == "different":
            name = flag.rpartition(".")[2]
            times = [time for time in (price.off_peak, price.promotion) if time is not None]
            if theirs and any(is_near(theirs, time.get(name) or 0.0) for time in times):
                state = "off-peak"
        higher: Cause = "price-higher" if theirs > ours else "price-lower"
        yield _ValuePair(flag, ours, theirs, state, higher if theirs and ours else "price-zero")


def _rates(found: Iterable[tuple[Flags, PublishedModel]]) -> dict[str, float]:
    """Return by currency how many units of it a file takes for one of its own, in the middle of all its prices.

    No rate of the day is needed: what a vendor bills in its own currency, the file has converted at about one rate.
    """
    ratios: dict[str, list[float]] = {}
    for flags, match in found:
        currency = flags.price.currency if flags.price else None
        if currency is None or currency == match.currency:
            continue
        for flag in PRICES:
            ours, theirs = flag_number(flags, flag), match.values.get(flag)
            if ours and theirs:
                ratios.setdefault(currency, []).append(ours / theirs)
    return {name: round(median(values), 3) for name, values in ratios.items() if len(values) >= _LEAST_PRICES}


def flag_number(flags: Flags, path: str) -> float | None:
    """Return the number of a flag; None where it is unknown or no number."""
    value: object = flags
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return value if isinstance(value, int | float) else None


def _words(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return kinds of input in an order that is always the same."""
    return tuple(sorted(kinds, key=lambda kind: (kind != "text", kind)))


def _fact(model: Model, flag: str) -> Fact | None:
    """Return the fact on a flag."""
    return next((fact for fact in model.explain() if fact.flag == flag), None)


_LEAST_ROUNDED = 10_000  # tokens; smaller limits are written out
_ROUNDING = 0.005  # of a ratio
_LOCAL = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?![\w.])")


def is_near(a: float, b: float) -> bool:
    """Whether two numbers are equal up to the precision of a float."""
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def is_rounded(a: float, b: float) -> bool:
    """Whether two limits are the same number of K or M, once by 1,000 and once by 1,024, or rounded to three digits."""
    small, large = sorted((a, b))
    if small < _LEAST_ROUNDED:
        return False
    ratio = large / small
    return any(abs(ratio - 1.024**power) <= _ROUNDING for power in (0, 1, 2))


def plain_name(name: str) -> str:
    """Return a name without case and punctuation."""
    return "".join(c for c in name.casefold() if c.isalnum())


def url_address(url: str) -> str:
    """Return a URL without case and scheme; "" for one of this machine."""
    address = url.casefold().partition("://")[2].rstrip("/")
    return "" if _LOCAL.match(address) else address
