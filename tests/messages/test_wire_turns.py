"""A program keeps turns as the API of one vendor has them, as plain dicts; any endpoint takes them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from builtin import BUILTIN

from cnllm import engine
from cnllm.types.message_memory import MessageMemory

Json = dict[str, Any]
PNG = "iVBORw0KGgo="

ANTHROPIC: list[Json] = [
    {"role": "user", "content": "Is it warm?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I look.", "signature": "sig"},
            {"type": "redacted_thinking", "data": "hidden"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "21"}]},
            {"type": "text", "text": "And now?", "cache_control": {"type": "ephemeral"}},
        ],
    },
]
GEMINI: list[Json] = [
    {"role": "user", "parts": [{"text": "Is it warm?"}]},
    {
        "role": "model",
        "parts": [
            {"text": "I look.", "thought": True},
            {"text": "Let me look."},
            {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": "c2ln"},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "weather", "response": {"output": "21"}}},
            {"text": "And now?"},
        ],
    },
]
RESPONSES: list[Json] = [
    {"role": "user", "content": "Is it warm?"},
    {
        "type": "reasoning", "id": "rs_1", "encrypted_content": "sealed",
        "summary": [{"type": "summary_text", "text": "I look."}],
    },
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
    {"type": "function_call", "call_id": "toolu_1", "name": "weather", "arguments": '{"city":"Rome"}'},
    {"type": "function_call_output", "call_id": "toolu_1", "output": "21"},
    {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
]  # fmt: skip
FORMS = {"anthropic-messages": ANTHROPIC, "gemini": GEMINI, "openai-responses": RESPONSES}
TARGETS = {
    "anthropic-messages": "anthropic/claude-opus-5",
    "gemini": "google/gemini-3-flash-preview",
    "openai-responses": "openai/gpt-6.1-terra",
    "openai-chat": "openai/gpt-6.1-terra",
}


def plan(protocol: str, messages: list[Json], **options: Any) -> Any:
    model = BUILTIN.resolve(TARGETS[protocol], protocol=protocol)
    before = copy.deepcopy(messages)
    request = engine.build_request(model, messages, **options)
    assert messages == before
    return request


def kinds(body: Any) -> set[str]:
    """The types of all objects in a body."""
    if isinstance(body, list):
        return {kind for item in body for kind in kinds(item)}
    if not isinstance(body, dict):
        return set()
    own = {body["type"]} if isinstance(body.get("type"), str) else set()
    return own | {kind for value in body.values() for kind in kinds(value)}


@pytest.mark.parametrize("form", FORMS)
def test_a_chat_endpoint_gets_the_calls_and_results_of_every_form(form: str) -> None:
    request = plan("openai-chat", FORMS[form])
    user, *turns, result, last = request.body["messages"]
    assert user == {"role": "user", "content": "Is it warm?"}
    assert "".join(str(turn.get("content") or "") for turn in turns).endswith("Let me look.")
    [call] = turns[-1]["tool_calls"]
    assert (call["function"]["name"], call["function"]["arguments"]) == ("weather", '{"city":"Rome"}')
    assert (result["role"], result["content"], result["tool_call_id"]) == ("tool", "21", call["id"])
    assert last["role"] == "user"
    assert "And now?" in str(last["content"])
    assert kinds(request.body["messages"]) <= {"function", "text", "ephemeral"}
    assert "hidden" not in str(request.body)
    if form == "anthropic-messages":
        assert {"reasoning-foreign", "block-foreign"} & {note.code for note in request.notes}


@pytest.mark.parametrize("protocol", FORMS)
def test_its_own_wire_gets_back_what_is_sealed(protocol: str) -> None:
    text = plan(protocol, FORMS[protocol]).content.decode()
    sealed = {"anthropic-messages": ["sig", "hidden"], "gemini": ["c2ln"], "openai-responses": ["sealed", "rs_1"]}
    assert all(f'"{word}"' in text for word in sealed[protocol])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("protocol", TARGETS)
def test_no_wire_gets_what_another_sealed(form: str, protocol: str) -> None:
    request = plan(protocol, FORMS[form])
    if protocol != form:
        sealed = ("sig", "hidden", "c2ln", "sealed", "rs_1")
        assert not [word for word in sealed if f'"{word}"' in request.content.decode()]
    model = BUILTIN.resolve(TARGETS[protocol], protocol=protocol)
    remembered = engine.build_request(model, FORMS[form], memory=MessageMemory())
    assert remembered.content == request.content


def test_results_come_first_and_calls_without_one_are_answered() -> None:
    turns = [
        ANTHROPIC[0],
        ANTHROPIC[1],
        {
            "role": "user",
            "content": [{"type": "text", "text": "No."}, {"type": "tool_result", "tool_use_id": "gone"}],
        },
    ]
    request = plan("anthropic-messages", turns)
    content = request.body["messages"][-1]["content"]
    assert [block["type"] for block in content] == ["tool_result", "text"]
    assert content[0]["tool_use_id"] == "toolu_1"
    assert {"call-unanswered", "result-orphan"} <= {note.code for note in request.notes}


def test_results_keep_their_pictures_and_failures() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    picture = {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}
    inner = [{"type": "text", "text": "see"}, picture]
    failed = {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": inner}
    turns = [*ANTHROPIC[:2], {"role": "user", "content": [failed]}]
    assert plan("anthropic-messages", turns).body["messages"][-1]["content"] == [failed]
    chat = plan("openai-chat", turns).body["messages"]
    assert chat[-2]["content"] == "Error: see"
    assert PNG in str(chat[-1])


def test_parts_with_names_of_another_spelling() -> None:
    failed = {"id": "f1", "name": "draw", "response": {"error": "no"}}
    turns: list[Json] = [
        {"role": "user", "parts": [{"text": "Draw."}, {"inline_data": {"mime_type": "image/png", "data": PNG}}]},
        {"role": "model", "parts": [{"function_call": {"id": "f1", "name": "draw", "args": {}}}]},
        {
            "role": "function",
            "parts": [{"function_response": failed}],
        },
    ]
    request = plan("gemini", turns)
    assert request.body["contents"][0]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": PNG}}
    answer = request.body["contents"][2]["parts"][0]["functionResponse"]
    assert answer == {"id": "f1", "name": "draw", "response": {"error": "no"}}


def test_items_of_an_endpoints_own_tools_stay_on_their_wire() -> None:
    search: dict[str, Any] = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search"},
    }
    custom: list[dict[str, Any]] = [
        {"type": "custom_tool_call", "call_id": "k1", "name": "patch", "input": "*** x"},
        {"type": "custom_tool_call_output", "call_id": "k1", "output": "done"},
    ]
    turns: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, search, *custom]
    assert search in plan("openai-responses", turns).body["input"]
    chat = plan("openai-chat", turns)
    assert "ws_1" not in chat.content.decode()
    assert "block-foreign" in {note.code for note in chat.notes}
    assert chat.body["messages"][-1]["content"] == "done"
