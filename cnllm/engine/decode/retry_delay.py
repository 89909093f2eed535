"""Read the delay that an endpoint requests before the next try: from the headers, otherwise from the body of an error.

In a body every field with a fitting name counts (`retryDelay`, `retry_after`, `retry_after_ms`). Its value is a number,
a text with a number, a duration (`34s`, `1m30s`, `{"seconds": 34}`) or a date.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["delay_from_field", "delay_from_headers"]

_MAX_DELAY = 31_536_000.0  # seconds of a year: a larger number is no delay, but a point in time
_KEY = re.compile(r"(?:x)?retry(?:after|delay|in)(?:in)?(s|secs?|seconds?|ms|msecs?|millis|milliseconds)?")
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,20})?")
_DURATION = re.compile(rf"(?:{_NUMBER.pattern}(?:h|m|s|ms|us|µs|ns))+")
_PART = re.compile(rf"({_NUMBER.pattern})([a-zµ]+)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def delay_from_headers(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `Retry-After-Ms`, or of `Retry-After` as a number or a date."""
    if (exact := headers.get("retry-after-ms", "").strip()).isascii() and exact.replace(".", "", 1).isdigit():
        return float(exact) / 1000
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.replace(".", "", 1).isdigit():
        return float(value)
    return _seconds_until(value, headers.get("date"))


def delay_from_field(name: str, value: Any) -> float | None:
    """Return the seconds that a field of an error requests; None where the field or its value is something else.

    `name` is in lower case, without the characters that join its words.
    """
    match = _KEY.fullmatch(name)
    if match is None:
        return None
    seconds = _seconds(value, 1e-3 if (match[1] or "").startswith("m") else 1.0)
    return seconds if seconds is not None and 0 <= seconds <= _MAX_DELAY else None


def _seconds(value: Any, unit: float) -> float | None:
    """Return a value in seconds; None where it is no duration."""
    kind = type(value)
    if kind is int or kind is float:
        return value * unit if abs(value) < 1e15 else None
    if kind is dict:  # a duration of protobuf
        parts = [_seconds(value.get(name, 0), scale) for name, scale in (("seconds", 1.0), ("nanos", 1e-9))]
        return sum(filter(None, parts)) if value and None not in parts and {*value} <= {"seconds", "nanos"} else None
    if kind is not str or len(value) > 100:
        return None
    text = value.strip().lower()
    if _NUMBER.fullmatch(text):
        return float(text) * unit
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNITS[name] for number, name in _PART.findall(text))
    return _seconds_until(value, None)


def _seconds_until(date: str, now: str | None) -> float | None:
    """Return the seconds until a date, by the endpoint's clock where it is known."""
    if not date:
        return None
    from email.utils import parsedate_to_datetime  # a successful call need not load it

    try:
        moment = parsedate_to_datetime(date).timestamp()
        return max(moment - (parsedate_to_datetime(now).timestamp() if now is not None else time.time()), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
