"""Walk JSON Schema: the schemas directly below a schema. No other module lists the keywords that hold schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["children", "map_children"]

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


def map_children(node: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a node with every schema directly below it changed. Names of properties and values are no schemas."""
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            value = {name: change(child) for name, child in value.items()}
        elif key in _LISTS and isinstance(value, list):
            value = [change(child) for child in value]
        elif key in _SINGLE and (isinstance(value, dict) or (key == "items" and isinstance(value, bool))):
            value = change(value)
        out[key] = value
    return out


def children(node: dict[str, Any]) -> Iterator[Any]:
    """Yield every schema directly below a node."""
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            yield from value.values()
        elif key in _LISTS and isinstance(value, list):
            yield from value
        elif key in _SINGLE:
            yield value
