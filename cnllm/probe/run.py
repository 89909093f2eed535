"""Run a probe from a program: `cnllm.probe.run(url)`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from msgspec.structs import replace

from cnllm.cassette.record import Recorder, redact_chunks
from cnllm.client.secret_filter import MIN_SECRET
from cnllm.client.secret_removal import insert_key, plan_secrets, redact_error
from cnllm.config import redact
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.probe.claims import is_assumed
from cnllm.probe.exchange import RawResponse
from cnllm.probe.facts import leaf_facts
from cnllm.probe.overlay import overlay, provider_name
from cnllm.probe.place import PROVIDER, ProbeTarget, bare_address
from cnllm.probe.recording import ProbeRecording
from cnllm.probe.report import Report
from cnllm.probe.runner import investigate
from cnllm.probe.state import OnStep, ProbeSettings, ProbeState
from cnllm.registry.registry import Registry
from cnllm.transports import default_transport
from cnllm.types import checks
from cnllm.types.policy import Timeouts

__all__ = ["ProbeOptions", "ProbeSettings", "Report", "run", "run_target"]

_OBSERVED = ("finish.", "usage.")
"""The beginnings of flags that every reply of a wire shows. A file has them only where they differ from the wire's."""
_MOST_BYTES = 4 * 1024 * 1024
_MOST_EVENTS = 64 * 1024
"""The most bytes of a stream where none was asked for."""
_TIMEOUTS = Timeouts(first_byte=120.0, idle=30.0, progress=60.0)
_LONGEST = 120.0
"""The seconds after which a reply that does not end is left."""


class ProbeOptions(TypedDict, total=False):
    """The fields of `ProbeSettings`, as options of `run`."""

    max_requests: int
    max_cost: float | None
    on_step: OnStep | None
    transport: Any
    record: str | os.PathLike[str] | None
    sleep: Callable[[float], object]


def run(
    base_url: str,
    *,
    model: str | None = None,
    protocol: str | None = None,
    api_key: str | None = None,
    price: tuple[float, float] | None = None,
    registry: Registry | None = None,
    **settings: Unpack[ProbeOptions],
) -> Report:
    """Ask an endpoint what it takes, and return what is proven.

    `settings` are the fields of `ProbeSettings`. `price` is that of a million input and output tokens; `max_cost` needs
    it. `record` is a file of exchanges: those that it holds are not sent again, new ones are appended; `sleep` waits.
    Raises `CnllmError` with one clear line where the endpoint cannot be asked: no API, no key, no model; `ValueError`
    for a bound or a price that means nothing.
    """
    checks.require_text("base_url", base_url)
    for name, value in (("model", model), ("protocol", protocol), ("api_key", api_key)):
        if value is not None:
            checks.require_type(name, value, str, "a string or None")
    if registry is not None:
        checks.require_type("registry", registry, Registry, "a cnllm.Registry or None")
    target = ProbeTarget(base_url=base_url, id=model, protocol=protocol, api_key=api_key, price=price)
    return run_target(target, registry if registry is not None else Registry.load(), ProbeSettings(**settings))


_PRICE = "a pair (input, output), the price of a million tokens each,"


def run_target(target: ProbeTarget, registry: Registry, settings: ProbeSettings) -> Report:
    """Ask a target what it takes, as `run` does."""
    if type(settings.max_requests) is not int or settings.max_requests < 1:
        raise checks.wrong_value("max_requests", settings.max_requests, "1 or more")
    if settings.max_cost is not None:
        checks.amount("max_cost", settings.max_cost)
    if settings.max_cost is not None and target.price is None:
        raise ValueError("max_cost needs the price of a million tokens: price=(input, output)")
    if target.price is not None:
        prices = [float(checks.amount("price", one)) for one in checks.as_list("price", target.price, _PRICE)]
        if len(prices) != 2:
            raise checks.wrong_value("price", target.price, _PRICE)
        target = replace(target, price=(prices[0], prices[1]))
    address, wire = bare_address(target.base_url)
    target = replace(target, base_url=address, protocol=target.protocol or wire)
    own: Any = default_transport() if settings.transport is None else None
    with contextlib.nullcontext(settings.transport) if own is None else contextlib.closing(own) as transport:
        send = _sender(transport, target.api_key, settings.record)
        report = investigate(ProbeState(registry, target, send, settings))
    if (found := report.found) is None:
        return report
    owner = target.provider or provider_name(found.place.base_url)
    # the provider that stands for endpoints which nobody has described, where it describes this wire
    is_plain = registry.resolve(f"{PROVIDER}/any").protocol == found.place.protocol
    plain = found.bodies.model.flags
    facts = [f for f in report.facts if not (f.flag.startswith(_OBSERVED) and is_assumed(plain, f))]
    new = {"extends": PROVIDER if is_plain else None, "keys": list(target.keys)} if target.provider is None else None
    text = overlay(found, facts, owner, new=new)
    return replace(report, overlay=text, facts=leaf_facts(report.facts), name=f"{owner}/{found.id}")


# ── sending ──────────────────────────────────────────────────────────────────
def _sender(
    transport: Any, api_key: str | None, record: str | os.PathLike[str] | None
) -> Callable[[Plan, int | None], RawResponse]:
    """Return a function that sends a request with its key and reads the answer, so many bytes of it.

    Requests that the recording has answers to are not sent again; the others are appended to it.
    """
    recording = None if record is None else ProbeRecording(record)
    if recording is not None:
        transport = Recorder(transport, recording.path, () if api_key is None else (api_key,))

    def send(plan: Plan, most: int | None) -> RawResponse:
        plan = insert_key(plan, api_key)
        known = None if recording is None else recording.take(plan)
        return _send(transport, replace(plan, timeouts=_TIMEOUTS), api_key, most) if known is None else known

    return send


def _send(transport: Any, plan: Plan, api_key: str | None, most: int | None) -> RawResponse:
    """Send one request and read the answer."""
    chunks: Any = None
    content = bytearray()
    abandoned = False
    try:
        status, headers, chunks = transport.send(plan)
        end = time.monotonic() + _LONGEST
        streams = "event-stream" in headers.get("content-type", "")
        most = most or (_MOST_EVENTS if streams and not plan.stream else _MOST_BYTES)
        for chunk in chunks:
            content += chunk
            if len(content) > most or time.monotonic() > end:
                abandoned = True
                break
    except CnllmError as error:
        if not content:
            return RawResponse(error=redact_error(error, plan_secrets(plan, api_key)))
    finally:
        if hasattr(chunks, "close"):
            with contextlib.suppress(CnllmError):
                chunks.close()
    secrets = plan_secrets(plan, api_key)
    return RawResponse(
        status,
        redact.redact_headers(dict(headers), secrets),
        b"".join(redact_chunks([bytes(content)], tuple(secret for secret in secrets if len(secret) >= MIN_SECRET))),
        abandoned,
    )
