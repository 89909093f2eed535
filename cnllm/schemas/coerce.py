"""Convert values that a model wrote as text to the types of a JSON Schema.

A model that writes a call as tags writes every value as plain text; only the tool's schema tells that `5` is a
number and `007` a postcode. A value without a declared type stays text, exactly as written, and so does a value that
does not fit its type: arguments are validated later, together with those of all other calls.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn

import msgspec

from cnllm.schemas.subschemas import json_type, resolve

__all__ = [
    "KINDS",
    "TYPE_ALIASES",
    "allowed_types",
    "coerce",
    "decode_json",
    "equal",
    "finite_number",
    "item_schema",
    "named_types",
    "property_schema",
    "refuse_constant",
]

_MAX_DEPTH = 32  # levels of references and alternatives
_MAX_ALTERNATIVES = 256  # alternatives that are read, and values of an enum
_MAX_NAMED = 100  # alternatives of a schema that names all of its types
TYPE_ALIASES = {
    **dict.fromkeys(("str", "text", "varchar", "char", "enum", "date", "datetime"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long", "short", "uint", "uint32", "uint64", "unsigned"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "num", "float32", "float64"), "number"),
    **dict.fromkeys(("bool", "binary"), "boolean"),
    **dict.fromkeys(("dict", "map", "struct"), "object"),
    **dict.fromkeys(("list", "tuple", "arr", "set"), "array"),
    **dict.fromkeys(("none", "nonetype"), "null"),
}
"""Other names of types, in lower case, that people write into schemas."""
_BRANCHES = ("allOf", "anyOf", "oneOf")
KINDS = ("null", "integer", "number", "boolean", "object", "array", "string")
"""The types of JSON Schema, the narrowest first: a text is read as the first one that fits."""
_INTEGER = r"[+-]?[0-9]{1,1000}"
_WHOLE = r"([+-]?[0-9]{1,1000})\.0{1,32}"
_ESCAPED = r"[\[{][\s\[{]{0,64}\\\""  # the first quote of an object or array is escaped
_NUMBER = r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000})(?:[eE][+-]?[0-9]{1,4})?"
_CANONICAL = r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{0,15}[1-9])?"


def coerce(text: str, schema: Any, root: Any) -> Any:
    """Return the value of a text; `root` is the whole schema, in which references are resolved.

    If several types are allowed, the narrowest one that fits is used. If a string is among them, a value is
    converted only if it would be written back the same (`5`, not `007`). `null` is null wherever null is allowed. Of
    an enum with more than `_MAX_ALTERNATIVES` values only the first are compared, and a string may be among the others.
    """
    enum_values = list(_enum_values(schema, root))
    if text in enum_values:
        return text
    allowed = allowed_types(schema, root)
    for kind in KINDS:
        if kind in allowed:
            fits, value = _read_as(kind, text, allows_string="string" in allowed)
            if fits and (not enum_values or any(equal(value, enum_value) for enum_value in enum_values)):
                return value
    return text


def allowed_types(schema: Any, root: Any) -> frozenset[str]:
    """Return the JSON types that a schema allows; an empty set if it declares none."""
    return frozenset().union(*map(_declared_types, _alternatives(schema, root)))


def named_types(schema: Any, root: Any) -> frozenset[str]:
    """Return the JSON types that a schema allows.

    The set is empty if the schema, or one of its alternatives, names none, and if it has too many alternatives.
    """
    alternatives = list(islice(_alternatives(schema, root), _MAX_NAMED + 1))
    ends = [a for a in alternatives if a.keys().isdisjoint(("$ref", *_BRANCHES))]
    types = [_declared_types(end) for end in ends] if len(alternatives) <= _MAX_NAMED else [set()]
    return frozenset().union(*types) if all(types) else frozenset()


def property_schema(schema: Any, key: str, root: Any) -> Any:
    """Return the schema of one property; None if it is unknown."""
    additional = None
    for alternative in _alternatives(schema, root):
        properties = alternative.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            return properties[key]
        if additional is None and isinstance(alternative.get("additionalProperties"), Mapping):
            additional = alternative["additionalProperties"]
    return additional


def item_schema(schema: Any, root: Any) -> Any:
    """Return the schema of the items of an array, or None."""
    items = (alternative.get("items") for alternative in _alternatives(schema, root))
    return next((schema for schema in items if isinstance(schema, Mapping)), None)


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """Return (value, end) of the JSON at `start`. Raises `ValueError`.

    Line breaks inside strings are allowed: models write them so.
    """
    try:
        value, end = _JSON.raw_decode(text, start)
        if text.find("\\u", start, end) >= 0:
            msgspec.json.encode(value)  # half of a surrogate pair can be written, but is no text
    except RecursionError:
        raise ValueError("too deeply nested") from None
    except (UnicodeError, msgspec.ValidationError) as error:
        raise ValueError("half of a surrogate pair") from error
    return value, end


def refuse_constant(name: str) -> NoReturn:
    """Refuse a constant that JSON does not have, such as NaN. Raises `ValueError`."""
    raise ValueError(f"JSON has no {name}")


def finite_number(text: str) -> float:
    """Return a number of JSON. Raises `ValueError` for one that no float can hold: it would become infinity."""
    value = float(text)
    if value - value != 0:
        raise ValueError(f"the number {text[:20]} is too large")
    return value


_JSON = json.JSONDecoder(strict=False, parse_constant=refuse_constant, parse_float=finite_number)


def _alternatives(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema, and all schemas behind its references, anyOf, oneOf and allOf, each once."""
    visited: set[int] = set()
    queue = deque([(schema, 0)])
    while queue and len(visited) < _MAX_ALTERNATIVES:
        alternative, depth = queue.popleft()
        if id(alternative) in visited or not isinstance(alternative, Mapping):
            continue
        visited.add(id(alternative))
        yield alternative
        if depth < _MAX_DEPTH:
            if isinstance(alternative.get("$ref"), str):
                queue.append((resolve(alternative["$ref"], root), depth + 1))
            for keyword in _BRANCHES:
                branches = alternative.get(keyword)
                if isinstance(branches, list):
                    queue += [(branch, depth + 1) for branch in branches[:_MAX_ALTERNATIVES]]


