"""Repair what no draft of JSON Schema since the sixth allows, as servers of tools write it.

Endpoints that check the schemas of tools refuse the whole request for one such keyword. The caller's schema does not
change.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from cnllm.schemas.coerce import KINDS, TYPE_ALIASES
from cnllm.schemas.subschemas import map_children

__all__ = ["repair_schema_if_needed"]

Schema = dict[str, Any]
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_MOST_KEPT = 16 * 1024  # bytes of a schema that is remembered: clients of a gateway send any
_DATA = ("default", "const")  # null is a value of these


def repair_schema_if_needed(schema: Schema) -> Schema | None:
    """Return a schema without keywords of a wrong form, or None where it has none.

    A loop offers the same tools again and again: each is judged once, unless it is so long that nobody keeps it.
    """
    try:
        encoded = msgspec.json.encode(schema)
        if not (_is_broken(encoded) if len(encoded) <= _MOST_KEPT else _is_broken.__wrapped__(encoded)):
            return None
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    repaired: Schema = _repaired(schema)
    return repaired


@lru_cache(maxsize=256)
def _is_broken(encoded: bytes) -> bool:
    """Whether a schema, as JSON, has keywords of a wrong form."""
    schema = msgspec.json.decode(encoded)
    return bool(_repaired(schema) != schema)


def _repaired(node: Any) -> Any:
    """Return a schema without keywords of a wrong form; anything that is no schema is one that allows all."""
    if not isinstance(node, dict):
        return node if isinstance(node, bool) else {}
    out: Schema = {}
    for key, value in node.items():
        value = _value(key, value, node)
        if value is not None or key in _DATA:
            out[key] = value
    if required := _required_in(out.get("properties"), out.get("required")):
        out["required"] = required
    return map_children(out, _repaired)


def _value(key: str, value: Any, node: Schema) -> Any:
    """Return the value of a keyword in its right form; None where it says nothing."""
    match key:
        case "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas":
            return value if value != [] else {}  # an empty map, as PHP writes it
        case "type":
            return _type(value)
        case "enum":
            return value if isinstance(value, list | tuple) else None
        case "required":
            return value if _are_names(value) else None
        case "exclusiveMinimum" | "exclusiveMaximum" if isinstance(value, bool):  # as the fourth draft has it
            return node.get(_BOUNDS[key]) if value else None
        case "minimum" | "maximum":
            return None if any(node.get(name) is True for name in _BOUNDS if _BOUNDS[name] == key) else value
    return value


def _type(value: Any) -> Any:
    """Return a type under its own name, or several; None where it is none."""
    if isinstance(value, list | tuple):
        return [name for name in map(_type, value) if isinstance(name, str)] or None
    if not isinstance(value, str) or value in KINDS:
        return value if isinstance(value, str) else None
    name = TYPE_ALIASES.get(value.lower(), value.lower())
    return name if name in KINDS else None


def _are_names(value: Any) -> bool:
    """Whether a value is a list of names of properties."""
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _required_in(properties: Any, required: Any) -> list[str]:
    """Return the required properties, with those whose own schema says so; nothing where none does."""
    if not isinstance(properties, dict):
        return []
    marked = [name for name, child in properties.items() if isinstance(child, dict) and child.get("required") is True]
    known: list[str] = list(required or ())
    return [*known, *(name for name in marked if name not in known)] if marked else []
