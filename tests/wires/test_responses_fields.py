"""OpenAI Responses: every field that the specification requires, in every body and event.

The lists of required fields are facts of Open Responses, version 2026-04-24 (github.com/openresponses/openresponses,
public/openapi/openapi.json); the requests are those that its compliance tests make.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cases import each

from cnllm import Reasoning, Registry, Reply, Text, TextDelta, Usage, engine
from cnllm.simulator.server import Server, running
from cnllm.types import BlockEnd, Finished, Message

Json = dict[str, Any]
WIRE = "openai-responses"
NUMBER, NULL = (int, float), type(None)
RESOURCE: dict[str, Any] = {
    "id": str,
    "object": str,
    "created_at": int,
    "completed_at": (int, NULL),
    "status": str,
    "incomplete_details": (dict, NULL),
    "model": str,
    "previous_response_id": (str, NULL),
    "instructions": (str, NULL),
    "output": list,
    "error": (dict, NULL),
    "tools": list,
    "tool_choice": (str, dict),
    "truncation": str,
    "parallel_tool_calls": bool,
    "text": dict,
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "top_logprobs": int,
    "temperature": NUMBER,
    "reasoning": (dict, NULL),
    "usage": (dict, NULL),
    "max_output_tokens": (int, NULL),
    "max_tool_calls": (int, NULL),
    "store": bool,
    "background": bool,
    "service_tier": str,
    "metadata": dict,
    "safety_identifier": (str, NULL),
    "prompt_cache_key": (str, NULL),
}
ITEMS: dict[str, dict[str, Any]] = {
    "message": {"id": str, "status": str, "role": str, "content": list},
    "function_call": {"id": str, "call_id": str, "name": str, "arguments": str, "status": str},
    "reasoning": {"id": str, "summary": list},
}
PARTS: dict[str, dict[str, Any]] = {
    "output_text": {"text": str, "annotations": list, "logprobs": list},
    "summary_text": {"text": str},
    "refusal": {"refusal": str},
}
ITEM = {"item_id": str, "output_index": int}
CONTENT = {**ITEM, "content_index": int}
SUMMARY = {**ITEM, "summary_index": int}
EVENTS: dict[str, dict[str, Any]] = {
    "response.created": {"response": dict},
    "response.in_progress": {"response": dict},
    "response.completed": {"response": dict},
    "response.incomplete": {"response": dict},
    "response.failed": {"response": dict},
    "response.output_item.added": {"output_index": int, "item": dict},
    "response.output_item.done": {"output_index": int, "item": dict},
    "response.content_part.added": {**CONTENT, "part": dict},
    "response.content_part.done": {**CONTENT, "part": dict},
    "response.output_text.delta": {**CONTENT, "delta": str, "logprobs": list},
    "response.output_text.done": {**CONTENT, "text": str, "logprobs": list},
    "response.refusal.done": {**CONTENT, "refusal": str},
    "response.reasoning_summary_part.added": {**SUMMARY, "part": dict},
    "response.reasoning_summary_part.done": {**SUMMARY, "part": dict},
    "response.reasoning_summary_text.delta": {**SUMMARY, "delta": str},
    "response.reasoning_summary_text.done": {**SUMMARY, "text": str},
    "response.function_call_arguments.delta": {**ITEM, "delta": str},
    "response.function_call_arguments.done": {**ITEM, "arguments": str},
    "error": {"error": dict},
}
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def says(text: Any, role: str = "user") -> Json:
    return {"type": "message", "role": role, "content": text}


SUITE: dict[str, Json] = {
    "basic": {"input": [says("Say hello in exactly 3 words.")]},
    "streaming": {"input": [says("Count from 1 to 5.")], "stream": True},
    "system": {"input": [says("You are a pirate.", "system"), says("Say hello.")]},
    "tools": {"input": [says("What's the weather like in San Francisco?")], "tools": [WEATHER]},
    "tools, streaming": {"input": [says("And in Rome?")], "tools": [WEATHER], "stream": True},
    "picture": {
        "input": [says([{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": PICTURE}])]
    },
    "turns": {"input": [says("I am Alice."), says("Hello Alice!", "assistant"), says("Who am I?")]},
    "cut": {"input": "Hello there", "max_output_tokens": 3},
    "cut, streaming": {"input": "Hello there", "max_output_tokens": 3, "stream": True},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(Registry.load()) as listening:
        yield listening


def post(server: Server, body: Json, model: str = "openai/gpt-5.6-sol") -> httpx.Response:
    headers = {"authorization": "Bearer k"}
    with httpx.Client(trust_env=False, headers=headers) as client:
        return client.post(f"{server.url}/v1/responses", json={"model": model, **body})


def frames(content: bytes) -> list[Json]:
    return [json.loads(line[6:]) for line in content.decode().split("\n") if line.startswith("data: ")]


def holds(value: Json, fields: dict[str, Any], where: str) -> None:
    for name, kind in fields.items():
        assert name in value, f"{where}.{name} is missing"
        found = value[name]
        assert isinstance(found, kind), f"{where}.{name} is {found!r}"
        assert not (type(found) is bool and kind in (int, NUMBER)), f"{where}.{name} is {found!r}"


def whole(resource: Json) -> None:
    """A response object with all that it must have."""
    holds(resource, RESOURCE, "response")
    assert resource["object"] == "response"
    assert resource["truncation"] in ("auto", "disabled")
    assert isinstance(resource["text"]["format"]["type"], str)
    assert (resource["completed_at"] is not None) == (resource["status"] == "completed")
    if resource["reasoning"] is not None:
        assert {"effort", "summary"} <= resource["reasoning"].keys()
    for tool in resource["tools"]:
        if tool["type"] == "function":
            assert {"name", "description", "parameters", "strict"} <= tool.keys()
    if resource["usage"] is not None:
        holds(resource["usage"], dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), int), "usage")
        assert type(resource["usage"]["input_tokens_details"]["cached_tokens"]) is int
        assert type(resource["usage"]["output_tokens_details"]["reasoning_tokens"]) is int
    for item in resource["output"]:
        complete(item)


def complete(item: Json) -> None:
    holds(item, ITEMS[item["type"]], item["type"])
    for part in [*item.get("content", ()), *item.get("summary", ())]:
        holds(part, PARTS[part["type"]], part["type"])


def told(events: list[Json]) -> Json:
    """The last response of a stream whose events have all that they must have."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    added: list[str] = []
    done: set[int] = set()
    for event in events:
        holds(event, EVENTS[event["type"]], event["type"])
        if "response" in event:
            whole(event["response"])
        if "item" in event:
            complete(event["item"])
        if "part" in event:
            holds(event["part"], PARTS[event["part"]["type"]], event["type"])
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == len(added)
            added.append(event["item"]["id"])
        elif "item_id" in event:
            assert event["item_id"] == added[event["output_index"]]
            assert event["output_index"] not in done
        elif event["type"] == "response.output_item.done":
            assert event["item"]["id"] == added[event["output_index"]]
            done.add(event["output_index"])
    assert done == set(range(len(added)))
    last: Json = events[-1]["response"]
    assert [item["id"] for item in last["output"]] == added
    return last