def _declared_types(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that one schema declares itself."""
    declared = schema.get("type")
    names = declared[:_MAX_ALTERNATIVES] if isinstance(declared, list) else [declared]
    words = [name.lower() for name in names if isinstance(name, str)]
    types = {TYPE_ALIASES.get(word, word) for word in words} & set(KINDS)
    if schema.get("nullable") is True:
        types.add("null")
    if not types:
        values = _values(schema)
        types = {json_type(value) for value in values[:_MAX_ALTERNATIVES]}
        types |= {"string"} if len(values) > _MAX_ALTERNATIVES else set()
        if not values and isinstance(schema.get("properties"), Mapping):
            types = {"object"}
        elif not values and isinstance(schema.get("items"), Mapping):
            types = {"array"}
    return types


def _values(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values of the enum or const of a schema."""
    if isinstance(members := schema.get("enum"), list):
        return members[: _MAX_ALTERNATIVES + 1]
    return [schema["const"]] if "const" in schema else []


def _enum_values(schema: Any, root: Any) -> Iterator[Any]:
    """Yield the values of enum and const, if the schema allows no others."""
    choices: list[Any] = []
    for alternative in _alternatives(schema, root):
        values = _values(alternative)
        if not values and _declared_types(alternative) - {"null"} and alternative.keys().isdisjoint(_BRANCHES):
            return
        choices += values
        if len(choices) > _MAX_ALTERNATIVES:  # further values are not read
            return
    yield from choices


def equal(first: Any, second: Any) -> bool:
    """Whether two values are equal in JSON: true is not 1."""
    return bool(first == second) and (type(first) is bool) == (type(second) is bool)


def _read_as(kind: str, text: str, *, allows_string: bool) -> tuple[bool, Any]:
    """Return (whether it fits, value) of a text read as one JSON type."""
    stripped = text.strip()
    if kind == "string":
        return True, text
    if kind == "null":
        return stripped == "null", None
    if allows_string and text != stripped:
        return False, None
    if kind == "boolean":
        word = stripped if allows_string else stripped.lower()
        return word in ("true", "false"), word == "true"
    if kind in ("object", "array"):
        if not allows_string and re.match(_ESCAPED, stripped):  # encoded twice, without the outer quotes
            stripped = f'"{stripped}"'
        return _read_container(stripped, dict if kind == "object" else list)
    if allows_string and not re.fullmatch(_CANONICAL, stripped):
        return False, None
    integer = re.fullmatch(_INTEGER, stripped) or (None if allows_string else re.fullmatch(_WHOLE, stripped))
    if integer:
        return True, int(integer[integer.lastindex or 0])
    if kind == "integer" or not re.fullmatch(_NUMBER, stripped):
        return False, None
    number = float(stripped)
    return math.isfinite(number), number


def _read_container(text: str, container: type) -> tuple[bool, Any]:
    """Return (whether it fits, value) of an object or array in JSON; some models encode it twice."""
    for _ in range(2):
        try:
            value, end = decode_json(text)
        except ValueError:
            return False, None
        if text[end:].strip():
            return False, None
        if type(value) is container:
            return True, value
        if type(value) is not str:
            break
        text = value.strip()
    return False, None
