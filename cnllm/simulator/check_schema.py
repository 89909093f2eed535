"""Find the part of a tool's JSON Schema that is outside the subset an endpoint accepts.

It shares the walk with the adaptation of a schema for a request, and none of its rules, so that it can detect an
error there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from cnllm.schemas.subschemas import children

__all__ = ["schema_violation"]

_KINDS = ("type", "anyOf", "oneOf", "allOf", "$ref")
_COMBINED = ("$ref", "allOf", "anyOf", "oneOf")


def schema_violation(schema: dict[str, Any], rules: Collection[str], keywords: Collection[str]) -> str | None:
    """Return the violation of the rules of `tools.schema` and `tools.schema_drop`, or None."""
    if "root-object" in rules and (schema.get("type") != "object" or any(key in schema for key in _COMBINED)):
        return "the root must have type 'object' and no combination"
    return next((problem for node in _nodes(schema) if (problem := _node_violation(node, rules, keywords))), None)


def _nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all schemas in a schema, itself first. Names of properties and values are no schemas."""
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield node
        stack += children(node)


def _node_violation(node: dict[str, Any], rules: Collection[str], keywords: Collection[str]) -> str | None:
    if (keyword := next((key for key in node if key in keywords), None)) is not None:
        return f"the keyword '{keyword}' is not supported"
    ref = node.get("$ref")
    if isinstance(ref, str):
        if "inline-refs" in rules:
            return "'$ref' is not supported"
        if "root-refs" in rules and (len(node) > 1 or not (ref == "#" or ref.startswith("#/$defs/"))):
            return f"'$ref' must stand alone and point into '#/$defs/', not to '{ref}'"
    if "any-of-only" in rules and (key := next((k for k in ("oneOf", "allOf") if k in node), None)):
        return f"'{key}' is not supported, only 'anyOf' is"
    if "one-type" in rules and isinstance(node.get("type"), list):
        return "'type' must be a string"
    if "branch-types" in rules and isinstance(node.get("anyOf"), list) and "type" in node:
        return "'type' must stand in the branches of 'anyOf', not beside it"
    if "no-tuples" in rules and ("prefixItems" in node or isinstance(node.get("items"), list)):
        return "'items' must be one schema"
    if "typed" in rules and not any(key in node for key in _KINDS):
        return "a schema without 'type'"
    return None
