"""The reasons why a request of a key is refused, in words for its client."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Literal

from msgspec import Struct

from cnllm.estimates.money import format_units
from cnllm.estimates.worst_case import WorstCase
from cnllm.gateway.limits.keys import KeyRecord, period_bounds, zone_of

__all__ = [
    "TOO_MANY_AT_ONCE",
    "Refusal",
    "Refused",
    "budget_held",
    "budget_spent",
    "expired",
    "model_refused",
    "no_budget",
    "revoked",
    "too_large",
    "too_many",
    "too_many_at_once",
    "unavailable",
]

_BUDGET_SECONDS = 3600  # a budget does not come back by waiting; somebody may raise it
_HELD_SECONDS = 2.0
_FLIGHT_SECONDS = 1.0
TOO_MANY_AT_ONCE = "concurrency_limit_exceeded"
"""The code of a refusal that the end of any request in flight makes void."""


class Refusal(Struct, frozen=True):
    """A refusal: its kind, which decides the status, a code, a sentence, and when another attempt makes sense."""

    kind: Literal["rate", "size", "budget", "forbidden", "key", "unavailable"]
    code: str
    message: str
    retry_after: float | None = None
    final: bool = False


class Refused(Exception):
    """A request may not be sent."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def too_many(record: KeyRecord, noun: Literal["request", "token"], seconds: float) -> Refusal:
    """Return the refusal of a request above the limit of requests, or of tokens."""
    verb, limit = ("send", record.rpm) if noun == "request" else ("use", record.tpm)
    message = f"the {_name(record)} may {verb} {_count(limit or 0, noun)} a minute; {_again(seconds)}"
    return Refusal("rate", "rate_limit_exceeded", message, seconds)


def too_many_at_once(record: KeyRecord) -> Refusal:
    """Return the refusal of a request above the limit of requests in flight."""
    count = _count(record.concurrency or 0, "request")
    message = f"the {_name(record)} may have {count} in flight; {_again(_FLIGHT_SECONDS)}"
    return Refusal("rate", TOO_MANY_AT_ONCE, message, _FLIGHT_SECONDS)


def too_large(record: KeyRecord, tokens: int) -> Refusal:
    """Return the refusal of a request that alone is above the limit of tokens."""
    message = (
        f"this request has about {tokens:,} tokens, and the {_name(record)} may use "
        f"{_count(record.tpm or 0, 'token')} a minute: send a shorter one"
    )
    return Refusal("size", "request_too_large", message, final=True)


def budget_spent(record: KeyRecord, worst: WorstCase, unspent: int, wall: float) -> Refusal:
    """Return the refusal of a request that may cost more than is left, at a time since 1970."""
    amount = format_units(max(0, unspent))
    period, seconds, until = record.periods.get(worst.currency or ""), float(_BUDGET_SECONDS), ""
    if period is not None:
        end = period_bounds(period, record.time_zone, wall)[1]
        seconds, until = max(1.0, end - wall), f" until {_time(end, record)}"
    message = (
        f"the budget of the {_name(record)} has {amount} {worst.currency} left{until}, and this request may cost "
        f"{format_units(worst.cost or 0)}: lower its limit of output tokens, or ask for a higher budget"
    )
    return Refusal("budget", "insufficient_quota", message, seconds, final=True)


def budget_held(record: KeyRecord, worst: WorstCase) -> Refusal:
    """Return the refusal of a request whose money running calls hold."""
    message = (
        f"calls that run hold the rest of the budget of the {_name(record)}, and this request may cost "
        f"{format_units(worst.cost or 0)} {worst.currency}; {_again(_HELD_SECONDS)}"
    )
    return Refusal("rate", "budget_reserved", message, _HELD_SECONDS)


def no_budget(record: KeyRecord, worst: WorstCase) -> Refusal:
    """Return the refusal of a model whose cost cannot be counted against the budget."""
    if worst.unknown:
        message = f"not known: {' and '.join(worst.unknown)}; the {_name(record)} has a budget, and unknown is not zero"
        return Refusal("forbidden", "price_unknown", message, final=True)
    currencies = " and ".join(record.budgets)
    message = (
        f"{worst.model} is charged in {worst.currency}, and the {_name(record)} has a budget in {currencies}: "
        "no currency is converted"
    )
    return Refusal("forbidden", "currency_mismatch", message, final=True)


def model_refused(record: KeyRecord, model: str) -> Refusal:
    """Return the refusal of a model that the key may not use."""
    message = f"the {_name(record)} may not use {model}; it may use {', '.join(record.models)}"
    return Refusal("forbidden", "model_not_allowed", message, final=True)


def revoked() -> Refusal:
    """Return the refusal of a key that was revoked."""
    return Refusal("key", "invalid_api_key", "the key of this request was revoked", final=True)


def expired(record: KeyRecord) -> Refusal:
    """Return the refusal of a key that has expired."""
    when = _time(record.expires or 0.0, record)
    return Refusal("key", "expired_api_key", f"the {_name(record)} expired at {when}: ask for a new one", final=True)


def unavailable() -> Refusal:
    """Return the refusal of all requests while the limits cannot be checked."""
    message = "the store of the gateway's keys fails, so no limit can be checked; try again in 2 seconds"
    return Refusal("unavailable", "keys_unavailable", message, 2.0)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _again(seconds: float) -> str:
    """Say when to try again."""
    return f"try again in {_count(max(1, math.ceil(seconds)), 'second')}"


def _name(record: KeyRecord) -> str:
    """Return whose limit it is."""
    return f"{record.kind} {record.name}"


def _time(seconds: float, record: KeyRecord) -> str:
    """Return a time in the time zone of a key."""
    return f"{datetime.fromtimestamp(seconds, zone_of(record.time_zone)):%Y-%m-%d %H:%M} {record.time_zone}"
