"""Choose the hosts of a comparison, say what it would cost, and run it: `compare`.

No host is judged by a connection that it had closed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.client.credentials import key_for
from cnllm.comparison import report as reports
from cnllm.comparison.report import Comparison, ask_hosts, read_report
from cnllm.comparison.run import (
    Budget,
    ComparisonResult,
    Host,
    HostEntry,
    LiveExchanges,
    TaskChoice,
    first_request,
    open_host,
)
from cnllm.comparison.tasks import ComparisonTask
from cnllm.config.keys import find_key
from cnllm.engine import Plan
from cnllm.errors import CnllmError, UnknownModel
from cnllm.estimates.money import amount_of
from cnllm.estimates.worst_case import check_price, worst_case
from cnllm.registry import Registry
from cnllm.registry.flags import Price
from cnllm.registry.model import Model, currency_of
from cnllm.simulator import SimTransport
from cnllm.simulator.reply import SimulatedReply
from cnllm.simulator.request import ParsedRequest, RequestCall
from cnllm.simulator.respond import Change
from cnllm.transports import default_transport
from cnllm.types import checks

__all__ = [
    "HostPlan",
    "LeftOut",
    "NewConnections",
    "choose_hosts",
    "compare",
    "plan_costs",
    "right_replies",
    "settings_for",
]


class LeftOut(Struct, frozen=True):
    """A host that is not asked, and why."""

    host: str
    reason: str


class HostPlan(Struct, frozen=True):
    """The requests of a host, and the most that they can cost; None where its price is not known."""

    host: str
    requests: int
    at_most: Decimal | None
    currency: str | None


def choose_hosts(
    registry: Registry,
    model: Model,
    names: Sequence[str] | None,
    *,
    need_keys: bool = True,
    assume_price: Price | None = None,
) -> tuple[list[Host], list[LeftOut]]:
    """Return the hosts with the weights of a model, that model first, and those that are left out.

    `names` choose some of them: a provider, "provider/id", or either with `@UPSTREAM` behind a router. Without `names`
    hosts without a key are left out, and those without a price, unless `assume_price` gives them one.
    """
    same = registry.hosts(model.name)
    if names:
        hosts = [_find_host(registry, name, same, assume_price) for name in names]
        _refuse_twice([host.name for host in hosts])
    else:
        hosts = [_host(registry, name, "", same, assume_price) for name in (same or [model.name])]
    chosen, left_out = [], []
    for host in hosts:
        flags = host.model.flags
        if flags.status is not None and flags.status.is_ == "retired":
            left_out.append(LeftOut(host.name, "the model is retired there"))
        elif need_keys and not names and flags.keys and find_key(flags.keys) is None:
            left_out.append(LeftOut(host.name, f"no key: {' or '.join(flags.keys)}"))
        elif need_keys and not names and currency_of(host.model) is None:
            left_out.append(LeftOut(host.name, "no price is known: --assume-price"))
        elif not flags.base_url:
            left_out.append(LeftOut(host.name, "its address is not known"))
        else:
            chosen.append(host)
    return chosen, left_out


def _refuse_twice(names: Sequence[str]) -> None:
    """Raise `CnllmError` for a host that is there twice: nothing could tell its results apart."""
    if twice := [name for name in names if names.count(name) > 1]:
        raise CnllmError(f"the host {twice[0]} is named twice", hint="name each host once")


def _find_host(registry: Registry, name: str, same: Sequence[str], price: Price | None) -> Host:
    """Return the host of a name. Raise `UnknownModel` where several or none fit it."""
    entry, _, upstream = name.partition("@")
    if "/" in entry:
        return _host(registry, entry, upstream, same, price)
    fitting = [host for host in same if host.partition("/")[0] == entry]
    if len(fitting) != 1:
        which = f"serves the model under {len(fitting)} ids" if fitting else "is not a host of these weights"
        hint = f"name one: {', '.join(fitting)}" if fitting else "name it as PROVIDER/ID"
        raise UnknownModel(f"{entry} {which}, as far as the registry knows", hint=hint)
    return _host(registry, fitting[0], upstream, same, price)


def _host(registry: Registry, name: str, upstream: str, same: Sequence[str], price: Price | None) -> Host:
    """Return the host of a model. `price` is assumed where its own is not known."""
    model = registry.resolve(name)
    entry = HostEntry(
        name=f"{model.name}@{upstream}" if upstream else model.name,
        model=model.name,
        protocol=model.protocol,
        upstream=upstream or None,
        mixture=model.flags.upstream is not None and not upstream,
        same_weights=True if model.name in same else None,
        price=price if currency_of(model) is None else None,
    )
    return open_host(entry, registry)


def plan_costs(hosts: Sequence[Host], tasks: Sequence[ComparisonTask]) -> list[HostPlan]:
    """Return what each host would be asked, and the most that it can cost."""
    plans = []
    for host in hosts:
        total: int | None = 0
        currency = None
        for task in tasks:
            worst = worst_case(first_request(host, task))
            currency = worst.currency or currency
            more = 1 + (task.turns - 1) * 3  # later requests hold the earlier replies, too
            total = None if total is None or worst.cost is None else total + worst.cost * more
        requests = sum(task.turns for task in tasks)
        plans.append(HostPlan(host.name, requests, None if total is None else amount_of(total), currency))
    return plans


def _check_arguments(*arguments: Any) -> None:
    """Raise `TypeError` for an argument of another type than `compare` takes."""
    kinds: tuple[tuple[str, Any, str], ...] = (
        ("model", (str, Model), "a name or a cnllm.Model"),
        ("hosts", (list, tuple), "a list of names"),
        ("tasks", int, "a number"),
        ("max_cost", Mapping, "an amount for each currency"),
        ("seed", int, "a number"),
        ("assume_price", Price, "a Price"),
        ("registry", Registry, "a cnllm.Registry"),
        ("transports", Mapping, "a transport for each host"),
        ("on_result", Callable, "a function or None"),
    )
    for (name, kind, expected), value in zip(kinds, arguments, strict=True):
        if value is not None:
            checks.require_type(name, value, kind, expected)
            if name == "assume_price":
                check_price(name, value)


def compare(
    model: str | Model | None = None,
    hosts: Sequence[str] | None = None,
    *,
    tasks: int = 200,
    max_cost: Mapping[str, Decimal | float | str] | None = None,
    seed: int = 0,
    replay: Comparison | bytes | None = None,
    stop_early: bool = False,
    assume_price: Price | None = None,
    simulate: bool = False,
    registry: Registry | None = None,
    transports: Mapping[str, Any] | None = None,
    on_result: Callable[[str, ComparisonResult], object] | None = None,
) -> Comparison:
    """Ask several hosts of one model the same seeded tasks, and return the report. The first host is the reference.

    `tasks` is the number of tool turns. `max_cost` is an amount for each currency, which is never passed; a host in
    another currency, or without a price, is refused unless `assume_price` gives one. With `replay` nothing is sent:
    every figure of a report is computed again from its records. `transports` are used in place of the network, by host.
    """
    _check_arguments(model, hosts, tasks, max_cost, seed, assume_price, registry, transports, on_result)
    registry = registry or Registry.load()
    if replay is not None:
        checks.require_type("replay", replay, (Comparison, bytes), "a report, or the bytes of one")
        return reports.replay(registry, replay if isinstance(replay, Comparison) else read_report(replay))
    if model is None:
        raise CnllmError("no model is named", hint="cnllm.compare(MODEL)")
    resolved = registry.resolve(model) if isinstance(model, str) else model
    own = transports or {}
    needs_keys = not simulate and not own
    chosen, _ = choose_hosts(registry, resolved, hosts, need_keys=needs_keys, assume_price=assume_price)
    if not chosen:
        raise CnllmError(f"there is no host of {resolved.name} with a key", hint="set a key, or name hosts with hosts=")
    caps = {currency: checks.amount("max_cost", amount) for currency, amount in (max_cost or {}).items()}
    settings = settings_for(chosen, seed, tasks, early=stop_early)
    keys: dict[str, str | None] = dict.fromkeys((host.name for host in chosen), "simulated")
    if needs_keys:
        _require_caps(chosen, caps)
        keys = {host.name: key_for(first_request(host, settings.tasks[0]), registry) for host in chosen}
    if simulate:
        shared: Any = SimTransport(registry, change=right_replies(settings.tasks))
    else:
        shared = None if own else NewConnections()
    try:
        budget = Budget({} if simulate else caps)
        live = {host.name: LiveExchanges(own.get(host.name, shared), budget, keys[host.name]) for host in chosen}
        return ask_hosts(registry, resolved, chosen, settings, budget, live, simulated=simulate, on_result=on_result)
    finally:
        if (close := getattr(shared, "close", None)) is not None:
            close()


def settings_for(hosts: Sequence[Host], seed: int, turns: int, *, early: bool = False) -> TaskChoice:
    """Return the settings of a run. All hosts are asked the same tasks: texts fit the shortest window."""
    limits = [host.model.flags.limits.most_input for host in hosts]
    shortest = min((limit for limit in limits if limit), default=None)
    return TaskChoice(seed, turns, shortest, early)


def _require_caps(hosts: Sequence[Host], caps: Mapping[str, Decimal]) -> None:
    """Raise `CnllmError` where the price of a host is not known, or no cap is set in its currency."""
    for host in hosts:
        currency = currency_of(host.model)
        if currency is None:
            raise CnllmError(f"the price of {host.name} is not known", hint="assume one, or leave the host out")
        if currency not in caps:
            raise CnllmError(f"{host.name} is paid in {currency}, for which there is no cap", hint="set a cap for it")


# ── ways to a host ───────────────────────────────────────────────────────────


class NewConnections:
    """A transport that sends each request on a connection of its own, which `warm` opens before.

    Servers close connections that wait. A request that is sent at that moment may have been processed or not, so
    that it could neither be sent again nor count as answered. On a new connection this does not happen.
    """

    def __init__(self) -> None:
        self._transport: Any = None

    def warm(self, plan: Plan) -> None:
        """Open the connection of the next request. Where this fails, nothing was sent: `send` tries once more."""
        self.close()
        self._transport = default_transport()
        if (warm := getattr(self._transport, "warm", None)) is not None:
            with contextlib.suppress(CnllmError):
                warm(plan)

    def send(self, plan: Plan) -> Any:
        """Send a plan; see `cnllm.transports`."""
        if self._transport is None:
            self.warm(plan)
        return self._transport.send(plan)

    def close(self) -> None:
        """Close the last connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()


def right_replies(tasks: Sequence[ComparisonTask]) -> Change:
    """Return a function that gives the right reply to each request of these tasks; another request keeps its own."""
    by_prompt = {task.prompt: task for task in tasks}

    def change(request: ParsedRequest, reply: SimulatedReply) -> SimulatedReply:
        task = by_prompt.get(request.prompt)
        task = task or next((task for prompt, task in by_prompt.items() if prompt in request.prompt), None)
        if task is None:
            return reply
        number = sum(turn.role == "assistant" for turn in request.turns)
        step = task.steps[min(number, len(task.steps) - 1)]
        if task.cut:
            return replace(reply, text="1, 2, 3, 4, 5, 6,", calls=(), finish="length")
        calls = tuple(
            RequestCall(f"call_{number}_{place}", name, json.dumps(arguments, ensure_ascii=False))
            for place, (name, arguments) in enumerate(step.calls)
        )
        text = "" if calls else step.exactly or " ".join(step.words)
        return replace(reply, text=text, calls=calls, finish="tool_calls" if calls else "stop", reasoning_complete=True)

    return change
