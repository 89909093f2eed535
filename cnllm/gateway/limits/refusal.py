"""The reasons why a request of a key is refused, in words for its client."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from cnllm.estimates.money import format_units
from cnllm.estimates.quote import Quote
from cnllm.gateway.limits.keys import KeyRecord

__all__ = [
    "Refusal",
    "Refused",
    "budget_held",
    "budget_spent",
    "model_refused",
    "no_budget",
    "revoked",
    "too_large",
    "too_many_requests",
    "too_many_tokens",
    "unavailable",
]

_BUDGET_SECONDS = 3600  # a budget does not come back by waiting; somebody may raise it
_HELD_SECONDS = 2.0


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


def too_many_requests(record: KeyRecord, seconds: float) -> Refusal:
    """Return the refusal of a request above the limit of requests."""
    message = f"the key {record.name} may send {_count(record.rpm or 0, 'request')} a minute; {_again(seconds)}"
    return Refusal("rate", "rate_limit_exceeded", message, seconds)


def too_many_tokens(record: KeyRecord, seconds: float) -> Refusal:
    """Return the refusal of a request above the limit of tokens."""
    message = f"the key {record.name} may use {_count(record.tpm or 0, 'token')} a minute; {_again(seconds)}"
    return Refusal("rate", "rate_limit_exceeded", message, seconds)


def too_large(record: KeyRecord, tokens: int) -> Refusal:
    """Return the refusal of a request that alone is above the limit of tokens."""
    message = (
        f"this request has about {tokens:,} tokens, and the key {record.name} may use "
        f"{_count(record.tpm or 0, 'token')} a minute: send a shorter one"
    )
    return Refusal("size", "request_too_large", message, final=True)


def budget_spent(record: KeyRecord, quote: Quote, unspent: int) -> Refusal:
    """Return the refusal of a request that may cost more than is left."""
    left = format_units(max(0, unspent))
    message = (
        f"the budget of the key {record.name} has {left} {quote.currency} left, and this request may cost "
        f"{format_units(quote.cost or 0)}: lower its limit of output tokens, or ask for a higher budget"
    )
    return Refusal("budget", "insufficient_quota", message, _BUDGET_SECONDS, final=True)


def budget_held(record: KeyRecord, quote: Quote) -> Refusal:
    """Return the refusal of a request whose money running calls hold."""
    message = (
        f"calls that run hold the rest of the budget of the key {record.name}, and this request may cost "
        f"{format_units(quote.cost or 0)} {quote.currency}; {_again(_HELD_SECONDS)}"
    )
    return Refusal("rate", "budget_reserved", message, _HELD_SECONDS)


def no_budget(record: KeyRecord, quote: Quote) -> Refusal:
    """Return the refusal of a model whose cost cannot be counted against the budget."""
    if quote.unknown is not None:
        message = f"{quote.unknown}, and the key {record.name} has a budget: unknown is not zero"
        return Refusal("forbidden", "price_unknown", message, final=True)
    currencies = " and ".join(record.budgets)
    message = (
        f"{quote.model} is charged in {quote.currency}, and the key {record.name} has a budget in {currencies}: "
        "no currency is converted"
    )
    return Refusal("forbidden", "currency_mismatch", message, final=True)


def model_refused(record: KeyRecord, model: str) -> Refusal:
    """Return the refusal of a model that the key may not use."""
    message = f"the key {record.name} may not use {model}; it may use {', '.join(record.models)}"
    return Refusal("forbidden", "model_not_allowed", message, final=True)


def revoked() -> Refusal:
    """Return the refusal of a key that was revoked."""
    return Refusal("key", "invalid_api_key", "the key of this request was revoked", final=True)


def unavailable() -> Refusal:
    """Return the refusal of all requests while the limits cannot be checked."""
    message = "the gateway cannot reach the store of its keys, so no limit can be checked; try again in 2 seconds"
    return Refusal("unavailable", "keys_unavailable", message, 2.0)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _again(seconds: float) -> str:
    """Say when to try again."""
    return f"try again in {_count(max(1, math.ceil(seconds)), 'second')}"