def test_the_requests_of_the_compliance_suite(server: Server) -> None:
    for model in ("openai/gpt-5.6-sol", "openai/gpt-4.1", "xai/grok-4.3"):
        for name, body in SUITE.items():
            answer = post(server, body, model)
            assert answer.status_code == 200, (model, name, answer.text)
            if body.get("stream"):
                events = frames(answer.content)
                assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
                final = told(events)
            else:
                final = answer.json()
                whole(final)
            assert final["status"] == ("incomplete" if name.startswith("cut") else "completed"), (model, name)
            assert final["output"]
            if name.startswith("tools"):
                assert "function_call" in {item["type"] for item in final["output"]}
            if name == "tools, streaming":
                kinds = {event["type"] for event in events}
                assert kinds >= {"response.function_call_arguments.delta", "response.function_call_arguments.done"}


ECHOES: Json = {
    "instructions": "be brief",
    "temperature": 0.5,
    "top_p": 0.25,
    "max_output_tokens": 4000,
    "max_tool_calls": 3,
    "parallel_tool_calls": False,
    "tool_choice": {"type": "function", "name": "get_weather"},
    "metadata": {"a": "b"},
    "store": True,
    "truncation": "auto",
    "prompt_cache_key": "p",
    "safety_identifier": "s",
    "user": "u",
    "top_logprobs": 2,
    "background": False,
    "previous_response_id": "resp_0",
}


