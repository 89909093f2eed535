"""Schemas in the subset of the language an endpoint takes: each rule holds, and what was valid stays valid."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from cnllm.schemas import adapt
from cnllm.schemas.adapt import adapt_schema, adapt_schema_if_needed

from .support import Json, times

RULES = ["inline-refs", "root-refs", "any-of-only", "one-type", "branch-types", "no-tuples", "typed", "root-object"]
KIMI = RULES[1:]
DROPS = ["title", "format", "minimum", "pattern", "default", "description", "additionalProperties", "maxItems"]

# ── schemas, each with a value that is valid ─────────────────────────────────

Pair = tuple[Json, Any]
NAMES = ["a", "b", "title", "type", "pattern", "items", "default"]
DEFAULT = {"type": 1, "title": 2}
notes = st.fixed_dictionaries(
    {}, optional={"title": st.just("T"), "description": st.just("d"), "default": st.just(DEFAULT)}
)


def scalars() -> st.SearchStrategy[Pair]:
    return st.sampled_from(
        [
            ({"type": "string"}, "x"),
            ({"type": "string", "pattern": "^x", "format": "date"}, "x"),
            ({"type": "integer", "minimum": 1}, 5),
            ({"type": "number"}, 0.5),
            ({"type": "boolean"}, True),
            ({"type": "null"}, None),
            ({"enum": ["x", "y"]}, "y"),
            ({"enum": [1, 2]}, 2),
            ({"const": True}, True),
            ({"const": "x"}, "x"),
            ({"type": ["string", "null"]}, None),
            ({"type": ["string", "integer"], "minimum": 1}, 3),
            ({"type": ["string"]}, "x"),
            ({"type": "string", "enum": ["x"]}, "x"),
            ({"type": "object"}, {"any": 1}),
            ({"type": "array"}, [1, "x"]),
            ({"properties": {"a": {"type": "string"}}}, {"a": "x"}),
            ({"items": {"type": "integer"}}, [1]),
        ]
    )


def object_of(fields: dict[str, Pair], required: bool, closed: bool) -> Pair:
    schema: Json = {"type": "object", "properties": {name: schema for name, (schema, _) in fields.items()}}
    if required:
        schema["required"] = list(fields)
    if closed:
        schema["additionalProperties"] = False
    return schema, {name: value for name, (_, value) in fields.items()}


def tuple_of(items: list[Pair], old: bool) -> Pair:
    return {"type": "array", "items" if old else "prefixItems": [s for s, _ in items]}, [v for _, v in items]


def choice_of(key: str, chosen: Pair, others: list[Pair]) -> Pair:
    schemas = [chosen[0], *(s for s, _ in others)]
    if key == "allOf":
        schemas = [chosen[0]]
    elif key == "oneOf":
        schemas = [chosen[0], {"type": "object", "required": ["nobody has this"], "properties": {}}]
    return {key: schemas}, chosen[1]


def nested(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    fields = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    return st.one_of(
        st.builds(object_of, fields, st.booleans(), st.booleans()),
        st.builds(object_of, fields, st.booleans(), st.booleans()),
        inner.map(lambda pair: ({"type": "array", "items": pair[0], "maxItems": 2}, [pair[1], pair[1]])),
        st.builds(tuple_of, st.lists(inner, min_size=1, max_size=2), st.booleans()),
        st.builds(choice_of, st.sampled_from(["anyOf", "oneOf", "allOf"]), inner, st.lists(inner, max_size=2)),
        inner.map(lambda pair: ({"$ref": pair[0]}, pair[1])),  # a reference, made real by `referring`
        st.builds(lambda pair, more: ({**pair[0], **more}, pair[1]), inner, notes),
    )


def referring(schema: Any, where: str, defs: Json) -> Any:
    """Every `{"$ref": schema}` as a reference to a definition under the root."""
    if isinstance(schema, list):
        return [referring(item, where, defs) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), dict):
        target = referring(schema["$ref"], where, defs)
        name = next((n for n, s in defs.items() if s == target), f"D{len(defs)}")
        defs[name] = target
        return {**schema, "$ref": f"#/{where}/{name}"}
    return {k: v if v == DEFAULT else referring(v, where, defs) for k, v in schema.items()}


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """A schema whose root is an object, and a value that is valid."""
    fields = draw(st.dictionaries(st.sampled_from(NAMES), st.recursive(scalars(), nested, max_leaves=5), max_size=3))
    schema, value = object_of(fields, draw(st.booleans()), draw(st.booleans()))
    defs: Json = {}
    where = draw(st.sampled_from(["$defs", "definitions"]))
    schema = referring(schema, where, defs)
    return ({**schema, where: defs} if defs else schema), value


rules = st.lists(st.sampled_from(RULES), unique=True).map(lambda r: [x for x in RULES if x in r]) | st.just(KIMI)
drops = st.lists(st.sampled_from(DROPS), unique=True)


def valid(schema: Json, value: Any) -> bool:
    """By the draft that knows the tuples a schema is written with."""
    old = '"items": [' in json.dumps(schema)
    validator = jsonschema.Draft7Validator if old else jsonschema.Draft202012Validator
    if old and "prefixItems" in json.dumps(schema):
        return True
    return bool(validator(schema).is_valid(value))


def nodes(schema: Any) -> Iterator[Json]:
    """A schema and all schemas in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(value, dict):
            inner = list(value.values())
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems", "items") and isinstance(value, list):
            inner = value
        else:
            inner = [value] if key in ("items", "additionalProperties", "not", "if", "then", "else") else []
        for one in inner:
            yield from nodes(one)


