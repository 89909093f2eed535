"""Messages of other libraries, in the forms that those have, are messages of a call.

The recorded ones are what `model_dump` and `dump_python` of langchain-core 1.7, litellm 1.106 and pydantic-ai 2.68
return. Where a library is installed, its own objects are tried, too.
"""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai import types as genai
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.responses import Response

import cnllm
from cnllm import Media, Message, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.messages import as_messages

PNG = Media("image/png", "aGk=")


class Recorded(pydantic.BaseModel):
    """An object whose `model_dump` returns what was recorded."""

    model_config = pydantic.ConfigDict(extra="allow")


def recorded(**fields: Any) -> Any:
    return Recorded.model_validate(fields)


# ── SDKs ─────────────────────────────────────────────────────────────────────

CHAT = {
    "role": "assistant",
    "content": "Let me look.",
    "refusal": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"a":1}'}}],
    "reasoning_content": "hm",
}
TURN = (Reasoning("hm"), Text("Let me look."), ToolCall("c1", "weather", {"a": 1}, '{"a":1}'))


def test_a_message_of_chat_completions_and_its_whole_response() -> None:
    message = ChatCompletionMessage.model_validate(CHAT)
    assert as_messages([message]) == as_messages(message) == [Message("assistant", TURN)]
    choice = {"index": 0, "finish_reason": "tool_calls", "message": CHAT}
    whole = ChatCompletion.model_validate(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    )
    assert as_messages(["Hi", whole]) == [Message.user("Hi"), Message("assistant", TURN)]


def test_a_message_of_anthropics_sdk() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Let me look.", "citations": None},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"a": 1}},
        {"type": "redacted_thinking", "data": "xyz"},
    ]
    message = AnthropicMessage.model_validate(
        {
            "id": "x", "type": "message", "role": "assistant", "model": "m", "content": blocks,
            "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    )  # fmt: skip
    [turn] = as_messages(message)
    assert (turn.role, turn.reasoning, turn.text) == ("assistant", "hm", "Let me look.")
    assert turn.tool_calls == [ToolCall("c1", "weather", {"a": 1})]
    fitted = cnllm.fit("glm-4.7", ["Hi", message, {"role": "tool", "tool_call_id": "c1", "content": "21"}])
    assert "xyz" not in str(fitted.messages)
    assert "block-foreign" in [note.code for note in fitted.notes]


def test_a_content_of_geminis_sdk() -> None:
    parts = [
        genai.Part(text="hm", thought=True),
        genai.Part(text="Let me look."),
        genai.Part(function_call=genai.FunctionCall(name="weather", args={"a": 1}, id="c1")),
    ]
    [turn] = as_messages([genai.Content(role="model", parts=parts)])
    assert turn == Message("assistant", (Reasoning("hm"), Text("Let me look."), ToolCall("c1", "weather", {"a": 1})))
    answer = genai.Part(function_response=genai.FunctionResponse(name="weather", response={"t": 21}, id="c1"))
    picture = genai.Part(inline_data=genai.Blob(data=base64.b64decode(b"aGk="), mime_type="image/png"))
    found = as_messages(genai.Content(role="user", parts=[answer, genai.Part(text="And?"), picture]))
    assert found == [
        Message("tool", (ToolResult("c1", '{"t": 21}', "weather"),)),
        Message("user", (Text("And?"), PNG)),
    ]
    raw = genai.Content(role="model", parts=parts).model_dump(mode="json", exclude_none=True)
    assert as_messages([raw]) == [turn]


def test_a_response_of_responses_and_its_items() -> None:
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"a":1}'},
    ]  # fmt: skip
    response = Response.model_validate(
        {
            "id": "x", "object": "response", "created_at": 1, "model": "m", "output": items,
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        }
    )  # fmt: skip
    assert as_messages(response) == [Message("assistant", TURN)]
    output = {"type": "function_call_output", "call_id": "c1", "output": "21"}
    assert as_messages([items[2], output]) == [Message("assistant", TURN[2:]), Message.tool("c1", "21")]


# ── frameworks ───────────────────────────────────────────────────────────────

