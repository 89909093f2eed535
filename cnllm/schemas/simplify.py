"""JSON Schemas as pydantic writes them, made shorter for a model, and what strict mode makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["inline_references", "make_strict", "remove_nulls", "remove_titles"]

Schema = dict[str, Any]
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames")
_PREFIX = "#/$defs/"
_HOPS = 20  # references that lead to references
_EXPANSIONS = 200  # references written out; a schema that needs more keeps the rest as references
_NODES = 20_000  # schemas in what is written out


def _below(node: Schema, change: Callable[[Any], Any]) -> Schema:
    """The node with every schema directly below it changed; names of properties and values are no schemas."""
    out: Schema = {}
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            value = {name: change(child) for name, child in value.items()}
        elif key in _LISTS and isinstance(value, list):
            value = [change(child) for child in value]
        elif key in _SINGLE and isinstance(value, dict):
            value = change(value)
        out[key] = value
    return out


def remove_titles(node: Any) -> Any:
    """Without titles, which repeat the names, and `discriminator`, which is no JSON Schema and names definitions."""
    if not isinstance(node, dict):
        return node
    return {key: value for key, value in _below(node, remove_titles).items() if key not in ("title", "discriminator")}


def inline_references(schema: Schema) -> Schema:
    """References written out, but for what holds itself: many endpoints know no `$defs`, and models read on better."""
    defs: Schema = schema.get("$defs", {})
    left, nodes = _EXPANSIONS, _NODES
    references, sizes = _contents(defs)
    kept: set[str] = set()

    def walk(node: Any, inside: frozenset[str]) -> Any:
        nonlocal left, nodes
        if not isinstance(node, dict):
            return node
        name = str(node.get("$ref", "")).removeprefix(_PREFIX)
        if name not in defs:
            return _below(node, lambda child: walk(child, inside))
        if name in inside or name in endless or left <= 0 or nodes < sizes[name]:
            kept.add(name)
            return node
        left -= 1
        nodes -= sizes[name]
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return {**walk(defs[name], inside | {name}), **beside}

    endless = {name for name in defs if name in _reached(references, name)}
    out: Schema = walk({key: value for key, value in schema.items() if key != "$defs"}, frozenset())
    done: Schema = {}
    while waiting := sorted(kept - done.keys()):
        for name in waiting:
            done[name] = _below(defs[name], lambda child: walk(child, frozenset()))
    return {**out, "$defs": {name: done[name] for name in sorted(done)}} if done else out


def _contents(defs: Schema) -> tuple[dict[str, set[str]], dict[str, int]]:
    """Return for each definition the others that it refers to, and how many schemas it holds."""
    references: dict[str, set[str]] = {name: set() for name in defs}
    sizes = dict.fromkeys(defs, 0)

    def walk(node: Any, owner: str) -> Any:
        if isinstance(node, dict):
            sizes[owner] += 1
            name = str(node.get("$ref", "")).removeprefix(_PREFIX)
            if name in defs:
                references[owner].add(name)
            _below(node, lambda child: walk(child, owner))
        return node

    for name, node in defs.items():
        walk(node, name)
    return references, sizes


def _reached(references: dict[str, set[str]], start: str) -> set[str]:
    """The definitions that one refers to, over others too."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = references[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def make_strict(node: Any) -> Any:
    """As strict mode wants it: objects are closed, every property is required, and what may be left out may be null."""
    if not isinstance(node, dict):
        return node
    out = {key: value for key, value in _below(node, make_strict).items() if key != "default"}
    properties = out.get("properties")
    if isinstance(properties, dict):
        required = out.get("required")
        demanded = set(required) if isinstance(required, list | tuple) else set()
        out["properties"] = {k: v if k in demanded else _nullable(v) for k, v in properties.items()}
        out["required"] = list(properties)
        out["additionalProperties"] = False
    return out


def _allows_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True
    if "anyOf" in schema:
        return any(_allows_null(branch) for branch in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return None in schema.get("enum", [schema.get("const")])
    if "oneOf" in schema:
        return any(_allows_null(branch) for branch in schema["oneOf"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return "null" in kind
    return kind == "null" or (kind is None and not schema.keys() & {"$ref", "properties", "items", "allOf"})


def _nullable(schema: Schema) -> Schema:
    if _allows_null(schema):
        return schema
    said = {"description": schema["description"]} if "description" in schema else {}
    rest = {key: value for key, value in schema.items() if key != "description"}
    branches = [*rest["anyOf"]] if list(rest) == ["anyOf"] else [rest]
    return {"anyOf": [*branches, {"type": "null"}], **said}


def remove_nulls(value: Any, schema: Schema) -> Any:
    """Arguments without the nulls that strict mode has a model write for what it would leave out."""

    def target(node: Any) -> Any:
        """The schema that a reference means; the node itself where it is none, or one that leads nowhere."""
        for _ in range(_HOPS):
            place = node.get("$ref") if isinstance(node, dict) else None
            if not isinstance(place, str) or not (place == "#" or place.startswith("#/")):
                break
            found: Any = schema
            for key in place.split("/")[1:]:
                found = found.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
            if not isinstance(found, dict):
                break
            node = found
        return node if isinstance(node, dict) else {}

    def target_of(node: Any) -> Any:
        return target(node) if isinstance(node, dict) else node

    def walk(value: Any, node: Any) -> Any:
        node = target(node)
        if isinstance(value, list) and isinstance(node.get("items"), dict):
            return [walk(item, node["items"]) for item in value]
        if isinstance(value, dict) and isinstance(node.get("properties"), dict):
            known, demanded = node["properties"], set(node.get("required", ()))
            return {
                name: walk(inner, known[name]) if name in known else inner
                for name, inner in value.items()
                if inner is not None or name in demanded or name not in known or _allows_null(target_of(known[name]))
            }
        either = (*node.get("anyOf", ()), *node.get("oneOf", ()))
        branches = [target(b) for b in either if isinstance(b, dict) and b.get("type") != "null"]
        meant = branches if len(branches) == 1 else [b for b in branches if _is_meant(value, b)]
        return walk(value, meant[0]) if meant else value

    return walk(value, schema)


def _is_meant(value: Any, branch: Schema) -> bool:
    """Is it this one of several schemas that a list or an object is written by? Told by names and constants."""
    if isinstance(value, list):
        return isinstance(branch.get("items"), dict)
    known = branch.get("properties")
    if not isinstance(value, dict) or not isinstance(known, dict) or not value.keys() <= known.keys():
        return False
    return all("const" not in known[name] or known[name]["const"] == inner for name, inner in value.items())
