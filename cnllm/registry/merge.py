"""Layers into one table, without forgetting who said what.

A layer is a table of one file. Values are merged when a model is resolved; where a value came from is looked up only
when somebody asks, by walking the same layers backwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from cnllm.registry.documents import Document

__all__ = [
    "Layer",
    "canonical_condition",
    "find_path",
    "flatten",
    "merge_layers",
    "merge_tables",
    "on_every_wire",
    "stack_layers",
    "unset_path",
]

_RULES = "errors"  # rules that add up, nearest layer first; so do those of `simulator.refusals`
_MARKUP = "leaks"  # adds up too, but an empty list takes away what is below it, and no rule stands twice
META = ("match", "extends", "unset", "on", "when", "families", "sources")


class Layer(Struct, frozen=True):
    """`name` is what `explain` calls it; `path` where its table is in the document; `table` its content."""

    name: str
    document: Document
    path: tuple[str, ...]
    table: dict[str, Any]


def canonical_condition(condition: str) -> str:
    """A `when` key with its atoms in order, so that "tools+stream" and "stream+tools" are the same."""
    return "+".join(sorted(atom.strip() for atom in condition.split("+")))


def merge_tables(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """A new table: `over` on `under`; tables merge, everything else replaces."""
    out = dict(under)
    for key, value in over.items():
        old = out.get(key)
        out[key] = merge_tables(old, value) if type(value) is dict and type(old) is dict else value
    return out


def stack_layers(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """One layer's flags on those below it: as `lay`, but rules add up, those of `over` first."""
    rules: dict[str, Any] = {}
    if _RULES in over:
        rules[_RULES] = [*over[_RULES], *under.get(_RULES, ())]
    if refusals := over.get("simulator", {}).get("refusals"):
        more = under.get("simulator", {}).get("refusals", ())
        rules["simulator"] = {**over["simulator"], "refusals": [*refusals, *more]}
    if own := over.get(_MARKUP):
        rules[_MARKUP] = [*own, *(rule for rule in under.get(_MARKUP) or () if rule not in own)]
    return merge_tables(under, {**over, **rules})


def merge_layers(layers: Iterable[Layer], under: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All layers in one new table, `when` included (its keys canonical), the rest of what is no flag left out.

    `under` is what layers below them made.
    """
    out = dict(under or {})
    for layer in layers:
        table = layer.table
        for path in table.get("unset", ()):
            out = _without(out, unset_path(path))
        flags = {k: v for k, v in table.items() if k not in META}
        if when := table.get("when"):
            below = out.get("when", {})
            said = ((canonical_condition(key), value) for key, value in when.items())
            flags["when"] = {key: stack_layers(below.get(key, {}), value) for key, value in said}
        out = stack_layers(out, flags)
    return out


@cache
def _every_wire() -> dict[str, bool | frozenset[str]]:
    """The flags that are true of an endpoint and its model whichever wire is spoken; of a table all, or some."""
    from msgspec.structs import fields

    from cnllm.registry.flags import Table, about, inner_table

    found: dict[str, bool | frozenset[str]] = {}
    for field in fields(Table):
        if about(field.type).get("every_wire"):
            found[field.encode_name] = True
        elif (inner := inner_table(field.type)) is not None:
            names = frozenset(f.encode_name for f in fields(inner) if about(f.type).get("every_wire"))
            found |= {field.encode_name: names} if names else {}
    return found


def on_every_wire(table: dict[str, Any]) -> dict[str, Any]:
    """What a table says that holds on another wire than the one it tells of, too."""
    out = _neutral(table)
    if when := table.get("when"):
        modes = {mode: kept for mode, said in when.items() if (kept := _neutral(said, but="protocol"))}
        out |= {"when": modes} if modes else {}
    if unset := [path for path in table.get("unset", ()) if _holds(path.split("."))]:
        out["unset"] = unset
    return out


def _neutral(table: dict[str, Any], but: str | None = None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in table.items():
        kept = _every_wire().get(key)
        if kept is True and key != but:
            out[key] = value
        elif type(kept) is frozenset and (some := {k: v for k, v in value.items() if k in kept}):
            out[key] = some
    return out


def _holds(keys: list[str]) -> bool:
    kept = _every_wire().get(keys[0])
    return kept is True or (type(kept) is frozenset and len(keys) > 1 and keys[1] in kept)


def unset_path(path: str) -> list[str]:
    """The keys of an `unset` path; a condition in it is made canonical."""
    keys = path.split(".")
    if keys[0] == "when" and len(keys) > 1:
        keys[1] = canonical_condition(keys[1])
    return keys


def _without(table: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    head, rest = keys[0], keys[1:]
    if head not in table:
        return table
    out = dict(table)
    if not rest:
        del out[head]
    elif type(out[head]) is dict:
        out[head] = _without(out[head], rest)
    return out


def find_path(table: Any, keys: list[str]) -> list[str] | None:
    """The path of keys as this table spells it (conditions may have their atoms in another order), or None."""
    spelled: list[str] = []
    for place, key in enumerate(keys):
        if type(table) is not dict and not isinstance(table, Mapping):
            return None
        if key not in table:
            if place != 1 or keys[0] != "when":
                return None
            key = next((k for k in table if canonical_condition(k) == key), "")
            if not key:
                return None
        spelled.append(key)
        table = table[key]
    return spelled


def flatten(table: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every leaf of a table with its path; lists are leaves."""
    for key, value in table.items():
        if type(value) is dict and value:
            yield from flatten(value, (*path, key))
        else:
            yield (*path, key), value
