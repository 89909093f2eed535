"""Define the models that a server serves, and the batches that it holds."""

from __future__ import annotations

from msgspec import Struct

from cnllm.simulator.batch import BatchStep, BatchStore
from cnllm.simulator.respond import Endpoints, ModelLookup

__all__ = ["HiddenNames", "ServedModels", "batch_step"]


class HiddenNames(Struct, frozen=True):
    """Neutral names: `models` are served as model-1, model-2, … on paths without a provider.

    With `only` no other model of the registry is served. Otherwise clients reach the others by their real names.
    """

    models: tuple[str, ...]
    only: bool = False

    def real(self, name: str) -> str | None:
        """Return the registry's name for a client's name, or None for a model that is not served."""
        number = name.removeprefix("model-")
        if number != name and number.isdecimal() and 0 < int(number[:9]) <= len(self.models):
            return self.models[int(number[:9]) - 1]
        return None if self.only else name


class ServedModels(Struct, frozen=True):
    """The models that the server serves, and its batches."""

    endpoints: Endpoints
    batches: BatchStore
    hidden_names: HiddenNames | None = None

    @property
    def registry(self) -> ModelLookup:
        """Return the registry with the models."""
        return self.batches.registry


def batch_step(catalog: ServedModels, method: str, target: str) -> BatchStep | None:
    """Return the step of a provider's batch interface that a request is, or None."""
    provider, slash, path = target.partition("?")[0][1:].partition("/")
    if not slash or catalog.hidden_names is not None:
        return None
    return catalog.batches.find_step(provider, method, f"/{path}")
