"""Build a call on several models from the option `fallback`, and remember the targets that failed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.options import PARAMS
from cnllm.engine.run.call import Call
from cnllm.engine.run.retry_policy import draw_order, target_obstacle
from cnllm.engine.run.routed_call import RoutedCall, RouteTarget
from cnllm.registry import Registry, tiers
from cnllm.registry.model import Model
from cnllm.registry.sites import choose_site
from cnllm.system.processes import cached_property, fork_safe
from cnllm.types import Note
from cnllm.types.messages import as_messages
from cnllm.types.newest import Newest
from cnllm.types.policy import Fallback

if TYPE_CHECKING:
    from cnllm.client.measurements import Measurements, RouteChoice

__all__ = ["Cooldowns", "FallbackRoute", "RouteMemory", "start_routed_call"]

_FOREIGN = ("extra_body", "extra_headers", "api_key")
_LONGEST = 3600.0  # seconds of a pause
_MOST_TARGETS = 4096

StartCall = Callable[..., tuple[Call, str | None]]


class Cooldowns:
    """The targets that failed, and until when they are passed over. Safe to share between threads.

    After its pause a target gets one request. The others still pass it over until that request succeeds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # target → end of the pause, and its length
        self._until: Newest[str, tuple[float, float]] = Newest(_MOST_TARGETS)
        self._lock = fork_safe(Lock())

    def acquire(self, target: str) -> bool:
        """Whether a target may be tried now. The first caller after a pause may; the others wait for its outcome."""
        if not self._until:
            return True
        with self._lock:
            entry = self._until.get(target)
            if entry is None:
                return True
            until, seconds = entry
            now = self._clock()
            if now < until:
                return False
            self._until[target] = (now + seconds, seconds)
            return True

    def fail(self, target: str, seconds: float) -> None:
        """Pass over a target for some seconds."""
        if seconds <= 0:
            return
        seconds = min(seconds, _LONGEST)
        with self._lock:
            self._until[target] = (self._clock() + seconds, seconds)

    def succeed(self, target: str) -> None:
        """Forget the failures of a target."""
        if self._until:
            with self._lock:
                self._until.pop(target, None)


class RouteMemory:
    """The memory of a client for the targets of its routes: those that failed, and what was seen of each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.cooldowns = Cooldowns(clock)

    def for_registry(self) -> RouteMemory:
        """Return the memory for another registry: what was seen of the hosts stays, and reports are read again."""
        memory = RouteMemory(self._clock)
        if "measurements" in vars(self):
            memory.measurements = self.measurements
            memory.measurements.forget_reports()
        return memory

    @cached_property
    def measurements(self) -> Measurements:
        """Return the measurements, for the routes that are ordered by them."""
        from cnllm.client.measurements import Measurements

        return Measurements(self._clock)

    def choices(self) -> list[RouteChoice]:
        """Return the last choice of each route that is ordered by measurements, the newest first."""
        return self.measurements.choices() if "measurements" in vars(self) else []


class FallbackRoute(Struct, frozen=True):
    """Holds what a call on several models needs beside its request.

    `start` builds the call of one model and finds its key. `offline` says that no key is needed. `client_key` is the
    key of the client, which goes to the endpoint of the first model alone.
    """

    rules: Fallback
    registry: Registry
    start: StartCall
    memory: RouteMemory
    client_key: str | None
    offline: bool


def start_routed_call(
    route: FallbackRoute, model: str | Model, messages: Any, options: dict[str, Any], *, stream: bool
) -> tuple[Call, dict[int, str | None]]:
    """Return a call that has not begun, and the keys of its targets, which are filled in as they are asked."""
    rules = route.rules
    history = as_messages(messages)
    models, notes = _models(route, model, history, options)
    order = draw_order(rules.weights, len(models), random.random)
    targets = [RouteTarget(n, models[n], target_obstacle(models[n], history, options)) for n in order]
    on_turn = None
    if rules.order == "measured":
        targets, note, on_turn = route.memory.measurements.order(targets, history, rules.report)
        notes += [] if note is None else [note]
    targets = [*targets[: rules.most]]
    keys: dict[int, str | None] = {}
    api_key = options.get("api_key") or route.client_key

    def open_call(target: RouteTarget, route_notes: Sequence[Note]) -> Call:
        own = _same_endpoint(models[0], target.model)
        call_options, left_out = (options, []) if own else _own_options(options, target.model)
        call, key = route.start(target.model, history, stream, call_options, api_key if own else None)
        keys[target.number] = key
        more = [*notes, *route_notes, *left_out]
        if more:
            call.plan = replace(call.plan, notes=[*more, *call.plan.notes])
        return call

    call = RoutedCall(
        targets,
        open_call,
        named_model=models[0],
        first_token=rules.first_token,
        cooldown=rules.cooldown,
        state=route.memory.cooldowns,
        on_turn=on_turn,
    )
    return call, keys


def _models(
    route: FallbackRoute, first: str | Model, history: Any, options: Mapping[str, Any]
) -> tuple[list[Model], list[Note]]:
    """Return the models of a route, each once. Raises `UnknownModel`."""
    registry, rules, notes = route.registry, route.rules, []
    models: list[Model] = []
    for name in (first, *rules.targets):
        if isinstance(name, str) and name.startswith(tiers.PREFIX):
            model, note = tiers.choose_model(name, history, options, registry, offline=route.offline)
            notes.append(note)
        else:
            key = (options.get("api_key") or route.client_key) if not models else None
            model = choose_site(registry, name, api_key=key) if isinstance(name, str) else name
        models.append(model)
    if rules.weights is None:
        models = [model for number, model in enumerate(models) if model not in models[:number]]
    return models, notes


def _same_endpoint(first: Model, other: Model) -> bool:
    """Whether a key for the first model may go to the other one."""
    return first.provider == other.provider and first.flags.base_url == other.flags.base_url


def _own_options(options: dict[str, Any], model: Model) -> tuple[dict[str, Any], list[Note]]:
    """Return the options without those that are for the first model's endpoint alone, and a note on each."""
    foreign = [name for name in _FOREIGN if options.get(name) is not None]
    params = options.get("params") or {}
    known = {name: value for name, value in params.items() if name in PARAMS or name in (model.flags.params or {})}
    if not foreign and len(known) == len(params):
        return options, []
    names = [*(name for name in foreign if name != "api_key"), *(f"params.{n}" for n in params if n not in known)]
    did = "not sent: it is for the endpoint of the first model"
    rest = {name: value for name, value in options.items() if name not in foreign}
    return {**rest, "params": known or None}, [Note("option-foreign", "route", name, did) for name in names]
