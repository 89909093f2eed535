"""B8 and B9: structured output where a response_format is refused, and on models that think."""

import json
from typing import Any

import pytest
from cases import each

import cnllm

from .support import Json, Wire, expect_note, ok, plan, text_of, whole_body

SCHEMA: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
DEEPSEEK = ["deepseek/deepseek-flash", "deepseek/deepseek-v4-pro"]
THINKING = [*DEEPSEEK, "glm-4.7", "minimax/MiniMax-M2", "kimi-k2.6", "alibaba/qwen3-max"]


def call(name: str, wire: Wire, **options: Any) -> cnllm.Reply:
    with cnllm.Client(transport=wire.transport, api_key="sk-test") as client:
        return client.call(name, "how many?", schema=SCHEMA, **options)


# ── B8 ───────────────────────────────────────────────────────────────────────
@each("name", DEEPSEEK)
def test_B8_json_object_with_the_schema_in_the_prompt_where_json_schema_is_refused(name: str) -> None:
    made = plan(name, schema=SCHEMA)
    assert made.body["response_format"] == {"type": "json_object"}
    prompt = "\n".join(text_of(message["content"]) for message in made.body["messages"])
    assert "json" in prompt.lower()
    assert json.dumps(SCHEMA, separators=(",", ":")) in prompt
    expect_note(made.notes, "schema.methods", did="json_object")


@each("name", DEEPSEEK)
def test_B8_the_endpoint_that_refuses_json_schema_takes_it(name: str) -> None:
    with cnllm.Client(simulate=True) as client:
        with pytest.raises(cnllm.BadRequest, match="unavailable"):
            client.call(name, "hi", extra_body={"response_format": {"type": "json_schema"}})
        assert client.call(name, "hi", schema=SCHEMA).parsed == {"n": 1}


def test_B8_it_is_validated_here_and_asked_for_again_a_bounded_number_of_times() -> None:
    wrong, right = (ok(whole_body({"content": text})) for text in ('{"n": "one"}', '{"n": 1}'))
    wire = Wire(wrong, right)
    reply = call(DEEPSEEK[0], wire)
    assert (reply.parsed, len(wire.requests)) == ({"n": 1}, 2)
    assert "'one' is not of type 'integer'" in wire.body()["messages"][-1]["content"]
    wire = Wire(wrong)
    reply = call(DEEPSEEK[0], wire, corrections=2)
    assert (reply.parsed, reply.text, len(wire.requests)) == (None, '{"n": "one"}', 3)
    assert "'one' is not of type 'integer'" in next(n.said for n in reply.notes if n.code == "answer-invalid")


# ── B9 ───────────────────────────────────────────────────────────────────────
@each("name", THINKING)
def test_B9_no_tool_is_forced_on_a_model_that_thinks(name: str) -> None:
    made = plan(name, schema=SCHEMA, reasoning="on")
    assert made.body.get("tool_choice", "auto") == "auto"
    assert made.body.get("tools") or made.body.get("response_format")
    quiet = plan(name, schema=SCHEMA)
    assert quiet.body.get("thinking") == plan(name).body.get("thinking")  # nor is it told to stop


@each("name", THINKING)
def test_B9_the_endpoint_takes_it_and_the_answer_is_typed(name: str) -> None:
    with cnllm.Client(simulate=True) as client:
        reply = client.call(name, "hi", schema=SCHEMA, reasoning="on")
        with client.stream(name, "hi", schema=SCHEMA, reasoning="on") as stream:
            assert stream.reply.parsed == reply.parsed == {"n": 1}
    assert reply.reasoning
    assert (reply.tool_calls, reply.finish) == ([], "stop")


def test_B9_where_nothing_else_is_a_tool_is_offered_and_its_call_is_the_answer() -> None:
    answer = {"id": "c", "type": "function", "function": {"name": "answer", "arguments": '{"n": 7}'}}
    wire = Wire(ok(whole_body({"content": None, "tool_calls": [answer]}, "tool_calls")))
    reply = call("minimax/MiniMax-M2", wire)
    assert [tool["function"]["name"] for tool in wire.body()["tools"]] == ["answer"]
    assert (reply.parsed, reply.text, reply.tool_calls, reply.finish) == ({"n": 7}, '{"n": 7}', [], "stop")
    expect_note(reply.notes, "tool_choice", said="a forced call")
