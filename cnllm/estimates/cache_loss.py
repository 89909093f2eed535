"""Estimate what it costs that a request does not begin as the one before it, so that no cache serves it."""

from __future__ import annotations

from decimal import Decimal

from cnllm.engine.decode.cost import Facts, cost_of
from cnllm.registry.flags import Price
from cnllm.types import Cost, Usage
from cnllm.types.totals import exact

__all__ = ["loss_cost", "loss_text", "short_amount"]


@exact
def loss_cost(tokens: int, price: Price | None, created: float | None = None) -> Cost | None:
    """Return how much more input tokens cost at the full price than from the cache; None where a price is unknown."""
    if price is None or price.cached is None:
        return None
    full = cost_of(Usage(input=tokens, output=0), price, created)
    cached = cost_of(Usage(input=tokens, output=0, cached=tokens), price, created, Facts(by_mark=False))
    if full is None or cached is None:
        return None
    return Cost(max(full.amount - cached.amount, Decimal(0)), full.currency)


def loss_text(tokens: int, cost: Cost | None) -> str:
    """Return a sentence with the tokens and what they cost."""
    money = (
        "what that costs is unknown"
        if cost is None
        else f"that costs about {short_amount(cost.amount)} {cost.currency}"
    )
    return f"about {tokens:,} tokens cannot come from the endpoint's cache; {money}"


@exact
def short_amount(amount: Decimal) -> str:
    """Return an amount with two digits that count."""
    rounded = amount.quantize(Decimal(1).scaleb(min(amount.adjusted() - 1, -2))) if amount else Decimal(0)
    return f"{rounded.normalize():f}"
