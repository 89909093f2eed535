"""Endpoints that take the schema of an answer in a small subset alone, as Claude does: what they get.

https://platform.claude.com/docs/en/build-with-claude/structured-outputs: objects are closed; bounds and recursion
are not taken.
"""

from pathlib import Path
from typing import Any

import pytest
from builtin import BUILTIN
from client.peer import Peer
from client.support import Driver, ask
from pydantic import BaseModel, Field

from cnllm import engine

from .support import ADA, GOOD, SCHEMA, Json, codes, endpoint, gives

CLOSED = 'schema.rules = ["any-of-only", "closed"]\nschema.drop = ["minimum", "minLength"]\n'
CLAUDES = ["anthropic/claude-haiku-4-5", "anthropic/claude-opus-4-6", "anthropic/claude-sonnet-5-5"]


class Town(BaseModel):
    name: str = Field(min_length=2)
    people: int | None = Field(default=None, ge=0, le=10**8)
    districts: list["District"] = Field(default=[], max_length=5)


class District(BaseModel):
    name: str


class Tree(BaseModel):
    name: str
    below: list["Tree"] = []


def objects(node: Any) -> list[Json]:
    """All schemas of objects in a schema."""
    if isinstance(node, list):
        return [found for item in node for found in objects(item)]
    if not isinstance(node, dict):
        return []
    own = [node] if node.get("type") == "object" else []
    return own + [found for value in node.values() for found in objects(value)]


def sent_schema(model: str, **options: Any) -> tuple[Json | None, list[str]]:
    """The schema that a model's request holds as such, and the codes of the notes."""
    plan = engine.build_request(BUILTIN.resolve(model), "hi", **options)
    form = plan.body.get("output_config", {}).get("format")
    return form and form["schema"], [note.code for note in plan.notes]


@pytest.mark.parametrize("model", CLAUDES)
def test_every_object_is_closed_and_no_bound_is_sent(model: str) -> None:
    for schema in (Town, Town.model_json_schema(), SCHEMA):
        sent, notes = sent_schema(model, schema=schema)
        assert sent is not None
        assert "schema-adapted" in notes
        assert [one["additionalProperties"] for one in objects(sent)] == [False] * len(objects(sent))
        assert not {"minLength", "minimum", "maximum", "maxItems"} & set(str(sent).replace("'", " ").split())


def test_the_model_is_told_of_bounds_that_are_not_sent() -> None:
    """As anthropic's SDK does it (`anthropic/lib/_parse/_transform.py`)."""
    number = {"type": "integer", "minimum": 1, "maximum": 10}
    schema = {
        "type": "object",
        "properties": {
            "a": {**number, "description": "A number."},
            "b": number,
            "c": {"type": "array", "items": {"type": "string", "pattern": '^"x"'}, "uniqueItems": True},
            "d": {"$ref": "#/$defs/d", "minLength": 1},
            "e": {"type": "string", "title": "E", "$comment": "for people"},
        },
        "$defs": {"d": {"type": "string", "maxLength": 9}},
    }
    sent, _ = sent_schema(CLAUDES[0], schema=schema)
    assert sent is not None
    told = {name: node.get("description") for name, node in {**sent["properties"], "$d": sent["$defs"]["d"]}.items()}
    bounds = "{minimum: 1, maximum: 10}"
    assert (told["a"], told["b"], told["c"]) == (f"A number.\n\n{bounds}", bounds, "{uniqueItems: true}")
    assert (told["d"], told["e"], told["$d"]) == (None, None, "{maxLength: 9}")
    assert sent["properties"]["c"]["items"]["description"] == r'{pattern: "^\"x\""}'
    assert "description" not in number


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}},
        Tree,
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/a"}}}}},
        {"type": "object", "properties": {"b": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
    ],
)
def test_a_schema_that_cannot_be_closed_is_asked_for_in_another_way(schema: Any) -> None:
    sent, notes = sent_schema(CLAUDES[0], schema=schema)
    assert sent is None
    assert "schema-method" in notes


def test_a_closed_schema_goes_out_as_it_is() -> None:
    shared = {"type": "object", "properties": {}, "additionalProperties": False}
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/s"}, "b": {"$ref": "#/$defs/s"}, "c": {"enum": ["x"]}},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"s": shared},
    }
    sent, notes = sent_schema(CLAUDES[0], schema=schema)
    assert (sent, "schema-adapted" in notes) == (schema, False)


def test_the_answer_is_judged_by_the_callers_own_schema(client: Driver, tmp_path: Path) -> None:
    short = '{"name": "Ada", "age": -1}'
    with Peer([gives("call", "json_schema", short)], [gives("call", "json_schema", GOOD)]) as peer:
        reply = ask(client, "call", endpoint(tmp_path, peer, "json_schema", CLOSED), schema=SCHEMA)
    form = peer.received[0].json()["response_format"]["json_schema"]["schema"]
    age = {"type": "integer", "description": "{minimum: 0}"}
    assert (form["additionalProperties"], form["properties"]["age"]) == (False, age)
    assert reply.parsed == ADA
    assert {"schema-adapted", "answer-corrected"} <= {*codes(reply)}
