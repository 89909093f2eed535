"""G: another model goes on with the conversation (what the other wires sign stands with them)."""

import json
from pathlib import Path
from typing import Any

from cases import each

import cnllm

from .support import Json, call_turn, chunk, expect_note, home, notes_about, plan, play, read_whole, result_turn, tool

ASK: Json = {"role": "user", "content": "Why?"}
SIGNED = [{"type": "reasoning.text", "text": "hm", "signature": "c2lnbmVk", "format": "anthropic-claude-v1"}]
CLAUDE = "openrouter/anthropic/claude-sonnet-4.5"


def saved(message: cnllm.Message) -> cnllm.Message:
    """A message as it comes out of a session that was kept as JSON."""
    return cnllm.Message.from_dict(json.loads(json.dumps(message.to_dict())))


@each("target", ["openrouter/anthropic/claude-opus-4.1", "openrouter/z-ai/glm-4.7", "groq/any", "zai/glm-4.7"])
@each("loaded", [False, True])
def test_G1_signed_reasoning_goes_to_the_model_that_signed_it_alone(target: str, loaded: bool) -> None:
    call = call_turn()["tool_calls"]
    message = read_whole(
        CLAUDE, {"content": None, "reasoning_details": SIGNED, "tool_calls": call}, "tool_calls"
    ).message
    turn = saved(message) if loaded else message
    history = [ASK, turn, result_turn()]
    assert plan(CLAUDE, history, tools=[tool()]).body["messages"][1]["reasoning_details"] == SIGNED
    assert b"c2lnbmVk" not in plan(target, history, tools=[tool()]).content


def test_G1_a_model_of_the_same_family_gets_the_thought_without_the_signature() -> None:
    message = read_whole(CLAUDE, {"content": "So.", "reasoning_details": SIGNED}).message
    wire = plan("openrouter/anthropic/claude-opus-4.1", [ASK, message, ASK]).body["messages"][1]
    assert wire["reasoning_details"] == [{"type": "reasoning.text", "text": "hm"}]


def test_G1_another_family_at_the_same_gateway_gets_no_thought() -> None:
    message = read_whole(CLAUDE, {"content": "So.", "reasoning_details": SIGNED}).message
    request = plan("openrouter/deepseek/deepseek-chat", [ASK, message, ASK])
    assert b"hm" not in request.content
    expect_note(request.notes, "reasoning.if_foreign", said="messages[1]", did="left out")


def test_G1_a_seal_tells_who_wrote_a_turn_that_does_not_say_so() -> None:
    message = read_whole(CLAUDE, {"content": "So.", "reasoning_details": SIGNED}).message
    turn = cnllm.Message("assistant", message.parts)
    assert plan(CLAUDE, [ASK, turn, ASK]).body["messages"][1]["reasoning_details"] == SIGNED
    request = plan("deepseek/deepseek-flash", [ASK, turn, ASK], reasoning="on")
    assert request.body["messages"][1]["reasoning_content"] == ""
    expect_note(request.notes, "reasoning.if_foreign", said="messages[1]", did="left out")


@each("role", ["user", "system", "tool"])
def test_G1_a_sealed_block_goes_to_its_origin_alone_whoever_says_it(role: cnllm.Role) -> None:
    block = cnllm.Opaque({"type": "block"}, cnllm.Seal("openai-chat", "zai", "glm-4.7"))
    history = [ASK, cnllm.Message(role, [cnllm.Text("hi"), block]), ASK]
    place = 0 if role == "system" else 1  # it goes first
    assert {"type": "block"} in plan("zai/glm-4.7", history).body["messages"][place]["content"]
    request = plan("deepseek/deepseek-flash", history)
    assert request.body["messages"][place]["content"] == "hi"
    [note] = [n for n in request.notes if n.code == "block-foreign"]
    assert "messages[1]" in note.said
    bare = plan("deepseek/deepseek-flash", [ASK, cnllm.Message(role, [block]), ASK])
    assert bare.body["messages"] == [ASK, ASK]


@each("stream", [False, True])
def test_G2_a_calls_signature_goes_to_the_model_that_gave_it_alone(stream: bool) -> None:
    extra = {"extra_content": {"google": {"thought_signature": "c2lnbmVk"}}}
    call = {**call_turn()["tool_calls"][0], **extra}
    name = "google/gemini-3-pro-preview"
    if stream:
        chunks = [chunk({"tool_calls": [{"index": 0, **call}]}), chunk(finish="tool_calls")]
        message = play(name, chunks).reply.message
    else:
        message = read_whole(name, {"content": None, "tool_calls": [call]}, "tool_calls").message
    history = [ASK, saved(message), result_turn()]
    assert plan(name, history, tools=[tool()]).body["messages"][1]["tool_calls"] == [call]
    for other in ("google/gemini-2.5-flash", "openrouter/google/gemini-3-pro-preview", "deepseek/deepseek-flash"):
        assert b"c2lnbmVk" not in plan(other, history, tools=[tool()]).content