# ── what holds of all ────────────────────────────────────────────────────────


@times(40)
@given(pairs(), rules, drops)
def test_the_callers_schema_stays_and_the_same_comes_each_time(pair: Pair, rules: list[str], drop: list[str]) -> None:
    schema, _ = pair
    before = copy.deepcopy(schema)
    out = adapt_schema(schema, rules, drop)
    assert schema == before
    assert json.dumps(adapt_schema(schema, rules, drop)) == json.dumps(out)
    assert adapt_schema(schema, [], []) == before


@times(40)
@given(pairs(), rules, drops)
def test_what_is_kept_of_a_schema_is_what_would_be_worked_out_and_shared_by_none(
    pair: Pair, rules: list[str], drop: list[str]
) -> None:
    schema, _ = pair
    before, out = copy.deepcopy(schema), adapt_schema(schema, rules, drop)
    expected = None if out == schema else out
    for _ in range(2):
        found = adapt_schema_if_needed(schema, rules, drop)
        assert json.dumps(found) == json.dumps(expected)
        if found is not None:
            found.clear()
        assert schema == before


@each(
    "odd",
    lambda: [(1, 2), float("nan"), 2**70, {1: "one"}, "\ud800", {"not", "json"}, object(), 1.0, True],
    ids=["tuple", "nan", "big", "key", "surrogate", "set", "object", "float", "bool"],
)
def test_what_json_would_not_give_back_is_adapted_as_it_is(odd: Any) -> None:
    for default in (1, odd, 1, odd):
        schema = {"title": "T", "type": "string", "default": default}
        found = adapt_schema_if_needed(schema, ["typed"], ["title"])
        assert found is not None
        assert (list(found), type(found["default"])) == (["type", "default"], type(default))
        assert found["default"] is default or found["default"] == default


