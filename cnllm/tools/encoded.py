"""Arguments that a model encoded twice: JSON text where an array or an object is meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["decoded", "unwrapped"]

_BAD = (msgspec.DecodeError, RecursionError)
_DEPTH = 8  # how far a schema is followed; one that goes deeper refers to itself


def unwrapped(raw: str) -> dict[str, Any] | None:
    """The object in a JSON string, for arguments that were encoded twice as a whole."""
    try:
        text = msgspec.json.decode(raw)
        value = msgspec.json.decode(text) if type(text) is str else None
    except _BAD:
        return None
    return value if type(value) is dict else None


def decoded(arguments: dict[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments, text decoded where the schema has room for nothing else; the very same where none was."""
    if schema is None or not any(map(_may_be_encoded, arguments.values())):
        return arguments
    made = {name: _decoded(value, name, schema) for name, value in arguments.items()}
    return arguments if all(made[name] is arguments[name] for name in made) else made


def _may_be_encoded(value: Any) -> bool:
    return type(value) is str and value.lstrip()[:1] in ("[", "{")


def _decoded(value: Any, name: str, schema: Mapping[str, Any]) -> Any:
    """A value, decoded if it is text where only an array or an object may stand."""
    if not _may_be_encoded(value):
        return value
    properties = schema.get("properties")
    wanted = _types(properties.get(name), schema, _DEPTH) if isinstance(properties, Mapping) else set()
    if "string" in wanted or not wanted & {"array", "object"}:
        return value
    try:
        inner = msgspec.json.decode(value)
    except _BAD:
        return value
    return inner if ("array" if type(inner) is list else "object") in wanted else value


def _types(said: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    """The JSON types that a schema lets through, as far as it names them; one that names none lets text through."""
    if not isinstance(said, Mapping) or not depth:
        return {"string"}
    if isinstance(reference := said.get("$ref"), str):
        found: Any = root
        for key in reference.removeprefix("#/").split("/"):
            found = found.get(key) if isinstance(found, Mapping) else None
        return _types(found, root, depth - 1)
    branches = [b for word in ("anyOf", "oneOf") if isinstance(said.get(word), list) for b in said[word]]
    if branches:
        return set().union(*(_types(b, root, depth - 1) for b in branches))
    kind = said.get("type")
    if isinstance(kind, str):
        return {kind}
    return {k for k in kind if isinstance(k, str)} if isinstance(kind, list) else {"string"}
