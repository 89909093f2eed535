"""Read the times of a bill: a day, a month, a time or a span, in the zone of the bill."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

__all__ = ["Period", "period_of", "seconds_of", "zone_of"]

_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_UNIX = re.compile(r"\d{10}(?:\.\d*)?|\d{13}")
_DATE = re.compile(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?|(\d{4})(\d{2})(\d{2})?")
_TIME = re.compile(r"(\d{4}-\d{1,2}-\d{1,2})[T ]+(\d{1,2}:\d{2}(?::\d{2})?)(?:\.\d+)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?")
_UTC = datetime.timezone.utc  # noqa: UP017 - typed as a `timezone`


class Period(NamedTuple):
    """A span of time, in milliseconds since 1970, without its end. `label` is the day, the month or both ends."""

    start: int
    end: int
    label: str


def seconds_of(text: str) -> float | None:
    """Return the seconds since 1970 of a time in the form of ISO 8601; None for another text."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=64)
def zone_of(name: str) -> datetime.tzinfo | None:
    """Return the zone of `+08:00` or `Asia/Shanghai`; None where there is none of that name."""
    if match := _OFFSET.fullmatch(name):
        size = datetime.timedelta(hours=int(match[2]), minutes=int(match[3]))
        return datetime.timezone(-size if match[1] == "-" else size) if size < datetime.timedelta(days=1) else None
    try:
        return _UTC if name in ("UTC", "Z") else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


@lru_cache(maxsize=4096)
def period_of(text: str, end: str, separator: str | None, zone: str) -> Period | None:
    """Return the time of a row by the texts of its cells; None for a text that is no time, like that of a total.

    Raises `ValueError` for a time that cannot be read.
    """
    if not any(character.isdigit() for character in text):
        return None
    if separator is not None and separator in text:
        text, _, end = text.partition(separator)
    start = _moment(text, zone)
    if not end.strip():
        return _whole(start)
    last = _moment(end, zone)
    finish = last.time
    if last.unit == "day" and separator is not None:
        finish += datetime.timedelta(days=1)
    elif finish.second == 59:
        finish += datetime.timedelta(seconds=1)
    if finish <= start.time:
        raise ValueError("the end is not behind the start")
    return _period(start.time, finish)


class _Moment(NamedTuple):
    time: datetime.datetime
    unit: str


def _moment(text: str, zone: str) -> _Moment:
    """Return a time and what it is exact to: a month, a day or a second."""
    plain = text.strip().replace("/", "-").replace("年", "-").replace("月", "-").replace("日", "").rstrip("-")
    usual = zone_of(zone)
    if usual is None:
        raise ValueError("the zone is unknown")
    if _UNIX.fullmatch(plain):
        seconds = float(plain) if len(plain.partition(".")[0]) == 10 else int(plain) / 1000
        return _Moment(datetime.datetime.fromtimestamp(seconds, usual), "second")
    if match := _DATE.fullmatch(plain):
        year, month, day = (int(match[index] or match[index + 3] or 0) for index in (1, 2, 3))
        unit = "day" if match[3] or match[6] else "month"
        return _Moment(datetime.datetime(year, month, day if unit == "day" else 1, tzinfo=usual), unit)
    match = _TIME.fullmatch(plain)
    if match is None:
        raise ValueError("no time")
    year, month, day = map(int, match[1].split("-"))
    hour, minute, second = [*map(int, match[2].split(":")), 0][:3]
    offset = {"Z": _UTC, "UTC": _UTC}.get(match[3] or "") or (zone_of(match[3]) if match[3] else usual)
    if offset is None:
        raise ValueError("no offset")
    return _Moment(datetime.datetime(year, month, day, hour, minute, second, tzinfo=offset), "second")


def _whole(moment: _Moment) -> Period:
    """Return the month of a month, else the day of a time, in its own zone."""
    day = moment.time.replace(hour=0, minute=0, second=0, microsecond=0)
    if moment.unit == "month":
        return _period(day, (day + datetime.timedelta(days=31)).replace(day=1))
    return _period(day, day + datetime.timedelta(days=1))


def _period(start: datetime.datetime, end: datetime.datetime) -> Period:
    first, last = start.date(), (end - datetime.timedelta(microseconds=1)).date()
    is_day, is_whole = first == last, start.time() == end.time() == datetime.time()
    if is_whole and is_day:
        label = first.isoformat()
    elif is_whole and first.day == 1 and (end.day == 1 and (end - datetime.timedelta(days=1)).month == first.month):
        label = f"{first:%Y-%m}"
    elif is_whole:
        label = f"{first}/{last}"
    else:
        label = f"{start:%Y-%m-%dT%H:%M}/{end:%Y-%m-%dT%H:%M}"
    return Period(round(start.timestamp() * 1000), round(end.timestamp() * 1000), label)
