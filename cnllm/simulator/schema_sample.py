"""Values that satisfy a JSON Schema, made up."""

from __future__ import annotations

import math
from typing import Any

from cnllm.simulator.regex_sample import sample_with_size

__all__ = ["sample_value"]

_DEEP = 6  # where optional nesting ends; a schema that demands more is given up at twice that
_MOST = 10_000  # characters or items, whatever a schema demands
_WORK = 25_000  # values and schemas looked at for one answer: a few lines of schema may demand any number of them
_STEPS = 64
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


class _Root:
    """The whole schema, to which references point, and how much work is left."""

    __slots__ = ("left", "schema")

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.left = _WORK


def sample_value(schema: Any, words: str = "example", nth: int = 0) -> Any:
    """A value that satisfies a JSON Schema; `words` is what free strings say, `nth` tells one from the next.

    Knows types, enum, const, required, nested and referenced schemas, anyOf, oneOf, allOf, bounds, formats
    and simple patterns. `not`, `if` and dependencies are not read: what is made may fail it, and so may the answer to a
    schema that demands too much.
    """
    return _value(schema, _Root(schema), words or "example", nth, 0)


def _value(schema: Any, root: _Root, words: str, nth: int, depth: int) -> Any:
    root.left -= 1
    if schema is False or depth > 2 * _DEEP or root.left < 0:
        return None
    plain = _flat(schema, root, depth, 0)
    if "const" in plain:
        return plain["const"]
    if plain.get("enum"):
        return plain["enum"][nth % len(plain["enum"])]
    match _type(plain):
        case "object":
            return _object(plain, root, words, nth, depth)
        case "array":
            return _array(plain, root, words, nth, depth)
        case "integer" | "number" as kind:
            return _number(plain, kind, nth)
        case "boolean":
            return nth % 2 == 0
        case "null":
            return None
        case _:
            return _string(plain, root, words, nth)


def _flat(schema: Any, root: _Root, depth: int, hops: int) -> dict[str, Any]:
    """A schema with its references followed and its combinations decided, as one table."""
    root.left -= 1
    if not isinstance(schema, dict) or hops > 2 * _DEEP or root.left < 0:
        return {}
    out = {k: v for k, v in schema.items() if k not in ("$ref", "allOf", "anyOf", "oneOf")}
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#"):
        out = _both(_flat(_target(root, ref), root, depth, hops + 1), out)
    for part in schema.get("allOf") or []:
        out = _both(out, _flat(part, root, depth, hops + 1))
    for choice in ("anyOf", "oneOf"):
        options = [o for o in schema.get(choice) or [] if isinstance(o, dict)]
        nulls = [o for o in options if _type(o) == "null"]
        rest = [o for o in options if _type(o) != "null"]
        # Deep down null comes first: that is where a schema that contains itself ends.
        if chosen := (nulls + rest if depth > _DEEP else rest + nulls)[:1]:
            out = _both(out, _flat(chosen[0], root, depth, hops + 1))
    root.left -= (len(out) + len(out.get("properties") or ())) // 16
    return out


def _target(root: _Root, ref: str) -> Any:
    """What a JSON pointer within the schema points to."""
    here = root.schema
    for part in filter(None, ref[1:].split("/")):
        here = here.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(here, dict) else None
    return here


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    out = one | other
    for key in ("properties", "$defs", "definitions"):
        if key in one and key in other:
            out[key] = one[key] | other[key]
    if "required" in one and "required" in other:
        out["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return out


def _type(plain: dict[str, Any]) -> str:
    kind = plain.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in plain or "required" in plain:
        return "object"
    if "items" in plain or "prefixItems" in plain:
        return "array"
    if "minimum" in plain or "maximum" in plain:
        return "number"
    return "null" if plain.get("const", "") is None else "string"


def _object(plain: dict[str, Any], root: _Root, words: str, nth: int, depth: int) -> dict[str, Any]:
    known: dict[str, Any] = plain.get("properties") or {}
    root.left -= len(known) // 16
    names = list(plain.get("required") or [])
    needed = set(names)
    optional = [n for n in known if n not in needed]
    fewest = min(int(plain.get("minProperties", 0)), _MOST)
    names += optional[: max(0, fewest - len(names))]
    rest = plain.get("additionalProperties", True)
    while len(names) < fewest:
        names.append(f"key{len(names) + 1}")
    return {n: _value(known.get(n, rest), root, words, nth, depth + 1) for n in names if root.left > 0}


def _array(plain: dict[str, Any], root: _Root, words: str, nth: int, depth: int) -> list[Any]:
    fixed: list[Any] = list(plain.get("prefixItems") or [])
    items: Any = plain.get("items", {})
    if isinstance(items, list):  # the older way of writing a tuple
        fixed, items = items, plain.get("additionalItems", {})
    most = int(plain.get("maxItems", 1 << 30))
    count = min(most, _MOST, max(int(plain.get("minItems", 0)), len(fixed), int(items is not False and depth < _DEEP)))
    made: list[Any] = []
    while len(made) < count and root.left > 0:
        i = len(made)
        made.append(_value(fixed[i] if i < len(fixed) else items, root, words, nth + i, depth + 1))
    return made


def _number(plain: dict[str, Any], kind: str, nth: int) -> float:
    step = plain.get("multipleOf") or (1 if kind == "integer" else 0)
    low, high = (
        _bound(plain, "minimum", "exclusiveMinimum", 1),
        _bound(plain, "maximum", "exclusiveMaximum", -1),
    )
    value: float = nth + 1
    if (low is not None and value < low[0]) or (high is not None and value > high[0]):
        value = low[0] if low is not None else high[0] if high is not None else value
    if not step:
        edge = next((b for b in (low, high) if b is not None and b[1] and b[0] == value), None)
        if edge is not None:  # an open bound: half way to the other one, or a little inside
            value = (low[0] + high[0]) / 2 if low is not None and high is not None else value + edge[1]
        return value
    value = math.ceil(value / step) * step
    if low is not None and low[1] and value <= low[0]:
        value += step
    for _ in range(_STEPS):  # floats may not get there
        if high is None or not (value > high[0] or (high[1] and value >= high[0])) or value <= -(1 << 60):
            break
        value -= step * max(1, math.floor((value - high[0]) / step))
    return int(value) if value == int(value) else value


def _bound(plain: dict[str, Any], closed: str, opened: str, inward: int) -> tuple[float, int] | None:
    """A bound, and which way is inside where the bound itself is not allowed (0 where it is)."""
    found: list[tuple[float, int]] = []
    for key, way in ((closed, 0), (opened, inward)):
        said = plain.get(key)
        if isinstance(said, int | float) and not isinstance(said, bool):
            found.append((said, way))
    if not found:
        return None
    return max(found, key=lambda b: (b[0] * inward, abs(b[1])))


def _string(plain: dict[str, Any], root: _Root, words: str, nth: int) -> str:
    if plain.get("format") in _FORMATS:
        return _FORMATS[plain["format"]]
    text = f"{words} {nth + 1}" if nth else words
    pattern = plain.get("pattern")
    if isinstance(pattern, str):
        match, steps = sample_with_size(pattern, f"{words}{nth}", whole=False)
        root.left -= steps // 4
        text = match or text
    text = text.ljust(min(_MOST, int(plain.get("minLength", 0))), "x")
    return text[: int(plain.get("maxLength", 1 << 30))]
