"""Arguments as the function takes them, and results as a model reads them."""

from __future__ import annotations

import datetime
import inspect
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from cases import each

from cnllm.tools import Tool, bound, shown, tool

from . import kinds


def test_values_are_built_as_they_are_annotated() -> None:
    made = bound(
        tool(kinds.objects),
        {"place": {"city": "Bern"}, "person": {"name": "A", "age": 3}, "filters": [{"key": "k"}]},
    )
    assert made == {
        "place": kinds.Place("Bern", "CH"),
        "person": kinds.Person(name="A", age=3),
        "filters": [{"key": "k"}],
    }
    assert bound(tool(kinds.enums), {"unit": "F", "level": 2}) == {
        "unit": kinds.Unit.FAHRENHEIT,
        "level": kinds.Level.HIGH,
    }
    given = {"day": "2026-11-21", "amount": "1.50", "at": [1, 2]}
    assert bound(tool(kinds.dated), given) == {
        "day": datetime.date(2026, 11, 21),
        "amount": Decimal("1.50"),
        "at": kinds.Point(1, 2),
    }
    listed = {"a": [1], "b": ["x"], "c": {"k": 1}, "d": [1, "x"], "e": [1, 2], "f": ["a"]}
    assert bound(tool(kinds.lists), listed) == {**listed, "d": (1, "x"), "e": (1, 2), "f": {"a"}}
    assert bound(tool(kinds.exact), {"of": {"day": "2026-11-21"}})["of"].day == datetime.date(2026, 11, 21)
    huge = {"text": "\u0000天", "count": 10**40, "ratio": 1, "on": True}
    assert bound(tool(kinds.simple), huge) == huge
    root = {"value": 1, "children": [{"value": 2}, {"value": 3}]}
    assert tool(kinds.tree)(**bound(tool(kinds.tree), {"root": root})) == 6


def test_what_is_left_out_is_left_to_the_function() -> None:
    assert bound(tool(kinds.defaults), {"city": "Bern"}) == {"city": "Bern"}
    assert bound(tool(kinds.defaults), {"city": "Bern", "near": None}) == {"city": "Bern", "near": None}


def test_a_function_with_a_schema_of_its_callers_own_gets_what_came() -> None:
    def anything(**given: Any) -> dict[str, Any]:
        return given

    made = Tool("any", parameters={"type": "object"}, function=anything)
    assert made(**bound(made, {"a": {"b": 1}})) == {"a": {"b": 1}}
    assert bound(Tool("none"), {"a": 1}) == {"a": 1}


def test_the_arguments_that_came_are_not_changed() -> None:
    given: dict[str, Any] = {"city": "Bern", "unit": None, "days": 2, "near": None}
    made = bound(tool(kinds.defaults, strict=True), given)
    assert made is not given
    assert given == {"city": "Bern", "unit": None, "days": 2, "near": None}


def test_an_async_function_gives_its_coroutine() -> None:
    waiting = tool(kinds.waits)(**bound(tool(kinds.waits), {"seconds": 1}))
    assert inspect.iscoroutine(waiting)
    waiting.close()


class Struct(msgspec.Struct):
    a: int


@dataclass
class Odd:
    inner: Any


@each(
    "value, text",
    lambda: [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (1.5, "1.5"),
        ({"b": 1, "a": [None, "天"]}, '{"b":1,"a":[null,"天"]}'),
        (kinds.Place("Bern"), '{"city":"Bern","country":"CH"}'),
        (kinds.Person(name="A", age=1), '{"name":"A","age":1}'),
        ([kinds.Person(name="A", age=1)], '[{"name":"A","age":1}]'),
        (Odd(kinds.Person(name="A", age=1)), '{"inner":{"name":"A","age":1}}'),
        (Struct(1), '{"a":1}'),
        (kinds.Unit.CELSIUS, "C"),
        (kinds.Level.HIGH, "2"),
        (kinds.Point(1.0, 2.0), "[1.0,2.0]"),
        (datetime.date(2026, 11, 21), '"2026-11-21"'),
        ({"c", "a", "b"}, '["a","b","c"]'),
        (b"text", "text"),
        (b"\xff\x00", '"/wA="'),
        ((n for n in (1, 2)), "[1,2]"),
        (range(3), "[0,1,2]"),
        ({"a": 1}.keys(), '["a"]'),
        (Path("/tmp/x"), "/tmp/x"),
        ([Path("/tmp/x")], '["/tmp/x"]'),
        ("\ud800", "\ud800"),
        (float("nan"), "null"),
    ],
)
def test_a_result_is_text_or_json(value: Any, text: str) -> None:
    assert shown(value) == text
