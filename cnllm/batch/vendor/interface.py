"""Find the batch interface of a model, and say what is missing where it cannot be used."""

from __future__ import annotations

from collections.abc import Iterator

from cnllm.errors import CnllmError
from cnllm.registry import Registry
from cnllm.registry.flags.batch import Batch
from cnllm.registry.model import Model

__all__ = ["NoBatchInterface", "has_interface", "require_interface"]

_SHAPE = ("row", "submit", "job", "results", "result")


class NoBatchInterface(CnllmError):
    """The endpoint of a model has no batch interface that the registry knows. `others` have one for the same model."""

    def __init__(self, message: str, *, others: list[str], hint: str) -> None:
        super().__init__(message, hint=hint)
        self.others = others


def has_interface(model: Model) -> bool:
    """Whether the registry says that the endpoint serves the model in batches."""
    batch = model.flags.batch
    return batch is not None and batch.available is True


def require_interface(model: Model, registry: Registry) -> Batch:
    """Return the interface of a model. Raises `NoBatchInterface`, which names other endpoints of the model."""
    batch = model.flags.batch
    if batch is not None and batch.available:
        missing = [name for name in _SHAPE if getattr(batch, name) is None] if batch.input != "calls" else []
        if batch.input == "file" and batch.upload is None:
            missing.append("upload")
        if batch.input == "calls" and batch.path is None:
            missing.append("path")
        if missing:
            where = model.where("batch.available")
            raise CnllmError(
                f"{where}: batch of {model.name} lacks {', '.join(missing)}", hint="`cnllm registry check` lists faults"
            )
        return batch
    known = "has no batch interface" if batch is not None and batch.available is False else "is not known to have one"
    others = list(_others(model, registry))
    if others:
        hint = f"one that has: {', '.join(others[:4])}; or leave --vendor-batch out"
    else:
        hint = "leave --vendor-batch out"
    raise NoBatchInterface(
        f"--vendor-batch: {model.name} over {model.protocol} {known}"
        if known.startswith("has")
        else f"--vendor-batch: a batch interface of {model.name} over {model.protocol} is not known",
        others=others,
        hint=hint,
    )


def _others(model: Model, registry: Registry) -> Iterator[str]:
    """Yield the endpoints and wires of the same model that have an interface."""
    from cnllm.protocols import PROTOCOLS

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
