"""JSON Schemas of tools, in the subset of the language an endpoint takes. The caller's schema stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec

__all__ = ["adapt_schema", "adapt_schema_if_needed"]

Schema = dict[str, Any]
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_SAME_VALUE = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else")  # they speak of the value the node speaks of
_KINDS = {
    "object": ("properties", "additionalProperties", "required", "patternProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_KEPT = 65_536  # bytes of a schema that is kept
_EXPANSIONS = 500  # references written out in full; what is meant more often than this ends as its bare type
_NODES = 20_000  # schemas in what is written out; what is more ends as its bare type, too


def adapt_schema_if_needed(schema: Schema, rules: Sequence[str], drop: Sequence[str]) -> Schema | None:
    """As `adapted`, or None where that changes nothing. A loop offers the same tools again and again: each is adapted
    once, and what is kept of it is bytes, so that no request shares a schema with another.
    """
    try:
        said = msgspec.json.encode(schema)
        same = len(said) <= _KEPT and msgspec.json.decode(said) == schema
    except (TypeError, ValueError, OverflowError, RecursionError):
        same = False
    if not same:  # it holds what JSON would not give back
        out = adapt_schema(schema, rules, drop)
        return None if out == schema else out
    kept = _kept(said, tuple(rules), tuple(drop))
    return None if kept is None else msgspec.json.decode(kept)


@lru_cache(maxsize=256)
def _kept(said: bytes, rules: tuple[str, ...], drop: tuple[str, ...]) -> bytes | None:
    schema = msgspec.json.decode(said)
    out = adapt_schema(schema, rules, drop)
    return None if out == schema else msgspec.json.encode(out)


def adapt_schema(schema: Schema, rules: Sequence[str], drop: Sequence[str]) -> Schema:
    """`schema` by the rules of `tools.schema`, without the keywords in `tools.schema_drop`.

    An endpoint that refuses one tool's schema refuses the whole request, so what cannot be said is left out: the model
    then knows less, and the arguments are still checked against the caller's own schema.
    """
    out = _rooted(schema) if "root-object" in rules else schema
    if "inline-refs" in rules:
        out = _Inliner(out).inlined(out, ())
    elif "root-refs" in rules:
        out = _root_refs(out)
    walked: Schema = _walked(out, frozenset(rules), frozenset(drop), None)
    return walked


def _each(node: Schema, change: Callable[[Any], Any]) -> Schema:
    """The node with every schema directly below it changed. Names of properties and values are no schemas."""
    out: Schema = {}
    for key, value in node.items():
        if key in _MAPS and type(value) is dict:
            value = {name: change(child) for name, child in value.items()}
        elif key in _LISTS and type(value) is list:
            value = [change(child) for child in value]
        elif key in _SINGLE and type(value) in (dict, bool) and not (key != "items" and type(value) is bool):
            value = change(value)
        out[key] = value
    return out


# ── references ───────────────────────────────────────────────────────────────


def _target(root: Schema, ref: Any) -> Any:
    """What a local reference points at, or None."""
    if type(ref) is not str or not ref.startswith("#"):
        return None
    here: Any = root
    for key in ref[1:].strip("/").split("/") if ref.strip("#/") else ():
        key = unquote(key).replace("~1", "/").replace("~0", "~")
        if type(here) is dict:
            here = here.get(key)
        else:
            here = here[int(key)] if type(here) is list and key.isdigit() and int(key) < len(here) else None
    return here


class _Inliner:
    """References replaced by what they point at; a recursion ends in the bare type of what it would repeat."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left, self._nodes = _EXPANSIONS, _NODES

    def inlined(self, node: Any, inside: tuple[str, ...]) -> Any:
        if type(node) is not dict:
            return node
        self._nodes -= bool(inside)
        ref = node.get("$ref")
        if self._nodes < 0 and inside:
            return _bare(node)
        if type(ref) is not str:
            out = _each(node, lambda child: self.inlined(child, inside))
            return {k: v for k, v in out.items() if k not in ("$defs", "definitions")}
        found = _target(self._root, ref)
        self._left -= 1
        if ref in inside or type(found) is not dict or self._left < 0:
            shape = _bare(found)
        else:
            shape = self.inlined(found, (*inside, ref))
        return {**shape, **self.inlined({k: v for k, v in node.items() if k != "$ref"}, inside)}


