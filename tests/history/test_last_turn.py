"""A conversation that the model itself ends goes to models that refuse to go on from it, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builtin import BUILTIN

import cnllm
from cnllm import Message, Opaque, Text, ToolCall, engine
from cnllm.simulator import SimTransport

HISTORY = [Message.user("Count to three."), Message.assistant("One, two")]
REFUSE = [
    "anthropic/claude-opus-4-6",
    "anthropic/claude-sonnet-5",
    "anthropic/claude-opus-5-5",
    "anthropic/claude-fable-5",
]


@pytest.mark.parametrize("name", REFUSE)
def test_a_user_turn_is_put_last_with_a_note(name: str) -> None:
    plan = engine.build_request(BUILTIN.resolve(name), HISTORY)
    assert [message["role"] for message in plan.body["messages"]] == ["user", "assistant", "user"]
    assert plan.body["messages"][-1] == {"role": "user", "content": "…"}
    [note] = [note for note in plan.notes if note.code == "last-user"]
    assert (note.flag, note.said[:11]) == ("messages.last_user", "messages[1]")
    assert note.where.startswith("providers.toml:")
    transport = SimTransport(BUILTIN, strict=True)
    with cnllm.Client(BUILTIN, transport=transport, api_key="k") as client:
        assert client.call(name, HISTORY).finish == "stop"


def test_an_older_model_goes_on_from_it_unless_it_thinks() -> None:
    model = BUILTIN.resolve("anthropic/claude-haiku-4-5")
    plain = engine.build_request(model, HISTORY)
    assert plain.body["messages"][-1]["role"] == "assistant"
    thinks = engine.build_request(model, HISTORY, reasoning="high")
    assert thinks.body["messages"][-1]["role"] == "user"


def test_calls_without_results_end_with_results() -> None:
    history = [Message.user("hi"), Message("assistant", [Text("I look."), ToolCall("c1", "look", {})])]
    plan = engine.build_request(BUILTIN.resolve("anthropic/claude-opus-5"), history)
    assert "last-user" not in {note.code for note in plan.notes}
    assert plan.body["messages"][-1]["content"][0]["type"] == "tool_result"


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "sky"}}


@pytest.mark.parametrize("name", REFUSE)
def test_a_turn_that_the_endpoint_paused_stays_the_last_one(name: str) -> None:
    model = BUILTIN.resolve(name)
    content = [{"type": "text", "text": "I look."}, SEARCH]
    body: dict[str, object] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    body |= {"stop_reason": "pause_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode())
    assert type(reply.message.parts[-1]) is Opaque
    plan = engine.build_request(model, [Message.user("Why?"), reply.message])
    assert "last-user" not in {note.code for note in plan.notes}
    assert plan.body["messages"][-1] == {"role": "assistant", "content": content}


FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


@pytest.mark.parametrize("blocks", [[SEARCH], [SEARCH, FOUND]])
@pytest.mark.parametrize("late", [Message.user("Go on."), Message.tool("toolu_1", "noon")])
def test_a_search_without_its_result_is_left_out_before_a_user_turn(blocks: list[Any], late: Message) -> None:
    model = BUILTIN.resolve("anthropic/claude-opus-4-6")
    call = {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}
    content = [{"type": "text", "text": "I look."}, *blocks, *([call] if late.role == "tool" else [])]
    body: dict[str, object] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    stop = "tool_use" if late.role == "tool" else "max_tokens"
    body |= {"stop_reason": stop, "usage": {"input_tokens": 1, "output_tokens": 1}}
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode())
    plan = engine.build_request(model, [Message.user("Why?"), reply.message, late])
    is_dropped = blocks == [SEARCH] and late.role == "user"
    assert plan.body["messages"][1]["content"] == ("I look." if is_dropped else content)
    assert ("call-unanswered" in {note.code for note in plan.notes}) == is_dropped


@pytest.mark.parametrize(
    ("stop", "sent"), [("\n", None), (["\n", "END", " "], ["END"]), (["END"], ["END"]), ([""], None)]
)
def test_a_stop_text_of_whitespace_is_left_out_where_it_is_refused(
    stop: str | list[str], sent: list[str] | None
) -> None:
    model = BUILTIN.resolve("anthropic/claude-haiku-4-5")
    plan = engine.build_request(model, "hi", stop=stop)
    assert plan.body.get("stop_sequences") == sent
    notes = [note.said for note in plan.notes if note.flag == "params.stop"]
    assert len(notes) == (sent != stop)
    if sent == stop:
        return
    with pytest.raises(cnllm.CannotSend):
        engine.build_request(model, "hi", stop=stop, on_unsupported="error")
