"""Functions in the older form of chat completions: they reach every wire, and a call comes back as `function_call`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cnllm import Finished, Message, Reply, ToolCall, ToolCallDelta, ToolCallEnd, ToolCallStart, Usage, engine
from cnllm.protocols import PROTOCOLS

from .clients import CHAT, endpoint

Json = dict[str, Any]
WEATHER: Json = {
    "name": "weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ARGUMENTS = '{"city": "Bern"}'
TURNS: list[Json] = [
    {"role": "user", "content": "Bern?"},
    {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": ARGUMENTS}},
    {"role": "function", "name": "weather", "content": "Sun."},
]
BODY: Json = {"model": "m", "messages": TURNS, "functions": [WEATHER], "function_call": {"name": "weather"}}
NEWER = {
    "tools": [{"type": "function", "function": WEATHER}],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "parallel_tool_calls": False,
}


def sent(body: Json, protocol: str) -> tuple[Json, list[str]]:
    """The body for an endpoint, and the places of the notes about the client's own keys."""
    request = engine.decode_request(CHAT, body)
    plan = engine.build_request(endpoint(protocol), request.messages, **request.options)
    return plan.body, [note.said for note in (*request.notes, *plan.notes) if note.code == "key-foreign"]


@pytest.mark.parametrize("choice", [None, "auto", "none", {"name": "weather"}])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_functions_are_sent_as_tools(protocol: str, choice: Any) -> None:
    newer = {**NEWER, "tool_choice": NEWER["tool_choice"] if isinstance(choice, dict) else choice}
    body, notes = sent({**BODY, "function_call": choice}, protocol)
    assert not notes
    assert body == sent({"model": "m", "messages": TURNS, **newer}, protocol)[0]


@pytest.mark.parametrize("key", ["functions", "function_call"])
def test_functions_beside_tools_are_noted(key: str) -> None:
    body, notes = sent({"model": "m", "messages": TURNS, **NEWER, key: BODY[key]}, CHAT)
    assert notes == [key]
    assert key not in body


def test_further_keys_of_a_function_are_noted() -> None:
    _, notes = sent({**BODY, "functions": [{**WEATHER, "colour": "red"}, {"name": "news", "colour": ""}]}, CHAT)
    assert notes == ["functions[].colour"]


def test_a_function_that_is_no_object_is_named() -> None:
    with pytest.raises(ValueError, match=r"functions\[0\]"):
        engine.decode_request(CHAT, {**BODY, "functions": ["weather"]})


def test_a_choice_that_names_no_function_is_refused() -> None:
    with pytest.raises(ValueError, match="tool_choice"):
        sent({**BODY, "function_call": {"nome": "weather"}}, CHAT)


def reply(count: int) -> Reply:
    """A reply with so many calls."""
    calls = [ToolCall(f"call_{n}", "weather", {"city": "Bern"}, ARGUMENTS) for n in range(count)]
    rest: Json = {"usage": Usage(), "cost": None, "model": "m", "id": "1", "notes": [], "incomplete": []}
    message = Message("assistant", calls)
    return Reply(text="", reasoning="", tool_calls=calls, finish="tool_calls", raw_finish=None, message=message, **rest)


def streamed(calls: list[ToolCall]) -> list[Json]:
    """The deltas of a stream with calls, and its finish reason behind them."""
    writer = engine.StreamWriter(CHAT, request=BODY)
    data = writer.begin()
    for index, call in enumerate(calls):
        data += writer.feed(ToolCallStart(index, call.id, call.name))
        for piece in (call.raw[:5], call.raw[5:]):
            data += writer.feed(ToolCallDelta(index, piece))
        data += writer.feed(ToolCallEnd(index, call))
    data += writer.feed(Finished("tool_calls", None))
    choices = [json.loads(line[6:])["choices"][0] for line in data.decode().split("\n") if line.startswith("data: {")]
    return [*(choice["delta"] for choice in choices), {"finish": choices[-1]["finish_reason"]}]


def test_a_call_comes_back_in_the_older_form() -> None:
    choice = engine.encode_reply(CHAT, reply(1), request=BODY)["choices"][0]
    assert choice["message"]["function_call"] == {"name": "weather", "arguments": ARGUMENTS}
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"
    _, *deltas, _, finish = streamed(reply(1).tool_calls)
    assert [set(delta) for delta in deltas] == [{"function_call"}] * 3
    assert deltas[0]["function_call"] == {"name": "weather", "arguments": ""}
    assert "".join(delta["function_call"]["arguments"] for delta in deltas) == ARGUMENTS
    assert finish == {"finish": "function_call"}


def test_further_calls_are_not_lost() -> None:
    message = engine.encode_reply(CHAT, reply(3), request=BODY)["choices"][0]["message"]
    assert message["function_call"]["name"] == "weather"
    assert [call["id"] for call in message["tool_calls"]] == ["call_1", "call_2"]
    pieces = [delta["tool_calls"][0] for delta in streamed(reply(3).tool_calls)[:-1] if "tool_calls" in delta]
    assert [piece["index"] for piece in pieces] == [0, 0, 0, 1, 1, 1]
    assert [piece["id"] for piece in pieces if "id" in piece] == ["call_1", "call_2"]
