"""A part with a field of another type is an error that names the field: nothing is sent for it."""

from __future__ import annotations

from typing import Any

import pytest

import cnllm
from cnllm import Media, Message, Reasoning, Text, ToolCall, ToolResult, engine

WIRES = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
PICTURE: Any = b"\x89PNG"
BASE64 = "a string in base64 is expected"
WRONG: dict[str, Any] = {
    "text: expected `str`, got `null`": Text(None),  # type: ignore[arg-type]
    "text: expected `str`, got `bytes`": Text(b"Hi"),  # type: ignore[arg-type]
    f"data is bytes; {BASE64}": Media("image/png", PICTURE),
    "data: expected `str | null`, got `int`": Media("image/png", 3),  # type: ignore[arg-type]
    "text: expected `str`, got `int`": Reasoning(3),  # type: ignore[arg-type]
    "arguments: expected `object | null`, got `str`": ToolCall("c1", "weather", '{"city": "Bern"}'),  # type: ignore[arg-type]
    "id: expected `str`, got `int`": ToolCall(3, "weather", {}),  # type: ignore[arg-type]
    "text: expected `str`, got `object`": ToolResult("c1", {"degrees": 21}),  # type: ignore[arg-type]
    f"media[0].data is bytes; {BASE64}": ToolResult("c1", "21", media=(Media("image/png", PICTURE),)),
}


def turn(part: Any) -> Message:
    role: Any = "user" if isinstance(part, Text | Media) else "tool" if isinstance(part, ToolResult) else "assistant"
    return Message(role, (part,))


@pytest.mark.parametrize("protocol", WIRES)
@pytest.mark.parametrize("words", WRONG)
def test_a_field_of_another_type_is_named(words: str, protocol: str) -> None:
    model = cnllm.Registry.load().resolve("openai-compatible/any", protocol=protocol, base_url="http://127.0.0.1:9/v1")
    with pytest.raises(TypeError) as caught:
        engine.build_request(model, [Message.user("Hi"), turn(WRONG[words])])
    assert str(caught.value) == f"messages[1].parts[0].{words}"


@pytest.mark.parametrize("words", WRONG)
def test_a_long_conversation_and_a_dict_name_it_too(words: str) -> None:
    history = [Message.user(f"Question {number}") for number in range(20)]
    with cnllm.Client(simulate=True) as client, pytest.raises(TypeError) as caught:
        client.call("glm-4.7", [*history, turn(WRONG[words])])
    assert str(caught.value) == f"messages[20].parts[0].{words}"
    with pytest.raises(TypeError) as caught:
        turn(WRONG[words]).to_dict()
    assert str(caught.value) == f"parts[0].{words}"


def test_a_string_of_another_class_is_a_string() -> None:
    class Word(str):
        """A string of another class."""

    model = cnllm.Registry.load().resolve("openai-compatible/any", base_url="http://127.0.0.1:9/v1")
    messages = [Message.user(Text(Word("Hi"))), Message.user(Media(Word("image/png"), Word("aGk=")))]
    assert b"Hi" in engine.build_request(model, messages).content
    assert b"data:image/png;base64,aGk=" in engine.build_request(model, messages).content