def test_a_schema_is_adapted_once_and_a_huge_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Json] = []
    real = adapt_schema

    def adapting(schema: Json, rules: Any, drop: Any) -> Json:
        seen.append(schema)
        return real(schema, rules, drop)

    monkeypatch.setattr(adapt, "adapt_schema", adapting)
    for _ in range(3):
        adapt_schema_if_needed({"type": "string", "title": "only once, please"}, [], ["title"])
    assert len(seen) == 1
    adapt_schema_if_needed({"type": "string", "title": "only once, please"}, [], [])
    assert len(seen) == 2
    for _ in range(2):
        adapt_schema_if_needed({"type": "string", "description": "x" * 100_000}, [], ["title"])
    assert len(seen) == 4


@each("depth", [1, 2, 5])
def test_all_of_within_all_of_is_merged(depth: int) -> None:
    items: Json = {"type": "integer", "minimum": 1}
    for _ in range(depth):
        items = {"allOf": [items]}
    schema: Json = {"type": "object", "properties": {"a": {"type": "array", "items": items}}}
    out = adapt_schema(schema, ["any-of-only", "typed"], [])
    assert out["properties"]["a"]["items"] == {"type": "integer", "minimum": 1}


@times(120)
@given(pairs(), rules, drops)
def test_what_was_valid_stays_valid(pair: Pair, rules: list[str], drop: list[str]) -> None:
    schema, value = pair
    assert valid(schema, value)
    assert valid(adapt_schema(schema, rules, drop), value)


@times(120)
@given(pairs(), rules, drops)
def test_each_rule_holds_everywhere(pair: Pair, rules: list[str], drop: list[str]) -> None:
    schema, _ = pair
    out = adapt_schema(schema, rules, drop)
    every = list(nodes(out))
    if "inline-refs" in rules:
        assert not any("$ref" in node or "$defs" in node or "definitions" in node for node in every)
    elif "root-refs" in rules:
        refs = [node for node in every if "$ref" in node]
        assert all(list(node) == ["$ref"] for node in refs)
        assert all(node["$ref"] == "#" or node["$ref"].removeprefix("#/$defs/") in out["$defs"] for node in refs)
        assert not any("definitions" in node or (node is not out and "$defs" in node) for node in every)
    if "any-of-only" in rules:
        assert not any("oneOf" in node or "allOf" in node for node in every)
    if "one-type" in rules:
        assert not any(isinstance(node.get("type"), list) for node in every)
    if "branch-types" in rules:
        assert not any("type" in node and "anyOf" in node for node in every)
    if "no-tuples" in rules:
        assert not any("prefixItems" in node or isinstance(node.get("items"), list) for node in every)
    if "typed" in rules:
        assert all({"type", "anyOf", "oneOf", "allOf", "$ref"} & node.keys() for node in every)
    if "root-object" in rules:
        assert out["type"] == "object"
    for word in drop:
        assert not any(word in node for node in every)


@times(40)
@given(pairs(), drops)
def test_a_property_may_be_called_like_a_keyword(pair: Pair, drop: list[str]) -> None:
    schema, _ = pair
    assert adapt_schema(schema, KIMI, drop)["properties"].keys() == schema["properties"].keys()


@times(40)
@given(pairs(), rules, drops)
def test_a_schema_that_is_in_the_subset_stays_as_it_is(pair: Pair, rules: list[str], drop: list[str]) -> None:
    once = adapt_schema(pair[0], rules, drop)
    assert adapt_schema(once, rules, drop) == once


# ── references ───────────────────────────────────────────────────────────────

TREE: Json = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "string"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            },
        }
    },
}


@each("depth", lambda: range(4))
@each("rules", [["inline-refs"], ["root-refs"], KIMI, ["inline-refs", *KIMI]])
def test_a_recursion_ends_and_takes_what_it_took(rules: list[str], depth: int) -> None:
    value: Json = {"value": "x", "next": None}
    for _ in range(depth):
        value = {"value": "x", "next": value}
    out = adapt_schema(TREE, rules, [])
    assert valid(out, {"root": value})
    assert not valid(out, {"root": 5})
    assert ("$ref" in json.dumps(out)) == ("inline-refs" not in rules)


