"""Schemas and values that hang a validator, or make it grow with the square of the value or worse."""

from __future__ import annotations

from typing import Any

__all__ = ["SHAPES"]

DRAFT = "http://json-schema.org/draft-0{}/schema#"


def objects(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def arrays(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def again(**keywords: Any) -> dict[str, Any]:
    """A schema whose keywords refer to it."""
    return {"$defs": {"n": keywords}, "$ref": "#/$defs/n"}


def pattern(source: str) -> dict[str, Any]:
    return {"type": "string", "pattern": source}


BELOW = {"properties": {"a": {"$ref": "#/$defs/n"}}}
ROOT = {"properties": {"a": {"$ref": "#"}}}
LETTERS = "a" * 5_000 + "!"
DEEP = objects(60)
CHAIN = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)} | {"d40": {}}
EITHER = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)} | {"d40": False}

# name → (schema, value, verdict): True valid, False not, None not known
SHAPES: dict[str, tuple[dict[str, Any], Any, bool | None]] = {
    "nested plus": (pattern("^(a+)+$"), LETTERS, False),
    "nested star": (pattern("^(a*)*$"), LETTERS, False),
    "alternatives that overlap": (pattern("^(a|a)*$"), LETTERS, False),
    "alternatives of one prefix": (pattern("^(a|aa)+$"), LETTERS, False),
    "words and spaces": (pattern(r"^(\w+\s?)*$"), LETTERS, False),
    "three stars": (pattern("^.*.*.*=.*$"), LETTERS, False),
    "an address": (pattern(r"^([a-zA-Z0-9_.-])+@(([a-zA-Z0-9-])+\.)+([a-zA-Z0-9]{2,4})+$"), LETTERS, False),
    "lazy": (pattern("^(a+?)+?$"), LETTERS, False),
    "a search from every place": (pattern("a+b"), LETTERS, False),
    "counts of counts": (pattern("((a{100}){100}){100}"), LETTERS, True),
    "a large automaton": (pattern("(?:a|b)*a(?:a|b){5000}c"), "ab" * 50_000, None),
    "not": ({"not": pattern("^(a+)+$")}, LETTERS, True),
    "names, patternProperties": ({"patternProperties": {"^(x+x+)+y$": False}}, {"x" * 5_000: 1}, True),
    "names, many patterns": (
        {"patternProperties": {f"^(a+)+{i}$": {} for i in range(500)}},
        dict.fromkeys(map(str, range(500))),
        None,
    ),
    "names, additionalProperties": (
        {"patternProperties": {"^(x+x+)+y$": {}}, "additionalProperties": False},
        {"x" * 5_000: 1},
        False,
    ),
    "names, propertyNames": ({"propertyNames": pattern("^(a+)+$")}, {LETTERS: 1}, False),
    "names, unevaluatedProperties": (
        {"patternProperties": {"^(a|b)+$": {}}, "unevaluatedProperties": False},
        {LETTERS: 1},
        False,
    ),
    "a draft in a draft": (
        {"properties": {"a": {"$schema": DRAFT.format(7), "pattern": "^(a+)+$"}}},
        {"a": LETTERS},
        False,
    ),
    "draft 3": ({"$schema": DRAFT.format(3), "disallow": [{"type": "string", "pattern": "^(a+)+$"}]}, LETTERS, True),
    "draft 4": ({"$schema": DRAFT.format(4), "pattern": "^(a+)+$"}, LETTERS, False),
    "draft 6": ({"$schema": DRAFT.format(6), "contains": pattern("^(a+)+$")}, [LETTERS], False),
    "unique objects": ({"uniqueItems": True}, [{"i": i} for i in range(6_000)], True),
    "unique arrays": ({"uniqueItems": True}, [[i, {}] for i in range(6_000)], True),
    "unique mixture": ({"uniqueItems": True}, [i if i % 2 else str(i) for i in range(6_000)], True),
    "unique numbers of one hash": ({"uniqueItems": True}, [i * (2**61 - 1) for i in range(20_000)], True),
    "unique, draft 4": ({"$schema": DRAFT.format(4), "uniqueItems": True}, [{"i": i} for i in range(6_000)], True),
    "enum of objects": ({"items": {"enum": [{"i": i} for i in range(5_000)]}}, [{"i": 4_999}] * 5_000, True),
    "enum of texts": ({"items": {"enum": [f"v{i}" for i in range(5_000)]}}, ["v4999"] * 5_000, True),
    "enum of numbers": ({"items": {"enum": [*range(5_000)]}}, [4_999.0] * 5_000, True),
    "a large const": ({"items": {"const": [*range(1_000)]}}, [[*range(1_000)]] * 300, True),
    "anyOf": (again(anyOf=[{**BELOW, "required": ["x"]}, BELOW]), DEEP, None),
    "oneOf": (again(oneOf=[{**BELOW, "required": ["x"]}, BELOW]), DEEP, None),
    "allOf": (again(allOf=[BELOW, BELOW]), DEEP, None),
    "not and properties": ({"not": {**ROOT, "required": ["x"]}, **ROOT}, DEEP, None),
    "if, then, else": ({"if": ROOT, "then": ROOT, "else": ROOT}, DEEP, None),
    "a chain of allOf": ({"$defs": CHAIN, "$ref": "#/$defs/d0"}, 1, None),
    "a chain of anyOf": ({"$defs": EITHER, "$ref": "#/$defs/d0"}, 1, None),
    "dependentSchemas": ({"dependentSchemas": {"a": {"allOf": [ROOT] * 3}}}, DEEP, None),
    "dependencies": ({"$schema": DRAFT.format(7), "dependencies": {"a": {"allOf": [ROOT] * 3}}}, DEEP, None),
    "extends": ({"$schema": DRAFT.format(3), "extends": [ROOT, ROOT]}, DEEP, None),
    "unevaluatedProperties": (again(allOf=[BELOW] * 3, unevaluatedProperties=False), DEEP, None),
    "unevaluatedItems": (
        {"contains": {"type": "integer"}, "minContains": 0, "unevaluatedItems": False},
        ["a"] * 5_000,
        False,
    ),
    "contains in contains": (
        {"contains": {"contains": {"enum": [[i] for i in range(500)]}}},
        [[[-1]] * 100] * 100,
        False,
    ),
    "a deep value": ({"items": {"$ref": "#"}}, arrays(900), None),
    "many names that are required": ({"items": {"required": [f"r{i}" for i in range(5_000)]}}, [{}] * 5_000, False),
    "long messages": (
        {"anyOf": [{"items": {"anyOf": [{"type": "string"}, False]}}, False]},
        [["x" * 100] * 100] * 500,
        False,
    ),
    "a number that is infinite": ({"multipleOf": 0.1}, float("inf"), False),
    "a number without end": ({"multipleOf": 1e-300}, 10**4_000 + 1, False),
    "a number that cannot be written": ({"type": "string"}, 10**5_000, None),
}
