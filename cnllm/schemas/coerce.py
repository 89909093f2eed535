"""Values that were written as text: what each stands for by its JSON Schema.

A model that writes a call as tags writes every value as plain text; only the tool's schema says that `5` is a number
and `007` a postcode. What is not declared stays text, exactly as written, and so does what is not of its declared type:
whether arguments fit is judged later, where every call's are.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

__all__ = ["allowed_types", "coerce", "decode_json", "item_schema", "property_schema"]

_DEEP = 32  # how far references and alternatives are followed
_WIDE = 256  # how many alternatives are looked at, and how many values of an enum
_LOOSE = {
    **dict.fromkeys(("str", "text", "varchar", "char", "enum", "date", "datetime"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long", "short", "uint", "uint32", "uint64", "unsigned"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "num", "float32", "float64"), "number"),
    **dict.fromkeys(("bool", "binary"), "boolean"),
    **dict.fromkeys(("dict", "map", "struct"), "object"),
    **dict.fromkeys(("list", "tuple", "arr", "set"), "array"),
    **dict.fromkeys(("none", "nonetype"), "null"),
}
_KINDS = ("null", "integer", "number", "boolean", "object", "array", "string")
_INTEGER = re.compile(r"[+-]?[0-9]{1,1000}")
_WHOLE = re.compile(r"([+-]?[0-9]{1,1000})\.0{1,32}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000})(?:[eE][+-]?[0-9]{1,4})?")
_CANONICAL = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{0,15}[1-9])?")


def coerce(text: str, schema: Any, root: Any) -> Any:
    """The value a text stands for; `root` is the whole schema, in which references are looked up.

    Where several types are allowed the narrowest that fits is taken, but where a string is among them, only if it
    would be written back the same (`5`, not `007`). `null` is null wherever null is allowed. Of an enum with more than
    `_WIDE` values the first alone are looked at, and a string may be among the others.
    """
    listed = list(_listed(schema, root))
    if text in listed:
        return text
    allowed = allowed_types(schema, root)
    for kind in _KINDS:
        if kind in allowed:
            fits, value = _as(kind, text, "string" in allowed)
            if fits and (not listed or any(_equal(value, one) for one in listed)):
                return value
    return text


def allowed_types(schema: Any, root: Any) -> frozenset[str]:
    """The JSON types a schema allows. None at all: it does not say."""
    found: set[str] = set()
    for one in _alternatives(schema, root):
        found |= _said(one)
    return frozenset(found)


def property_schema(schema: Any, key: str, root: Any) -> Any:
    """What a schema says of one property; None where it does not know it."""
    other = None
    for one in _alternatives(schema, root):
        properties = one.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            return properties[key]
        if other is None and isinstance(one.get("additionalProperties"), Mapping):
            other = one["additionalProperties"]
    return other


def item_schema(schema: Any, root: Any) -> Any:
    """What a schema says of the items of an array."""
    return next((one["items"] for one in _alternatives(schema, root) if isinstance(one.get("items"), Mapping)), None)


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """(value, where it ends) of the JSON at `start`. Raises ValueError.

    Line breaks inside strings are allowed: models write them so.
    """
    try:
        value, end = _JSON.raw_decode(text, start)
        if text.find("\\u", start, end) >= 0:
            msgspec.json.encode(value)  # half a surrogate pair can be written, but is no text
    except RecursionError:
        raise ValueError("too deeply nested") from None
    except (UnicodeError, msgspec.ValidationError) as error:
        raise ValueError("half a character") from error
    return value, end


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(strict=False, parse_constant=_constant)


def _alternatives(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """A schema, and all that its references, anyOf, oneOf and allOf lead to, each once."""
    seen: set[int] = set()
    waiting = deque([(schema, 0)])
    while waiting and len(seen) < _WIDE:
        one, depth = waiting.popleft()
        if not isinstance(one, Mapping) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if depth < _DEEP:
            if isinstance(one.get("$ref"), str):
                waiting.append((_at(one["$ref"], root), depth + 1))
            for word in ("allOf", "anyOf", "oneOf"):
                branches = one.get(word)
                if isinstance(branches, list):
                    waiting += [(branch, depth + 1) for branch in branches[:_WIDE]]


def _at(ref: str, root: Any) -> Any:
    """What a local reference points at."""
    if not ref.startswith("#"):
        return None
    here = root
    for part in ref[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping):
            here = here.get(part)
        elif isinstance(here, list) and part.isdecimal() and int(part) < len(here):
            here = here[int(part)]
        else:
            return None
    return here


def _said(one: Mapping[str, Any]) -> set[str]:
    """The types that one schema names itself."""
    told = one.get("type")
    names = [name for name in (told[:_WIDE] if isinstance(told, list) else [told]) if isinstance(name, str)]
    found = {_LOOSE.get(name.lower(), name.lower()) for name in names} & set(_KINDS)
    if one.get("nullable") is True:
        found.add("null")
    if not found:
        values = _values(one)
        found = {_kind(value) for value in values[:_WIDE]} | ({"string"} if len(values) > _WIDE else set())
        if not values and isinstance(one.get("properties"), Mapping):
            found = {"object"}
        elif not values and isinstance(one.get("items"), Mapping):
            found = {"array"}
    return found


def _values(one: Mapping[str, Any]) -> list[Any]:
    listed = one.get("enum")
    return listed[: _WIDE + 1] if isinstance(listed, list) else [one["const"]] if "const" in one else []


def _listed(schema: Any, root: Any) -> Iterator[Any]:
    """The values of an enum or const, where the schema allows nothing but such."""
    every: list[Any] = []
    for one in _alternatives(schema, root):
        values = _values(one)
        if not values and _said(one) - {"null"} and not any(word in one for word in ("anyOf", "oneOf", "allOf")):
            return
        every += values
        if len(every) > _WIDE:  # which others there are is not looked at
            return
    yield from every


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    by_type = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return by_type.get(type(value), "object")


def _equal(one: Any, other: Any) -> bool:
    """Equal as JSON is: true is not 1."""
    return bool(one == other) and (type(one) is bool) == (type(other) is bool)


def _as(kind: str, text: str, or_string: bool) -> tuple[bool, Any]:
    """(does it fit?, value) of a text read as one JSON type."""
    bare = text.strip()
    if kind == "string":
        return True, text
    if kind == "null":
        return bare == "null", None
    if or_string and text != bare:
        return False, None
    if kind == "boolean":
        word = bare if or_string else bare.lower()
        return word in ("true", "false"), word == "true"
    if kind in ("object", "array"):
        return _compound(bare, dict if kind == "object" else list)
    if or_string and not _CANONICAL.fullmatch(bare):
        return False, None
    whole = _INTEGER.fullmatch(bare) or (None if or_string else _WHOLE.fullmatch(bare))
    if whole:
        return True, int(whole[whole.lastindex or 0])
    if kind == "integer" or not _NUMBER.fullmatch(bare):
        return False, None
    number = float(bare)
    return math.isfinite(number), number


def _compound(text: str, wanted: type) -> tuple[bool, Any]:
    """An object or array in JSON; some models encode it twice."""
    for _ in range(2):
        try:
            value, end = decode_json(text)
        except ValueError:
            return False, None
        if text[end:].strip():
            return False, None
        if type(value) is wanted:
            return True, value
        if type(value) is not str:
            break
        text = value.strip()
    return False, None
