"""`Message.user`, `.system`, `.assistant` and `.tool`: a string, a part, or a list of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import cnllm
from cnllm import Media, Message, Reasoning, Text, ToolCall, ToolResult

PICTURE = Media("image/png", "aGk=")
CALL = ToolCall("c1", "weather", {"city": "Bern"})


def test_a_string_is_a_text() -> None:
    assert (
        Message.user("Hi") == Message("user", (Text("Hi"),)) == Message("user", "Hi") == Message("user", [Text("Hi")])
    )
    assert Message.system("Hi").role == "system"
    assert Message.assistant("Hi").role == "assistant"
    assert Message.tool("c1", "21") == Message("tool", (ToolResult("c1", "21"),))
    assert Message.user("").parts == Message("user", "").parts == ()


def test_a_part_and_a_list_of_them() -> None:
    assert Message.user(PICTURE).parts == (PICTURE,)
    assert Message.user(["What is this?", PICTURE]).parts == (Text("What is this?"), PICTURE)
    assert Message.user(({"type": "image_url", "image_url": {"url": "http://a/b.png"}}, "?")).parts == (
        Media("image", None, "http://a/b.png"),
        Text("?"),
    )
    turn = Message.assistant([Reasoning("hm"), "Let me look.", CALL])
    assert (turn.reasoning, turn.text, turn.tool_calls) == ("hm", "Let me look.", [CALL])
    result = Message.tool("c1", ["one", PICTURE, Text("two")], name="weather", error=True)
    assert result.parts == (ToolResult("c1", "one\n\ntwo", "weather", True, (PICTURE,), order=("one", 0, "two")),)


@pytest.mark.parametrize(
    ("name", "media_type"), [("a.txt", "text/plain"), ("a.xyz", "application/octet-stream"), ("a", "application/pdf")]
)
def test_the_name_of_a_bare_file_tells_its_type(name: str, media_type: str) -> None:
    [part] = Message.user({"type": "file", "file": {"file_data": "aGk=", "filename": name}}).parts
    assert part == Media(media_type, "aGk=", extra={"filename": name})


def test_short_forms_go_through_json_and_to_an_endpoint() -> None:
    history = [
        Message.system("Be brief."),
        Message.user(["How warm is it?", PICTURE]),
        Message.assistant([Reasoning("hm"), CALL]),
        Message.tool("c1", "21"),
    ]
    assert [Message.from_dict(json.loads(json.dumps(one.to_dict()))) for one in history] == history
    fitted = cnllm.fit("gpt-5.2", history)
    assert [one["role"] for one in fitted.messages] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize("wrong", [None, 3, b"Hi", [3], [None], {1}, object(), str])
def test_what_is_no_content_is_refused_with_what_is(wrong: Any) -> None:
    for make in (Message.user, Message.system, Message.assistant, lambda content: Message.tool("c1", content)):
        with pytest.raises(TypeError, match="content"):
            make(wrong)


def test_a_tool_needs_the_id_of_its_call_and_takes_no_reasoning() -> None:
    with pytest.raises(TypeError, match="id is int; a string is expected"):
        Message.tool(3, "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="content is Reasoning"):
        Message.tool("c1", Reasoning("hm"))


@pytest.mark.parametrize("wrong", [None, 3, 4.5, b"Hi", object(), Message, dict, True])
def test_messages_of_another_type_are_refused_with_what_to_write(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r'^messages is .*; a string \("Hi"\).*Message.user\("Hi"\).*"role": "user"'):
        cnllm.fit("glm-4.7", wrong)
    with pytest.raises(TypeError, match=r"^messages\[1\] is .*; a string, a cnllm.Message, a dict, or a message of"):
        cnllm.fit("glm-4.7", ["Hi", wrong])


def test_a_name_that_no_json_holds_is_told_by_its_place() -> None:
    wrong = Message("user", "Hi", name=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^messages\[0\]\.name is object; a string"):
        cnllm.engine.build_request(cnllm.Registry.load().resolve("glm-4.7"), [wrong])


@pytest.mark.parametrize("role", ["bot", "", "User"])
def test_a_message_of_another_role_is_refused_with_its_place(role: Any) -> None:
    for wrong in (Message(role, [Text("Hi")]), {"role": role, "content": "Hi"}):
        with pytest.raises(ValueError, match=r"messages\[1\]: role .* is none of system, developer, user"):
            cnllm.fit("gpt-5.2", ["Hi", wrong])
