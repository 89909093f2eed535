"""Run a probe from a program: `cnllm.probe.run(url)`."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from cnllm.probe.approach import Approach, Found
from cnllm.probe.driver import drive
from cnllm.probe.exchange import Exchange
from cnllm.probe.facts import Fact, leaf_facts
from cnllm.probe.overlay import overlay, provider_name
from cnllm.probe.place import bare_address
from cnllm.probe.runner import Settings, Step, investigate
from cnllm.registry.registry import Registry

__all__ = ["Report", "run"]


class Report(Struct, frozen=True):
    """What a probe found out.

    `overlay` is a registry file with what was proven; `facts` are all flags that were asked about, the unknown ones
    too; `requests` counts what was sent; `stopped` says why the probe ended early, "" where it asked everything;
    `exchanges` are the requests and answers that the facts number.
    """

    overlay: str
    facts: list[Fact]
    requests: int
    stopped: str = ""
    exchanges: tuple[Exchange, ...] = ()
    found: Found | None = None


def run(
    base_url: str,
    *,
    model: str | None = None,
    protocol: str | None = None,
    api_key: str | None = None,
    max_requests: int = 60,
    max_cost: float | None = None,
    on_step: Callable[[Step], object] | None = None,
    registry: Registry | None = None,
    transport: Any = None,
    price: tuple[float, float] | None = None,
    provider: str | None = None,
    keys: tuple[str, ...] = (),
) -> Report:
    """Ask an endpoint what it takes, and return what is proven.

    Raises `CnllmError` with one clear line where the endpoint cannot be asked: no API, no key, no model.
    """
    registry = registry if registry is not None else Registry.load()
    address, wire = bare_address(base_url)
    goal = Approach(address, model, protocol or wire)
    settings = Settings(max_requests=max_requests, max_cost=max_cost, price=price, has_key=api_key is not None)
    if transport is None:
        from cnllm.transports import default_transport

        transport = default_transport()
    outcome = drive(investigate(registry, goal, settings, on_step), transport, api_key)
    facts = leaf_facts({f.flag: f for f in outcome.facts})
    text = ""
    if outcome.found is not None:
        text = overlay(
            outcome.found,
            outcome.facts,
            provider=provider or provider_name(outcome.found.place.base_url),
            keys=keys,
            date=datetime.date.today(),
            new=provider is None,
        )
    return Report(text, facts, len(outcome.exchanges), outcome.stopped, outcome.exchanges, outcome.found)
