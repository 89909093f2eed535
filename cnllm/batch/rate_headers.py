"""Read the headers in which an endpoint tells how much may be sent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from cnllm.engine.decode.retry_delay import delay_from_field
from cnllm.registry.flags import RateHeaders

__all__ = ["Limits", "read_limits"]


class Limits(NamedTuple):
    """The limits that a response names: requests and tokens of a minute, and the seconds in which nothing is left."""

    requests: float | None
    tokens: float | None
    pause: float | None


def read_limits(headers: Mapping[str, str], names: RateHeaders) -> Limits:
    """Return the limits that a response tells."""
    pauses = [
        seconds
        for left, reset in ((names.requests_left, names.requests_reset), (names.tokens_left, names.tokens_reset))
        if (count := _number(headers, left)) is not None and count < 1 and (seconds := _seconds(headers, reset))
    ]
    return Limits(_number(headers, names.requests), _number(headers, names.tokens), max(pauses, default=None))


def _number(headers: Mapping[str, str], name: str | None) -> float | None:
    """Return the number in a header; None where there is none."""
    text = "" if name is None else headers.get(name.lower(), "")
    try:
        number = float(text.split(",")[0])
    except ValueError:
        return None
    return number if number >= 0 else None


def _seconds(headers: Mapping[str, str], name: str | None) -> float | None:
    """Return the seconds until a reset: a number, a duration, or a date in either of the usual forms."""
    text = "" if name is None else headers.get(name.lower(), "").strip()
    seconds = delay_from_field("retryafter", text)
    if seconds is not None or not text:
        return seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())
