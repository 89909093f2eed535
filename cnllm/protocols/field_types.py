"""Check the types of a request's fields by the protocol's documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["require_types"]

_ARTICLES = {
    "boolean": "a boolean",
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "array": "an array",
    "object": "an object",
}


def require_types(body: Mapping[str, Any], types: Mapping[str, str]) -> None:
    """Raise `ValueError` for a field of another type. Types are those of JSON Schema, with a space between several.

    A field that is null counts as not given, and one that the documentation does not name is not checked.
    """
    for name, value in body.items():
        if value is not None and name in types and (kind := _kind(value)) not in (allowed := types[name].split()):
            if kind == "integer" and "number" in allowed:
                continue
            expected = " or ".join(_ARTICLES[word] for word in allowed)
            raise ValueError(f"{name}: {expected} is required, not {_ARTICLES[kind]}")


def _kind(value: Any) -> str:
    """Return the JSON Schema type of a value. A number without a fraction is an integer."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "object" if isinstance(value, Mapping) else "array"
