"""More of what hangs: patterns, names, branches and values that a model may write, each with the schema it meets."""

from __future__ import annotations

from typing import Any

# ruff: noqa: E501  a table

__all__ = ["VARIANTS"]

LONG = "a" * 20_000
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def pattern(source: str) -> dict[str, Any]:
    return {"type": "string", "pattern": source}


def deep(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = {"a": inner}
    return inner


def within(**keywords: Any) -> dict[str, Any]:
    return {"$defs": {"n": keywords}, "properties": {"v": {"$ref": "#/$defs/n"}}}


AGAIN = {"properties": {"a": {"$ref": "#/$defs/n"}}}
EXACT = [{**AGAIN, "required": ["x"]}, {**AGAIN, "required": ["y"]}, AGAIN]

# name → (schema of the object, what stands under its name "v")
VARIANTS: dict[str, tuple[dict[str, Any], Any]] = {
    "three levels of plus": ({"properties": {"v": pattern("^(((a+)+)+)+$")}}, LONG + "!"),
    "optional many times": ({"properties": {"v": pattern("^" + "a?" * 200 + "a" * 200 + "$")}}, "a" * 199 + "!"),
    "star of alternatives that may be empty": ({"properties": {"v": pattern("^(|a|aa|b?)*$")}}, LONG + "!"),
    "dots between": ({"properties": {"v": pattern("(.*,){30}x")}}, ",a" * 5_000),
    "dots, lazy": ({"properties": {"v": pattern("^(.*?,){40}z")}}, ",a" * 5_000),
    "spaces at the end": ({"properties": {"v": pattern(r"\s+$")}}, " " * 20_000 + "x"),
    "letters of any case": ({"properties": {"v": pattern("^(?i)(a|A)+$")}}, "aA" * 10_000 + "!"),
    "Chinese": ({"properties": {"v": pattern(r"^([\u4e00-\u9fa5]+，?)+$")}}, "张" * 20_000 + "!"),
    "behind a look-ahead": ({"properties": {"v": pattern("^(?!x)(a+)+$")}}, LONG + "!"),
    "a back-reference": ({"properties": {"v": pattern(r"^(a*)*\1$")}}, LONG + "!"),
    "beyond RE2 in `not`": ({"properties": {"v": {"not": pattern(r"^(?=a)(a|a)*$")}}}, LONG + "!"),
    "counts in counts": ({"properties": {"v": pattern("^((a{0,50}){0,50}){0,40}$")}}, LONG + "!"),
    "one pattern at many names": ({"properties": {"v": {"additionalProperties": pattern("^(a+)+$")}}},
                                  {f"k{i}": "a" * 500 + "!" for i in range(300)}),
    "names of the model's": ({"properties": {"v": {"propertyNames": pattern(r"^(\w+\.?)+$")}}},
                             {"a" * 3_000 + f"!{i}": 1 for i in range(20)}),
    "many patterns of names": ({"properties": {"v": {"patternProperties": {f"^(x+)+{i}$": False for i in range(300)}}}},
                               {"x" * 300 + f"!{i}": 1 for i in range(300)}),
    "dependentSchemas of names": ({"properties": {"v": {"dependentSchemas": {f"k{i}": {"propertyNames": pattern("^(k+[0-9]*)+$")}
                                                                             for i in range(200)}}}},
                                  {f"k{i}": 1 for i in range(200)}),
    "unique, nearly equal": ({"properties": {"v": {"uniqueItems": True}}}, [[0] * 50 + [i] for i in range(1_000)]),
    "unique, numbers as texts": ({"properties": {"v": {"uniqueItems": True}}}, [x for i in range(5_000) for x in (i, str(i))]),
    "unique in unique": ({"properties": {"v": {"uniqueItems": True, "items": {"uniqueItems": True}}}},
                         [[{"i": i, "j": j} for j in range(60)] for i in range(60)]),
    "an enum of lists over lists": ({"properties": {"v": {"items": {"enum": [[i, [i]] for i in range(3_000)]}}}},
                                    [[2_999, [2_999]]] * 5_000),
    "an enum in anyOf, often": ({"properties": {"v": {"items": {"anyOf": [{"enum": [*range(1_000)]}] * 50}}}}, [-1] * 2_000),
    "const objects in oneOf": ({"properties": {"v": {"items": {"oneOf": [{"const": {"i": i}} for i in range(500)]}}}},
                               [{"i": 499}] * 200),
    "anyOf of three": (within(anyOf=EXACT), deep(40)),
    "oneOf of three": (within(oneOf=EXACT), deep(40)),
    "not of not": (within(allOf=[{"not": {"not": AGAIN}}, {"not": {"not": AGAIN}}]), deep(40)),
    "if in if": (within(**{"if": {**AGAIN, "required": ["z"]}, "else": AGAIN}), deep(40)),
    "a dynamic reference": ({"$dynamicAnchor": "n", "anyOf": [
        {"properties": {"a": {"$dynamicRef": "#n"}, "v": {"$dynamicRef": "#n"}}, "required": ["x"]},
        {"properties": {"a": {"$dynamicRef": "#n"}, "v": {"$dynamicRef": "#n"}}}]}, deep(40)),
    "a recursive reference": ({"$schema": DRAFT_2019, "$recursiveAnchor": True, "anyOf": [
        {"properties": {"a": {"$recursiveRef": "#"}, "v": {"$recursiveRef": "#"}}, "required": ["x"]},
        {"properties": {"a": {"$recursiveRef": "#"}, "v": {"$recursiveRef": "#"}}}]}, deep(40)),
    "unevaluatedItems of branches": ({"properties": {"v": {"anyOf": [{"contains": {"const": i}} for i in range(200)],
                                                           "unevaluatedItems": False}}}, [*range(300)]),
    "contains, counted": ({"properties": {"v": {"allOf": [{"contains": {"multipleOf": i + 1}, "minContains": 5} for i in range(300)]}}},
                          [*range(2_000)]),
    "large, and then deep": ({**within(anyOf=EXACT), "additionalProperties": True}, {"pad": [0] * 2_000, **deep(40)}),
    "numbers without end": ({"properties": {"v": {"items": {"multipleOf": 0.0001}}}}, [10**3_000 + i for i in range(500)]),
}  # fmt: skip
