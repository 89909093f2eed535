"""The batch interface of a model: find it, say what is missing where it cannot be used, and lower its prices.

Some interfaces take jobs. Others take single calls at another path, which are cheaper and slow: rows go one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from cnllm.batch.lanes import Lane
from cnllm.engine.decode.cost import service_rates
from cnllm.errors import CnllmError
from cnllm.jsonpath import get
from cnllm.protocols import PROTOCOLS
from cnllm.registry import Registry
from cnllm.registry.flags import Flags, Price
from cnllm.registry.flags.batch import Batch
from cnllm.registry.model import Model
from cnllm.types.policy import Timeouts

__all__ = [
    "NoBatchInterface",
    "call_timeouts",
    "discounted_model",
    "discounted_price",
    "has_interface",
    "require_interface",
    "takes_calls",
    "use_calls",
]

_OF_JOBS = ("row", "submit", "job", "results", "result")
_NEEDED = {"file": (*_OF_JOBS, "upload"), "calls": ("path",)}
"""The tables and keys that an interface needs, by how it takes rows; any other needs those of jobs."""
_PATHS = ("upload.path", "submit.path", "job.path", "job.cancel", "list.path", "results.path")
_KEPT = ("currency", "factors", "per_call")
_BATCH = "batch"
_NO_PRICES = ("above", "output_below", "currency", "peak", "zone", "holidays", "until", "since")
_HOURS = 72.0  # a call may wait so long where the registry does not know better


class NoBatchInterface(CnllmError):
    """The endpoint of a model has no batch interface that the registry knows."""


def has_interface(model: Model) -> bool:
    """Whether the registry says that the endpoint serves the model in batches."""
    batch = model.flags.batch
    return batch is not None and batch.available is True


def require_interface(model: Model, registry: Registry) -> Batch:
    """Return the interface of a model. Raises `NoBatchInterface`, whose hint names other endpoints of the model."""
    batch = model.flags.batch
    if batch is not None and batch.available:
        if missing := [name for name in _NEEDED.get(str(batch.input), _OF_JOBS) if getattr(batch, name) is None]:
            where = model.where("batch.available")
            raise CnllmError(
                f"{where}: batch of {model.name} lacks {', '.join(missing)}", hint="`cnllm registry check` lists faults"
            )
        _check_paths(model, batch)
        return batch
    hint = "leave --vendor-batch out"
    if others := list(islice(_others(model, registry), 4)):
        hint = f"one that has: {', '.join(others)}; or leave --vendor-batch out"
    message = f"--vendor-batch: a batch interface of {model.name} over {model.protocol} is not known"
    if batch is not None and batch.available is False:
        message = f"--vendor-batch: {model.name} over {model.protocol} has no batch interface"
    raise NoBatchInterface(message, hint=hint)


def _check_paths(model: Model, batch: Batch) -> None:
    """Raise `CnllmError` for a path that might change the host of the address, and so where the key goes."""
    table = to_builtins(batch)
    for name in _PATHS:
        path = get(table, name)
        if path and not path.startswith("/"):
            where = model.where(f"batch.{name}")
            raise CnllmError(f"{where}: batch.{name} of {model.name} is {path!a}", hint="a path begins with /")


def _others(model: Model, registry: Registry) -> Iterator[str]:
    """Yield the endpoints and wires of the same model that have an interface."""
    id = model.id.rpartition("/")[2].lower()
    for protocol in PROTOCOLS:
        if protocol != model.protocol and (other := _over(model, protocol)) is not None and has_interface(other):
            yield f"{model.name} with --protocol {protocol}"
    for name in registry.names():
        if name != model.name and name.rpartition("/")[2].lower() == id and has_interface(registry.resolve(name)):
            yield name


def _over(model: Model, protocol: str) -> Model | None:
    """Return a model over another wire of its endpoint; None where there is none."""
    if model.over is None:
        return None
    try:
        return model.over(protocol)
    except CnllmError:
        return None


# ── prices ───────────────────────────────────────────────────────────────────


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
    values = {name: _scale(getattr(price, name), factor) for name in price.__struct_fields__ if name not in _KEPT}
    discounted = replace(price, **values)
    rates = service_rates(discounted, None)[0]
    return replace(discounted, service={**(discounted.service or {}), _BATCH: dict(rates)})


def _scale(value: Any, factor: float) -> Any:
    if type(value) in (int, float):
        return round(value * factor, 12)
    if isinstance(value, list | tuple):
        return [_scale(item, factor) for item in value]
    if isinstance(value, dict):
        return {name: item if name in _NO_PRICES else _scale(item, factor) for name, item in value.items()}
    return value


# ── interfaces that take single calls ────────────────────────────────────────


def takes_calls(model: Model) -> bool:
    """Whether the batch interface of a model takes single calls."""
    batch = model.flags.batch
    return batch is not None and has_interface(model) and batch.input == "calls"


def use_calls(lanes: Sequence[Lane], registry: Registry) -> None:
    """Send the calls of lanes to the batch interfaces of their models. Raises `NoBatchInterface`."""
    for lane in lanes:
        batch = require_interface(lane.model, registry)
        lane.model = discounted_model(lane.model).derive(partial(replace, path=batch.path))


def call_timeouts(model: Model) -> Timeouts:
    """Return the timeouts of a call that waits until the vendor has capacity."""
    batch = model.flags.batch
    hours = _HOURS if batch is None or batch.window is None else batch.window
    return Timeouts(first_byte=hours * 3600)
