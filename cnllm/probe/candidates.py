"""Collect what endpoints are known to take, from the registry: the switches, levels and names that a probe tries."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import get, leaves, nest
from cnllm.protocols import PROTOCOLS
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry

__all__ = ["FlagCandidates", "collect", "with_claims"]


class FlagCandidates(Struct, frozen=True):
    """The values to try on one wire, the most common first.

    `on` and `off` are changes of the body that switch reasoning, those of other wires last, `efforts` and `budgets` the
    paths of a level and of a number of tokens, `params` the paths of each parameter, `fields` the keys of reasoning,
    `message_keys` further keys of messages, `prefills` the marks of a reply that is to be continued, `outputs` limits
    of output tokens.
    """

    on: tuple[dict[str, Any], ...] = ()
    off: tuple[dict[str, Any], ...] = ()
    efforts: tuple[str, ...] = ()
    effort_words: dict[str, tuple[str, ...]] = {}
    budgets: tuple[str, ...] = ()
    params: dict[str, tuple[str, ...]] = {}
    fields: tuple[str, ...] = ()
    message_keys: tuple[str, ...] = ()
    prefills: tuple[dict[str, Any], ...] = ()
    outputs: tuple[int, ...] = ()


_PLACES = {
    "on": "reasoning.on.set",
    "off": "reasoning.off.set",
    "efforts": "reasoning.effort.at",
    "budgets": "reasoning.budget.at",
    "prefills": "messages.prefill.set",
    "fields": "reasoning.fields",
    "message_keys": "messages.fields",
}
"""The flag of a table that holds the candidates of each kind: one value, or a list of them."""


def collect(registry: Registry, protocol: str) -> FlagCandidates:
    """Return the candidates for a wire from every table of the registry that describes it."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    words: defaultdict[str, Counter[str]] = defaultdict(Counter)
    params: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for table in registry.flag_tables(protocol):
        for kind, path in _PLACES.items():
            counts[kind].update(_texts(get(table, path)))
        levels = dict(get(table, "reasoning.effort") or {})
        if at := levels.pop("at", None):
            words[at].update(levels.values())
        for name, rule in (table.get("params") or {}).items():
            place = rule.get("as") if isinstance(rule, Mapping) else rule
            if isinstance(place, str) and place != "ignored":
                params[name][place] += 1
    for table in (table for wire in PROTOCOLS if wire != protocol for table in registry.flag_tables(wire)):
        for side in ("on", "off"):
            counts[f"other-{side}"].update(_texts(get(table, _PLACES[side])))

    def by_name(counters: Mapping[str, Counter[str]]) -> dict[str, tuple[str, ...]]:
        return {name: tuple(word for word, _ in counter.most_common()) for name, counter in counters.items()}

    ranked: defaultdict[str, tuple[Any, ...]] = defaultdict(tuple)
    ranked |= {kind: tuple(map(json.loads, texts)) for kind, texts in by_name(counts).items()}
    on, off = ranked["on"], ranked["off"]
    off = (*off, *_reverse_switches(on, off))
    known = (*on, *off)
    return FlagCandidates(
        on=(*_switches(on, ranked["efforts"]), *_others(ranked["other-on"], known)),
        off=(*_switches(off, ranked["efforts"]), *_others(ranked["other-off"], known)),
        effort_words=by_name(words),
        params=by_name(params),
        **{kind: ranked[kind] for kind in _PLACES if kind not in ("on", "off")},
    )


def _texts(found: Any) -> list[str]:
    """Return a value, or those of a list, as JSON, by which they are counted, without those that say nothing."""
    values = found if isinstance(found, list) else [found]
    return [json.dumps(value, sort_keys=True) for value in values if value]


def with_claims(candidates: FlagCandidates, model: Model) -> FlagCandidates:
    """Return the candidates with what the registry claims of a model before the others."""
    flags = msgspec.to_builtins(model.flags)
    limit = get(flags, "limits.output")
    changes: dict[str, Any] = {} if limit is None else {"outputs": (limit,)}
    for kind in ("on", "off", "efforts", "budgets"):
        if own := get(flags, _PLACES[kind]):
            changes[kind] = (own, *(other for other in getattr(candidates, kind) if other != own))
    return replace(candidates, **changes)


def _reverse_switches(on: tuple[Any, ...], off: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return the opposite of each switch that is true, where no endpoint is known to take it."""
    found: list[dict[str, Any]] = []
    for patch in on:
        paths = leaves(patch)
        if len(paths) == 1 and True in paths.values() and (opposite := nest(next(iter(paths)), False)) not in off:
            found.append(opposite)
    return found


def _others(patches: tuple[Any, ...], known: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return the patches under keys where none of the known ones is, one for each: a server may share them."""
    keys = {key for patch in known for key in patch}
    found: list[dict[str, Any]] = []
    for patch in patches:
        if keys.isdisjoint(patch):
            keys |= patch.keys()
            found.append(patch)
    return found


def _switches(patches: tuple[Any, ...], efforts: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """Return patches with switches before levels, and small ones before those that contain them."""

    def key(patch: dict[str, Any]) -> tuple[bool, int]:
        paths = leaves(patch)
        return any(path in efforts for path in paths), len(paths)

    return tuple(sorted(patches, key=key))
