"""Generate values that satisfy a JSON Schema, and strings that match a simple regular expression.

The same seed gives the same value.
"""

from __future__ import annotations

import math
import random
import re
import string
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from cnllm.schemas.patterns import compile_pattern
from cnllm.schemas.subschemas import resolve

__all__ = [
    "sample_match",
    "sample_value",
]


_MAX_DEPTH = 6  # depth at which optional nesting ends; required nesting ends at twice this depth
_MAX_LENGTH = 10_000  # characters or items, whatever a schema demands
_MAX_WORK = 25_000  # values and schemas visited for one answer: a short schema may require any number of them
_MAX_STEPS = 64
_HUGE = 1e300  # bounds beyond it, and those that are no number, do not count
_TYPES: dict[str, Any] = {
    "properties": dict,
    **dict.fromkeys(("required", "enum", "prefixItems", "allOf", "anyOf", "oneOf"), list),
    "format": str,
    "multipleOf": int | float,
}
"""The types of the keywords that are read here."""
_FORMATS = {
    "date": "2026-01-02",
    "date-time": "2026-01-02T03:04:05Z",
    "time": "03:04:05Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
}

_PARSER: Any = import_module("re._parser")  # Python's parser of patterns, which has no public name
_LEADING_BRACKET = re.compile(r"(?<!\\)\[(\^?)\]")
_CLASSES = {"DIGIT": string.digits, "WORD": string.ascii_letters + string.digits + "_", "SPACE": " "}
_PRINTABLE = string.ascii_letters + string.digits + "_-.:/ "
_MAX_PIECES = 20_000  # pieces of a pattern that are generated, repetitions included
_MAX_RANGE = 256  # characters of a range to choose from


class _Root:
    """The whole schema, the target of references, with the work that remains."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.budget = _MAX_WORK


def sample_value(schema: Any, words: str = "example", nth: int = 0) -> Any:
    """Return a value that satisfies a JSON Schema. `words` is the text of free strings; `nth` varies the value.

    Supports types, enum, const, required, nested and referenced schemas, anyOf, oneOf, allOf, bounds, formats
    and simple patterns. It ignores `not`, `if` and dependencies, so the value may violate them. A schema that requires
    too much work may get an invalid value too.
    """
    return _value(schema, _Root(schema), words or "example", nth, 0)


def _value(schema: Any, root: _Root, words: str, nth: int, depth: int) -> Any:
    root.budget -= 1
    if schema is False or depth > 2 * _MAX_DEPTH or root.budget < 0:
        return None
    flat = _flatten(schema, root, depth, 0)
    if "const" in flat:
        return flat["const"]
    if flat.get("enum"):
        return flat["enum"][nth % len(flat["enum"])]
    match _type(flat):
        case "object":
            return _object(flat, root, words, nth, depth)
        case "array":
            return _array(flat, root, words, nth, depth)
        case "integer" | "number" as kind:
            return _number(flat, kind, nth)
        case "boolean":
            return nth % 2 == 0
        case "null":
            return None
        case _:
            return _string(flat, root, words, nth)


def _flatten(schema: Any, root: _Root, depth: int, hops: int) -> dict[str, Any]:
    """Merge a schema, its references and its chosen branches into one schema."""
    root.budget -= 1
    if not isinstance(schema, dict) or hops > 2 * _MAX_DEPTH or root.budget < 0:
        return {}
    schema = _without_mistakes(schema)
    out = {k: v for k, v in schema.items() if k not in ("$ref", "allOf", "anyOf", "oneOf")}
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#"):
        out = _merge(_flatten(resolve(ref, root.schema), root, depth, hops + 1), out)
    for part in schema.get("allOf") or []:
        out = _merge(out, _flatten(part, root, depth, hops + 1))
    for keyword in ("anyOf", "oneOf"):
        branches = [o for o in schema.get(keyword) or [] if isinstance(o, dict)]
        nulls = [o for o in branches if _type(o) == "null"]
        others = [o for o in branches if _type(o) != "null"]
        # At depth null comes first, so that a recursive schema ends.
        if branch := (nulls + others if depth > _MAX_DEPTH else others + nulls)[:1]:
            out = _merge(out, _flatten(branch[0], root, depth, hops + 1))
    root.budget -= (len(out) + len(out.get("properties") or ())) // 16
    return out


def _without_mistakes(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without keywords whose values have a wrong type: many endpoints ignore such mistakes."""
    out = {key: value for key, value in schema.items() if isinstance(value, _TYPES.get(key, object))}
    if "required" in out:
        out["required"] = [name for name in out["required"] if isinstance(name, str)]
    return out


