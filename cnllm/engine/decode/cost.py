"""Compute what the tokens of a reply cost by the registry's prices. `meter` adds what else stands on its bill.

A cost is exact, or it names what it leaves out and says how much that can be at most. What was not reported is never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.decode.hours import is_within, local_day
from cnllm.registry.flags import Price
from cnllm.types import Cost, Reply, Usage
from cnllm.types.totals import exact

__all__ = [
    "MILLION",
    "RATES",
    "UNPRICED",
    "CostSum",
    "Facts",
    "add_tokens",
    "base_rates",
    "cost_of",
    "cost_of_reply",
    "exact_rate",
    "has_tiers",
    "is_off_peak",
    "possible_rates",
    "promotion_of",
    "reported_counts",
    "service_rates",
    "tier_rates",
    "uncounted_tokens",
]


RATES = (
    *("input", "output", "cached", "cached_by_mark", "cache_write", "cache_write_1h", "output_thinking"),
    *("input_audio", "cached_audio"),
)
"""The names of the prices of tokens, in a price, a tier, off-peak hours, a promotion and a service tier."""

UNPRICED = ("output_audio", "output_image")
"""The counts of output that is no text. The registry has no price for it."""

_OF_OTHER_REQUESTS = frozenset(("again-whole", "correction-failed", "step-again"))
"""The codes of notes on requests that may be charged and are no part of the usage of their reply."""

_ZERO = Decimal(0)
_OUTER_ZONES = ("+14:00", "-12:00")
"""The zones of the earth that a day reaches first and last."""
MILLION = 1_000_000
"""The tokens that a rate is for."""

_Rates = Mapping[str, Any]


class Facts(Struct, frozen=True):
    """Facts of a reply about its bill, beside the counts of tokens.

    `service` is the word for its service tier; None for the usual one. `factor` multiplies the prices of tokens; None
    is unknown. `unknown` names a word whose price is not known. `media` are counts of sound by the name of
    their price, None where one is unknown, `free` the tokens of input that cost nothing. `thought`: the model has
    reasoned. `by_mark`: the tokens from a cache are there because the request marked them; None is unknown. `is_cut`:
    the endpoint may have counted more tokens than it has reported, `most_output` at most; None is unknown. `invalid`
    are the names of counts that came and are none.
    """

    service: str | None = None
    factor: Decimal | None = Decimal(1)
    unknown: str | None = None
    media: Mapping[str, int | None] = {}
    free: int = 0
    thought: bool = False
    by_mark: bool | None = None
    is_cut: bool = False
    invalid: frozenset[str] = frozenset()
    most_output: int | None = None


_NO_FACTS = Facts()


# ── prices ────────────────────────────────────────────────────────────────────


def is_off_peak(price: Price | None, created: float | None) -> bool | None:
    """Whether a reply of this time, in seconds since 1970, is charged at the off-peak price.

    None where the endpoint has such a price and the answer is unknown.
    """
    if price is None or price.off_peak is None:
        return False
    hours, zone = price.off_peak.get("peak"), price.off_peak.get("zone")
    if created is None or type(hours) is not list or type(zone) is not str:
        return None
    holidays = price.off_peak.get("holidays")
    day = local_day(zone, created) or ""
    if type(holidays) is list and day in holidays:
        return True
    within = is_within(tuple(str(text) for text in hours), zone, created)
    if within and holidays and all(day[:4] != str(holiday)[:4] for holiday in holidays):
        return None  # those of another year: its holidays are not known
    return None if within is None else not within


def promotion_of(price: Price, created: float | None) -> Mapping[str, Any] | None:
    """Return the prices of a promotion that holds at a time; nothing where none does, None where that is unknown."""
    promotion = price.promotion or {}
    if "until" not in promotion:
        return promotion
    zone, until = promotion.get("zone"), str(promotion["until"])
    zones = (zone,) if type(zone) is str else _OUTER_ZONES  # the day ends somewhere between them
    days = [None if created is None else local_day(zone, created) for zone in zones]
    ended = {None if day is None else day > until for day in days}
    if ended == {True}:
        return {}
    return promotion if ended == {False} else None


def service_rates(price: Price, service: str | None) -> list[_Rates]:
    """Return the tables of prices that may hold for a service tier at any time; none where it has no known price."""
    if service is not None:
        table = (price.service or {}).get(service)
        return [] if table is None else [table]
    return [base_rates(price), *filter(None, (price.off_peak, price.promotion))]


def has_tiers(price: Price) -> bool:
    """Whether a length decides about a price."""
    tables = (price.off_peak, price.promotion, *(price.service or {}).values())
    return bool(price.tiers) or any(table and table.get("tiers") for table in tables)


def base_rates(price: Price) -> dict[str, Any]:
    """Return the prices outside of all conditions, as a table."""
    rates: dict[str, Any] = {name: rate for name in RATES if (rate := getattr(price, name)) is not None}
    if price.tiers:
        rates["tiers"] = price.tiers
    return rates


def possible_rates(
    price: Price, service: str | None, input: int | None, created: float | None, output: int | None = None
) -> list[_Rates]:
    """Return the prices of a reply: one table, or several where it is not known which one holds.

    `output` is the length of the reply; None for a long one.
    """
    if service is not None:
        return [tier_rates(table, table, input, output) for table in service_rates(price, service)]
    base = base_rates(price)
    off_peak, promotion = is_off_peak(price, created), promotion_of(price, created)
    tables: list[_Rates] = []
    if off_peak is not False and price.off_peak is not None:
        tables.append({"tiers": price.tiers, **price.off_peak})
    if promotion:
        tables = [{"tiers": price.tiers, **promotion}]
    elif promotion is None:
        tables.append({"tiers": price.tiers, **(price.promotion or {})})
    if (not tables) or off_peak is None or promotion is None:
        tables.append(base)
    return [tier_rates(table, base, input, output) for table in tables]


def tier_rates(rates: _Rates, base: _Rates, input: int | None, output: int | None = None) -> _Rates:
    """Return the prices of the length of the input, and of the output, which is None where it is long.

    A table has all its prices: one of the cache, say, that it does not name is unknown. Where it names only the price
    of input or only that of output, the other one is the usual one.
    """
    found = rates
    for tier in sorted(rates.get("tiers") or (), key=lambda tier: float(tier.get("above", 0))):
        if (most := tier.get("output_below")) is not None and (output is None or output >= most):
            continue
        if input is None or input > tier.get("above", 0):
            found = tier
    if "input" in found and "output" in found:
        return found
    usual = {name: table[name] for table in (base, rates) for name in ("input", "output") if name in table}
    return {**usual, **found}


# ── the sum ───────────────────────────────────────────────────────────────────


class CostSum(Struct, eq=False):
    """A sum with what it leaves out. `rest` is the most that the missing parts can cost; None is unbounded."""

    amount: Decimal = _ZERO
    rest: Decimal | None = _ZERO
    missing: list[str] = []

    def miss(self, name: str, most: Decimal | None) -> None:
        """Leave out a part that costs so much at most."""
        if name not in self.missing:
            self.missing.append(name)
        self.rest = None if most is None or self.rest is None else self.rest + most

    def cost(self, currency: str) -> Cost | None:
        """Return the cost; None where nothing of it is known."""
        if self.missing and self.rest is None and not self.amount:
            return None
        most = None if self.rest is None else self.amount + self.rest
        return Cost(self.amount, currency, missing=tuple(self.missing), at_most=most)


@exact
def cost_of(usage: Usage, price: Price | None, created: float | None = None, facts: Facts = _NO_FACTS) -> Cost | None:
    """Return the cost of the tokens of a reply; None where nothing of it is known.

    `created` is the time of the reply: outside the peak hours, or while a promotion lasts, it may cost less.
    """
    if price is None or price.currency is None:
        return None
    total = CostSum()
    add_tokens(total, usage, price, created, facts)
    return total.cost(price.currency)


def cost_of_reply(reply: Reply, price: Price) -> Cost | None:
    """Return the cost of the tokens of a reply by a price that is not the registry's; None where nothing is known.

    Nothing is known, either, where a note tells of another request, whose tokens are not among those of the reply.
    """
    if any(note.code in _OF_OTHER_REQUESTS for note in reply.notes):
        return None
    usage = reported_counts(reply.usage, answered=bool(reply.message.parts))
    return cost_of(usage, price, facts=Facts(is_cut=reply.finish in ("cut", "error")))


def reported_counts(usage: Usage, *, answered: bool) -> Usage:
    """Return the counts that were reported: a 0 for a reply that has content (`answered`) was not."""
    if not answered or (usage.input != 0 and usage.output != 0):
        return usage
    return replace(usage, input=usage.input or None, output=usage.output or None)


def add_tokens(total: CostSum, usage: Usage, price: Price, created: float | None, facts: Facts) -> None:
    """Add the price of the tokens."""
    charged = None if usage.input is None else max(usage.input - facts.free, 0)
    if facts.unknown is not None or facts.factor is None or (charged is None and price.tiers):
        total.miss(facts.unknown or "input", None)
        return
    written = usage.output or 0
    tables = possible_rates(price, facts.service, charged, created, written)
    if not tables:
        total.miss(f"service {facts.service}", None)
        return
    sums = [_token_sum(usage, rates, price, facts) for rates in tables]
    has_times = len({found.amount for found in sums}) > 1
    extra = uncounted_tokens(usage)
    if extra or _may_be_longer(usage, facts):  # more output may follow, and decide about its price
        tables = possible_rates(price, facts.service, charged, created)
        sums += [_token_sum(usage, rates, price, facts) for rates in tables]
    if charged is not None and extra:  # it may be input, and decide about the length
        tables = possible_rates(price, facts.service, charged + extra, created, written)
        sums += [_token_sum(usage, rates, price, facts) for rates in tables]
    low = min(sums, key=lambda found: found.amount)
    total.amount += low.amount * facts.factor
    mosts = [None if found.rest is None else found.amount + found.rest for found in sums]
    known = [most for most in mosts if most is not None]
    for found in sums:
        for name in found.missing:
            total.miss(name, _ZERO)
    if has_times:
        total.miss("hours" if price.off_peak else "promotion", _ZERO)
    if len(known) < len(mosts) or total.rest is None:
        total.rest = None
    else:
        total.rest += (max(known) - low.amount) * facts.factor


def _token_sum(usage: Usage, rates: _Rates, price: Price, facts: Facts) -> CostSum:
    """Return the price of the tokens by one table of prices."""
    total = CostSum()
    for name, tokens, bound in _parts(usage, rates, price, facts):
        rate = rates.get(name)
        if tokens is None:
            total.miss(name, None)
        elif tokens and type(rate) not in (int, float):
            highest = rates.get(bound) if bound is not None else None
            if highest != 0:  # a price of 0 is the highest that it can be
                total.miss(name, None if type(highest) not in (int, float) else tokens * exact_rate(highest) / MILLION)
        elif tokens:
            assert isinstance(rate, int | float)
            total.amount += tokens * exact_rate(rate)
    total.amount /= MILLION
    if extra := uncounted_tokens(usage):
        known: list[float] = [rate for name in RATES if _is_rate(rate := rates.get(name))]
        total.miss("uncounted", extra * exact_rate(max(known)) / MILLION if known else None)
    _miss_invalid(total, usage, rates, price, facts)
    if _may_be_longer(usage, facts):
        rates_of_output = [rate for name in ("output", "output_thinking") if (rate := rates.get(name)) is not None]
        rest = None if facts.most_output is None else max(facts.most_output - (usage.output or 0), 0)
        highest = None if rest is None or not rates_of_output else rest * exact_rate(max(rates_of_output)) / MILLION
        total.miss("output", highest)
    return total


def _may_be_longer(usage: Usage, facts: Facts) -> bool:
    """Whether a reply may have more output than was counted."""
    return facts.is_cut or usage.output is None or "output" in facts.invalid


def _miss_invalid(total: CostSum, usage: Usage, rates: _Rates, price: Price, facts: Facts) -> None:
    """Leave out the parts whose counts cannot be read or contradict each other."""
    invalid, media = facts.invalid, facts.media
    written, hourly = usage.cache_write or 0, usage.cache_write_1h or 0
    if "input" in invalid and usage.input is not None:
        total.miss("input", None)
    if "cache_write" in invalid:
        total.miss("cache_write", None)
    if hourly > written:
        total.miss("cache_write_1h", None)
    elif "cache_write_1h" in invalid and written:
        _miss_difference(total, "cache_write_1h", written, rates, "cache_write", ("cache_write_1h",))
    rest = _unwritten_input(usage, facts)
    lowest, *others = _cache_rates(rates, price, facts)
    if others and usage.cached and _is_rate(rates.get(lowest)):
        _miss_difference(total, "cached", min(usage.cached, usage.input or 0), rates, lowest, others)
    if "cached" in invalid:
        names = ("input", "input_audio") if media else ("input",)
        _miss_difference(total, "cached", rest, rates, lowest, names)
    sounds = {
        "input_audio": ("input", rest),
        "cached_audio": ("cached", rest),
        **dict.fromkeys(UNPRICED, ("output", usage.output)),
    }
    for name, (usual, tokens) in sounds.items():
        if name == "cached_audio" and name in media and media[name] is None and media.get("input_audio"):
            _miss_place_of_sound(total, min(media["input_audio"] or 0, usage.cached or 0), rates)
        elif media.get(name, 0) is None:
            _miss_difference(total, name, tokens, rates, usual, (name,))
    if "reasoning" in invalid and price.output_thinking is not None and not facts.thought:
        _miss_difference(total, "output_thinking", usage.output, rates, "output", ("output_thinking",))


def _unwritten_input(usage: Usage, facts: Facts) -> int | None:
    """Return the tokens of input that were not written to a cache; None is unknown."""
    return None if usage.input is None else max(usage.input - (usage.cache_write or 0) - facts.free, 0)


def _miss_difference(
    total: CostSum, name: str, tokens: int | None, rates: _Rates, low: str, high: Iterable[str]
) -> None:
    """Leave out that tokens, counted at one price, may have a higher one."""
    known = [exact_rate(rate) for place in (low, *high) if _is_rate(rate := rates.get(place))]
    if tokens is None or len(known) < 2:
        total.miss(name, None)
    else:
        total.miss(name, tokens * max(max(known) - known[0], _ZERO) / MILLION)


def _miss_place_of_sound(total: CostSum, tokens: int, rates: _Rates) -> None:
    """Leave out that tokens of sound, counted as read from the cache, may be fresh, and as many of text from it."""
    known = [
        exact_rate(rate)
        for name in ("input_audio", "cached_audio", "input", "cached")
        if _is_rate(rate := rates.get(name))
    ]
    if len(known) < 4:
        total.miss("cached_audio", None)
    else:
        fresh, cached, text, cached_text = known
        total.miss("cached_audio", tokens * max(fresh - cached - text + cached_text, _ZERO) / MILLION)


def uncounted_tokens(usage: Usage) -> int:
    """Return the most tokens that the total, or a part, has beyond the input and the output that were reported."""
    if usage.input is None or usage.output is None:
        return 0
    cached, reasoning = (usage.cached or 0) + (usage.cache_write or 0), usage.reasoning or 0
    return max(
        (usage.total or 0) - usage.input - usage.output,
        cached if cached > usage.input else 0,
        reasoning if reasoning > usage.output else 0,
    )


def _is_rate(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float)


def _parts(usage: Usage, rates: _Rates, price: Price, facts: Facts) -> Iterator[tuple[str, int | None, str | None]]:
    """Yield the tokens of a reply, each count with the name of its price, and the name of a price that is never lower.

    The second name is None where no such price is known. It gives a bound where the registry lacks the first price.
    """
    if usage.input is None:
        yield "input", None, None
    else:
        written = usage.cache_write or 0
        hourly = min(usage.cache_write_1h or 0, written)
        cached = min(usage.cached or 0, usage.input)
        if "cached" in facts.invalid:  # all of it may be, which is the cheapest
            cached = _unwritten_input(usage, facts) or 0
        plain = max(usage.input - cached - written - facts.free, 0)
        media = facts.media
        if media:
            sound, cached_sound = media.get("input_audio") or 0, media.get("cached_audio", 0)
            if cached_sound is None:  # as much of it as can be, which is the cheapest
                cached_sound = min(sound, cached)
            if sound and price.input_audio is not None:
                fresh = min(max(sound - cached_sound, 0), plain)
                plain -= fresh
                yield "input_audio", fresh, None
            if cached_sound and price.cached_audio is not None:
                cached_sound = min(cached_sound, cached)
                cached -= cached_sound
                yield "cached_audio", cached_sound, "input_audio"
        yield "input", plain, None
        yield _cache_rates(rates, price, facts)[0], cached, "input"
        yield "cache_write", written - hourly, None
        yield "cache_write_1h", hourly, None
    rest = usage.output or 0
    if rates.get("output") != 0:  # otherwise its sound is free, too
        for name in UNPRICED:
            made = min(facts.media.get(name) or 0, rest)
            rest -= made
            yield name, made, None
    is_dearer = facts.thought and price.output_thinking is not None
    yield "output_thinking" if is_dearer else "output", rest, None


def _cache_rates(rates: _Rates, price: Price, facts: Facts) -> list[str]:
    """Return the names of the prices that tokens from a cache may have, the lowest one first: an unknown one may be."""
    names = ["cached", "cached_by_mark"]
    if price.cached_by_mark is None or facts.by_mark is False or rates.get("cached") == rates.get("cached_by_mark"):
        return names[:1]
    if facts.by_mark:
        return names[1:]
    return sorted(names, key=lambda name: rate if _is_rate(rate := rates.get(name)) else 0)


@lru_cache(maxsize=512)
def exact_rate(rate: float) -> Decimal:
    """Return a rate as the registry writes it."""
    return Decimal(repr(rate))
