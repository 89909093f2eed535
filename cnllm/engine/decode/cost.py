"""Compute the cost of a reply by the registry's prices: of its tokens and of its web searches, at its time."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from cnllm.jsonpath import get
from cnllm.registry.flags import Price, WebSearch
from cnllm.types import Cost, Opaque, Part, ToolCall, Usage

__all__ = ["add_fees", "cost_of", "is_off_peak", "promotion_of", "reported_searches", "search_count"]

_ZERO = Decimal(0)
_UTC = "+00:00"
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_RANGE = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))? )?(\d\d):(\d\d)-(\d\d):(\d\d)", re.ASCII | re.IGNORECASE)
_FIRST_WEEKDAY = 3  # 1 January 1970 was a Thursday
_FIRST_SECOND = -62_135_596_800  # the year 1 begins
_LAST_SECOND = 253_402_300_800  # the year 9999 ends
_DAY = 24 * 3600  # seconds
_ZONE = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)


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
    if type(holidays) is list and _local_day(zone, created) in holidays:
        return True
    within = _is_within(tuple(str(text) for text in hours), zone, created)
    return None if within is None else not within


def promotion_of(price: Price, created: float | None) -> Mapping[str, Any]:
    """Return the prices of a promotion that holds at a time; nothing where none does, or where it is unknown."""
    promotion = price.promotion or {}
    if "until" not in promotion:
        return promotion
    zone = promotion.get("zone", _UTC)
    day = None if created is None or type(zone) is not str else _local_day(zone, created)
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


def _is_within(hours: tuple[str, ...], zone: str, seconds: float) -> bool | None:
    """Whether a time, in seconds since 1970, lies in one of the ranges; None where they cannot be read."""
    ranges, offset = _ranges(hours), _offset(zone)
    if ranges is None or offset is None:
        return None
    if not _FIRST_SECOND <= seconds < _LAST_SECOND:
        return None
    day, minute = divmod(int(seconds // 60) + offset, 24 * 60)
    weekday = (day + _FIRST_WEEKDAY) % 7
    return any(first <= minute < last and weekday in days for days, first, last in ranges)


def _local_day(zone: str, seconds: float) -> str | None:
    """Return the day of a time, in seconds since 1970, as `2026-12-31`; None where it cannot be told."""
    offset = _offset(zone)
    if offset is None or not _FIRST_SECOND <= seconds < _LAST_SECOND - 24 * 3600 or seconds < 0:
        return None
    return _day(int(seconds + offset * 60) // _DAY)


@lru_cache(maxsize=32)
def _day(number: int) -> str:
    """Return the day with a number since 1970."""
    return time.strftime("%Y-%m-%d", time.gmtime(number * _DAY))


@lru_cache(maxsize=32)
def _ranges(hours: tuple[str, ...]) -> list[tuple[frozenset[int], int, int]] | None:
    """Return each range as (days, first minute, last minute); None where one cannot be read."""
    out: list[tuple[frozenset[int], int, int]] = []
    for text in hours:
        match = _RANGE.fullmatch(text)
        days = None if match is None else _days(match[1], match[2])
        if match is None or days is None:
            return None
        first, last = int(match[3]) * 60 + int(match[4]), int(match[5]) * 60 + int(match[6])
        if not 0 <= first < last <= 24 * 60:
            return None
        out.append((days, first, last))
    return out or None


def _days(first: str | None, last: str | None) -> frozenset[int] | None:
    """Return the days of a range; None where a name is unknown."""
    if first is None:
        return frozenset(range(7))
    names = (first.lower(), (last or first).lower())
    if not {*names} <= {*_DAYS}:
        return None
    begin, end = _DAYS.index(names[0]), _DAYS.index(names[1])
    return frozenset((begin + step) % 7 for step in range((end - begin) % 7 + 1))


@lru_cache(maxsize=32)
def _offset(zone: str) -> int | None:
    """Return the offset of a zone from UTC in minutes; None where it cannot be read."""
    match = _ZONE.fullmatch(zone)
    if match is None:
        return None
    size = int(match[2]) * 60 + int(match[3])
    return -size if match[1] == "-" else size
