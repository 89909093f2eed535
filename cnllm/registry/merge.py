"""Merge layers of the registry into one table.

A layer is a table of one file. Values are merged when a model is resolved. The origin of a value is looked up only on
request, by a walk through the same layers from the last to the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from cnllm.registry.documents import Document
from cnllm.registry.flags import Table, about, inner_table

__all__ = [
    "OFFERED_FLAGS",
    "OWN_FLAGS",
    "WEIGHT_FLAGS",
    "Layer",
    "canonical_condition",
    "find_path",
    "flatten",
    "merge_layers",
    "merge_tables",
    "offers_batches",
    "on_every_wire",
    "stack_layers",
    "unset_path",
    "without_flags",
]

_RULES = "errors"  # lists of rules are joined, nearest layer first; so are those of `simulator.refusals`
_MARKUP = "leaks"  # joined too, but an empty list removes the rules of lower layers, and no rule occurs twice
META = ("match", "extends", "same_weights", "unset", "on", "when", "families", "sources", "corrects", "unread")
OWN_FLAGS = frozenset({"batch", "price", "site", "status", "supported"})  # no table has them from the one it extends
OFFERED_FLAGS = frozenset({"batch"})  # the form is the wire's, but only for endpoints that offer it
WEIGHT_FLAGS = frozenset({"limits", "input", "weights"})  # a model has them from one with the same weights only


class Layer(Struct, frozen=True):
    """A table of one file: `name` for `explain`, `path` of the table in the document, and the `table` itself."""

    name: str
    document: Document
    path: tuple[str, ...]
    table: dict[str, Any]


def canonical_condition(condition: str) -> str:
    """Return a `when` key with its atoms in order, so that "tools+stream" and "stream+tools" are the same."""
    return "+".join(sorted(atom.strip() for atom in condition.split("+")))


def merge_tables(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return a new table with `over` merged into `under`: tables are merged, other values replaced."""
    out = dict(under)
    for key, value in over.items():
        old = out.get(key)
        out[key] = merge_tables(old, value) if type(value) is dict and type(old) is dict else value
    return out


def stack_layers(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge a layer's flags into those below it: as `merge_tables`, but rules are joined, those of `over` first."""
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
    """Merge layers into one new table of flags, and of `when` with canonical keys.

    `under` is the merged table of lower layers.
    """
    out = dict(under or {})
    for layer in layers:
        table = layer.table
        for path in table.get("unset", ()):
            out = _without(out, unset_path(path))
        flags = {k: v for k, v in table.items() if k not in META}
        if when := table.get("when"):
            below = out.get("when", {})
            tables = ((canonical_condition(key), value) for key, value in when.items())
            flags["when"] = {key: stack_layers(below.get(key, {}), value) for key, value in tables}
        out = stack_layers(out, flags)
    return out


@cache
def _flags_on_every_wire() -> dict[str, bool | frozenset[str]]:
    """Return the flags that hold on every wire: for each key True, or the names of its inner flags that do."""
    flags: dict[str, bool | frozenset[str]] = {}
    for field in fields(Table):
        if about(field.type).get("every_wire"):
            flags[field.encode_name] = True
        elif (inner := inner_table(field.type)) is not None:
            names = frozenset(f.encode_name for f in fields(inner) if about(f.type).get("every_wire"))
            flags |= {field.encode_name: names} if names else {}
    return flags


def on_every_wire(table: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a wire's table that holds on other wires too."""
    out = _wire_neutral_flags(table)
    if when := table.get("when"):
        inner = ((mode, _wire_neutral_flags(flags, excluded="protocol")) for mode, flags in when.items())
        modes = {mode: flags for mode, flags in inner if flags}
        out |= {"when": modes} if modes else {}
    if unset := [path for path in table.get("unset", ()) if _is_on_every_wire(path.split("."))]:
        out["unset"] = unset
    return out


def _wire_neutral_flags(table: dict[str, Any], excluded: str | None = None) -> dict[str, Any]:
    """Return the flags of a table that hold on every wire, without the key `excluded`."""
    out: dict[str, Any] = {}
    for key, value in table.items():
        rule = _flags_on_every_wire().get(key)
        if rule is True and key != excluded:
            out[key] = value
        elif type(rule) is frozenset and (part := {k: v for k, v in value.items() if k in rule}):
            out[key] = part
    return out


def _is_on_every_wire(keys: list[str]) -> bool:
    """Whether the flag at a path holds on every wire."""
    rule = _flags_on_every_wire().get(keys[0])
    return rule is True or (type(rule) is frozenset and len(keys) > 1 and keys[1] in rule)


def without_flags(table: dict[str, Any], flags: frozenset[str]) -> dict[str, Any]:
    """Return a layer's table without some of its flags, in its `when` too."""
    out = {key: value for key, value in table.items() if key not in flags}
    if when := table.get("when"):
        out["when"] = {
            mode: {key: value for key, value in inner.items() if key not in flags} for mode, inner in when.items()
        }
    return out


def offers_batches(layers: Iterable[Layer]) -> bool:
    """Whether the layers say that the model is served in batches; the last one that says it counts."""
    values = [layer.table["batch"].get("available") for layer in layers if "batch" in layer.table]
    return [value for value in values if value is not None][-1:] == [True]


def unset_path(path: str) -> list[str]:
    """Split an `unset` path into keys; a condition in it becomes canonical."""
    keys = path.split(".")
    if keys[0] == "when" and len(keys) > 1:
        keys[1] = canonical_condition(keys[1])
    return keys


def _without(table: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """Return a copy of a table without the value at a path."""
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
    """Return a path in the spelling of this table, which may order the atoms of a condition differently; or None."""
    out: list[str] = []
    for position, key in enumerate(keys):
        if type(table) is not dict and not isinstance(table, Mapping):
            return None
        if key not in table:
            if position != 1 or keys[0] != "when":
                return None
            key = next((k for k in table if canonical_condition(k) == key), "")
            if not key:
                return None
        out.append(key)
        table = table[key]
    return out


def flatten(table: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) for each leaf of a table; a list is a leaf."""
    for key, value in table.items():
        if type(value) is dict and value:
            yield from flatten(value, (*path, key))
        else:
            yield (*path, key), value
