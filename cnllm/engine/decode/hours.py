"""Read the hours and days of a price: hours of a week, `Mon-Fri 09:00-12:00`, and days, at a fixed offset from UTC."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import lru_cache

__all__ = ["is_within", "local_day", "response_time"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_RANGE = r"(?ai)(?:([a-z]{3})(?:-([a-z]{3}))? )?(\d\d):(\d\d)-(\d\d):(\d\d)"
_FIRST_WEEKDAY = 3  # 1 January 1970 was a Thursday
_FIRST_SECOND = 1_577_836_800  # the year 2020 begins: no reply is older, and an earlier time is none
_LAST_SECOND = 253_402_300_800  # the year 9999 ends
_DAY = 24 * 3600  # seconds
_ZONE = r"(?a)([+-])(\d\d):(\d\d)"


def is_within(hours: tuple[str, ...], zone: str, seconds: float) -> bool | None:
    """Whether a time, in seconds since 1970, lies in one of the ranges; None where they cannot be read."""
    ranges, offset = _ranges(hours), _offset(zone)
    if ranges is None or offset is None:
        return None
    if not _FIRST_SECOND <= seconds < _LAST_SECOND:
        return None
    day, minute = divmod(int(seconds // 60) + offset, 24 * 60)
    weekday = (day + _FIRST_WEEKDAY) % 7
    return any(first <= minute < last and weekday in days for days, first, last in ranges)


def local_day(zone: str, seconds: float) -> str | None:
    """Return the day of a time, in seconds since 1970, as `2026-12-31`; None where it cannot be told."""
    offset = _offset(zone)
    if offset is None or not _FIRST_SECOND <= seconds < _LAST_SECOND - 24 * 3600:
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
        match = re.fullmatch(_RANGE, text)
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
    match = re.fullmatch(_ZONE, zone)
    if match is None:
        return None
    size = int(match[2]) * 60 + int(match[3])
    return -size if match[1] == "-" else size


def response_time(headers: Mapping[str, str]) -> float | None:
    """Return the time at which a response began by its head, in seconds since 1970; None where it says none."""
    from email.utils import parsedate_to_datetime  # most replies need not load it

    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
