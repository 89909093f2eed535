"""Every described endpoint, on its own simulator: the method that is chosen is one it takes, in every mode."""

from functools import cache
from typing import Any

import msgspec
import pytest
from builtin import BUILTIN
from cases import each

from cnllm import Client, Model, engine

from .support import SCHEMA

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}


def signature(model: Model) -> Any:
    """What two models share that are asked for structured output in the same way."""
    flags = model.flags
    thinks = (flags.reasoning.mode, flags.reasoning.default)
    parts = (flags.schema, flags.tool_choice, flags.tools, flags.stream, flags.body)
    return msgspec.json.encode([thinks, *parts])


@cache
def kinds() -> tuple[Model, ...]:
    """One model of each kind, whoever serves it."""
    found = map(BUILTIN.resolve, BUILTIN.names())
    return tuple({signature(m): m for m in found if m.protocol == "openai-chat" and m.flags.base_url}.values())


def distinct(provider: str) -> list[Model]:
    return [model for model in kinds() if model.provider == provider]


@pytest.mark.share(3)
@each("provider", BUILTIN.providers)
def test_the_first_method_is_taken_and_gives_an_answer(provider: str) -> None:
    with Client(BUILTIN, simulate=True) as client:
        for model in distinct(provider):
            for reasoning in ("off", "on"):
                options: dict[str, Any] = {"schema": SCHEMA, "corrections": 0, "reasoning": reasoning}
                whole = client.call(model, "who?", **options)
                with client.stream(model, "who?", **options) as stream:
                    streamed = stream.reply
                for reply in (whole, streamed):
                    assert isinstance(reply.parsed, dict), (model, reasoning, reply)
                    assert (reply.finish, reply.tool_calls) == ("stop", [])
                assert streamed.parsed == whole.parsed


@each("provider", BUILTIN.providers)
def test_a_schema_is_taken_beside_the_callers_tools(provider: str) -> None:
    with Client(BUILTIN, simulate=True) as client:
        for model in distinct(provider):
            if model.flags.tools.supported is False:
                continue
            reply = client.call(model, "who?", schema=SCHEMA, tools=[TOOL])
            assert ([call.name for call in reply.tool_calls], reply.parsed) == (["look"], None), model


def test_the_schema_of_an_answer_is_in_the_subset_of_the_endpoint() -> None:
    model = BUILTIN.resolve("moonshotai/kimi-k3")
    number = {"type": "integer", "minimum": 1, "title": "A"}
    schema = {"type": "object", "properties": {"a": number}, "required": ["a"], "additionalProperties": False}
    plan = engine.build_request(model, "Hi", schema=schema)
    sent = plan.body["response_format"]["json_schema"]["schema"]
    assert sent["properties"] == {"a": {"type": "integer", "description": "{minimum: 1}"}}
    [note] = [note for note in plan.notes if note.code == "schema-adapted"]
    assert note.said == "the schema of the answer"
    assert plan.schema == schema, "the answer is checked against the caller's own"
    sent_as_is = engine.build_request(model, "Hi", schema=schema, on_unsupported="send")
    assert sent_as_is.body["response_format"]["json_schema"]["schema"] == schema