@each("target", ["groq/openai/gpt-oss-120b", "cerebras/gpt-oss-120b", "mistral/mistral-small-latest"])
def test_G3_reasoning_of_others_does_not_reach_who_refuses_it(target: str) -> None:
    said = {"content": "So.", "reasoning_content": "theirs"}
    message = read_whole("deepseek/deepseek-flash", said).message
    request = plan(target, [ASK, message, ASK])
    assert request.body["messages"][1] == {"role": "assistant", "content": "So."}
    expect_note(request.notes, "reasoning.if_foreign", said="messages[1]", did="left out")


def test_G3_an_endpoint_that_no_one_described_gets_none(tmp_path: Path) -> None:
    message = read_whole("deepseek/deepseek-flash", {"content": "So.", "reasoning_content": "theirs"}).message
    own = {"role": "assistant", "content": "So.", "reasoning_content": "its own"}
    wire = plan(home(tmp_path), [ASK, message, ASK, own, ASK]).body["messages"]
    assert [m for m in wire if m["role"] == "assistant"] == [{"role": "assistant", "content": "So."}] * 2


def test_G3_where_it_is_declared_it_becomes_text(tmp_path: Path) -> None:
    message = read_whole("deepseek/deepseek-flash", {"content": "So.", "reasoning_content": "theirs"}).message
    request = plan(home(tmp_path, 'reasoning.if_foreign = "text"'), [ASK, message, ASK])
    assert request.body["messages"][1]["content"] == "theirs\n\nSo."
    expect_note(request.notes, "reasoning.if_foreign", said="messages[1]", did="sent as text", where="overlay.toml")


@each("target", ["groq/openai/gpt-oss-120b", "zai/glm-4.7", "openai-compatible/any", "mistral/mistral-small-latest"])
def test_G4_the_wire_has_no_key_that_no_one_asked_for(target: str) -> None:
    book = {"provider_specific_fields": {"x": 1}, "headers": {}, "index": 0, "annotations": [], "logprobs": None}
    call = call_turn()["tool_calls"][0] | {"index": 0, "provider_specific_fields": {}}
    history: list[Any] = [
        {**ASK, "id": "m1", "timestamp": 1},
        {**call_turn(), **book, "tool_calls": [call], "usage": {}, "refusal": None, "audio": None},
        {**result_turn(), "artifact": 1, "status": "ok", "error": True},
        {"role": "assistant", **book, "content": [{"type": "text", "text": "So.", "annotations": [], "logprobs": []}]},
        ASK,
    ]
    base: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1"} if target.startswith("openai-compatible") else {}
    found = cnllm.Registry.load().resolve(target, **base)
    request = plan(found, history, tools=[tool()])
    allowed = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}
    for message in request.body["messages"]:
        assert set(message) <= allowed, message
        for one in message.get("tool_calls", ()):
            assert set(one) == {"id", "type", "function"}
            assert set(one["function"]) == {"name", "arguments"}
        if isinstance(message["content"], list):
            assert all(set(part) == {"type", "text"} for part in message["content"])
    assert not notes_about(request.notes, "reasoning.if_foreign")


def test_G4_pictures_in_results_go_where_they_are_taken(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    two = {**call_turn(), "tool_calls": [call_turn(i)["tool_calls"][0] for i in ("c1", "c2")]}
    history = [ASK, two, result_turn("c1", [{"type": "text", "text": "seen"}, picture]), result_turn("c2"), ASK]
    request = plan(home(tmp_path, 'input = ["text", "image"]'), history, tools=[tool()])
    assert [(m["role"], m.get("tool_call_id")) for m in request.body["messages"]] == [
        ("user", None),
        ("assistant", None),
        ("tool", "c1"),
        ("tool", "c2"),
        ("user", None),
        ("user", None),
    ]
    assert request.body["messages"][2]["content"] == "seen"
    assert request.body["messages"][4]["content"][-1] == picture
    [note] = [n for n in request.notes if n.code == "media-moved"]
    assert "messages[2]" in note.said
    blind = plan(home(tmp_path, 'input = ["text"]'), history, tools=[tool()])
    assert b"base64" not in blind.content
    expect_note(blind.notes, "input", said="messages[2]", did="left out", where="overlay.toml")
