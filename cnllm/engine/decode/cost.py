"""Compute the cost of a reply by the registry's prices: of its tokens and of its web searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from cnllm.engine.decode.hours import is_within, local_day
from cnllm.jsonpath import get
from cnllm.registry.flags import Price, WebSearch
from cnllm.types import Cost, Opaque, Part, ToolCall, Usage

__all__ = ["add_fees", "cost_of", "is_off_peak", "promotion_of", "reported_searches", "search_count"]

_ZERO = Decimal(0)
_UTC = "+00:00"


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
    if type(holidays) is list and local_day(zone, created) in holidays:
        return True
    within = is_within(tuple(str(text) for text in hours), zone, created)
    return None if within is None else not within


def promotion_of(price: Price, created: float | None) -> Mapping[str, Any]:
    """Return the prices of a promotion that holds at a time; nothing where none does, or where it is unknown."""
    promotion = price.promotion or {}
    if "until" not in promotion:
        return promotion
    zone = promotion.get("zone", _UTC)
    day = None if created is None or type(zone) is not str else local_day(zone, created)
    return promotion if day is not None and day <= str(promotion["until"]) else {}


def cost_of(usage: Usage, price: Price | None, created: float | None = None) -> Cost | None:
    """Return the cost of a reply, or None where a count or a price that matters is unknown.

    `created` is the time of the reply: outside the peak hours, or while a promotion lasts, it may cost less. Without it
    the full price applies.
    Cached input without a price of its own is charged at the full input price; a tier applies from its `above` on.
    """
    if price is None or price.currency is None or usage.input is None or usage.output is None:
        return None
    rates: dict[str, float | None] = {"input": price.input, "output": price.output, "cached": price.cached}
    if price.off_peak is not None and is_off_peak(price, created):
        rates |= {k: v for k, v in price.off_peak.items() if k in rates and type(v) in (int, float)}
    promotion = promotion_of(price, created)
    rates |= {k: v for k, v in promotion.items() if k in rates}
    if tiers := promotion.get("tiers", price.tiers):
        for tier in sorted(tiers, key=lambda t: t.get("above", 0)):
            if usage.input > tier.get("above", 0):
                rates |= {k: v for k, v in tier.items() if k in rates}
    if rates["input"] is None or rates["output"] is None:
        return None
    cache_write = usage.cache_write or 0 if price.cache_write is not None else 0
    cached = min(usage.cached or 0, usage.input)
    uncached = max(usage.input - cached - cache_write, 0)
    cached_rate = rates["cached"] if rates["cached"] is not None else rates["input"]
    amount = (
        _multiply(uncached, rates["input"])
        + _multiply(cached, cached_rate)
        + _multiply(cache_write, price.cache_write or 0)
        + _multiply(usage.output, rates["output"])
    )
    return Cost(amount / 1_000_000, price.currency)


def add_fees(cost: Cost | None, rules: WebSearch | None, searches: int | None) -> Cost | None:
    """Return the cost with the fees of the reply's web searches; None where their number or their price is unknown.

    `rules` are those of the search that was requested; without them nothing is added.
    """
    if cost is None or rules is None or searches == 0 or rules.fee == 0:
        return cost
    if rules.fee is None or searches is None:
        return None
    count = 1 if rules.fee_per == "request" else searches
    return Cost(cost.amount + count * _exact_rate(rules.fee), cost.currency)


def reported_searches(data: dict[str, Any], rules: WebSearch | None, known: int | None) -> int | None:
    """Return the number of web searches that bodies and chunks report, with one more; None where none reports it."""
    for path in (rules and rules.uses) or ():
        value = get(data, path)
        if type(value) is list:
            known = max(known or 0, len(value))
        elif type(value) is int and value >= 0:
            known = value
    return known


def search_count(
    rules: WebSearch | None, reported: int | None, calls: Sequence[ToolCall], parts: Sequence[Part], echo: str | None
) -> int | None:
    """Return the number of web searches of a reply; None where it is unknown.

    `reported` is what the endpoint said, `echo` the function that stands for one search.
    """
    if rules is None or reported is not None:
        return reported
    if echo is not None:
        return sum(call.name == echo for call in calls)
    if rules.item is not None:
        return sum(type(part) is Opaque and _is_item(part.data, rules.item) for part in parts)
    return 1 if rules.always else None


def _is_item(data: Any, kind: str) -> bool:
    """Whether the data of a part are an item of this type."""
    return type(data) is dict and data.get("type") == kind


def _multiply(tokens: int, rate: float) -> Decimal:
    """Return the cost of tokens at a rate for a million."""
    return tokens * _exact_rate(rate) if tokens else _ZERO


@lru_cache(maxsize=256)
def _exact_rate(rate: float) -> Decimal:
    """Return the rate as the registry writes it."""
    return Decimal(repr(rate))
