"""Batch interfaces that take single calls at another path: cheaper, and slow. There is no job; rows go one by one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.batch.lane import Lane
from cnllm.batch.vendor.discount import discounted_price
from cnllm.batch.vendor.interface import require_interface
from cnllm.registry import Registry
from cnllm.registry.flags import Flags
from cnllm.registry.flags.batch import Batch
from cnllm.registry.model import Model
from cnllm.types.policy import Timeouts

__all__ = ["call_timeouts", "takes_calls", "use_calls"]

_HOURS = 72.0  # a call may wait so long where the registry does not know better


def takes_calls(model: Model) -> bool:
    """Whether the batch interface of a model takes single calls."""
    batch = model.flags.batch
    return batch is not None and batch.available is True and batch.input == "calls"


def use_calls(lanes: Sequence[Lane], registry: Registry) -> None:
    """Send the calls of lanes to the batch interfaces of their models. Raises `NoBatchInterface`."""
    for lane in lanes:
        lane.model = _call_model(lane.model, require_interface(lane.model, registry))


def call_timeouts(model: Model) -> Timeouts:
    """Return the timeouts of a call that waits until the vendor has capacity."""
    batch = model.flags.batch
    hours = _HOURS if batch is None or batch.window is None else batch.window
    return Timeouts(first_byte=hours * 3600)


def _call_model(model: Model, batch: Batch) -> Model:
    def change(flags: Flags) -> Flags:
        price = flags.price
        if price is not None and batch.price_factor is not None:
            price = discounted_price(price, batch.price_factor)
        return replace(flags, path=batch.path, price=price)

    return model.derive(change)