LANGCHAIN: list[dict[str, Any]] = [
    {"content": "Be brief.", "additional_kwargs": {}, "response_metadata": {}, "type": "system", "id": None},
    {
        "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
            {"type": "image", "source_type": "base64", "data": "aGk=", "mime_type": "image/png"},
            {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
            {"type": "image", "url": "https://a/c.png"},
        ],
        "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": "me", "id": None,
    },
    {
        "content": "Let me look.",
        "additional_kwargs": {"reasoning_content": "hm"},
        "response_metadata": {"model_name": "m"},
        "type": "ai", "name": None, "id": None,
        "tool_calls": [{"name": "weather", "args": {"a": 1}, "id": "c1", "type": "tool_call"}],
        "invalid_tool_calls": [{"type": "invalid_tool_call", "id": "c2", "name": "x", "args": "{oops", "error": "bad"}],
        "usage_metadata": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    },
    {
        "content": [{"type": "text", "text": "21"}], "additional_kwargs": {}, "response_metadata": {},
        "type": "tool", "name": "weather", "id": None, "tool_call_id": "c1", "artifact": None, "status": "error",
    },
    {
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Warm."},
            {"type": "tool_use", "id": "c3", "name": "weather", "input": {}},
        ],
        "additional_kwargs": {}, "response_metadata": {}, "type": "ai", "name": None, "id": None,
        "tool_calls": [{"name": "weather", "args": {}, "id": "c3", "type": "tool_call"}], "invalid_tool_calls": [],
    },
    {"content": "W", "additional_kwargs": {}, "response_metadata": {}, "type": "AIMessageChunk", "tool_calls": []},
    {"content": "x", "additional_kwargs": {}, "response_metadata": {}, "type": "chat", "role": "user"},
]  # fmt: skip


def test_messages_of_langchain() -> None:
    found = as_messages([recorded(**data) for data in LANGCHAIN])
    system, user, turn, result, second, chunk, chat = found
    assert system == Message.system("Be brief.")
    link = Media("image", None, "https://a/b.png")
    assert user.parts == (Text("look"), link, PNG, PNG, Media("image", None, "https://a/c.png"))
    assert (user.role, user.name) == ("user", "me")
    assert (turn.reasoning, turn.text) == ("hm", "Let me look.")
    good, bad = turn.tool_calls
    assert good == ToolCall("c1", "weather", {"a": 1})
    assert (bad.id, bad.arguments, bad.raw, bool(bad.problem)) == ("c2", None, "{oops", True)
    assert result == Message("tool", (ToolResult("c1", "21", "weather", True),))
    assert [type(part) for part in second.parts] == [Reasoning, Text, ToolCall]
    assert chunk == Message.assistant("W")
    assert chat == Message.user("x")
    assert as_messages(LANGCHAIN[:6]) == found[:6]  # the dicts themselves, as they are stored


def test_what_is_no_message_of_langchain_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match=r"messages\[1\]: Recorded is not a message .*choices\[0\].message"):
        as_messages(["Hi", recorded(content="", type="remove", id="x")])


def test_a_message_of_litellm() -> None:
    message = recorded(**CHAT, thinking_blocks=[{"type": "thinking"}], function_call=None, provider_specific_fields={})
    [turn] = as_messages([message])
    assert turn == Message("assistant", TURN)
    assert turn.extra is None


REQUEST: dict[str, Any] = {
    "parts": [
        {
            "content": "Be brief.",
            "timestamp": "2026-11-23T16:05:56Z",
            "dynamic_ref": None,
            "part_kind": "system-prompt",
        },
        {
            "content": [
                "look",
                {"url": "https://a/b.png", "force_download": False, "kind": "image-url", "media_type": "image/png"},
                {"data": "aGk=", "media_type": "image/png", "vendor_metadata": None, "kind": "binary"},
                {"url": "https://a/b.pdf", "kind": "document-url", "media_type": "application/pdf"},
            ],
            "part_kind": "user-prompt",
        },
    ],
    "instructions": "Be nice.",
    "kind": "request",
}
RESPONSE: dict[str, Any] = {
    "parts": [
        {"content": "hm", "id": "r1", "signature": "s", "provider_name": "openai", "part_kind": "thinking"},
        {"content": "Let me look.", "id": None, "part_kind": "text"},
        {"tool_name": "weather", "args": '{"a":1}', "tool_call_id": "c1", "part_kind": "tool-call"},
        {"tool_name": "web_search", "args": {}, "tool_call_id": "c9", "part_kind": "builtin-tool-call"},
    ],
    "usage": {"input_tokens": 0},
    "model_name": "gpt-5.2",
    "provider_name": "openai",
    "kind": "response",
}
RETURNS: dict[str, Any] = {
    "parts": [
        {"tool_name": "weather", "content": {"t": 21}, "tool_call_id": "c1", "part_kind": "tool-return"},
        {"tool_name": "x", "content": "try again", "tool_call_id": "c2", "part_kind": "retry-prompt"},
        {"tool_name": None, "content": "no tool", "tool_call_id": "z", "part_kind": "retry-prompt"},
        {"content": "And?", "part_kind": "user-prompt"},
    ],
    "instructions": "Be nice.",
    "kind": "request",
}  # fmt: skip


