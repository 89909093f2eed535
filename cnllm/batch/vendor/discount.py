"""The price of a model in a vendor's batches."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from cnllm.engine.decode.cost import service_rates
from cnllm.registry.flags import Flags, Price
from cnllm.registry.model import Model

__all__ = ["discounted_model", "discounted_price"]

_KEPT = ("currency", "factors", "per_call")
_BATCH = "batch"
_NO_PRICES = ("above", "currency", "peak", "zone", "holidays", "until", "since")


def discounted_model(model: Model) -> Model:
    """Return a model whose prices are those of its batch interface; the same one where no discount is known."""
    batch = model.flags.batch
    factor = batch.price_factor if batch is not None else None
    if factor is None:
        return model

    def change(flags: Flags) -> Flags:
        return flags if flags.price is None else replace(flags, price=discounted_price(flags.price, factor))

    return model.derive(change)


def discounted_price(price: Price, factor: float) -> Price:
    """Return prices times a factor: those of tiers, of hours and of promotions too; fees of calls stay.

    Where a reply says that a batch was charged, these are the prices.
    """
    values = {name: _scaled(getattr(price, name), factor) for name in price.__struct_fields__ if name not in _KEPT}
    discounted = replace(price, **values)
    rates = service_rates(discounted, None)[0]
    return replace(discounted, service={**(discounted.service or {}), _BATCH: dict(rates)})


def _scaled(value: Any, factor: float) -> Any:
    if type(value) in (int, float):
        return round(value * factor, 12)
    if isinstance(value, list | tuple):
        return [_scaled(item, factor) for item in value]
    if isinstance(value, dict):
        return {name: item if name in _NO_PRICES else _scaled(item, factor) for name, item in value.items()}
    return value
