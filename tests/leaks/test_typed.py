"""A value that was written as text becomes what its schema says it is, or stays the text it is."""

from __future__ import annotations

import json
from typing import Any

from cases import each
from hypothesis import given
from hypothesis import strategies as st

from cnllm.schemas.coerce import allowed_types, coerce, property_schema

OBJECT = {"type": "object"}
ROOT: dict[str, Any] = {
    "$defs": {
        "n": {"type": "integer"},
        "loop": {"$ref": "#/$defs/loop"},
        "list": {"anyOf": [{"$ref": "#/$defs/tree"}]},
    },
    "definitions": {"a/b": {"type": "boolean"}},
}
ROOT["$defs"]["tree"] = {"type": "array", "items": {"$ref": "#/$defs/tree"}}

NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}]}

TABLE: list[tuple[str, Any, Any]] = [
    *[(text, {"type": "string"}, text) for text in ("007", "10", "None", "null", "true", "[]", "{}", " a ", "", '"a"')],
    *[
        (text, schema, text)
        for text in ("007", "10", "true", "null")
        for schema in (None, {}, {"description": "d"}, True)
    ],
    ("5", {"type": "integer"}, 5),
    (" 5\n", {"type": "integer"}, 5),
    ("-5", {"type": "integer"}, -5),
    ("007", {"type": "integer"}, 7),
    ("5.0", {"type": "integer"}, 5),
    ("5.5", {"type": "integer"}, "5.5"),
    ("five", {"type": "integer"}, "five"),
    ("", {"type": "integer"}, ""),
    ("null", {"type": "integer"}, "null"),
    ("1_000", {"type": "integer"}, "1_000"),
    ("٣", {"type": "integer"}, "٣"),
    ("9" * 5000, {"type": "integer"}, "9" * 5000),
    ("5", {"type": "number"}, 5),
    ("5.5", {"type": "number"}, 5.5),
    ("-1e3", {"type": "number"}, -1000.0),
    (".5", {"type": "number"}, 0.5),
    ("1e999", {"type": "number"}, "1e999"),
    ("NaN", {"type": "number"}, "NaN"),
    ("Infinity", {"type": "number"}, "Infinity"),
    ("true", {"type": "boolean"}, True),
    ("False", {"type": "boolean"}, False),
    ("TRUE", {"type": "boolean"}, True),
    ("yes", {"type": "boolean"}, "yes"),
    ("1", {"type": "boolean"}, "1"),
    ("null", {"type": "null"}, None),
    ("null", {"type": ["string", "null"]}, None),
    ("null", {"type": "string", "nullable": True}, None),
    ("None", NULLABLE, "None"),
    ("Alice", NULLABLE, "Alice"),
    ("[1, 2]", {"type": "array"}, [1, 2]),
    ("\n[1]\n", {"type": "array"}, [1]),
    ("{}", {"type": "array"}, "{}"),
    ("[1] and", {"type": "array"}, "[1] and"),
    ("a, b", {"type": "array"}, "a, b"),
    ('{"a": {"b": null}}', OBJECT, {"a": {"b": None}}),
    ('{"a": "1\n2"}', OBJECT, {"a": "1\n2"}),
    ('"{\\"a\\": 1}"', OBJECT, {"a": 1}),
    ('{"a": NaN}', OBJECT, '{"a": NaN}'),
    ('{"a": "\\ud800"}', OBJECT, '{"a": "\\ud800"}'),
    ("[" * 100_000, {"type": "array"}, "[" * 100_000),
    ("{", OBJECT, "{"),
    ('{"a": 1}', {"properties": {"a": {}}}, {"a": 1}),
    ("[1]", {"items": {"type": "integer"}}, [1]),
    ("5", {"type": "int"}, 5),
    ("5", {"type": "INT64"}, 5),
    ("5.5", {"type": "float"}, 5.5),
    ("true", {"type": "bool"}, True),
    ("5", {"type": "str"}, "5"),
    ("[1]", {"type": "list"}, [1]),
    ('{"a": 1}', {"type": "dict"}, {"a": 1}),
    ("5", {"type": "whatever"}, "5"),
    ("none", {"type": "string", "enum": ["dark", "none"]}, "none"),
    ("2", {"enum": [1, 2]}, 2),
    ("2", {"enum": ["1", "2"]}, "2"),
    ("true", {"enum": ["a", True]}, True),
    ("3", {"enum": [1, 2]}, "3"),
    ("1", {"enum": [True]}, "1"),
    ("null", {"enum": ["a", None]}, None),
    ("5", {"const": 5}, 5),
    ("5", {"const": "5"}, "5"),
    ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
    ("null", {"oneOf": [{"type": "integer"}, {"type": "null"}]}, None),
    ("5", {"allOf": [{"type": "integer"}, {"minimum": 1}]}, 5),
    ("5", {"anyOf": [{"type": "string"}, {"type": "integer"}]}, 5),
    ("007", {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "007"),
    (" 5", {"anyOf": [{"type": "string"}, {"type": "integer"}]}, " 5"),
    ("1.50", {"type": ["string", "number"]}, "1.50"),
    ("True", {"type": ["string", "boolean"]}, "True"),
    ("true", {"type": ["string", "boolean"]}, True),
    ('["a"]', {"anyOf": [{"type": "string"}, {"type": "array"}]}, ["a"]),
    ("some text", {"anyOf": [{"type": "string"}, {"type": "array"}]}, "some text"),
    ("5", {"$ref": "#/$defs/n"}, 5),
    ("true", {"$ref": "#/definitions/a~1b"}, True),
    ("[[]]", {"$ref": "#/$defs/list"}, [[]]),
    ("5", {"$ref": "#/$defs/loop"}, "5"),
    ("5", {"$ref": "#/nowhere"}, "5"),
    ("5", {"$ref": "https://example.com/n"}, "5"),
    ("5", {"type": 3, "anyOf": "no", "enum": 7, "$ref": 1}, "5"),
]


@each("text, schema, value", TABLE, ids=lambda value: repr(value)[:40])
def test_the_value_a_text_stands_for(text: str, schema: Any, value: Any) -> None:
    got = coerce(text, schema, ROOT)
    assert got == value
    assert type(got) is type(value)


@given(text=st.text())
def test_a_string_is_taken_as_it_stands(text: str) -> None:
    assert coerce(text, {"type": "string"}, {}) == text
    assert coerce(text, None, None) == text


@given(
    value=st.integers() | st.booleans() | st.lists(st.text()) | st.dictionaries(st.text(), st.integers()) | st.none()
)
def test_what_is_written_as_json_comes_back_under_its_own_type(value: Any) -> None:
    (kind,) = allowed_types({"const": value}, None)
    assert coerce(json.dumps(value), {"type": kind}, None) == value
    assert coerce(json.dumps(value), {"type": [kind, "null"]}, None) == value


def test_a_property_is_found_wherever_the_schema_has_it() -> None:
    root = {"$ref": "#/$defs/f", "$defs": {"f": {"allOf": [{"properties": {"a": {"type": "integer"}}}]}}}
    assert property_schema(root, "a", root) == {"type": "integer"}
    assert property_schema(root, "b", root) is None
    assert property_schema({"additionalProperties": {"type": "number"}}, "b", None) == {"type": "number"}
    assert property_schema(None, "a", None) is None