def _merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    out = first | second
    for key in ("properties", "$defs", "definitions"):
        if key in first and key in second:
            out[key] = first[key] | second[key]
    if "required" in first and "required" in second:
        out["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return out


def _type(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    if "minimum" in schema or "maximum" in schema:
        return "number"
    return "null" if schema.get("const", "") is None else "string"


def _object(schema: dict[str, Any], root: _Root, words: str, nth: int, depth: int) -> dict[str, Any]:
    properties: dict[str, Any] = schema.get("properties") or {}
    root.budget -= len(properties) // 16
    names = list(schema.get("required") or [])
    required = set(names)
    optional = [n for n in properties if n not in required]
    minimum = min(_count(schema, "minProperties", 0), _MAX_LENGTH)
    names += optional[: max(0, minimum - len(names))]
    additional = schema.get("additionalProperties", True)
    names += [f"key{number + 1}" for number in range(len(names), minimum)]
    return {n: _value(properties.get(n, additional), root, words, nth, depth + 1) for n in names if root.budget > 0}


def _array(schema: dict[str, Any], root: _Root, words: str, nth: int, depth: int) -> list[Any]:
    prefix: list[Any] = list(schema.get("prefixItems") or [])
    items: Any = schema.get("items", {})
    if isinstance(items, list):  # a tuple in older drafts
        prefix, items = items, schema.get("additionalItems", {})
    maximum = _count(schema, "maxItems", 1 << 30)
    least = max(_count(schema, "minItems", 0), len(prefix), int(items is not False and depth < _MAX_DEPTH))
    count = min(maximum, _MAX_LENGTH, least)
    values: list[Any] = []
    while len(values) < count and root.budget > 0:
        i = len(values)
        values.append(_value(prefix[i] if i < len(prefix) else items, root, words, nth + i, depth + 1))
    return values


def _count(schema: dict[str, Any], keyword: str, default: int) -> int:
    """Return a number of characters, items or properties, which some protocols write as text."""
    try:
        return int(schema.get(keyword, default))
    except (TypeError, ValueError, OverflowError):
        return default


def _number(schema: dict[str, Any], kind: str, nth: int) -> float:
    step = schema.get("multipleOf", 0)
    if not (0 < step < math.inf):
        step = 1 if kind == "integer" else 0
    low = _bound(schema, "minimum", "exclusiveMinimum", 1)
    high = _bound(schema, "maximum", "exclusiveMaximum", -1)
    value: float = nth + 1
    if (low is not None and value < low[0]) or (high is not None and value > high[0]):
        value = low[0] if low is not None else high[0] if high is not None else value
    if not step:
        edge = next((b for b in (low, high) if b is not None and b[1] and b[0] == value), None)
        if edge is not None:  # an exclusive bound: the middle of both bounds, or a value next to it
            value = (low[0] + high[0]) / 2 if low is not None and high is not None else value + edge[1]
        return value
    value = math.ceil(value / step) * step
    if low is not None and low[1] and value <= low[0]:
        value += step
    for _ in range(_MAX_STEPS):  # floats may never reach the bound
        if high is None or not (value > high[0] or (high[1] and value >= high[0])) or value <= -(1 << 60):
            break
        value -= step * max(1, math.floor((value - high[0]) / step))
    return int(value) if value == int(value) else value


def _bound(schema: dict[str, Any], inclusive: str, exclusive: str, inward: int) -> tuple[float, int] | None:
    """Return a bound, and the direction of valid values if the bound itself is not allowed (0 if it is)."""
    bounds: list[tuple[float, int]] = []
    for key, direction in ((inclusive, 0), (exclusive, inward)):
        value = schema.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _HUGE:
            bounds.append((value, direction))
    if not bounds:
        return None
    return max(bounds, key=lambda b: (b[0] * inward, abs(b[1])))


def _string(schema: dict[str, Any], root: _Root, words: str, nth: int) -> str:
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    text = f"{words} {nth + 1}" if nth else words
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        match, steps = sample_match(pattern, f"{words}{nth}", full_match=False)
        root.budget -= steps // 4
        text = match or text
    text = text.ljust(min(_MAX_LENGTH, _count(schema, "minLength", 0)), "x")
    return text[: _count(schema, "maxLength", 1 << 30)]


# ── strings for a pattern ────────────────────────────────────────────────────


class _UnsupportedPattern(Exception):
    """A construct that this generator does not support."""


def sample_match(pattern: str, seed: str, *, full_match: bool = True) -> tuple[str | None, int]:
    """Return a match of the pattern (of the whole string, or as a search finds it), or None if it is too hard.

    The second value is how many pieces of the pattern were generated. Supports literals, classes, groups, alternatives
    and counts. It checks the string before it returns it, so that lookaheads and the like give None and never a wrong
    string.
    """
    steps = 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of classes that later versions may read in another way
            items = _PARSER.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return None, steps
    for repetitions in (12, 1):
        generator = _Generator(random.Random(seed), repetitions)
        try:
            text = generator.sequence(items)
        except (_UnsupportedPattern, RecursionError):
            return None, steps + generator.steps
        steps += generator.steps
        source = _LEADING_BRACKET.sub(r"[\1\]", pattern)  # a form that every engine reads in the same way
        if compile_pattern(f"^(?:{source})$" if full_match else source).matches(text):
            return text, steps
    return None, steps


class _Generator:
    """One walk over a parsed pattern. Every method returns the text for what it gets."""

    def __init__(self, source: random.Random, repetitions: int) -> None:
        self.random, self.repetitions, self.steps = source, repetitions, 0

    def sequence(self, items: Iterable[tuple[Any, Any]]) -> str:
        return "".join(self.item(str(kind), value) for kind, value in items)

    def item(self, kind: str, value: Any) -> str:
        self.steps += 1
        if self.steps > _MAX_PIECES:
            raise _UnsupportedPattern
        match kind:
            case "LITERAL":
                return chr(value)
            case "NOT_LITERAL":
                return self.random.choice(_PRINTABLE.replace(chr(value), ""))
            case "ANY":
                return self.random.choice(string.ascii_lowercase)
            case "AT":
                return ""
            case "IN":
                return self.random.choice(self.members(value))
            case "BRANCH":
                return self.sequence(value[1][0])
            case "SUBPATTERN":
                return self.sequence(value[-1])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                minimum, maximum, items = value
                count = min(maximum, max(minimum, self.repetitions))
                return "".join(self.sequence(items) for _ in range(count))
            case _:
                raise _UnsupportedPattern

    def members(self, entries: Iterable[tuple[Any, Any]]) -> str:
        """Return the characters of a class."""
        out, is_negated = "", False
        for kind, value in entries:
            self.steps += 1
            match str(kind):
                case "NEGATE":
                    is_negated = True
                case "LITERAL":
                    out += chr(value)
                case "RANGE":
                    low, high = value
                    out += "".join(map(chr, range(low, high + 1 if is_negated else min(high, low + _MAX_RANGE) + 1)))
                case "CATEGORY":
                    name = str(value).removeprefix("CATEGORY_")
                    known = _CLASSES[name.removeprefix("NOT_")]
                    out += "".join(c for c in _PRINTABLE if c not in known) if name.startswith("NOT_") else known
        if is_negated:
            out = "".join(c for c in _PRINTABLE if c not in out)
        if not out:
            raise _UnsupportedPattern
        return out
