"""Open the endpoints and keys of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import blake2b

from cnllm.batch.controller import Controller
from cnllm.batch.identity import plan_identity
from cnllm.batch.lane import Lane, wrap_transport
from cnllm.batch.rate_headers import read_limits
from cnllm.batch.settings import BatchSettings
from cnllm.client.async_client import AsyncClient
from cnllm.engine.encode.plan import Plan
from cnllm.registry import Registry
from cnllm.registry.flags import RateHeaders, Rates
from cnllm.registry.model import Model
from cnllm.transports import default_async_transport
from cnllm.types.policy import Retry

__all__ = ["idempotency_header", "open_lanes"]

_ONCE = Retry(attempts=1)
_IN_LOOPS = Retry(attempts=8)  # a tool loop that was refused in the middle would be paid twice


def open_lanes(settings: BatchSettings, registry: Registry, names: Mapping[str, str], salt: str) -> list[Lane]:
    """Return a lane for each model and key. Raises `UnknownModel`."""
    lanes = []
    for model in settings.models:
        resolved = registry.resolve(names.get(model, model)) if isinstance(model, str) else model
        for number, key in enumerate(settings.api_keys or (None,), 1):
            rates = resolved.flags.rates or Rates()
            controller = Controller(
                concurrency=settings.concurrency,
                requests=settings.rpm or rates.requests,
                tokens=settings.tpm or rates.tokens,
            )
            transport = settings.transport
            if (key_of_nodes := getattr(transport, "key_of_nodes", None)) is not None:
                key = key_of_nodes(resolved, key)  # other processes send, and have the key
            if not settings.simulate:
                transport = wrap_transport(
                    default_async_transport() if transport is None else transport,
                    observe=None if rates.fields is None else _observer(controller, rates.fields),
                    add_header=idempotency_header(resolved, salt),
                )
            client = AsyncClient(
                registry,
                transport,
                simulate=settings.simulate,
                api_key=key,
                retry=_ONCE if settings.max_steps is None else _IN_LOOPS,
            )
            name = resolved.name if len(settings.api_keys) < 2 else f"{resolved.name}, key {number}"
            lanes.append(Lane(name, resolved, client, controller))
    return lanes


def _observer(controller: Controller, names: RateHeaders) -> Callable[[Mapping[str, str]], None]:
    """Return a function that passes what headers tell on to a controller."""

    def observe(headers: Mapping[str, str]) -> None:
        limits = read_limits(headers, names)
        controller.observe(time.monotonic(), requests=limits.requests, tokens=limits.tokens, pause=limits.pause)

    return observe


def idempotency_header(model: Model, salt: str) -> Callable[[Plan], tuple[str, str]] | None:
    """Return a function with the header that makes a request count once; None where the endpoint has none.

    The value is the same whenever this output asks the same request, and another one for every other output.
    """
    name = model.flags.idempotency
    if name is None:
        return None

    def header(plan: Plan) -> tuple[str, str]:
        return name, blake2b(plan_identity(plan), digest_size=16, key=salt.encode()).hexdigest()

    return header
