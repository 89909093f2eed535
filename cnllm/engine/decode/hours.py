"""Read hours of the week in the registry's form, `Mon-Fri 09:00-12:00`, at a fixed offset from UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

__all__ = ["is_within"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_RANGE = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))? )?(\d\d):(\d\d)-(\d\d):(\d\d)", re.ASCII | re.IGNORECASE)
_ZONE = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)


def is_within(hours: tuple[str, ...], zone: str, seconds: float) -> bool | None:
    """Whether a time, in seconds since 1970, lies in one of the ranges; None where they cannot be read."""
    ranges, offset = _ranges(hours), _offset(zone)
    if ranges is None or offset is None:
        return None
    try:
        time = datetime.fromtimestamp(seconds, UTC) + offset
    except (OverflowError, OSError, ValueError):
        return None
    minute = time.hour * 60 + time.minute
    return any(time.weekday() in days and first <= minute < last for days, first, last in ranges)


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


def _offset(zone: str) -> timedelta | None:
    """Return the offset of a zone from UTC; None where it cannot be read."""
    match = _ZONE.fullmatch(zone)
    if match is None:
        return None
    size = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return -size if match[1] == "-" else size