def test_what_the_request_says_is_repeated(server: Server) -> None:
    schema = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True}
    body = {"input": "hi", **ECHOES, "tools": [WEATHER], "text": {"format": schema, "verbosity": "low"}}
    body["service_tier"] = "flex"
    for stream in (False, True):
        answer = post(server, {**body, "stream": stream}, "openai/gpt-4.1")
        assert answer.status_code == 200, answer.text
        for found in (
            [told(frames(answer.content)), frames(answer.content)[0]["response"]] if stream else [answer.json()]
        ):
            assert {key: found[key] for key in ECHOES} == ECHOES
            assert found["text"] == {"format": {**schema, "description": None}, "verbosity": "low"}
            assert found["tools"] == [{**WEATHER, "strict": None}]
            assert found["service_tier"] == "default", "no endpoint said that it served another one"
    thinking = post(server, {"input": "hi", "reasoning": {"effort": "high", "summary": "auto"}}).json()
    assert thinking["reasoning"] == {"effort": "high", "summary": "auto"}


WRONG: list[Any] = [None, "x", 5, 0.5, True, [], {}, [1], {"a": None}, "9" * 300]


def test_a_request_of_wrong_types_never_breaks_what_is_required() -> None:
    reply = Reply(
        text="hi",
        reasoning="hm",
        tool_calls=[],
        finish="stop",
        raw_finish=None,
        usage=Usage(),
        cost=None,
        model=None,
        id=None,
        notes=[],
        message=Message("assistant", (Reasoning("hm"), Text("hi"))),
        incomplete=[],
    )
    for name in [*RESOURCE, "user", "stream", "input"]:
        for value in WRONG:
            whole(engine.encode_reply(WIRE, reply, request={name: value}))
    whole(engine.encode_reply(WIRE, reply))
    with pytest.raises(TypeError, match="request"):
        engine.encode_reply(WIRE, reply, request="x")  # type: ignore[arg-type]


@each(
    "finish, raw, status",
    [("stop", None, "completed"), ("length", None, "incomplete"), ("content_filter", "completed", "completed")],
)
def test_a_stream_that_a_server_writes_has_every_field(finish: Any, raw: str | None, status: str) -> None:
    writer = engine.StreamWriter(WIRE, id="r", model="m", request={"temperature": 0.5})
    content = writer.begin()
    for event in (TextDelta("so"), BlockEnd(0, Text("so")), BlockEnd(1, Text("whole at once")), Finished(finish, raw)):
        content += writer.feed(event)
    final = told(frames(content))
    assert (final["status"], final["temperature"], final["model"]) == (status, 0.5, "m")


def test_a_failure_has_both_forms_of_an_error() -> None:
    writer = engine.StreamWriter(WIRE, id="r", model="m")
    events = frames(
        writer.begin() + writer.feed(TextDelta("so")) + writer.error(503, "no room", "server_is_overloaded")
    )
    error, failed = events[-2:]
    assert error["error"] == {
        "type": "server_error",
        "code": "server_is_overloaded",
        "message": "no room",
        "param": None,
    }
    assert (error["code"], error["message"], error["param"]) == ("server_is_overloaded", "no room", None)
    whole(failed["response"])
    assert failed["response"]["status"] == "failed"


def test_a_failure_in_the_middle_stands_where_each_kind_of_client_reads_it() -> None:
    """The specification has an object, the vendor's own clients read its fields beside it."""
    writer = engine.StreamWriter("openai-responses", id="id-1", model="m")
    writer.begin()
    lines = writer.error(500, "It broke.", "broken").decode().splitlines()
    error, failed = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {"))
    assert (error["message"], error["code"], error["param"]) == ("It broke.", "broken", None)
    assert (error["error"]["message"], error["error"]["code"]) == ("It broke.", "broken")
    assert failed["response"]["error"] == {"code": "broken", "message": "It broke."}
