"""Arguments that a model encoded twice: JSON text where an array or an object is meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["decode_values", "unwrap_object"]

_BAD = (msgspec.DecodeError, RecursionError)
_WIDE = 256  # schemas that are read for one argument


def unwrap_object(raw: str) -> dict[str, Any] | None:
    """The object in a JSON string, for arguments that were encoded twice as a whole."""
    try:
        text = msgspec.json.decode(raw)
        value = msgspec.json.decode(text) if type(text) is str else None
    except _BAD:
        return None
    return value if type(value) is dict else None


def decode_values(arguments: dict[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
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
    wanted = _types(properties.get(name), schema) if isinstance(properties, Mapping) else set()
    if "string" in wanted or not wanted & {"array", "object"}:
        return value
    try:
        inner = msgspec.json.decode(value)
    except _BAD:
        return value
    return inner if ("array" if type(inner) is list else "object") in wanted else value


def _types(said: Any, root: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema lets through, as far as it names them; one that names none lets text through.

    Each schema that references and alternatives lead to is read once; more than `_WIDE` of them let text through.
    """
    types: set[str] = set()
    seen: set[int] = set()
    waiting = [said]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping) or len(seen) >= _WIDE:
            return {"string"}
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(reference := one.get("$ref"), str):
            waiting.append(_target(reference, root))
            continue
        if branches := [b for word in ("anyOf", "oneOf") if isinstance(one.get(word), list) for b in one[word]]:
            waiting += branches if len(branches) <= _WIDE else [None]
            continue
        kind = one.get("type")
        if isinstance(kind, str):
            types.add(kind)
        else:
            types |= {k for k in kind if isinstance(k, str)} if isinstance(kind, list) else {"string"}
        if "string" in types:  # nothing more can be learnt
            return types
    return types


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    """What a reference points at, or None."""
    here: Any = root
    for key in reference.removeprefix("#/").split("/"):
        here = here.get(key) if isinstance(here, Mapping) else None
    return here
