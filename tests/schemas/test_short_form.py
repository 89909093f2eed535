"""The short form of a schema."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from cnllm.schemas.short_form import parse_short_form

TEXT = {"type": "string"}


def of(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def test_what_it_means() -> None:
    for text, schema in (
        ("name", of(name=TEXT)),
        ("name, age int, tags [str]", of(name=TEXT, age={"type": "integer"}, tags={"type": "array", "items": TEXT})),
        (" {name,age   INT,} ", of(name=TEXT, age={"type": "integer"})),
        ("a float, b bool, c number", of(a={"type": "number"}, b={"type": "boolean"}, c={"type": "number"})),
        ("a?, b? int", of([], a=TEXT, b={"type": "integer"})),
        ("a {b, c {d int}}", of(a=of(b=TEXT, c=of(d={"type": "integer"})))),
        ("a [{b, c?}]", of(a={"type": "array", "items": of(["b"], b=TEXT, c=TEXT)})),
        ("a [[int]], b []", of(a={"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                               b={"type": "array", "items": TEXT})),
        ("size (small | large|xl)", of(size={"type": "string", "enum": ["small", "large", "xl"]})),
        ("a: hi there, b: count", of(a={**TEXT, "description": "hi there"}, b={**TEXT, "description": "count"})),
        ("a: hi, there\n\n  b int\n", of(a={**TEXT, "description": "hi, there"}, b={"type": "integer"})),
        ("a {b: one, c}\nd", of(a=of(b={**TEXT, "description": "one"}, c=TEXT), d=TEXT)),
        ("a: int, b?: [str], c: {d: bool}", of(["a", "c"], a={"type": "integer"}, b={"type": "array", "items": TEXT},
                                               c=of(d={"type": "boolean"}))),
        ("a int?, b [str]?, c: int?", of([], a={"type": "integer"}, b={"type": "array", "items": TEXT},
                                         c={"type": "integer"})),
        ("a: int of years, b", of(a={**TEXT, "description": "int of years"}, b=TEXT)),
        ("a: int\nb: int, or so\nc: [int],\nd: [old] name", of(
            a={"type": "integer"}, b={**TEXT, "description": "int, or so"},
            c={"type": "array", "items": {"type": "integer"}}, d={**TEXT, "description": "[old] name"})),
        ("名字, 年龄 int", of(名字=TEXT, 年龄={"type": "integer"})),
        ("first-name, _x1", of(None, **{"first-name": TEXT, "_x1": TEXT})),
    ):  # fmt: skip
        assert parse_short_form(text) == schema, text


def test_what_is_wrong_is_named() -> None:
    for text, words in (
        ("", "there are no fields"),
        ("{}", "there are no fields"),
        ("a b", "b is not a type"),
        ("a int b", "after a a comma is missing"),
        ("a, a", "the field a stands twice"),
        ("1a", "a field's name is missing"),
        ("a [int", "']' is missing"),
        ("a {b", "'}' is missing"),
        ("a ]", "']' has no beginning"),
        ("a ()", "choices look like"),
        ("a (b|", "choices look like"),
        ("a {}", "there are no fields"),
        ("a " + "[" * 5000, "too many"),
        ("a {" * 5000, "too many"),
    ):
        with pytest.raises(ValueError, match="at character") as caught:
            parse_short_form(text)
        assert words in str(caught.value), (text, caught.value)


def test_any_text_ends_in_a_schema_or_an_error() -> None:
    import itertools

    valid = 0
    for pieces in itertools.product(["a", " int", "[", "]", "{", "}", ",", ":", "?", "(", "|", ")", "\n"], repeat=4):
        with contextlib.suppress(ValueError):
            valid += parse_short_form("".join(pieces))["type"] == "object"
    assert 0 < valid < 13**4
