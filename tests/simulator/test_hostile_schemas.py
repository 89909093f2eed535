"""Schemas of a few lines that demand values without end: the simulator answers, and does work that has a bound."""

import sys
from types import FrameType
from typing import Any

import pytest
from examples import some

from cnllm.simulator.schema_sample import sample_value

HUGE = 10**9
SELF = {"$ref": "#"}


def nested(depth: int, least: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "minItems": least, "items": schema}
    return schema


SCHEMAS: list[Any] = [
    nested(8, 50),
    nested(2, HUGE),
    nested(900, 1),
    {"type": "object", "properties": {f"p{n}": SELF for n in range(20)}, "required": [f"p{n}" for n in range(20)]},
    {"type": "object", "minProperties": HUGE},
    {"allOf": [SELF] * 9},
    {"anyOf": [{"allOf": [SELF] * 9}], "type": "object"},
    {"type": "array", "minItems": 30, "items": SELF},
    {"type": "array", "prefixItems": [SELF] * 30},
    {"type": "string", "minLength": HUGE},
    {"type": "number", "minimum": 1e17, "maximum": 1e17 - 100, "multipleOf": 0.1},
    {"type": "integer", "exclusiveMaximum": -1e18, "multipleOf": 1e-9},
    {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}] * 6}, "b": {"allOf": [{"$ref": "#/$defs/a"}] * 6}},
     "$ref": "#/$defs/a"},
]  # fmt: skip


@pytest.mark.sampled
def test_work_has_a_bound_whatever_a_schema_demands() -> None:
    calls = 0

    class TooMuch(Exception):
        pass

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 3_000_000:
            raise TooMuch

    for schema in some(SCHEMAS):
        calls = 0
        sys.setprofile(count)
        try:
            made = sample_value(schema)
        finally:
            sys.setprofile(None)
        assert made is None or made is not schema


def test_what_can_be_made_is_still_made() -> None:
    assert sample_value(nested(2, 40)) == [
        [f"example {i + j + 1}" if i + j else "example" for j in range(40)] for i in range(40)
    ]
    assert len(sample_value({"type": "array", "minItems": 10_000, "items": {"type": "integer"}})) == 10_000
    assert sample_value({"type": "integer", "exclusiveMaximum": -5, "multipleOf": 3}) == -6


def test_mistakes_in_a_schema_are_ignored() -> None:
    """Many endpoints take such a schema, so that a simulated one answers too."""
    words = ("properties", "required", "enum", "prefixItems", "allOf", "anyOf", "oneOf", "format", "multipleOf",
             "minItems", "maxItems", "minLength", "maxLength", "minProperties", "minimum", "maximum", "pattern",
             "items", "type", "$ref", "const", "additionalProperties")  # fmt: skip
    odd: list[Any] = [
        None,
        True,
        7,
        -1,
        10**400,
        1e400,
        float("nan"),
        "x",
        [],
        [[]],
        [None],
        [{}],
        {},
        {"a": None},
        {"a": []},
    ]
    for kind in ("object", "array", "string", "number", "integer"):
        for word in words:
            for value in odd:
                schema = {"type": kind, "required": ["a"], "properties": {"a": {}}, "minItems": 1, word: value}
                for nested in (schema, {"allOf": [schema, {"type": kind, word: value}]}, {"items": schema}):
                    sample_value(nested)
    assert sample_value({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", []]}) == {"a": 1}
