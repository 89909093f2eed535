"""Look up prices for commands, and read the prices that options give."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from cnllm.cli.output.errors import UsageError
from cnllm.errors import CnllmError
from cnllm.registry.flags import Price

__all__ = ["assumed_price", "price_lookup"]


def price_lookup() -> Callable[[str], Price | None]:
    """Return what looks up today's price of a model; None where no file describes it."""
    from cnllm.registry import Registry

    registry = cache(Registry.load)

    def price(model: str) -> Price | None:
        try:
            return registry().resolve(model).flags.price
        except CnllmError:
            return None

    return price


def assumed_price(text: str | None, currency: str | None) -> Price | None:
    """Return the price of `--assume-price IN/OUT`; one number stands for both. Raise `UsageError`."""
    if text is None:
        return None
    first, slash, second = text.partition("/")
    try:
        values = float(first), float(second if slash else first)
    except ValueError:
        values = math.nan, math.nan
    if not all(0 <= value < math.inf for value in values):  # NaN is below no cap and above none
        raise UsageError(f"--assume-price {text} is not a price", "INPUT/OUTPUT, for example 2/8")
    if currency is None:
        raise UsageError("--assume-price needs a currency", f"--assume-price {text} --currency CNY")
    return Price(currency=currency, input=values[0], output=values[1])
