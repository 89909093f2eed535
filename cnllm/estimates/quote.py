"""The most that a request can cost and the tokens that it counts for, before it is sent; and what it did cost.

Bounds are bounds: a token is at least one byte of text, each picture counts for the most that a picture takes, and of
several prices the highest counts. What is not known makes the whole unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from msgspec import Struct

from cnllm.engine.encode.plan import Plan
from cnllm.estimates.money import units_of
from cnllm.registry.flags import Price
from cnllm.types import Cost, Media, Message, Opaque, Reply, ToolResult
from cnllm.types.documents import file_text
from cnllm.types.media import media_kind

__all__ = ["Quote", "input_bound", "output_bound", "quote", "reply_cost", "settled_cost", "worst_cost"]

_TEMPLATE = 1024  # tokens that an endpoint itself puts around a conversation and its tools
_PER_MESSAGE = 16
_PER_PICTURE = 16_384  # the most that an endpoint of the registry counts for a picture
_REFERENCES = ("cachedContent", "conversation", "previous_response_id", "prompt")
"""Keys of a body that name input which the body does not hold."""
_AGAIN = "again-whole"


class Quote(Struct, frozen=True):
    """The bounds of a request: tokens of input and output, and its cost in units of money.

    `attempt` is the cost of one attempt, `cost` that of all that may become necessary. Both are None where the cost is
    not known; `unknown` says why.
    """

    model: str
    input: int | None
    output: int | None
    currency: str | None = None
    attempt: int | None = None
    cost: int | None = None
    unknown: str | None = None


def quote(plan: Plan) -> Quote:
    """Return the bounds of a request that is built."""
    model = plan.model.name
    most_input, most_output = input_bound(plan), output_bound(plan)
    price = plan.flags.price
    if price is None or price.currency is None or price.input is None or price.output is None:
        return Quote(model, most_input, most_output, unknown=f"the price of {model} is not known")
    if most_input is None:
        return Quote(model, None, most_output, unknown=f"the length of a file for {model} is not known")
    if most_output is None:
        return Quote(model, most_input, None, unknown=f"the greatest length of a reply of {model} is not known")
    attempt = worst_cost(price, most_input, most_output * _candidates(plan.body))
    corrections = plan.corrections if plan.answer is not None else 0
    attempts = 1 + corrections + (plan.if_cut == _AGAIN)
    return Quote(model, most_input, most_output, price.currency, attempt, attempt * attempts)


def settled_cost(quote: Quote, reply: Reply | None) -> int | None:
    """Return the cost of a reply in units, None where it is not known.

    Of a stream that was cut and repeated, the usage of the first attempt is not known: it counts in full.
    """
    cost = None if reply is None else reply_cost(reply, reply.cost, quote.currency)
    if reply is None or cost is None:
        return None
    if any(note.code == _AGAIN for note in reply.notes):
        cost += quote.attempt or 0
    return cost


def reply_cost(reply: Reply, cost: Cost | None, currency: str | None) -> int | None:
    """Return the cost of a reply in units, None where it is not known in this currency.

    A usage without a token of input, or without one of output for a reply that has some, was not counted.
    """
    if cost is None or cost.currency != currency or not reply.usage.input:
        return None
    return None if reply.message.parts and not reply.usage.output else units_of(cost.amount)


def worst_cost(price: Price, input: int, output: int) -> int:
    """Return the highest cost of so many tokens in units. The prices of input and output must be known."""
    reads, writes = [price.input, price.cached, price.cache_write], [price.output]
    for tier in price.tiers or ():
        if input > tier.get("above", 0):
            reads += [tier.get("input"), tier.get("cached"), tier.get("cache_write")]
            writes.append(tier.get("output"))
    if price.off_peak is not None:
        reads += [_number(price.off_peak.get(name)) for name in ("input", "cached", "cache_write")]
        writes.append(_number(price.off_peak.get("output")))
    return units_of((input * _highest(reads) + output * _highest(writes)) / 1_000_000)


def input_bound(plan: Plan) -> int | None:
    """Return the most tokens that a request may count for; None where nothing bounds them."""
    limits = plan.flags.limits
    window = limits.context if limits is not None else None
    if _names_more(plan):
        return window
    tokens = len(plan.content) + _TEMPLATE + _PER_MESSAGE * len(plan.messages)
    for medium in _media(plan.messages):
        if file_text(medium) is not None:
            continue
        if media_kind(medium) != "image":
            return window
        tokens += _PER_PICTURE - len(medium.data or "")  # its bytes in the body are no text
    return tokens if window is None else min(tokens, window)


def output_bound(plan: Plan) -> int | None:
    """Return the most tokens of one reply: those that the request allows, else the model's limit, else its window."""
    limits = plan.flags.limits
    bounds = (plan.max_output, *((limits.output, limits.context) if limits is not None else ()))
    return next((max(0, bound) for bound in bounds if bound is not None), None)


def _names_more(plan: Plan) -> bool:
    """Whether a request names input that stands elsewhere: a stored conversation, a cache, a file."""
    if any(key in plan.body for key in _REFERENCES):
        return True
    return any(
        type(part) is Opaque for message in plan.messages if message.role != "assistant" for part in message.parts
    )


def _media(messages: Iterable[Message]) -> Iterator[Media]:
    """Yield the media of a conversation, those in results of tools too."""
    for message in messages:
        for part in message.parts:
            if type(part) is Media:
                yield part
            elif type(part) is ToolResult:
                yield from part.media


def _candidates(body: Mapping[str, Any]) -> int:
    """Return the number of replies that a body asks for at once."""
    config = body.get("generationConfig")
    counts = [body.get("n"), body.get("best_of"), config.get("candidateCount") if isinstance(config, dict) else None]
    return max([1, *(count for count in counts if type(count) is int)])


def _highest(rates: Iterable[float | None]) -> Decimal:
    """Return the highest of the rates that are known."""
    return _exact(max([rate for rate in rates if rate is not None]))


@lru_cache(maxsize=256)
def _exact(rate: float) -> Decimal:
    """Return a rate as the registry writes it."""
    return Decimal(repr(rate))


def _number(value: Any) -> float | None:
    """Return a number; None for anything else."""
    return value if type(value) in (int, float) else None
