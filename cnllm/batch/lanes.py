"""Open the endpoints and keys of a run."""

from __future__ import annotations

from collections.abc import Mapping

from cnllm.batch.controller import Controller
from cnllm.batch.lane import Lane
from cnllm.batch.settings import Settings
from cnllm.client.async_client import AsyncClient
from cnllm.registry import Registry
from cnllm.types.policy import Retry

__all__ = ["open_lanes"]

_ONCE = Retry(attempts=1)


def open_lanes(settings: Settings, registry: Registry, names: Mapping[str, str]) -> list[Lane]:
    """Return a lane for each model and key. Raises `UnknownModel`."""
    lanes = []
    for model in settings.models:
        resolved = registry.resolve(names.get(model, model)) if isinstance(model, str) else model
        for key in settings.api_keys or (None,):
            client = AsyncClient(registry, settings.transport, simulate=settings.simulate, api_key=key, retry=_ONCE)
            controller = Controller(
                concurrency=settings.concurrency, most=settings.most, requests=settings.rpm, tokens=settings.tpm
            )
            lanes.append(Lane(resolved.name, resolved, client, controller))
    return lanes