def _bare(node: Any) -> Schema:
    """The type that a schema names, and nothing else of it."""
    kind = node.get("type") if type(node) is dict else None
    return {"type": kind if type(kind) is str else "object"}


def _root_refs(schema: Schema) -> Schema:
    """Every reference as `#/$defs/NAME`, alone in its node."""
    names: dict[int | str, str] = {}  # by the identity of what a reference points at: it may be written in many ways
    counts: dict[str, int] = {}
    defs: dict[str, Any] = {}

    def named(ref: str) -> str:
        found = _target(schema, ref)
        known = id(found) if type(found) is dict else ref
        if known not in names:
            last = unquote(ref.rsplit("/", 1)[-1]).replace("~1", "_").replace("~0", "_")
            base = "".join(c if c.isalnum() or c in "_.-" else "_" for c in last) or "root"
            name, count = base, counts.get(base, 2)
            while name in defs:
                name, count = f"{base}_{count}", count + 1
            counts[base] = count
            names[known], defs[name] = name, {}
            defs[name] = moved(found) if type(found) is dict else {"type": "object"}
        return f"#/$defs/{names[known]}"

    def moved(node: Any) -> Any:
        if type(node) is not dict:
            return node
        if type(node.get("$ref")) is str:
            return {"$ref": "#" if node["$ref"] == "#" else named(node["$ref"])}
        out = _each(node, moved) if node is not schema else _each({**node, "$defs": {}, "definitions": {}}, moved)
        return {k: v for k, v in out.items() if k not in ("$defs", "definitions")}

    out: Schema = moved(schema)
    return {**out, "$defs": defs} if defs else out


# ── the root ─────────────────────────────────────────────────────────────────


def _rooted(schema: Schema) -> Schema:
    """The root as one object: references resolved, alternatives as one set of properties, what all demand demanded."""
    out = dict(schema)
    for _ in range(8):
        found = _target(schema, out.get("$ref"))
        if type(found) is not dict:
            break
        del out["$ref"]
        out = {**found, **out}
    for key in ("allOf", "anyOf", "oneOf"):
        branches = out.pop(key, None)
        if type(branches) is list and branches:
            out = _united(out, [_rooted_branch(b, schema) for b in branches], every=key == "allOf")
    if out.get("type", "object") != "object" and "properties" not in out:
        out = {k: v for k, v in out.items() if k in ("description", "$defs", "definitions")}
    return {**out, "type": "object", "properties": out.get("properties", {})}


def _rooted_branch(branch: Any, root: Schema) -> Schema:
    found = _target(root, branch["$ref"]) if type(branch) is dict and "$ref" in branch else branch
    return found if type(found) is dict else {}


def _united(node: Schema, branches: list[Schema], *, every: bool) -> Schema:
    """A node with what its branches say: all of it where every branch holds, the common demands where one does."""
    out = dict(node)
    properties = {name: s for b in branches for name, s in b.get("properties", {}).items()}
    if properties or "properties" in out:
        out["properties"] = {**properties, **out.get("properties", {})}
    demands = [set(b.get("required", ())) for b in branches]
    shared = set.union(*demands) if every else set.intersection(*demands)
    required = [*out.get("required", ()), *sorted(shared - set(out.get("required", ())))]
    if required:
        out["required"] = required
    if every:
        together: Schema = {}  # what an earlier one says counts, and what the node says counts most
        for branch in reversed(branches):
            together.update((k, v) for k, v in branch.items() if k not in ("properties", "required"))
        out = {**together, **out}
    return out


