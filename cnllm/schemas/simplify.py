"""Shorten the JSON Schemas that pydantic writes, and adapt them to strict mode."""

from __future__ import annotations

import json
from typing import Any

from cnllm.schemas.subschemas import map_children, resolve, schemas_in

__all__ = ["inline_references", "is_json", "make_strict", "remove_nulls", "remove_odd_defaults", "remove_titles"]

Schema = dict[str, Any]
_CONDITIONS = ("if", "then", "else", "dependentSchemas")
"""Keywords whose schemas mean something else in strict form: an object that lacks a property no longer fits."""
_PREFIX = "#/$defs/"
_MAX_HOPS = 20  # references in a row
_MAX_EXPANSIONS = 200  # references replaced in full; further ones stay references
_MAX_NODES = 20_000  # schemas in the replaced references


def remove_titles(node: Any) -> Any:
    """Return a schema without titles, which repeat the names, and without `discriminator`.

    `discriminator` is no keyword of JSON Schema, and it names definitions.
    """
    if not isinstance(node, dict):
        return node
    return {
        key: value for key, value in map_children(node, remove_titles).items() if key not in ("title", "discriminator")
    }


def remove_odd_defaults(node: Any) -> Any:
    """Return a schema without the defaults of Python that JSON cannot hold, such as NaN."""
    if not isinstance(node, dict):
        return node
    inner = map_children(node, remove_odd_defaults)
    return {key: value for key, value in inner.items() if key != "default" or is_json(value)}


def is_json(value: Any) -> bool:
    """Whether JSON can hold a value exactly."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def inline_references(schema: Schema) -> Schema:
    """Return a schema with its references replaced by their targets.

    Recursive references stay, and so do those beyond the limits. Many endpoints do not support `$defs`, and models
    read a schema without jumps better.
    """
    defs: Schema = schema.get("$defs", {})
    expansions_left, nodes_left = _MAX_EXPANSIONS, _MAX_NODES
    contents = {name: list(schemas_in(node)) for name, node in defs.items()}
    references = {name: {_definition(one) for one in nodes} & defs.keys() for name, nodes in contents.items()}
    remaining: set[str] = set()

    def walk(node: Any, inside: frozenset[str]) -> Any:
        """Return a node with its references replaced."""
        nonlocal expansions_left, nodes_left
        if not isinstance(node, dict):
            return node
        name = _definition(node)
        if name not in defs:
            return map_children(node, lambda child: walk(child, inside))
        if name in inside or name in self_referring or expansions_left <= 0 or nodes_left < len(contents[name]):
            remaining.add(name)
            return node
        expansions_left -= 1
        nodes_left -= len(contents[name])
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        return {**walk(defs[name], inside | {name}), **siblings}

    self_referring = {name for name in defs if name in _reachable(references, name)}
    out: Schema = walk({key: value for key, value in schema.items() if key != "$defs"}, frozenset())
    definitions: Schema = {}
    while missing := sorted(remaining - definitions.keys()):
        for name in missing:
            definitions[name] = map_children(defs[name], lambda child: walk(child, frozenset()))
    return {**out, "$defs": {name: definitions[name] for name in sorted(definitions)}} if definitions else out


def _definition(node: Schema) -> str:
    """Return the name of the definition that a schema refers to."""
    return str(node.get("$ref", "")).removeprefix(_PREFIX)


def _reachable(references: dict[str, set[str]], start: str) -> set[str]:
    """Return the definitions that one refers to, directly or through others."""
    names: set[str] = set()
    queue = [start]
    while queue:
        new_names = references[queue.pop()] - names
        names |= new_names
        queue += new_names
    return names


def make_strict(node: Any) -> Any:
    """Return a schema for strict mode: objects are closed, every property is required, optional ones may be null."""
    if not isinstance(node, dict):
        return node
    changed = map_children(node, make_strict)
    out = {key: node[key] if key in _CONDITIONS else value for key, value in changed.items() if key != "default"}
    properties = out.get("properties")
    if isinstance(properties, dict):
        required = out.get("required")
        required_names = set(required) if isinstance(required, list | tuple) else set()
        out["properties"] = {k: v if k in required_names else _make_nullable(v) for k, v in properties.items()}
        out["required"] = list(properties)
        out["additionalProperties"] = False
    return out


def _allows_null(schema: Any) -> bool:
    """Whether a schema allows null."""
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


def _make_nullable(schema: Schema) -> Schema:
    """Return a schema that also allows null."""
    if _allows_null(schema):
        return schema
    description = {"description": schema["description"]} if "description" in schema else {}
    rest = {key: value for key, value in schema.items() if key != "description"}
    branches = [*rest["anyOf"]] if list(rest) == ["anyOf"] else [rest]
    return {"anyOf": [*branches, {"type": "null"}], **description}


def remove_nulls(value: Any, schema: Schema) -> Any:
    """Return arguments without the nulls that a model writes in strict mode for values it would leave out."""

    def target(node: Any) -> Any:
        """Return the target of a reference; the node itself if it has none, or one without a target."""
        for _ in range(_MAX_HOPS):
            target_node = resolve(node.get("$ref"), schema) if isinstance(node, dict) else None
            if not isinstance(target_node, dict):
                break
            node = target_node
        return node if isinstance(node, dict) else {}

    def walk(value: Any, node: Any) -> Any:
        """Return a value without the nulls at optional properties."""
        node = target(node)
        items, first = node.get("items"), node.get("prefixItems")
        if isinstance(value, list) and (isinstance(items, dict) or isinstance(first, list)):
            schemas = first if isinstance(first, list) else []
            return [walk(item, schemas[index] if index < len(schemas) else items) for index, item in enumerate(value)]
        properties, further = node.get("properties"), node.get("additionalProperties")
        if isinstance(value, dict) and (isinstance(properties, dict) or isinstance(further, dict)):
            named, required_names = properties if isinstance(properties, dict) else {}, set(node.get("required", ()))
            return {
                name: walk(inner, named.get(name, further))
                for name, inner in value.items()
                if inner is not None or name in required_names or name not in named or _allows_null(target(named[name]))
            }
        alternatives = (*node.get("anyOf", ()), *node.get("oneOf", ()))
        branches = [
            target(branch) for branch in alternatives if isinstance(branch, dict) and branch.get("type") != "null"
        ]
        matches = branches if len(branches) == 1 else [branch for branch in branches if _is_match(value, branch)]
        return walk(value, matches[0]) if matches else value

    return walk(value, schema)


def _is_match(value: Any, branch: Schema) -> bool:
    """Whether this is the schema of a list or an object among several, judged by names and constants."""
    if isinstance(value, list):
        return isinstance(branch.get("items"), dict)
    properties = branch.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict) or not value.keys() <= properties.keys():
        return False
    return all("const" not in properties[name] or properties[name]["const"] == inner for name, inner in value.items())
