"""Look up prices for commands, and read the prices that options give."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import cache

from cnllm.cli.output.errors import UsageError
from cnllm.errors import CnllmError
from cnllm.registry.flags import Price

__all__ = ["assumed_price", "price_lookup", "read_amount", "read_prices"]


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


def assumed_price(prices: tuple[float, float] | None, currency: str | None) -> Price | None:
    """Return the price of `--assume-price`. Raise `UsageError` without a currency."""
    if prices is None:
        return None
    if currency is None:
        raise UsageError("--assume-price needs a currency", "--assume-price 2/8 --currency CNY")
    return Price(currency=currency, input=prices[0], output=prices[1])


def read_prices(text: str, least: int) -> tuple[float, float]:
    """Return the prices of `--assume-price`, of input and output. With `least` 1 one number stands for both."""
    parts = text.replace(",", "/").split("/")
    amounts = [amount for part in parts if (amount := read_amount(part)) is not None]
    if not least <= len(parts) == len(amounts) <= 2:
        raise UsageError(f"--assume-price {text} is not a price", "that of input and that of output: 2/8")
    return float(amounts[0]), float(amounts[-1])


def read_amount(text: str) -> Decimal | None:
    """Return an amount from 0; None for other texts. NaN is none: it is below no cap and above none."""
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None