@each("rules", [["inline-refs"], ["root-refs"], KIMI, ["inline-refs", *KIMI]])
@each("count", [30, 2_000])
def test_a_long_chain_of_references_is_followed(rules: list[str], count: int) -> None:
    links = {f"d{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(count)}
    schema = {"$defs": {**links, f"d{count}": {"type": "object"}}, "properties": {"a": {"$ref": "#/$defs/d0"}}}
    out = adapt_schema({"type": "object", **schema}, rules, [])
    value: Any = 5
    for _ in range(25):
        value = {"x": value}
        assert not valid(out, {"a": value})


def test_two_that_mean_each_other_end_too() -> None:
    schema: Json = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {
            "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}},
            "B": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}},
        },
    }
    inline = adapt_schema(schema, ["inline-refs"], [])
    assert inline["properties"]["a"]["properties"]["b"]["properties"]["a"] == {"type": "object"}
    assert adapt_schema(schema, ["root-refs"], []) == schema


def test_a_schema_may_mean_itself() -> None:
    schema: Json = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    out = adapt_schema(schema, ["inline-refs"], [])
    assert "$ref" not in json.dumps(out)
    assert valid(out, {"next": {"next": {"next": {}}}})
    assert adapt_schema(schema, ["root-refs"], []) == schema


@each("ref", ["#/$defs/missing", "https://example.com/x.json", "", "#/properties/a/type", "other.json#/a"])
def test_a_reference_to_nothing_is_an_object(ref: str) -> None:
    schema: Json = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": ref}}}
    assert adapt_schema(schema, ["inline-refs"], [])["properties"]["b"] == {"type": "object"}
    out = adapt_schema(schema, ["root-refs"], [])
    assert out["$defs"][out["properties"]["b"]["$ref"].removeprefix("#/$defs/")] in ({"type": "object"}, "string")


def test_definitions_that_nobody_refers_to_are_left_out_wherever_they_stand() -> None:
    inner: Json = {"type": "object", "$defs": {"x": {"$ref": "#/$defs/y"}}}
    schema: Json = {"type": "object", "properties": {"a": inner}, "$defs": {"y": {"type": "string"}}}
    for rule in ("inline-refs", "root-refs"):
        assert adapt_schema(schema, [rule], []) == {"type": "object", "properties": {"a": {"type": "object"}}}


def test_two_definitions_of_one_name_stay_two() -> None:
    schema: Json = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/X"}, "b": {"$ref": "#/definitions/X"}},
        "$defs": {"X": {"type": "string"}},
        "definitions": {"X": {"type": "integer"}},
    }
    out = adapt_schema(schema, ["root-refs"], [])
    assert valid(out, {"a": "x", "b": 1})
    assert not valid(out, {"a": 1, "b": 1})
    assert not valid(out, {"a": "x", "b": "x"})


# ── single cases ─────────────────────────────────────────────────────────────


@each("schema", [{}, {"type": "string"}, {"anyOf": [{"type": "object"}, {"type": "null"}]}, {"type": []}])
@each("rules", [KIMI, RULES, ["root-object"]])
def test_a_root_that_is_no_object_becomes_one(schema: Json, rules: list[str]) -> None:
    assert adapt_schema(schema, rules, [])["type"] == "object"


@each("old", [True, False])
@each("count", [0, 1, 2])
def test_a_tuple_is_a_list_of_any_of_its_places(old: bool, count: int) -> None:
    places = [{"type": "string", "title": "x"}, {"enum": [1]}][:count]
    schema: Json = {"type": "array", ("items" if old else "prefixItems"): places}
    out = adapt_schema(schema, ["no-tuples", "typed"], ["title"])
    assert out["items"] in (
        {"type": "string"},
        {"anyOf": [{"type": "string"}, {"type": "integer", "enum": [1]}]},
    )


EITHER: Json = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
}