def as_objects(value: Any) -> Any:
    """Return dicts as objects with attributes, which is what the library itself holds."""
    if isinstance(value, dict) and ("kind" in value or "part_kind" in value):
        return SimpleNamespace(**{key: as_objects(inner) for key, inner in value.items()})
    return [as_objects(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", [lambda value: value, as_objects], ids=["dicts", "objects"])
def test_messages_of_pydantic_ai(form: Any) -> None:
    found = as_messages([form(REQUEST), form(RESPONSE), form(RETURNS)])
    nice, system, user, turn, *rest = found
    assert (nice, system) == (Message.system("Be nice."), Message.system("Be brief."))
    assert user.parts == (
        Text("look"),
        Media("image", None, "https://a/b.png"),
        PNG,
        Media("file", None, "https://a/b.pdf"),
    )
    assert turn.parts[:3] == (Reasoning("hm"), Text("Let me look."), ToolCall("c1", "weather", {"a": 1}, '{"a":1}'))
    assert turn.by == "openai/gpt-5.2"
    assert rest == [  # the instructions, which each request repeats, come once
        Message("tool", (ToolResult("c1", '{"t": 21}', "weather"),)),
        Message("tool", (ToolResult("c2", "try again", "x", True),)),
        Message.user("no tool"),
        Message.user("And?"),
    ]
    fitted = cnllm.fit("deepseek-flash", [form(REQUEST), form(RESPONSE), form(RETURNS)])
    assert "block-foreign" in [note.code for note in fitted.notes]


def test_a_result_in_blocks_and_a_turn_without_words_are_what_they_are() -> None:
    block = {"type": "text", "text": "21"}
    assert as_messages([recorded(role="tool", tool_call_id="c1", content=[block])]) == [
        Message("tool", (ToolResult("c1", "21"),))
    ]
    assert as_messages([recorded(role="assistant", reasoning_content="hm")]) == [
        Message("assistant", (Reasoning("hm"),))
    ]


def test_objects_that_raise_or_lack_what_they_need_are_refused() -> None:
    class Broken:
        def model_dump(self) -> dict[str, Any]:
            raise RuntimeError("no")

    for wrong in (Broken(), recorded(), recorded(role="nobody", content="x"), recorded(role="user", content=[3])):
        with pytest.raises((TypeError, ValueError), match=r"messages\[0\]"):
            as_messages([wrong])
    for part in ({"part_kind": "unheard-of"}, {"part_kind": "user-prompt", "content": 5}):
        with pytest.raises((TypeError, ValueError), match=r"messages\[0\]"):
            as_messages([as_objects({"kind": "request", "parts": [part]})])


# ── the libraries themselves, where they are installed ───────────────────────


def test_messages_of_langchain_are_taken_as_they_are() -> None:
    messages = pytest.importorskip("langchain_core.messages")
    call = {"name": "weather", "args": {"a": 1}, "id": "c1"}
    history = [
        messages.SystemMessage("Be brief."),
        messages.HumanMessage("Hi"),
        messages.AIMessage("Let me look.", tool_calls=[call]),
        messages.ToolMessage("21", tool_call_id="c1"),
    ]
    assert as_messages(history) == [
        Message.system("Be brief."),
        Message.user("Hi"),
        Message.assistant([Text("Let me look."), ToolCall("c1", "weather", {"a": 1})]),
        Message.tool("c1", "21"),
    ]


def test_pydantic_ai_itself() -> None:
    messages = pytest.importorskip("pydantic_ai.messages")
    answer = [messages.ThinkingPart("hm"), messages.ToolCallPart("weather", {"a": 1}, tool_call_id="c1")]
    history = [
        messages.ModelRequest(parts=[messages.SystemPromptPart("Be brief."), messages.UserPromptPart("Hi")]),
        messages.ModelResponse(parts=answer),
        messages.ModelRequest(parts=[messages.ToolReturnPart("weather", "21", tool_call_id="c1")]),
    ]
    found = as_messages(history)
    assert [message.role for message in found] == ["system", "user", "assistant", "tool"]
    assert found[2].tool_calls == [ToolCall("c1", "weather", {"a": 1})]
