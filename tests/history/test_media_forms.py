"""Pictures and sounds go out in the form that the wire compares them with, and nothing beside them is lost unsaid."""

from __future__ import annotations

from typing import Any

import pytest
from builtin import BUILTIN

import cnllm
from cnllm import Media, Message, engine

PNG = "iVBORw0KGgo="


def plan(name: str, protocol: str, messages: list[Any], **options: Any) -> Any:
    return engine.build_request(BUILTIN.resolve(name, protocol=protocol), messages, **options)


def image(url: str) -> Any:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@pytest.mark.parametrize(
    ("url", "mime"),
    [
        (f"data:image/jpg;base64,{PNG}", "image/jpeg"),
        (f"DATA:image/PNG;base64,{PNG}", "image/png"),
        (f"data:image/png;name=a.png;base64,{PNG}", "image/png"),
        (f"data:;base64,{PNG}", "image/png"),
    ],
)
def test_a_picture_has_the_registered_name_of_its_type(url: str, mime: str) -> None:
    [block] = plan("anthropic/claude-opus-5", "anthropic-messages", [image(url)]).body["messages"][0]["content"]
    assert block["source"] == {"type": "base64", "media_type": mime, "data": PNG}
    [part] = plan("google/gemini-2.5-flash", "gemini", [image(url)]).body["contents"][0]["parts"]
    assert part == {"inlineData": {"mimeType": mime, "data": PNG}}


@pytest.mark.parametrize(
    "picture",
    [
        Media("image", url=f"data:image/png;base64,{PNG}", extra={"detail": "high"}),
        Media("image/png", f"data:image/png;base64,{PNG}", extra={"detail": "high"}),
    ],
)
def test_a_data_url_in_a_medium_is_its_data(picture: Media) -> None:
    messages = [Message.user(["What is this?", picture])]
    block = plan("anthropic/claude-opus-5", "anthropic-messages", messages).body["messages"][0]["content"][1]
    assert block["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}
    part = plan("google/gemini-2.5-flash", "gemini", messages).body["contents"][0]["parts"][1]
    assert part == {"inlineData": {"mimeType": "image/png", "data": PNG}}
    part = plan("openai/gpt-6.1-terra", "openai-chat", messages).body["messages"][0]["content"][1]
    assert part["image_url"] == {"url": f"data:image/png;base64,{PNG}", "detail": "high"}
    call = cnllm.ToolCall("c1", "draw", {}, "{}")
    history = [Message.user("Draw."), Message.assistant(call), Message.tool("c1", picture)]
    body = plan("anthropic/claude-opus-5", "anthropic-messages", history).body
    assert body["messages"][2]["content"][0]["content"][0]["source"]["data"] == PNG


def test_bytes_without_a_type_are_seen_as_what_they_are() -> None:
    messages = [Message.user([Media("image", PNG)])]
    [block] = plan("anthropic/claude-opus-5", "anthropic-messages", messages).body["messages"][0]["content"]
    assert block["source"]["media_type"] == "image/png"
    text = plan("openai/gpt-6.1-terra", "openai-chat", messages).content.decode()
    assert f"data:image/png;base64,{PNG}" in text


def test_a_picture_of_a_type_that_the_wire_refuses() -> None:
    bmp = image("data:image/bmp;base64,Qk0=")
    with pytest.raises(cnllm.CannotSend, match="image/bmp"):
        plan("anthropic/claude-opus-5", "anthropic-messages", [bmp])
    older = plan("anthropic/claude-opus-5", "anthropic-messages", [bmp, "go on"])
    assert "image/bmp" not in older.content.decode()
    assert "media-dropped" in {note.code for note in older.notes}


@pytest.mark.parametrize(
    ("mime", "form"),
    [("audio/mpeg", "mp3"), ("audio/x-wav", "wav"), ("audio/wav; codecs=1", "wav"), ("audio/flac", "flac")],
)
def test_a_sound_has_the_word_of_the_wire_for_its_format(mime: str, form: str) -> None:
    messages = [Message.user([Media(mime, "AAAA")])]
    [part] = plan("deepseek/deepseek-chat", "openai-chat", messages).body["messages"][0]["content"]
    assert part["input_audio"] == {"data": "AAAA", "format": form}
    other = BUILTIN.resolve("openai-compatible/m", protocol="openai-responses", base_url="http://127.0.0.1:9/v1")
    assert engine.build_request(other, messages).body["input"][0]["content"] == [part]


@pytest.mark.parametrize("protocol", ["openai-responses", "gemini"])
def test_a_mark_that_the_wire_cannot_write_is_noted(protocol: str) -> None:
    name = "google/gemini-2.5-flash" if protocol == "gemini" else "openai/gpt-6.1-terra"
    text = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "high"}}
    request = plan(name, protocol, [{"role": "user", "content": [text, text, picture]}])
    notes = {note.code: note.said for note in request.notes}
    assert notes["cache-mark"] == "cache_control (2 times)"
    if protocol == "gemini":
        assert notes["key-foreign"] == "messages[].content[].detail"
    else:
        assert '"detail":"high"' in request.content.decode()


def test_names_of_joined_messages_are_noted(tmp_path: Any) -> None:
    file = tmp_path / "own.toml"
    flags = (
        '[providers.home]\ntitle = "Home"\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n'
    )
    file.write_text(f'{flags}messages.consecutive_roles = "join"\n[models."home/m"]\n', encoding="utf-8")
    model = cnllm.Registry.load(str(file)).resolve("home/m")
    messages: list[Any] = [
        {"role": "user", "content": "hi", "name": "ann"},
        {"role": "user", "content": "ho", "name": "bob"},
    ]
    request = engine.build_request(model, messages)
    assert request.body["messages"] == [{"role": "user", "content": "hi\n\nho"}]
    assert "messages[].name (2 times)" in [note.said for note in request.notes]