def test_an_object_with_alternatives_at_its_root_keeps_its_properties() -> None:
    assert adapt_schema(EITHER, KIMI, [])["properties"].keys() == {"a", "b"}


def test_a_root_that_is_a_reference_keeps_its_properties() -> None:
    schema: Json = {"$ref": "#/$defs/Node", "$defs": TREE["$defs"]}
    assert "value" in adapt_schema(schema, KIMI, [])["properties"]


@each("rules", [["typed"], ["branch-types", "typed"]])
def test_a_branch_that_only_requires_is_of_the_type_around_it(rules: list[str]) -> None:
    out = adapt_schema({"type": "object", "properties": {"x": EITHER}}, rules, [])
    assert valid(out, {"x": {"a": "y"}})


def test_a_condition_is_of_the_type_around_it() -> None:
    schema: Json = {
        "type": "object",
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
        "else": {"required": ["c"]},
    }
    assert valid(adapt_schema(schema, ["typed"], []), {"a": 1, "b": 2})


@each("rule", ["inline-refs", "root-refs"])
@each("name", ["definitions", "$defs"])
def test_a_property_may_be_called_definitions(rule: str, name: str) -> None:
    schema: Json = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    assert adapt_schema(schema, [rule], []) == schema


@each("rule", ["inline-refs", "root-refs"])
@each("key", ["default", "const", "examples"])
def test_a_value_is_no_schema(rule: str, key: str) -> None:
    schema: Json = {"type": "object", "properties": {"a": {"type": "object", key: [{"$ref": "#/x", "$defs": 1}]}}}
    assert adapt_schema(schema, [rule], []) == schema


@each("ref", ["#/properties/a/anyOf/0", "#/$defs/a%20b"])
def test_a_reference_may_go_through_a_list_or_be_escaped(ref: str) -> None:
    schema: Json = {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "string"}]}, "b": {"$ref": ref}},
        "$defs": {"a b": {"type": "string"}},
    }
    assert adapt_schema(schema, ["inline-refs"], [])["properties"]["b"] == {"type": "string"}


def test_the_name_of_a_definition_may_hold_a_slash() -> None:
    schema: Json = {
        "type": "object",
        "properties": {"b": {"$ref": "#/$defs/a~1b"}},
        "$defs": {"a/b": {"type": "string"}},
    }
    assert valid(adapt_schema(schema, ["root-refs"], []), {"b": "x"})


def test_a_list_of_itself_ends_as_a_list() -> None:
    schema: Json = {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}}
    schema["$defs"] = {"T": {"type": "array", "items": {"$ref": "#/$defs/T"}}}
    assert valid(adapt_schema(schema, ["inline-refs"], []), {"t": [[], [[]]]})