# ── every node ───────────────────────────────────────────────────────────────


def _walked(node: Any, rules: frozenset[str], drop: frozenset[str], around: str | None) -> Any:
    """One schema and all below it; `around` is the type of the value it speaks of, where a schema above said so."""
    if type(node) is bool:
        return {"type": around or "string"} if node and "typed" in rules else node
    if type(node) is not dict:
        return node
    out = _any_of_only(node) if "any-of-only" in rules else node
    out = {k: v for k, v in out.items() if k not in drop}
    if "one-type" in rules and type(out.get("type")) is list:
        kinds = out.pop("type")
        if len(kinds) == 1:
            out["type"] = kinds[0]
        elif kinds and "anyOf" not in out:
            out["anyOf"] = [{"type": kind} for kind in kinds]
    if "branch-types" in rules and type(out.get("anyOf")) is list and "type" in out:
        kind = out.pop("type")
        out["anyOf"] = [_pushed(branch, kind) for branch in out["anyOf"]]
        around = kind if type(kind) is str else around
    if "no-tuples" in rules:
        _untuple(out)
    if "typed" in rules and not {"type", "anyOf", "oneOf", "allOf", "$ref"} & out.keys():
        out = _typed(out, around)
    mine = out.get("type") if type(out.get("type")) is str else around
    same = _each({k: v for k, v in out.items() if k in _SAME_VALUE}, lambda c: _walked(c, rules, drop, mine))
    rest = _each({k: v for k, v in out.items() if k not in _SAME_VALUE}, lambda c: _walked(c, rules, drop, None))
    return {k: same[k] if k in same else rest[k] for k in out}


def _any_of_only(node: Schema) -> Schema:
    """allOf merged into its node, oneOf as anyOf."""
    branches = node.get("allOf")
    if type(branches) is list and branches and all(type(b) is dict for b in branches):
        if len(branches) == 1 and "$ref" in branches[0]:
            return {"$ref": branches[0]["$ref"]}
        node = _united({k: v for k, v in node.items() if k != "allOf"}, branches, every=True)
    out = {k: v for k, v in node.items() if k not in ("oneOf", "allOf")}
    if "oneOf" in node:
        out.setdefault("anyOf", node["oneOf"])
    return out


def _pushed(branch: Any, kind: Any) -> Any:
    """A branch with the type that stood beside the alternatives, unless it has one."""
    if type(branch) is not dict or "type" in branch or "$ref" in branch:
        return branch
    if type(branch.get("anyOf")) is list:
        return {**branch, "anyOf": [_pushed(inner, kind) for inner in branch["anyOf"]]}
    return {"type": kind, **branch}


def _untuple(node: Schema) -> None:
    """A list with a schema for each place → a list of any of them."""
    places = node.pop("prefixItems", None)
    if places is None and type(node.get("items")) is list:
        places = node.pop("items")
    if type(places) is list:
        node["items"] = places[0] if len(places) == 1 else {"anyOf": places} if places else {"type": "string"}


def _typed(node: Schema, around: str | None) -> Schema:
    """The node with the type that what else it says implies; with one for each kind of its values."""
    values = [node["const"]] if "const" in node else node.get("enum")
    if type(values) is not list or not values:
        kind = next((k for k, words in _KINDS.items() if any(w in node for w in words)), around or "string")
        return {"type": kind, **node}
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(_kind(value), []).append(value)
    if groups.keys() == {"integer", "number"}:
        return {"type": "number", **node}
    if len(groups) == 1:
        return {"type": next(iter(groups)), **node}
    rest = {k: v for k, v in node.items() if k not in ("enum", "const")}
    return {**rest, "anyOf": [{"type": kind, "enum": several} for kind, several in groups.items()]}


def _kind(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", dict: "object", list: "array", type(None): "null"}
    return kinds.get(type(value), "string")
