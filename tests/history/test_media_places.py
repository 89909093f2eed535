"""Endpoints take pictures and files from users: those in a system message or an earlier answer move to one of these."""

from __future__ import annotations

from typing import Any

import pytest
from builtin import BUILTIN

from cnllm import Media, Message, Text, ToolCall, ToolResult, engine

PNG = "iVBORw0KGgo="
PICTURE = Media("image/png", PNG)
WIRES = {
    "openai-chat": "openai/gpt-6.1-terra",
    "openai-responses": "openai/gpt-6.1-terra",
    "anthropic-messages": "anthropic/claude-opus-5",
    "gemini": "google/gemini-2.5-flash",
}


def plan(protocol: str, messages: list[Any]) -> Any:
    return engine.build_request(BUILTIN.resolve(WIRES[protocol], protocol=protocol), messages)


def turns(body: Any) -> list[tuple[str, str]]:
    """The roles of a body's turns with their content, the system first."""
    if "contents" in body:
        head = body.get("systemInstruction")
        rest = [(turn["role"], str(turn["parts"])) for turn in body["contents"]]
    else:
        head = body.get("system", body.get("instructions"))
        rest = [
            (item.get("role", item.get("type")), str(item)) for item in body.get("messages") or body.get("input") or []
        ]
    return [*([("system", str(head))] if head else []), *rest]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("protocol", WIRES)
def test_a_picture_of_a_system_message_goes_to_the_user(protocol: str, role: Any) -> None:
    request = plan(protocol, [Message(role, [Text("Follow this layout."), PICTURE]), Message.user("hi")])
    found = turns(request.body)
    assert [said for who, said in found if who in ("system", "developer")]
    assert all(PNG not in said for who, said in found if who != "user")
    assert any(PNG in said for who, said in found if who == "user")
    [note] = [note for note in request.notes if note.code == "media-moved"]
    assert note.said.startswith("messages[0] by ")


@pytest.mark.parametrize("protocol", WIRES)
def test_a_system_message_of_a_picture_alone(protocol: str) -> None:
    request = plan(protocol, [Message("system", [PICTURE]), Message.user("hi")])
    assert {who for who, _ in turns(request.body)} == {"user"}
    assert PNG in request.content.decode()


@pytest.mark.parametrize("protocol", WIRES)
def test_a_picture_that_a_program_put_into_an_answer_follows_its_results(protocol: str) -> None:
    history = [
        Message.user("hi"),
        Message("assistant", [Text("See."), PICTURE, ToolCall("c1", "look", {})]),
        Message("tool", [ToolResult("c1", "done")]),
    ]
    request = plan(protocol, history)
    who, said = next((who, said) for who, said in turns(request.body) if PNG in said)
    assert who == ("model" if protocol == "gemini" else "user")
    assert ("media-moved" in {note.code for note in request.notes}) is (protocol != "gemini")
    if protocol == "anthropic-messages":
        assert said.index("tool_result") < said.index(PNG)


def test_a_file_of_a_system_message_goes_to_the_user_too() -> None:
    stored = {"type": "file", "file": {"file_id": "file-1"}}
    history = [{"role": "system", "content": [{"type": "text", "text": "Read."}, stored]}, "hi"]
    messages = plan("openai-chat", history).body["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "user"]
    assert stored in messages[1]["content"]


def test_a_block_of_a_system_message_is_text() -> None:
    block = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found it"}]}
    body = plan("anthropic-messages", [{"role": "system", "content": [block]}, "hi"]).body
    assert "found it" in str(body["system"])
    assert isinstance(body["system"], str)
