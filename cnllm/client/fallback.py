"""Build a call on several models from the option `fallback`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cnllm.client.cooldowns import Cooldowns
from cnllm.engine.options import PARAMS
from cnllm.engine.run.call import Call
from cnllm.engine.run.route_rules import draw_order, target_obstacle
from cnllm.engine.run.routed_call import RoutedCall, RouteTarget
from cnllm.registry import tiers
from cnllm.registry.model import Model
from cnllm.types import Note
from cnllm.types.convert import as_messages
from cnllm.types.route import Fallback

if TYPE_CHECKING:
    from cnllm.client.base import BaseClient

__all__ = ["start_routed_call"]

_FOREIGN = ("extra_body", "extra_headers", "api_key")

StartCall = Callable[..., tuple[Call, str | None]]


def start_routed_call(
    client: BaseClient,
    start: StartCall,
    model: str | Model,
    messages: Any,
    stream: bool,
    options: dict[str, Any],
    rules: Fallback,
    state: Cooldowns,
    client_key: str | None,
) -> tuple[Call, dict[int, str | None]]:
    """Return a call that has not begun, and the keys of its targets, which are filled in as they are asked."""
    history = as_messages(messages)
    models, notes = _models(client, model, history, options, rules)
    order = draw_order(rules.weights, len(models), random.random)
    targets = [RouteTarget(n, models[n], target_obstacle(models[n], history, options)) for n in order]
    keys: dict[int, str | None] = {}
    given = options.get("api_key") or client_key

    def open_call(target: RouteTarget, route_notes: Sequence[Note]) -> Call:
        own = _same_endpoint(models[0], target.model)
        sent, left_out = (options, []) if own else _own_options(options, target.model)
        call, key = start(target.model, history, stream, sent, given if own else None)
        keys[target.number] = key
        more = [*notes, *route_notes, *left_out]
        if more:
            call.plan = replace(call.plan, notes=[*more, *call.plan.notes])
        return call

    call = RoutedCall(targets, open_call, first_token=rules.first_token, cooldown=rules.cooldown, state=state)
    return call, keys


def _models(
    client: BaseClient, first: str | Model, history: Any, options: Mapping[str, Any], rules: Fallback
) -> tuple[list[Model], list[Note]]:
    """Return the models of a route, each once. Raises `UnknownModel`."""
    registry, notes = client.registry, []
    models: list[Model] = []
    for name in (first, *rules.targets):
        if isinstance(name, str) and name.startswith(tiers.PREFIX):
            model, note = tiers.choose_model(name, history, options, registry, offline=client.simulate)
            notes.append(note)
        else:
            model = registry.resolve(name) if isinstance(name, str) else name
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
    kept = {name: value for name, value in options.items() if name not in foreign}
    return {**kept, "params": known or None}, [Note("option-foreign", "route", name, did) for name in names]
