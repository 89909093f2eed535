"""What a model is told about a call that cannot be executed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cases import each

from cnllm import ToolCall
from cnllm.tools import Tool, bound, decode_encoded_arguments, problem_with, tool

from . import kinds


def told(of: Any, arguments: dict[str, Any] | None, **more: Any) -> str | None:
    made = of if isinstance(of, Tool) else tool(of)
    return problem_with(made, ToolCall("call_1", made.name, arguments, **more))


def test_a_call_that_fits_has_no_problem() -> None:
    assert told(kinds.defaults, {"city": "Bern"}) is None
    assert told(kinds.defaults, {"city": "Bern", "unit": "F", "near": None}) is None
    assert told(kinds.objects, {"place": {"city": "B"}, "person": {"name": "A", "age": 0}, "filters": []}) is None
    assert told(Tool("free"), {"anything": 1}) is None
    assert told(kinds.tree, {"root": {"value": 1, "children": [{"value": 2}]}}) is None


@each(
    "function, arguments, line",
    [
        (
            kinds.defaults,
            {"city": 5},
            '- arguments.city: 5 is not of type \'string\'. The schema says: {"type":"string"}',
        ),
        (
            kinds.defaults,
            {"city": "B", "unit": "K"},
            "- arguments.unit: 'K' is not one of ['C', 'F']. "
            'The schema says: {"default":"C","enum":["C","F"],"type":"string"}',
        ),
        (
            kinds.described,
            {},
            "- arguments: 'city' is a required property. "
            'The schema says: {"city":{"description":"The city\'s name","type":"string"}}',
        ),
        (
            kinds.defaults,
            {"city": "B", "town": "B"},
            "- arguments: Additional properties are not allowed ('town' was unexpected). "
            "It takes city, unit, days, near.",
        ),
        (
            kinds.objects,
            {"place": {"city": "B"}, "person": {"name": "A", "age": 0}, "filters": [{"key": "a"}, {"key": 1}]},
            '- arguments.filters[1].key: 1 is not of type \'string\'. The schema says: {"type":"string"}',
        ),
        (
            kinds.tree,
            {"root": {"value": 1, "children": [{"value": "x"}]}},
            "- arguments.root.children[0].value: 'x' is not of type 'integer'. The schema says: {\"type\":\"integer\"}",
        ),
    ],
)
def test_a_fault_says_its_place_what_is_wrong_and_what_the_schema_says(
    function: Any, arguments: dict[str, Any], line: str
) -> None:
    assert told(function, arguments) == (
        f"The call of {function.__name__} was not executed: its arguments do not fit.\n{line}\n"
        "Correct them and call it again."
    )


def test_what_fits_the_schema_and_is_no_value_is_told_too() -> None:
    said = told(kinds.dated, {"day": "2026-02-31", "amount": "1.5", "at": [1, 2]})
    assert said is not None
    assert "- arguments.day: Input should be a valid date" in said
    assert "http" not in said


def test_what_a_class_of_the_callers_refuses_is_told_too() -> None:
    said = told(kinds.picky, {"of": {"text": "x"}})
    assert said is not None
    assert "x is not known here" in said


def test_arguments_that_are_no_object_are_told_with_the_reason_and_the_schema() -> None:
    said = told(kinds.described, None, raw='{"city": "Be', problem="the arguments are cut off")
    assert said is not None
    assert said.startswith("The call of described was not executed: the arguments are cut off.")
    assert '"city":{"description":"The city\'s name"' in said


def test_what_was_encoded_twice_is_read_where_nothing_else_can_be_meant() -> None:
    once = {"city": "B"}
    given = {"place": json.dumps(once), "person": {"name": '{"n": 1}', "age": 0}, "filters": "[]"}
    assert told(kinds.objects, given) is None
    made = bound(tool(kinds.objects), given)
    assert (made["place"], made["person"].name, made["filters"]) == (kinds.Place("B"), '{"n": 1}', [])
    assert told(kinds.objects, {**given, "filters": "{}"}) is not None
    whole = ToolCall("call_1", "defaults", None, json.dumps(json.dumps(once)), problem="no object")
    assert "no object" in str(problem_with(tool(kinds.defaults), whole))  # it has no arguments to go on with
    assert decode_encoded_arguments(tool(kinds.defaults), whole).arguments == once


def test_many_faults_and_long_values_are_told_in_short() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    said = told(Tool("many", parameters=schema), {f"k{n}": "x" * 5000 for n in range(9)})
    assert said is not None
    assert said.count("\n- arguments.k") == 5
    assert "- and 4 more" in said
    assert len(said) < 5000


def test_several_faults_come_in_the_order_of_their_places_each_time() -> None:
    given = {"text": 1, "ratio": "x", "on": "yes", "count": 1.5}
    said = told(kinds.simple, given)
    assert said == told(kinds.simple, given)
    assert said is not None
    assert [line.split(":")[0] for line in said.splitlines()[1:-1]] == [
        "- arguments.count",
        "- arguments.on",
        "- arguments.ratio",
        "- arguments.text",
    ]


@each(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema.json"}}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
    ],
)
def test_a_schema_that_cannot_be_checked_is_the_programs_fault_not_the_models(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the parameters of broken are not a JSON Schema that can be checked"):
        told(Tool("broken", parameters=schema), {"a": "x"})


def test_an_older_draft_is_checked_by_its_own_rules() -> None:
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}},
    }
    assert told(Tool("old", parameters=old), {"pair": [1, "x"]}) is None
    assert told(Tool("old", parameters=old), {"pair": ["x", 1]}) is not None
