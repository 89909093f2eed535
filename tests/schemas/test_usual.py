"""A schema that is recognised at once is one that its dialect allows, and needs no validator."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Any

import hypothesis.strategies as st
import jsonschema
import pytest
from examples import share
from hypothesis import given, settings

from cnllm.schemas.validate import is_usual, undecided_patterns, validation_errors

DIALECTS = [
    None,
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
]
KEYWORDS = [
    *(
        "type",
        "properties",
        "patternProperties",
        "$defs",
        "definitions",
        "dependentSchemas",
        "items",
        "not",
        "if",
        "then",
    ),
    *("additionalProperties", "additionalItems", "propertyNames", "contains", "unevaluatedProperties", "prefixItems"),
    *(
        "anyOf",
        "allOf",
        "oneOf",
        "title",
        "description",
        "format",
        "$comment",
        "contentEncoding",
        "minLength",
        "maxItems",
    ),
    *("minContains", "minimum", "exclusiveMaximum", "required", "enum", "examples", "const", "default", "uniqueItems"),
    *("deprecated", "readOnly", "$ref", "$id", "id", "$anchor", "multipleOf", "dependencies", "dependentRequired"),
    *("nullable", "x-order", "$dynamicRef", "contentSchema", "$vocabulary", "else", "writeOnly", "minProperties"),
]
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        ["string", "object", "text", "#/$defs/a", "http://x", "", 0, 1, -1, 1.5, True, False, None, [], {}]
    ),
    st.lists(st.sampled_from(["string", "null", "a", 1]), max_size=3),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        st.lists(inner, max_size=2),
    ),
    max_leaves=12,
)


@settings(max_examples=share(600))
@given(st.dictionaries(st.sampled_from(KEYWORDS), SCHEMAS, min_size=1, max_size=4), st.sampled_from(DIALECTS))
def test_a_usual_schema_is_valid(schema: dict[str, Any], dialect: str | None) -> None:
    if dialect is not None:
        schema = {"$schema": dialect, **schema}
    if is_usual(schema):
        kind: Any = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_agents_and_generators_write_is_usual(dialect: str | None) -> None:
    schema = {
        "title": "Order", "type": "object", "required": ["id", "lines"], "additionalProperties": False,
        "properties": {
            "id": {"type": "string", "pattern": "^[a-z]+$", "minLength": 1, "description": "of the order"},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}, "minItems": 1},
            "state": {"enum": ["new", "paid"]},
            "due": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
            "note": {"type": ["string", "null"], "default": None, "nullable": True},
        },
        "$defs": {"Line": {"type": "object", "properties": {"count": {"type": "integer", "exclusiveMinimum": 0}}}},
    }  # fmt: skip
    assert is_usual(schema if dialect is None else {"$schema": dialect, **schema})


def test_a_long_schema_is_checked_without_a_validator() -> None:
    program = (
        "import sys, cnllm\n"
        "schema = {'type': 'object', 'properties': {f'k{n}': {'type': 'string'} for n in range(20_000)}}\n"
        "cnllm.engine.build_request(cnllm.Registry.load().resolve('glm-4.7'), 'Hi', schema=schema)\n"
        "assert 'jsonschema' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_not_usual_is_still_refused() -> None:
    wrong: list[dict[str, Any]] = [{"type": "text"}, {"required": "a"}, {"properties": {"a": {"pattern": "("}}}]
    wrong += [{"anyOf": []}, {"minLength": -1}, {"type": []}, {"$schema": DIALECTS[1], "items": []}, {"$schema": 5}]
    for schema in wrong:
        with pytest.raises(ValueError, match="schema is not a JSON Schema"):
            undecided_patterns(schema)


def test_long_schemas_are_not_kept() -> None:
    """Many of them would fill the memory of a gateway."""
    tracemalloc.start()
    try:
        for number in range(40):
            long = {"description": f"{number}" * 500_000, "required": ["a"]}
            undecided_patterns(long)
            undecided_patterns({**long, "pattern": "a"})
            assert validation_errors({}, long)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10_000_000
