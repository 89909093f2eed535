"""The schemas of functions in the subsets of JSON Schema that endpoints take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from cnllm.registry import Registry
from cnllm.schemas.adapt import adapt_schema
from cnllm.tools import Tool, tool

from . import kinds

FUNCTIONS = [kinds.defaults, kinds.enums, kinds.objects, kinds.unions, kinds.lists, kinds.tree, kinds.dated]
RULES = ["inline-refs", "root-refs", "any-of-only", "one-type", "branch-types", "no-tuples", "typed", "root-object"]
GOOD: dict[Any, dict[str, Any]] = {
    kinds.defaults: {"city": "Bern", "unit": "F", "days": 2, "near": 1.5},
    kinds.enums: {"unit": "C", "level": 2},
    kinds.objects: {"place": {"city": "B"}, "person": {"name": "A", "age": 1}, "filters": [{"key": "k", "value": 1}]},
    kinds.unions: {"a": "x", "b": None, "c": {"name": "A", "age": 1}},
    kinds.lists: {"a": [1], "b": ["x"], "c": {"k": 1}, "d": [1, "x"], "e": [1, 2], "f": ["a"]},
    kinds.tree: {"root": {"value": 1, "children": [{"value": 2, "children": []}]}},
    kinds.dated: {"day": "2026-11-21", "amount": "1.5", "at": [1.0, 2.0]},
}


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema in a schema."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            for child in value.values():
                yield from nodes(child)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for child in value:
                yield from nodes(child)
        elif key in ("items", "additionalProperties"):
            yield from nodes(value)


def parameters(function: Any) -> dict[str, Any]:
    made: Tool = tool(function)
    assert made.parameters is not None
    return made.parameters


@given(st.sampled_from(FUNCTIONS), st.lists(st.sampled_from(RULES), unique=True))
def test_in_whatever_subset_what_fits_the_function_fits_the_schema(function: Any, rules: list[str]) -> None:
    """A subset may say less; it never forbids what the function takes."""
    before = repr(parameters(function))
    found = adapt_schema(parameters(function), rules, ["default", "uniqueItems"])
    jsonschema.Draft202012Validator.check_schema(found)
    jsonschema.validate(GOOD[function], found)
    every = list(nodes(found))
    assert found["type"] == "object"
    assert not any("default" in node or "uniqueItems" in node for node in every)
    if "inline-refs" in rules:
        assert not any("$ref" in node or "$defs" in node for node in every)
    if "no-tuples" in rules:
        assert not any("prefixItems" in node for node in every)
    if "any-of-only" in rules:
        assert not any("oneOf" in node or "allOf" in node for node in every)
    if "typed" in rules:
        assert all({"type", "anyOf", "$ref"} & node.keys() for node in every)
    assert repr(parameters(function)) == before


@each("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_declared_subset_takes_every_function(function: Any) -> None:
    registry = Registry.load()
    seen = set()
    for provider in registry.providers:
        rules = registry.resolve(f"{provider}/any").flags.tools
        if not (rules.schema or rules.schema_drop):
            continue
        said = (tuple(rules.schema or ()), tuple(rules.schema_drop or ()))
        if said not in seen:
            seen.add(said)
            found = adapt_schema(parameters(function), *said)
            jsonschema.validate(GOOD[function], found)
            assert not any(set(said[1]) & node.keys() for node in nodes(found))
    assert seen


@each("key, required", [("anyOf", ["id"]), ("oneOf", ["id"]), ("allOf", ["id", "mail", "name"])])
def test_a_root_of_several_objects_requires_what_each_of_them_demands(key: str, required: list[str]) -> None:
    """Alternatives share the properties that all of them require; of schemas that all apply, each counts."""
    text = {"type": "string"}
    by_name = {"type": "object", "properties": {"id": text, "name": text}, "required": ["id", "name"]}
    by_mail = {"type": "object", "properties": {"id": text, "mail": text}, "required": ["id", "mail"]}
    schema = {key: [by_name, {"$ref": "#/$defs/mail"}], "$defs": {"mail": by_mail}}
    adapted = adapt_schema(schema, ["root-object"], [])
    assert sorted(adapted["required"]) == required
    assert set(adapted["properties"]) == {"id", "name", "mail"}
    jsonschema.validate({"id": "1", "name": "A", "mail": "a"}, adapted)
    if key != "allOf":
        jsonschema.validate({"id": "1", "mail": "a"}, adapted)
