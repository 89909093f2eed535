"""What a function's signature becomes: the schema that a model is shown."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from typing import Any

import jsonschema
import pytest
from cases import each
from examples import share
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cnllm
from cnllm.tools import Tool, bound, problem_with, tool
from cnllm.types import ToolCall

from . import kinds

TEXT, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
PLACE = {
    "type": "object",
    "properties": {"city": TEXT, "country": {"type": "string", "default": "CH"}},
    "required": ["city"],
    "description": "A place.",
    "additionalProperties": False,
}


def schema(function: Any) -> dict[str, Any]:
    made: Tool = tool(function)
    assert made.parameters is not None
    return made.parameters


def properties(function: Any) -> dict[str, Any]:
    return dict(schema(function)["properties"])


def test_a_schema_is_a_closed_object_of_the_parameters_and_demands_those_without_a_default() -> None:
    assert schema(kinds.simple) == {
        "type": "object",
        "properties": {"text": TEXT, "count": INTEGER, "ratio": NUMBER, "on": {"type": "boolean"}},
        "required": ["text", "count", "ratio", "on"],
        "additionalProperties": False,
    }
    assert schema(kinds.defaults)["required"] == ["city"]
    assert (
        schema(lambda: 1)
        if False
        else tool(lambda: 1, name="one").parameters
        == {
            "type": "object",
            "properties": {},
            "additionalProperties": False,
        }
    )


def test_literals_enums_and_defaults_say_their_values() -> None:
    assert properties(kinds.defaults) == {
        "city": TEXT,
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "days": {"type": "integer", "default": 3},
        "near": {"anyOf": [NUMBER, {"type": "null"}], "default": None},
    }
    assert properties(kinds.enums) == {
        "unit": {"type": "string", "enum": ["C", "F"]},
        "level": {"type": "integer", "enum": [1, 2], "default": 1},
    }


def test_a_default_that_json_cannot_hold_is_not_stated() -> None:
    @dataclasses.dataclass
    class Limits:
        most: float = math.inf

    def find(
        near: float = math.nan, mark: bytes = b"\xff", half: str = "\ud800", within: tuple[float, ...] = (1, math.inf)
    ) -> None: ...

    def bound_by(limits: Limits) -> None: ...

    assert [kind.get("default") for kind in properties(find).values()] == [None] * 4
    bound_by.__annotations__["limits"] = Limits
    assert properties(bound_by)["limits"]["properties"] == {"most": NUMBER}
    for offered in ({"tools": [find, bound_by]}, {"schema": Limits}):
        content = cnllm.Client(simulate=True).plan("deepseek-flash", "Hi", **offered).content
        assert b'"default":null' not in content


def test_dataclasses_typed_dicts_and_pydantic_models_are_written_out_where_they_stand() -> None:
    assert properties(kinds.objects) == {
        "place": PLACE,
        "person": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The whole name"},
                "age": {"type": "integer", "minimum": 0},
            },
            "required": ["name", "age"],
        },
        "filters": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"key": TEXT, "value": INTEGER},
                "required": ["key"],
                "additionalProperties": False,
            },
        },
    }


def test_unions_are_any_of() -> None:
    found = properties(kinds.unions)
    assert found["a"] == {"anyOf": [INTEGER, TEXT]}
    assert found["b"] == {"anyOf": [INTEGER, {"type": "null"}]}
    assert [branch.get("type") for branch in found["c"]["anyOf"]] == ["object", "object", "null"]
    assert schema(kinds.unions)["required"] == ["a", "b"]


def test_lists_dicts_tuples_and_sets() -> None:
    assert properties(kinds.lists) == {
        "a": {"type": "array", "items": INTEGER},
        "b": {"type": "array", "items": TEXT},
        "c": {"type": "object", "additionalProperties": INTEGER},
        "d": {"type": "array", "prefixItems": [INTEGER, TEXT], "minItems": 2, "maxItems": 2},
        "e": {"type": "array", "items": INTEGER},
        "f": {"type": "array", "items": TEXT, "uniqueItems": True},
    }


def test_a_description_beside_the_annotation_goes_before_the_docstrings() -> None:
    found = tool(kinds.described)
    assert found.description == "Look it up."
    assert properties(kinds.described) == {
        "city": {"type": "string", "description": "The city's name"},
        "person": {"type": "integer", "minimum": 1, "description": "Who", "default": 1},
    }


def test_what_holds_itself_stays_a_reference_and_is_ended_where_an_endpoint_takes_none() -> None:
    found = schema(kinds.tree)
    assert found["properties"] == {"root": {"$ref": "#/$defs/Node"}}
    assert found["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    jsonschema.Draft202012Validator.check_schema(found)
    from cnllm.schemas.adapt import adapt_schema

    flat = adapt_schema(found, ["root-object", "inline-refs", "no-tuples"], [])
    assert "$" not in json.dumps(flat)
    assert flat["properties"]["root"]["properties"]["children"]["items"] == {"type": "object"}


def test_what_a_function_returns_does_not_matter() -> None:
    assert properties(kinds.foreign) == {"text": TEXT}


def test_a_parameter_may_be_called_anything() -> None:
    given = {"_x": 1, "schema": "s", "json": 2, "model_name": "m", "copy": "C"}
    made: Tool = tool(kinds.odd_names)
    assert made(**bound(made, given)) == (1, "s", 2, "m", kinds.Unit.CELSIUS)


def test_what_has_no_annotation_may_be_anything() -> None:
    assert properties(kinds.anything) == {"value": {}, "other": {"default": None}}


def test_names_and_descriptions_come_from_the_function_or_from_the_caller() -> None:
    assert (tool(kinds.simple).name, tool(kinds.simple).description) == ("simple", "Do something.")
    given = tool(kinds.simple, name="other", description="Says so.", strict=False, timeout=2)
    assert (given.name, given.description, given.strict, given.timeout) == ("other", "Says so.", False, 2)
    assert tool(given, timeout=9) == Tool("other", "Says so.", given.parameters, kinds.simple, False, 9)
    assert tool(kinds.defaults).description is None


def test_methods_instances_classes_and_partials_are_functions_too() -> None:
    store = kinds.Store()
    put = tool(store.put)
    assert (put.name, put.description, list(properties(store.put))) == ("put", "Keep a value.", ["key", "value"])
    assert put(key="a", value="b") == "kept"
    get = tool(store, name="get")
    assert (get.description, list(properties(store))) == ("Get a value.", ["key"])
    assert get("a") == "b"
    assert list(properties(kinds.partly)) == ["count", "ratio", "on"]
    assert tool(kinds.partly).name == "simple"
    assert list(properties(kinds.Place)) == ["city", "country"]


def test_a_decorated_function_can_be_called_as_before() -> None:
    @tool
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    @tool(name="triple", timeout=1.5)
    def three(n: int) -> int:
        return 3 * n

    assert (double(4), double(n=5), three(2)) == (8, 10, 6)
    assert (double.name, three.name, three.timeout) == ("double", "triple", 1.5)


def test_a_tool_without_a_function_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="the tool far has no function"):
        Tool("far")()


@each(
    "function, words",
    [
        (kinds.hidden, ["hidden: the parameter 'connection' has no JSON Schema", "Connection"]),
        (kinds.starred, ["starred: the parameter '*more' cannot be offered"]),
        (kinds.keyworded, ["keyworded: the parameter '**more' cannot be offered"]),
        (kinds.positional, ["positional: the parameter 'text' cannot be offered"]),
        (kinds.fielded, ["fielded: the parameter 'count' has a Field as its default", "Annotated"]),
        (kinds.unheard, ["unheard: the parameter 'of' refers to Nowhere"]),
        (kinds.senseless, ["senseless: the parameter 'of' has an invalid annotation"]),
        (kinds.Store.put, ["put: the parameter 'self' is the method's own"]),
        (lambda x: x, ["<lambda> is not a valid tool name", "name="]),
        (max, ["cannot be read"]),
    ],
)
def test_what_no_schema_can_say_is_an_error_that_names_the_parameter(function: Any, words: list[str]) -> None:
    with pytest.raises(TypeError) as caught:
        tool(function)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated when they are written")
def test_annotations_that_are_evaluated_when_they_are_read() -> None:
    scope: dict[str, Any] = {}
    text = "def back(count: int) -> Nowhere: 'Go.'\ndef ahead(of: Nowhere | int): 'Go.'"
    exec(compile(text, "late", "exec", dont_inherit=True), scope)
    assert properties(scope["back"]) == {"count": INTEGER}
    with pytest.raises(TypeError, match="the parameter 'of' refers to Nowhere"):
        tool(scope["ahead"])


def test_strict_schemas_demand_everything_and_let_what_has_a_default_be_null() -> None:
    strict = tool(kinds.defaults, strict=True)
    assert strict.strict is True
    assert strict.parameters == {
        "type": "object",
        "properties": {
            "city": TEXT,
            "unit": {"anyOf": [{"type": "string", "enum": ["C", "F"]}, {"type": "null"}]},
            "days": {"anyOf": [INTEGER, {"type": "null"}]},
            "near": {"anyOf": [NUMBER, {"type": "null"}]},
        },
        "required": ["city", "unit", "days", "near"],
        "additionalProperties": False,
    }
    inner = tool(kinds.objects, strict=True).parameters
    assert inner is not None
    assert inner["properties"]["place"]["required"] == ["city", "country"]
    assert inner["properties"]["filters"]["items"]["additionalProperties"] is False


def test_the_nulls_of_strict_mode_are_the_functions_own_defaults() -> None:
    strict = tool(kinds.defaults, strict=True)
    given = {"city": "Bern", "unit": None, "days": None, "near": None}
    assert bound(strict, given) == {"city": "Bern", "near": None}
    place = tool(kinds.objects, strict=True)
    made = bound(place, {"place": {"city": "Bern", "country": None}, "person": {"name": "A", "age": 1}, "filters": []})
    assert made["place"] == kinds.Place("Bern", "CH")


@each(
    "arguments, made",
    lambda: [
        ({"shape": {"side": 1, "unit": None}}, kinds.Square(1)),
        ({"shape": {"radius": 2, "unit": None}}, kinds.Circle(2)),
        ({"shape": [{"radius": 2, "unit": None}, {"side": 1, "unit": "cm"}]}, [kinds.Circle(2), kinds.Square(1, "cm")]),
        ({"shape": "none"}, "none"),
    ],
)
def test_nulls_inside_one_of_several_kinds_are_defaults(arguments: dict[str, Any], made: Any) -> None:
    strict = tool(kinds.either, strict=True)
    assert problem_with(strict, ToolCall("c", "either", arguments, "")) is None
    assert bound(strict, arguments) == {"shape": made}


def test_nulls_inside_kinds_that_a_constant_tells_apart_are_defaults() -> None:
    strict = tool(kinds.tagged, strict=True)
    assert bound(strict, {"pet": {"kind": "dog", "name": None}}) == {"pet": kinds.Dog(kind="dog")}
    assert bound(strict, {"pet": {"kind": "cat", "name": None}}) == {"pet": kinds.Cat(kind="cat")}
    assert "discriminator" not in json.dumps(strict.parameters)  # no JSON Schema, and definitions that are gone


FIELDS = {"s": str, "i": int, "f": float, "b": bool, "l": list[int], "o": int | None, "d": dict[str, float]}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": st.text(max_size=5),
    "i": st.integers(-(2**53), 2**53),
    "f": st.floats(allow_nan=False, allow_infinity=False),
    "b": st.booleans(),
    "l": st.lists(st.integers(0, 9), max_size=3),
    "o": st.none() | st.integers(0, 9),
    "d": st.dictionaries(st.text(max_size=2), st.floats(0, 1), max_size=2),
}


@settings(deadline=None, max_examples=share(50), suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.lists(st.sampled_from(sorted(FIELDS)), unique=True, max_size=5), st.integers(0, 5))
def test_whatever_the_signature_what_fits_it_is_given_to_it_and_the_schema_is_one(
    data: st.DataObject, names: list[str], optional: int
) -> None:
    heads = [n if place < len(names) - optional else f"{n}=None" for place, n in enumerate(names)]
    scope: dict[str, Any] = {}
    exec(f"def made({', '.join(heads)}): return dict(locals())", scope)
    made = scope["made"]
    made.__annotations__ = {
        n: FIELDS[n] if "=" not in head else FIELDS[n] | None for n, head in zip(names, heads, strict=True)
    }
    found = tool(made)
    assert found.parameters is not None
    jsonschema.Draft202012Validator.check_schema(found.parameters)
    given = {name: data.draw(VALUES[name]) for name in names}
    call = cnllm.ToolCall("1", "made", given)
    assert cnllm.tools.problem_with(found, call) is None
    assert found(**bound(found, given)) == given
    for name, head in zip(names, heads, strict=True):
        without = {k: v for k, v in given.items() if k != name}
        told = cnllm.tools.problem_with(found, cnllm.ToolCall("1", "made", without))
        assert (told is None) == ("=" in head)


def test_the_same_function_gives_the_same_bytes() -> None:
    for function in (kinds.objects, kinds.unions, kinds.tree, kinds.lists):
        assert json.dumps(tool(function).parameters) == json.dumps(tool(function).parameters)
    assert list(properties(kinds.simple)) == ["text", "count", "ratio", "on"]
