"""What counts as an answer, and what a caller is told of one that is not valid."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from client.peer import Peer
from client.support import Driver, ask
from pydantic import BaseModel, field_validator

import cnllm

from .support import ADA, BAD, GOOD, SCHEMA, WORDS, Json, Person, codes, endpoint, gives, note

VERBS = ["call", "stream"]


def answered(client: Driver, folder: Path, text: str, method: str = "prompt", **options: Any) -> cnllm.Reply:
    """The reply to a text, which is not sent back."""
    with Peer([gives("call", method, text)]) as peer:
        return client.call(endpoint(folder, peer, method), **{"schema": SCHEMA, "corrections": 0, **options})


@pytest.mark.parametrize("method", ["json_schema", "json_object", "prompt"])
@pytest.mark.parametrize("text", [f"```json\n{GOOD}\n```", f"\n\n{GOOD}\n", f"```\n{GOOD}```", f"~~~\n{GOOD}\n~~~"])
def test_a_fence_around_it_is_tolerated(client: Driver, tmp_path: Path, method: str, text: str) -> None:
    got = answered(client, tmp_path, text, method)
    assert (got.parsed, got.text) == (ADA, text)


@pytest.mark.parametrize(
    "text", [f"Sure [1]:\n{GOOD}", f"Sure:\n```json\n{GOOD}\n```", f'Sure, {{"a": "]"}} is "wrong:\n{GOOD}']
)
def test_prose_before_it_only_where_the_endpoint_does_not_see_to_the_form(
    client: Driver, tmp_path: Path, text: str
) -> None:
    assert answered(client, tmp_path, text, "prompt").parsed == ADA
    assert note(answered(client, tmp_path, text, "json_object"), "answer-prose").said.startswith("Sure")
    got = answered(client, tmp_path, text, "json_schema")
    assert (got.parsed, got.text) == (None, text)
    assert "not JSON" in note(got, "answer-invalid").said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BAD, WORDS),
        ('{"name": "Ada"}', "$: 'age' is a required property"),
        ('{"name": "Ada", "age": -1}', "$.age: -1 is less than the minimum of 0"),
        ('{"name": "Ada", "age": NaN}', "JSON has no NaN"),
        ('{"name": "Ada", "age"', "it is not JSON"),
        ('{"name": "Ada", "age": 1e400}', "the number 1e400 is too large"),
        (f"{GOOD} I hope this helps.", "it is not JSON"),
        (f'{{"name": "Eve", "child": {GOOD}', "it is not JSON"),
        (f"```json\n[{GOOD}, {GOOD}\n```", "it is not JSON"),
        (f'Sure: {{"name": "Eve", "children": [{GOOD}], "age": ', "it is not JSON"),
        (f'Sure: {{"name": "Eve", "children": [1}} {GOOD}', "it is not JSON"),
        (f'{{"name": "Eve", "age": 1}} {GOOD}', "it is not JSON"),
        ("I cannot say.", "there is no JSON in it"),
    ],
)
def test_what_is_not_valid_is_kept_and_noted_in_the_validators_words(
    client: Driver, tmp_path: Path, text: str, words: str
) -> None:
    got = answered(client, tmp_path, text)
    assert (got.parsed, got.text, got.finish) == (None, text, "stop")
    assert words in note(got, "answer-invalid").said
    assert got.to_dict()["parsed"] is None


def test_what_is_deep_can_be_written_again(client: Driver, tmp_path: Path) -> None:
    for levels in (300, 499, 600, 10_000):
        text = '{"a": ' * levels + "1" + "}" * levels
        got = answered(client, tmp_path, text, schema={"type": "object"})
        if levels < 500:
            assert (got.parsed is None, "answer-invalid" in codes(got)) == (False, False)
        else:
            assert "it is nested more than 500 levels deep" in note(got, "answer-invalid").said
        again = json.loads(msgspec.json.encode(got.to_dict()))
        assert again["parsed"] == got.parsed


def test_what_is_long_is_told_in_short(client: Driver, tmp_path: Path) -> None:
    got = answered(client, tmp_path, f'{{"name": 1, "age": "{"x" * 5000}"}}')
    assert len(note(got, "answer-invalid").said) < 500


def test_a_model_class_says_what_is_wrong_in_its_own_words(client: Driver, tmp_path: Path) -> None:
    got = answered(client, tmp_path, BAD, schema=Person)
    assert got.parsed is None
    assert note(got, "answer-invalid").said.startswith("$.age: Input should be a valid integer")


def test_a_model_class_that_fails_by_itself_loses_no_reply(client: Driver, tmp_path: Path) -> None:
    class Broken(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def look(cls, value: str) -> str:
            raise KeyError(value)

    got = answered(client, tmp_path, GOOD, schema=Broken, corrections=3)
    assert (got.text, got.parsed) == (GOOD, None)
    assert "KeyError" in note(got, "schema-unusable").said


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("method", ["json_schema", "tool"])
@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_what_is_not_whole_is_neither_parsed_nor_corrected(
    client: Driver, tmp_path: Path, method: str, verb: str, finish: str
) -> None:
    text = GOOD[:-5] if finish == "length" else GOOD
    with Peer([gives(verb, method, text, finish=finish)]) as peer:
        got = ask(client, verb, endpoint(tmp_path, peer, method), schema=SCHEMA, corrections=3)
        assert len(peer.received) == 1
    assert (got.finish, got.parsed, got.text) == (finish, None, text)
    assert (got.tool_calls, got.incomplete) == ([], [])
    assert "answer-invalid" not in codes(got)


def test_without_a_schema_nothing_is_parsed(client: Driver, tmp_path: Path) -> None:
    with Peer([gives("call", "prompt", GOOD)]) as peer:
        assert client.call(endpoint(tmp_path, peer, "prompt")).parsed is None


# ── the schema ───────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], ["a", "b"]),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, 1, 0),
    ],
)
def test_a_schema_that_names_no_dialect_may_be_of_an_older_one(
    client: Driver, tmp_path: Path, kind: Json, good: Any, bad: Any
) -> None:
    schema = {"type": "object", "properties": {"x": kind}, "required": ["x"]}
    for value in (good, bad):
        got = answered(client, tmp_path, json.dumps({"x": value}), schema=schema)
        assert ("answer-invalid" in codes(got)) is (value is bad)
    named = {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    with pytest.raises(ValueError, match="not a JSON Schema"):
        answered(client, tmp_path, "{}", schema=named)


@pytest.mark.parametrize("schema", [{"type": "strng"}, {"properties": []}, {"type": "object", "required": "a"}])
def test_what_is_no_schema_is_refused_before_anything_is_sent(client: Driver, tmp_path: Path, schema: Json) -> None:
    with Peer([gives("call", "prompt", GOOD)]) as peer, pytest.raises(ValueError, match="not a JSON Schema"):
        client.call(endpoint(tmp_path, peer, "prompt"), schema=schema)
    assert not peer.received


def test_nothing_is_fetched_for_a_schema(client: Driver, tmp_path: Path) -> None:
    with Peer([gives("call", "prompt", GOOD)]) as peer:
        schema = {"type": "object", "properties": {"name": {"$ref": f"{peer.url}/other.json"}}}
        got = client.call(endpoint(tmp_path, peer, "prompt"), schema=schema, corrections=2)
        assert len(peer.received) == 1
    assert (got.text, got.parsed) == (GOOD, None)
    assert "other.json, which is not in it" in note(got, "schema-unusable").said


@pytest.mark.parametrize("value", [-1, True, "1", 1.5])
def test_corrections_is_a_number(client: Driver, tmp_path: Path, value: Any) -> None:
    with Peer([gives("call", "prompt", GOOD)]) as peer, pytest.raises(ValueError, match="corrections="):
        client.call(endpoint(tmp_path, peer, "prompt"), schema=SCHEMA, corrections=value)
