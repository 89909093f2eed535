"""What tokens cost by the registry's price."""

from __future__ import annotations

from decimal import Decimal

from cnllm.flags import Price
from cnllm.types import Cost, Usage

__all__ = ["cost_of"]


def cost_of(usage: Usage, price: Price | None) -> Cost | None:
    """The cost of a reply, or None when a count or a price that matters is unknown.

    Cached input without a price of its own is taken at the full input price; a tier applies from its `above` on.
    """
    if price is None or price.currency is None or usage.input is None or usage.output is None:
        return None
    rates: dict[str, float | None] = {"input": price.input, "output": price.output, "cached": price.cached}
    for tier in sorted(price.tiers or (), key=lambda t: t.get("above", 0)):
        if usage.input > tier.get("above", 0):
            rates |= {k: v for k, v in tier.items() if k in rates}
    if rates["input"] is None or rates["output"] is None:
        return None
    written = usage.cache_write or 0 if price.cache_write is not None else 0
    cached = min(usage.cached or 0, usage.input)
    fresh = max(usage.input - cached - written, 0)
    cached_rate = rates["cached"] if rates["cached"] is not None else rates["input"]
    amount = (
        _times(fresh, rates["input"])
        + _times(cached, cached_rate)
        + _times(written, price.cache_write or 0)
        + _times(usage.output, rates["output"])
    )
    return Cost(amount / 1_000_000, price.currency)


def _times(tokens: int, rate: float) -> Decimal:
    return tokens * Decimal(repr(rate))
