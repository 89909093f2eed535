"""Amounts of money as whole numbers of a small unit: a thousand-millionth of a currency's unit.

No binary fraction is ever stored or added. A cost is rounded up, so that a budget is not exceeded by rounding.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

from cnllm.types.totals import exact

__all__ = ["CURRENCY", "LARGEST", "UNITS", "amount_of", "format_units", "units_of"]

UNITS = 1_000_000_000
"""The units of one dollar, euro or yuan."""
LARGEST = 9_000_000
"""The largest budget. Redis' scripts count exactly up to 2**53 units."""
CURRENCY = re.compile("[A-Z]{3}")
"""The form of a currency's code (ISO 4217)."""


@exact
def units_of(amount: Decimal) -> int:
    """Return an amount in units, rounded up. More than `LARGEST` counts as that: no store could add it."""
    return LARGEST * UNITS if amount > LARGEST else int((amount * UNITS).to_integral_value(ROUND_CEILING))


@exact
def amount_of(units: int) -> Decimal:
    """Return the exact amount of units."""
    return Decimal(units) / UNITS


@exact
def format_units(units: int) -> str:
    """Return the amount of units as text, with two digits after the point or as many as it needs."""
    text = f"{amount_of(units):.9f}".rstrip("0")
    whole, _, rest = text.partition(".")
    return f"{whole}.{rest:0<2}"
