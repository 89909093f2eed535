"""What tokens cost by the registry's price."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

from cnllm.engine.decode.hours import is_within
from cnllm.registry.flags import Price
from cnllm.types import Cost, Usage

__all__ = ["cost_of", "is_off_peak"]

_NOTHING = Decimal(0)


def is_off_peak(price: Price | None, created: float | None) -> bool | None:
    """Whether a reply of this moment, in seconds since 1970, costs the prices outside the peak hours.

    None where the endpoint has such prices and it cannot be known.
    """
    if price is None or price.off_peak is None:
        return False
    hours, zone = price.off_peak.get("peak"), price.off_peak.get("zone")
    if created is None or type(hours) is not list or type(zone) is not str:
        return None
    within = is_within(tuple(str(text) for text in hours), zone, created)
    return None if within is None else not within


def cost_of(usage: Usage, price: Price | None, created: float | None = None) -> Cost | None:
    """The cost of a reply, or None when a count or a price that matters is unknown.

    `created` is when the reply was made: outside the peak hours it may cost less. Without it, it costs the full price.
    Cached input without a price of its own is taken at the full input price; a tier applies from its `above` on.
    """
    if price is None or price.currency is None or usage.input is None or usage.output is None:
        return None
    rates: dict[str, float | None] = {"input": price.input, "output": price.output, "cached": price.cached}
    if price.off_peak is not None and is_off_peak(price, created):
        rates |= {k: v for k, v in price.off_peak.items() if k in rates and type(v) in (int, float)}
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
    return tokens * _exact(rate) if tokens else _NOTHING


@lru_cache(maxsize=256)
def _exact(rate: float) -> Decimal:
    """The rate as the registry writes it."""
    return Decimal(repr(rate))
