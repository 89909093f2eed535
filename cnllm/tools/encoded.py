"""Decode arguments that a model encoded twice: JSON text in place of an array or an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["decode_values", "unwrap_object"]

_BAD = (msgspec.DecodeError, RecursionError)
_MAX_SCHEMAS = 256  # number of schemas that are read for one argument


def unwrap_object(raw: str) -> dict[str, Any] | None:
    """Return the object in a JSON string, for arguments that were encoded twice as a whole."""
    try:
        text = msgspec.json.decode(raw)
        value = msgspec.json.decode(text) if type(text) is str else None
    except _BAD:
        return None
    return value if type(value) is dict else None


def decode_values(arguments: dict[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments with text decoded where the schema allows no text; the same object where none was."""
    if schema is None or not any(map(_may_be_encoded, arguments.values())):
        return arguments
    decoded = {name: _decode(value, name, schema) for name, value in arguments.items()}
    return arguments if all(decoded[name] is arguments[name] for name in decoded) else decoded


def _may_be_encoded(value: Any) -> bool:
    return type(value) is str and value.lstrip()[:1] in ("[", "{")


def _decode(value: Any, name: str, schema: Mapping[str, Any]) -> Any:
    """Return a value, decoded if it is text where the schema allows only an array or an object."""
    if not _may_be_encoded(value):
        return value
    properties = schema.get("properties")
    types = _allowed_types(properties.get(name), schema) if isinstance(properties, Mapping) else set()
    if "string" in types or not types & {"array", "object"}:
        return value
    try:
        inner = msgspec.json.decode(value)
    except _BAD:
        return value
    return inner if ("array" if type(inner) is list else "object") in types else value


def _allowed_types(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a schema allows, as far as it names them. A schema that names none allows text.

    Each schema behind references and alternatives is read once. With more than `_MAX_SCHEMAS` of them text is allowed.
    """
    types: set[str] = set()
    visited: set[int] = set()
    pending = [schema]
    while pending:
        subschema = pending.pop()
        if not isinstance(subschema, Mapping) or len(visited) >= _MAX_SCHEMAS:
            return {"string"}
        if id(subschema) in visited:
            continue
        visited.add(id(subschema))
        if isinstance(reference := subschema.get("$ref"), str):
            pending.append(_target(reference, root))
            continue
        if branches := [
            b for word in ("anyOf", "oneOf") if isinstance(subschema.get(word), list) for b in subschema[word]
        ]:
            pending += branches if len(branches) <= _MAX_SCHEMAS else [None]
            continue
        kind = subschema.get("type")
        if isinstance(kind, str):
            types.add(kind)
        else:
            types |= {k for k in kind if isinstance(k, str)} if isinstance(kind, list) else {"string"}
        if "string" in types:  # text is allowed, which is enough to know
            return types
    return types


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    """Return the schema of a reference, or None."""
    schema: Any = root
    for key in reference.removeprefix("#/").split("/"):
        schema = schema.get(key) if isinstance(schema, Mapping) else None
    return schema