def test_a_chain_of_references_does_not_explode() -> None:
    defs: Json = {f"d{n}": {"properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(13)}
    schema: Json = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs}
    assert len(json.dumps(adapt_schema(schema, ["inline-refs"], []))) < 100 * len(json.dumps(schema))


def test_several_types_do_not_push_out_the_alternatives() -> None:
    schema: Json = {"type": ["string", "null"], "anyOf": [{"maxLength": 1}, {"minLength": 3}]}
    assert not valid(adapt_schema(schema, ["one-type"], []), "xx")


def test_no_type_is_put_beside_alternatives_in_alternatives() -> None:
    schema: Json = {"type": "object", "anyOf": [{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}]}
    assert not any("type" in node and "anyOf" in node for node in nodes(adapt_schema(schema, ["branch-types"], [])))


def test_only_any_of_is_left_of_several_combiners() -> None:
    schema: Json = {"anyOf": [{"type": "string"}], "oneOf": [{"minLength": 1}], "allOf": [{"maxLength": 5}]}
    out = adapt_schema(schema, ["any-of-only"], [])
    assert "oneOf" not in out
    assert "allOf" not in out


@each(
    "schema, value",
    [({"const": None}, None), ({"enum": [None, "a"]}, None), ({"enum": [1, "a"]}, "a"), ({"enum": [1, 2.5]}, 2.5)],
)
def test_the_type_of_an_enum_takes_all_its_values(schema: Json, value: Any) -> None:
    assert valid(adapt_schema(schema, ["typed"], []), value)


@each("schema, value", [({"minimum": 1}, 2), ({"minItems": 1}, [1]), ({"required": ["x"]}, {"x": 1})])
def test_the_type_of_a_constraint_is_the_type_it_constrains(schema: Json, value: Any) -> None:
    assert valid(adapt_schema(schema, ["typed"], []), value)


def test_true_as_a_schema_is_typed_too() -> None:
    out = adapt_schema({"type": "object", "properties": {"a": True}}, ["typed"], [])
    assert isinstance(out["properties"]["a"], dict)


@each("key", ["anyOf", "oneOf"])
@each("referred", [False, True], ids=["in place", "by reference"])
def test_a_root_of_alternatives_requires_what_each_of_them_requires(referred: bool, key: str) -> None:
    fields = {name: {"type": "string"} for name in "abcd"}
    branches: list[Json] = [
        {"type": "object", "properties": {n: fields[n] for n in "abd"}, "required": ["a", "b", "d"]},
        {"type": "object", "properties": {n: fields[n] for n in "bcd"}, "required": ["d", "b"]},
    ]
    root: Json = {"type": "object", key: branches, "required": ["d"]}
    if referred:
        definitions = {f"D{n}": branch for n, branch in enumerate(branches)}
        root = {**root, key: [{"$ref": f"#/$defs/{name}"} for name in definitions], "$defs": definitions}
    adapted = adapt_schema(root, ("root-object",), ())
    assert adapted["required"] == ["d", "b"]
    assert set(adapted["properties"]) == set("abcd")
    for value in ({"a": "x", "b": "y", "d": "z"}, {"b": "y", "c": "x", "d": "z"}, {"b": "y", "d": "z"}):
        assert jsonschema.Draft202012Validator(adapted).is_valid(value)


@each("key", ["anyOf", "oneOf"])
@each("rules", [("root-object",), tuple(KIMI), ("root-object", "any-of-only", "one-type")])
def test_a_root_of_alternatives_takes_what_fits_any_of_them(rules: tuple[str, ...], key: str) -> None:
    """Libraries tell the alternatives apart by a property that has another value in each."""
    branches: list[Json] = [
        {"properties": {"act": {"type": "string", "const": "new"}, "at": {"type": "string"}, "on": {"const": True}}},
        {"properties": {"act": {"type": "string", "const": "end"}, "at": {"type": "integer"}, "on": {"const": 1}}},
        {"properties": {"act": {"type": "string", "enum": ["stop", "end"]}, "at": {"type": "string"}}},
    ]
    adapted = adapt_schema({"type": "object", key: [{**b, "required": ["act"]} for b in branches]}, rules, ())
    assert adapted["properties"]["act"] == {"type": "string", "enum": ["new", "end", "stop"]}
    for value in ({"act": "new", "at": "x", "on": True}, {"act": "end", "at": 3, "on": 1}, {"act": "stop"}):
        assert jsonschema.Draft202012Validator(adapted).is_valid(value)
    assert not jsonschema.Draft202012Validator(adapted).is_valid({"act": "other"})


@each("referred", [False, True], ids=["in place", "by reference"])
def test_a_root_of_parts_requires_what_any_of_them_requires(referred: bool) -> None:
    parts: list[Json] = [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]
    root: Json = {"type": "object", "allOf": parts}
    if referred:
        root = {"type": "object", "allOf": [{"$ref": "#/$defs/A"}, parts[1]], "$defs": {"A": parts[0]}}
    adapted = adapt_schema(root, ("root-object",), ())
    assert adapted["required"] == ["a", "b"]
