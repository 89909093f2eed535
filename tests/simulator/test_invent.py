"""Values out of schemas, and strings out of patterns."""

import re
from typing import Any

import jsonschema
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from cnllm.simulator.request import split_pieces
from cnllm.simulator.schema_sample import sample_match, sample_value

SCHEMAS: list[Any] = [
    {"type": "string"},
    {"type": "string", "minLength": 40},
    {"type": "string", "maxLength": 2},
    {"type": "string", "format": "date-time"},
    {"type": "string", "pattern": "^[A-Z]{3}-\\d{4}$"},
    {"type": "string", "enum": ["b", "a"]},
    {"enum": [None, 1]},
    {"const": {"a": 1}},
    {"type": "integer"},
    {"type": "integer", "minimum": 18, "maximum": 120},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "exclusiveMinimum": 1},
    {"type": "integer", "exclusiveMaximum": 1},
    {"type": "integer", "minimum": 5, "multipleOf": 4},
    {"type": "integer", "maximum": -5, "multipleOf": 4},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
    {"type": "number", "exclusiveMinimum": 1},
    {"type": "number", "maximum": 0.25},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["null", "integer"]},
    {"type": "array"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
    {"type": "array", "maxItems": 0},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    {"type": "object"},
    {"type": "object", "required": ["x"]},
    {"type": "object", "minProperties": 2, "properties": {"a": {"type": "integer"}}},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
    {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]}]},
    {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": ["b"]}]},
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"], "not": {"required": ["a"]}}],
    },
    {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/my.Node"}},
        "required": ["node"],
        "$defs": {
            "my.Node": {
                "type": "object",
                "properties": {
                    "next": {"anyOf": [{"$ref": "#/$defs/my.Node"}, {"type": "null"}]},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/my.Node"}},
                },
                "required": ["next", "children"],
            }
        },
    },
    {},
    True,
]


@each("nth", [0, 1, 5])
@each("schema", SCHEMAS, ids=str)
def test_what_is_made_up_satisfies_its_schema(schema: Any, nth: int) -> None:
    jsonschema.Draft202012Validator(schema).validate(sample_value(schema, "some words", nth))


@each(
    "schema",
    [
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a", "b"]},
        {"type": "array", "minItems": 10**9},
        {"type": "string", "minLength": 10**9},
        {"type": "integer", "minimum": 5, "maximum": 1},
    ],
    ids=str,
)
def test_schemas_that_nothing_satisfies_come_to_an_end(schema: Any) -> None:
    made = sample_value(schema)  # within reason: there is no end to what some of them ask for
    assert len(repr(made)) < 10_000_000


bounds = st.integers(-50, 50)


@given(bounds, bounds, st.integers(1, 7), st.integers(0, 9), st.booleans())
def test_numbers_within_bounds(low: int, span: int, step: int, nth: int, opened: bool) -> None:
    high = low + abs(span) + 2 * step + 2
    first, last = ("exclusiveMinimum", "exclusiveMaximum") if opened else ("minimum", "maximum")
    for kind in ("integer", "number"):
        schema = {"type": kind, first: low, last: high, "multipleOf": step}
        jsonschema.validate(sample_value(schema, nth=nth), schema)
        del schema["multipleOf"]
        jsonschema.validate(sample_value(schema, nth=nth), schema)


@each(
    "pattern",
    [
        "[a-zA-Z0-9]{9}",
        "call_[0-9a-f]+",
        r"^[\w.-]{1,64}$",
        r"\d{4}-\d{2}",
        "(?:one|two)-[^a-z]",
        "(?P<a>x)?y*z{2,}",
        r"functions\.[a-z]+:\d+",
        ".{3}",
        "[]a]",
        r"\bword",
        r"[^\d\s]{3}",
        "",
    ],
)
def test_strings_that_match(pattern: str) -> None:
    made = {sample_match(pattern, str(seed))[0] for seed in range(5)}
    assert all(m is not None and re.fullmatch(pattern, m) for m in made)
    assert sample_match(pattern, "a") == sample_match(pattern, "a")


@each("pattern", ["(", "(?=a)b", r"(a)\1", "a(?!b)"])
def test_patterns_that_are_too_hard_give_none(pattern: str) -> None:
    assert sample_match(pattern, "a")[0] is None


@given(st.text())
def test_pieces_are_the_text(text: str) -> None:
    assert "".join(split_pieces(text)) == text
