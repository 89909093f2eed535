"""Walk JSON Schema: schemas directly below a schema, targets of references, and the types of values.

No other module lists the keywords that hold schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

__all__ = ["json_type", "map_children", "resolve", "schemas_in"]

_TYPES = {bool: "boolean", int: "integer", float: "number", list: "array", type(None): "null"}
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


def json_type(value: Any) -> str:
    """Return the JSON type of a value."""
    return _TYPES.get(type(value), "object" if isinstance(value, Mapping) else "string")


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


def schemas_in(node: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema, and all schemas in it, in their order."""
    stack: list[Any] = [node]
    while stack:
        if isinstance(one := stack.pop(), dict):
            yield one
            below: list[Any] = []
            map_children(one, below.append)
            stack += reversed(below)


def resolve(ref: Any, root: Any) -> Any:
    """Return the target of a reference inside the root; None for any other value."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    node = root
    for key in ref[1:].strip("/").split("/") if ref.strip("#/") else ():
        key = unquote(key).replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(key)
        elif isinstance(node, list) and key.isdecimal() and len(key) < 10 and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node
