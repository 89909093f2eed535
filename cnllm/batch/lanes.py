"""The endpoints of a run, each with one key: its client, its bounds, and the headers that tell how much may be sent."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cnllm.batch.controller import MOST, Controller
from cnllm.batch.identity import plan_identity
from cnllm.batch.settings import BatchSettings
from cnllm.client.async_client import AsyncClient
from cnllm.client.async_stream import AsyncStream
from cnllm.client.call_record import CallRecorder
from cnllm.client.runs import with_run_totals
from cnllm.config import redact
from cnllm.engine.decode.error_body import delay_from_field
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.registry import Registry
from cnllm.registry.flags import RateHeaders, Rates
from cnllm.registry.model import Model
from cnllm.system.processes import raise_file_limit
from cnllm.transports import default_async_transport
from cnllm.types import Reply
from cnllm.types.policy import Retry

__all__ = ["HeaderLimits", "Lane", "open_client", "open_lanes", "read_limits"]

_ONCE = Retry(attempts=1)
_OTHER_FILES = 32  # of the process: the input, the output, its state, the log, the loop, names that are resolved
_IN_LOOPS = Retry(attempts=8)  # a tool loop that was refused in the middle would be paid twice


class Lane(Struct, eq=False):
    """A way to the model. `closed` is why it is no longer used; None while it is."""

    model: Model
    client: AsyncClient
    controller: Controller
    closed: str | None = None

    def is_burst(self, code: str | None) -> bool:
        """Whether the code of a refusal says that requests became more too quickly."""
        rates = self.model.flags.rates
        return code is not None and rates is not None and code in (rates.burst_codes or ())

    def prepare(self, messages: Any, options: Mapping[str, Any]) -> AsyncStream[Any]:
        """Return a call whose request is built and not sent."""
        return self.client.prepare(self.model, messages, stream=False, **options)

    async def run_loop(self, messages: Any, options: Mapping[str, Any], loop_options: Mapping[str, Any]) -> Reply[Any]:
        """Run a tool loop, and return its last reply with the usage, the cost and the notes of all its steps."""
        try:
            run = await self.client.run(self.model, messages, **options, **loop_options)
        except CnllmError as error:
            if error.run is not None and error.run.steps:  # they are paid
                error.reply = with_run_totals(error.run, error.reply or error.run.reply)
            raise
        return with_run_totals(run, run.reply)


class ObservedTransport(Struct, frozen=True):
    """A transport whose requests count once, by the header `idempotency`; `tell` gets the limits in `fields`.

    The value of the header is the same whenever the output of the `salt` asks the same request, and another one for
    every other output.
    """

    transport: Any
    idempotency: str | None
    salt: bytes
    fields: RateHeaders | None
    tell: Callable[[HeaderLimits], None]

    @property
    def needs_key(self) -> bool:
        """Whether a client needs a key to send."""
        return bool(getattr(self.transport, "needs_key", True))

    async def send(self, plan: Plan) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        """Send a plan; see `cnllm.transports`."""
        if self.idempotency is not None:
            value = blake2b(plan_identity(plan), digest_size=16, key=self.salt).hexdigest()
            plan = replace(plan, headers={**plan.headers, self.idempotency: value})
        status, headers, body = await self.transport.send(plan)
        if self.fields is not None:
            self.tell(read_limits(headers, self.fields))
        return status, headers, body

    async def aclose(self) -> None:
        """Close the connections."""
        if hasattr(self.transport, "aclose"):
            await self.transport.aclose()


def open_lanes(
    settings: BatchSettings, registry: Registry, models: Mapping[str, Model], salt: str, recorder: CallRecorder | None
) -> list[Lane]:
    """Return a lane for each model and key. Raises `UnknownModel`, and `CnllmError` for a secret for one of them.

    The caller's keys go to the address of the first model; any other endpoint gets its own.
    """
    lanes: list[Lane] = []
    resolved_models = [models[model] if isinstance(model, str) else model for model in settings.models]
    headers = settings.options.get("extra_headers") or {}
    if len({model.flags.base_url for model in resolved_models}) > 1 and redact.request_secrets("", headers):
        names = ", ".join(model.name for model in resolved_models)
        raise CnllmError(
            f"extra_headers hold a secret, which would go to the endpoints of {names}",
            hint="ask each of these models in a run of its own",
        )
    address = resolved_models[0].flags.base_url
    pairs: list[tuple[Model, str | None]] = []
    for resolved in resolved_models:
        keys = settings.api_keys if resolved.flags.base_url == address else ()
        pairs += [(resolved, key) for key in keys or (None,)]
    most = _most_connections(settings, len(pairs))
    for resolved, key in pairs:
        rates = resolved.flags.rates or Rates()
        controller = Controller(
            concurrency=settings.concurrency,
            most=most,
            requests=settings.rpm or rates.requests,
            tokens=settings.tpm or rates.tokens,
        )
        if (key_of_nodes := getattr(settings.transport, "key_of_nodes", None)) is not None:
            key = key_of_nodes(resolved, key)  # other processes send, and have the key
        client = open_client(
            settings, registry, resolved, key, salt, partial(_observe, controller), log_calls=recorder or False
        )
        lanes.append(Lane(resolved, client, controller))
    return lanes


def _most_connections(settings: BatchSettings, lanes: int) -> int:
    """Return how many requests of each lane may be on their way. Each takes one of the files of the process."""
    wanted = settings.concurrency or MOST
    files = None if settings.simulate or settings.transport is not None else raise_file_limit()
    return wanted if files is None else max(1, min(wanted, (files - _OTHER_FILES) // lanes))


def open_client(
    settings: BatchSettings,
    registry: Registry,
    model: Model,
    key: str | None,
    salt: str,
    tell: Callable[[HeaderLimits], None],
    *,
    log_calls: CallRecorder | bool | None = None,
) -> AsyncClient:
    """Return the client of a model and a key. `tell` gets the limits that headers of responses name."""
    transport, flags = settings.transport, model.flags
    fields = (flags.rates or Rates()).fields
    if not settings.simulate:
        transport = default_async_transport() if transport is None else transport
        if fields is not None or flags.idempotency is not None:
            transport = ObservedTransport(transport, flags.idempotency, salt.encode(), fields, tell)
    return AsyncClient(
        registry,
        transport,
        simulate=settings.simulate,
        api_key=key,
        retry=_ONCE if settings.max_steps is None else _IN_LOOPS,
        log_calls=log_calls,
    )


def _observe(controller: Controller, limits: HeaderLimits) -> None:
    controller.observe(time.monotonic(), **limits._asdict())


# ── the limits that headers tell ─────────────────────────────────────────────


class HeaderLimits(NamedTuple):
    """The limits that a response names: requests and tokens of a minute, and the seconds in which nothing is left."""

    requests: float | None
    tokens: float | None
    pause: float | None


def read_limits(headers: Mapping[str, str], names: RateHeaders) -> HeaderLimits:
    """Return the limits that a response tells."""
    pauses = [
        seconds
        for left, reset in ((names.requests_left, names.requests_reset), (names.tokens_left, names.tokens_reset))
        if (count := _number(headers, left)) is not None and count < 1 and (seconds := _seconds(headers, reset))
    ]
    return HeaderLimits(_number(headers, names.requests), _number(headers, names.tokens), max(pauses, default=None))


def _number(headers: Mapping[str, str], name: str | None) -> float | None:
    """Return the number in a header; None where there is none."""
    text = "" if name is None else headers.get(name.lower(), "")
    try:
        number = float(text.split(",")[0])
    except ValueError:
        return None
    return number if number >= 0 else None


def _seconds(headers: Mapping[str, str], name: str | None) -> float | None:
    """Return the seconds until a reset: a number, a duration, or a date in either of the usual forms."""
    text = "" if name is None else headers.get(name.lower(), "").strip()
    seconds = delay_from_field("retryafter", text)
    if seconds is not None or not text:
        return seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())
