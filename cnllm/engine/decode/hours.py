"""Hours of a week in words of a registry, `Mon-Fri 09:00-12:00`, at a fixed distance from UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

__all__ = ["is_within"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_RANGE = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))? )?(\d\d):(\d\d)-(\d\d):(\d\d)", re.ASCII | re.IGNORECASE)
_ZONE = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)


def is_within(hours: tuple[str, ...], zone: str, seconds: float) -> bool | None:
    """Whether a moment, in seconds since 1970, lies in one of the ranges; None where they cannot be read."""
    ranges, offset = _ranges(hours), _offset(zone)
    if ranges is None or offset is None:
        return None
    try:
        at = datetime.fromtimestamp(seconds, UTC) + offset
    except (OverflowError, OSError, ValueError):
        return None
    minute = at.hour * 60 + at.minute
    return any(at.weekday() in days and first <= minute < last for days, first, last in ranges)


@lru_cache(maxsize=32)
def _ranges(hours: tuple[str, ...]) -> list[tuple[frozenset[int], int, int]] | None:
    out: list[tuple[frozenset[int], int, int]] = []
    for text in hours:
        found = _RANGE.fullmatch(text)
        days = None if found is None else _days(found[1], found[2])
        if found is None or days is None:
            return None
        first, last = int(found[3]) * 60 + int(found[4]), int(found[5]) * 60 + int(found[6])
        if not 0 <= first < last <= 24 * 60:
            return None
        out.append((days, first, last))
    return out or None


def _days(first: str | None, last: str | None) -> frozenset[int] | None:
    if first is None:
        return frozenset(range(7))
    names = (first.lower(), (last or first).lower())
    if not {*names} <= {*_DAYS}:
        return None
    begin, end = _DAYS.index(names[0]), _DAYS.index(names[1])
    return frozenset((begin + step) % 7 for step in range((end - begin) % 7 + 1))


def _offset(zone: str) -> timedelta | None:
    found = _ZONE.fullmatch(zone)
    if found is None:
        return None
    size = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return -size if found[1] == "-" else size
