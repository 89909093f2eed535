"""Parse a point in time: a date, or a number of days ago."""

from __future__ import annotations

import datetime

from cnllm.cli.output.errors import UsageError

__all__ = ["utc_time"]


def utc_time(text: str, option: str) -> str:
    """Return the beginning of a local day as ISO 8601 in UTC: a date, or a number of days before now."""
    try:
        if text.isascii() and text.isdigit():
            time = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=int(text))
        else:
            time = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text}: this is not a date", "it is like 2026-01-31, or a number of days") from None
    return time.isoformat(timespec="milliseconds")
