"""Recognise a schema of usual keywords with values of their kinds.

To check a schema by the schema of its dialect takes a hundred times as long, and a client of a gateway may send many
long ones.
"""

from __future__ import annotations

from typing import Any

__all__ = ["is_usual"]

_MOST_LEVELS = 32
_DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-07/schema#",
}
_KEYWORDS = {
    "types": ["type"],
    "schema": [
        *("items", "additionalProperties", "not", "propertyNames", "contains", "if", "then", "else"),
        *("additionalItems", "unevaluatedProperties", "unevaluatedItems"),
    ],
    "schemas": ["anyOf", "allOf", "oneOf", "prefixItems"],
    "named schemas": ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"],
    "text": ["title", "description", "format", "pattern", "$comment", "contentEncoding", "contentMediaType"],
    "count": [
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("minContains", "maxContains"),
    ],
    "number": ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
    "names": ["required"],
    "values": ["enum", "examples"],
    "flag": ["uniqueItems", "deprecated", "readOnly", "writeOnly"],
    "reference": ["$ref"],
    "dialect": ["$schema"],
    "rare": [
        *("$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "$vocabulary"),
        *("dependencies", "dependentRequired", "contentSchema", "multipleOf"),
    ],
}
_KINDS = {keyword: kind for kind, keywords in _KEYWORDS.items() for keyword in keywords}
"""The kinds of the values that keywords have in all these dialects. Further keywords may have any value."""

_TYPES = {"null", "boolean", "object", "array", "number", "string", "integer"}


def is_usual(schema: Any) -> bool:
    """Whether a schema is surely valid, apart from its patterns. False says nothing: the whole check decides."""
    level = [schema]
    for _ in range(_MOST_LEVELS):
        inner: list[Any] = []
        for part in level:
            if type(part) is bool:
                continue
            if type(part) is not dict:
                return False
            for key, value in part.items():
                kind = _KINDS.get(key)
                if kind == "schema":
                    inner.append(value)
                elif kind == "schemas":
                    if type(value) is not list or not value:
                        return False
                    inner += value
                elif kind == "named schemas":
                    if type(value) is not dict:
                        return False
                    inner += value.values()
                elif kind is not None and not _is_valid_keyword(kind, value):
                    return False
        if not inner:
            return True
        level = inner
    return False


def _is_valid_keyword(kind: str, value: Any) -> bool:
    """Whether a keyword has a value of its kind."""
    match kind:
        case "text":
            return type(value) is str
        case "reference":
            return type(value) is str and value.isascii() and value.startswith("#/") and "%" not in value
        case "count":
            return type(value) is int and value >= 0
        case "number":
            return type(value) is int or (type(value) is float and value - value == 0)
        case "flag":
            return type(value) is bool
        case "names":
            return type(value) is list and all(type(name) is str for name in value) and len({*value}) == len(value)
        case "types":
            names = [value] if type(value) is str else value
            return _is_valid_keyword("names", names) and len(names) > 0 and _TYPES.issuperset(names)
        case "values":
            return type(value) is list and len(value) > 0
        case "dialect":
            return type(value) is str and value in _DIALECTS
    return False
