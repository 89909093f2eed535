"""A: reasoning that must come back (A5 stands with the other wires)."""

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import engine
from cnllm.registry.reasoning_form import place

from .support import (
    JSON_HEADERS,
    Json,
    call_turn,
    chunk,
    expect_note,
    home,
    model,
    overlay,
    plan,
    play,
    read_body,
    read_whole,
    result_turn,
    text_chunks,
    tool,
)

THOUGHT = "Let me look.\n\n1. «Oslo»\t 为什么 \u2028"
CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q":"a"}'}}
ASK: Json = {"role": "user", "content": "Why?"}
AGAIN: Json = {"role": "user", "content": "And tomorrow?"}
DEEPSEEK = "deepseek/deepseek-flash"
KIMI = "moonshotai/kimi-k2.5"
MIMO = "xiaomi/mimo-v2.5"


def called(name: str | cnllm.Model, field: str = "reasoning_content", *, stream: bool = False) -> cnllm.Message:
    """A turn with reasoning and a call, as this endpoint sends it."""
    if stream:
        pieces = [THOUGHT[i : i + 3] for i in range(0, len(THOUGHT), 3)]
        chunks = [*text_chunks(*pieces, field=field), chunk({"tool_calls": [{"index": 0, **CALL}]})]
        return play(name, [*chunks, chunk(finish="tool_calls")]).reply.message
    return read_whole(name, {"content": None, field: THOUGHT, "tool_calls": [CALL]}, "tool_calls").message


def looped(turn: Any) -> list[Any]:
    return [ASK, turn, result_turn()]


def sent(target: str | cnllm.Model, history: Any, **options: Any) -> list[Json]:
    messages: list[Json] = json.loads(plan(target, history, tools=[tool()], **options).content)["messages"]
    return messages


@each("stream", [False, True])
@each("name", [DEEPSEEK, "deepseek/deepseek-v4-pro"])
def test_A1_reasoning_goes_back_verbatim_after_a_tool_call_and_ever_after(name: str, stream: bool) -> None:
    history = looped(called(name, stream=stream))
    for longer in (history, [*history, {"role": "assistant", "content": "So."}, AGAIN], [*history, AGAIN]):
        wire = sent(name, longer)[1]
        assert wire["reasoning_content"] == THOUGHT
        assert list(wire) == ["role", "reasoning_content", "content", "tool_calls"]


def test_A2_the_key_is_there_though_the_turn_had_no_reasoning() -> None:
    wire = sent(DEEPSEEK, [ASK, {"role": "assistant", "content": "So."}, AGAIN], reasoning="on")
    assert wire[1]["reasoning_content"] == ""


def test_A3_turns_with_calls_carry_it_and_others_do_not() -> None:
    answer = {"role": "assistant", "content": "So.", "reasoning_content": "hm", "by": KIMI}
    for options in ({}, {"reasoning": "on"}):
        wire = sent(KIMI, [*looped(called(KIMI)), answer, AGAIN], **options)
        assert wire[1]["reasoning_content"] == THOUGHT
        assert "reasoning_content" not in wire[3]


def test_A4_the_real_sentence_is_found_and_the_reasoning_goes_back() -> None:
    said = "The reasoning_content in the thinking mode must be passed back to the API."
    body = {"error": {"code": "400", "message": "Param Incorrect", "param": said, "type": ""}}
    with pytest.raises(cnllm.ReplayMissing, match="must be passed back"):
        read_body(MIMO, body, 400)
    assert sent(MIMO, looped(called(MIMO)))[1]["reasoning_content"] == THOUGHT


def test_A6_a_plain_answer_has_the_key_too() -> None:
    answer = read_whole(DEEPSEEK, {"content": "So.", "reasoning_content": None}).message
    wire = sent(DEEPSEEK, [*looped(called(DEEPSEEK)), answer, AGAIN], reasoning="on")
    assert [m["reasoning_content"] for m in wire if m["role"] == "assistant"] == [THOUGHT, ""]


@each("name, filler", [(DEEPSEEK, ""), (KIMI, " "), (MIMO, "")])
@each("by", [None, "zai/glm-4.7"])
def test_A7_what_is_lost_is_filled_as_declared_and_thinking_stays_on(name: str, filler: str, by: str | None) -> None:
    turn = call_turn(**({"by": by, "reasoning": "theirs"} if by else {}))
    filled = plan(name, looped(turn), tools=[tool()], reasoning="on")
    assert filled.body["messages"][1]["reasoning_content"] == filler
    expect_note(filled.notes, "reasoning.if_missing", said="messages[1]", did=repr(filler))
    whole = plan(name, looped(called(name)), tools=[tool()], reasoning="on")
    assert {k: v for k, v in filled.body.items() if k != "messages"} == {
        k: v for k, v in whole.body.items() if k != "messages"
    }


@each("missing", ["space", "error"])
def test_A7_a_turn_that_does_not_go_out_lacks_nothing(tmp_path: Path, missing: str) -> None:
    target = home(tmp_path, f'reasoning = {{ replay = "always", if_missing = "{missing}" }}')
    request = plan(target, [ASK, {"role": "assistant", "content": ""}, AGAIN])
    assert [m["role"] for m in request.body["messages"]] == ["user", "user"]
    assert [n.code for n in request.notes if n.code != "unknown-model"] == ["turn-empty"]


def test_A7_calls_that_are_told_in_words_need_no_reasoning(tmp_path: Path) -> None:
    lines = 'tools.supported = false\nreasoning = { replay = "tool-turns", if_missing = "error" }'
    wire = plan(home(tmp_path, lines), looped(call_turn())).body["messages"]
    assert [m["role"] for m in wire] == ["user", "assistant", "user"]


def test_A7_an_empty_thought_is_none_at_all() -> None:
    turn = cnllm.Message.from_dict(call_turn())
    turn = cnllm.Message("assistant", [cnllm.Reasoning(""), *turn.parts], by=KIMI)
    assert sent(KIMI, looped(turn))[1]["reasoning_content"] == " "


@each("stream", [False, True])
@each("name", [DEEPSEEK, KIMI, MIMO, "zai/glm-4.7", "vllm/any", "siliconflow/zai-org/GLM-4.6"])
def test_A8_what_was_read_is_written_byte_for_byte(name: str, stream: bool) -> None:
    flags = model(name).flags.reasoning
    reads = (flags.fields or [])[0]
    request = plan(name, looped(called(name, reads, stream=stream)), tools=[tool()])
    if flags.replay in ("never", "unknown"):
        assert THOUGHT not in json.dumps(request.body, ensure_ascii=False)
    else:
        assert request.body["messages"][1][str(place(flags))] == THOUGHT
        assert json.dumps(THOUGHT, ensure_ascii=False).encode() in request.content


def test_A9_one_line_declares_it_for_a_renamed_model(tmp_path: Path) -> None:
    lines = '[models."deepseek/my-proxy"]\nreasoning.replay = "never"\n[models."openai-compatible/renamed"]\n'
    path = overlay(tmp_path, more=lines + 'reasoning = { replay = "always", replay_field = "thoughts" }')
    registry = cnllm.Registry.load(str(path))
    renamed = registry.resolve("openai-compatible/renamed", base_url="http://127.0.0.1:9/v1")
    assert sent(renamed, looped(called(renamed)))[1]["thoughts"] == THOUGHT
    mine = registry.resolve("deepseek/my-proxy")
    assert "reasoning_content" not in sent(mine, looped(called(mine)))[1]


def test_A10_joined_turns_keep_all_reasoning_and_all_calls(tmp_path: Path) -> None:
    joins = home(
        tmp_path, 'messages.consecutive_roles = "join"\nreasoning = { replay = "always", replay_field = "rc" }'
    )
    first = {"role": "assistant", "content": "I will look.", "reasoning": "one"}
    second = call_turn(content="Now.", reasoning="two")
    request = plan(joins, [ASK, first, second, result_turn()], tools=[tool()])
    _, joined, result = request.body["messages"]
    assert joined == {
        "role": "assistant",
        "rc": "one\n\ntwo",
        "content": "I will look.\n\nNow.",
        "tool_calls": [CALL],
    }
    assert result["tool_call_id"] == "call_1"
    expect_note(request.notes, "messages.consecutive_roles", said="messages[2]", did="joined", where="overlay.toml")


def test_A10_joined_turns_keep_their_further_keys_and_no_name_that_is_not_everybodys(tmp_path: Path) -> None:
    joins = home(tmp_path, 'messages = { consecutive_roles = "join", fields = ["prefix", "cache"] }')
    said = [{"role": "assistant", "content": "So"}, {"role": "assistant", "content": "far.", "prefix": True}]
    asked = [{**ASK, "name": "ann", "cache": 1}, {**ASK, "name": "bob", "cache": 2}]
    request = plan(joins, [*asked, *said])
    assert request.body["messages"] == [
        {"role": "user", "content": "Why?\n\nWhy?", "cache": 2},
        {"role": "assistant", "content": "So\n\nfar.", "prefix": True},
    ]
    alike = plan(joins, [asked[0], asked[0]]).body["messages"]
    assert alike == [{"role": "user", "content": "Why?\n\nWhy?", "name": "ann", "cache": 1}]


def test_A11_the_error_tells_what_was_sent() -> None:
    history = [*looped(called(DEEPSEEK)), {"role": "assistant", "content": "x" * 4000}, AGAIN]
    request = plan(DEEPSEEK, history, tools=[tool()], reasoning="on")
    for message in request.body["messages"][3:4]:
        del message["reasoning_content"]  # as a gateway in between may do
    body = {"error": {"message": "The `reasoning_content` in the thinking mode must be passed back to the API."}}
    with pytest.raises(cnllm.ReplayMissing) as raised:
        engine.parse_response(request.model, 400, JSON_HEADERS, json.dumps(body).encode(), plan=request)
    hint = str(raised.value.hint)
    assert "sent with reasoning: messages[1]; without it: messages[3]" in hint
    assert f"about {len(request.content) // 4} tokens" in hint


@each(
    "name, switch",
    [
        ("zai/glm-4.7", {"thinking": {"clear_thinking": False}}),
        ("alibaba/qwen3.6-plus", {"preserve_thinking": True}),
        ("moonshotai/kimi-k2.6", {"thinking": {"type": "enabled", "keep": "all"}}),
        ("minimax/MiniMax-M2.5", {}),
    ],
)
def test_A12_where_it_is_optional_it_goes_back_with_its_switch(name: str, switch: Json) -> None:
    request = plan(name, [*looped(called(name)), AGAIN], tools=[tool()])
    turn = request.body["messages"][1]
    details = [d["text"] for d in turn.get("reasoning_details", ())]
    assert ("".join(details) or turn["reasoning_content"]) == THOUGHT
    for key, value in switch.items():
        said = request.body[key]
        assert value.items() <= said.items() if isinstance(value, dict) else said == value
    first = plan(name, [ASK], tools=[tool()])
    assert not any("clear" in k or "preserve" in k for k in [*first.body, *first.body.get("thinking", {})])


@each("field", ["reasoning", "reasoning_content"])
def test_A13_both_names_are_read_and_the_declared_one_is_written(field: str) -> None:
    wire = sent("vllm/any", looped(called("vllm/any", field)))[1]
    assert {k for k in wire if k.startswith("reasoning")} == {"reasoning"}
    assert wire["reasoning"] == THOUGHT


@each("stream", [False, True])
def test_A14_the_list_goes_back_as_it_came(stream: bool) -> None:
    name = "minimax/MiniMax-M2.5"
    details = [{"type": "reasoning.text", "id": "r-1", "format": "F-v1", "index": 0, "text": THOUGHT}]
    if stream:
        chunks = [chunk({"reasoning_details": details}), chunk({"tool_calls": [{"index": 0, **CALL}]})]
        turn = play(name, [*chunks, chunk(finish="tool_calls")]).reply.message
    else:
        said = {"content": "", "reasoning_details": details, "tool_calls": [CALL]}
        turn = read_whole(name, said, "tool_calls").message
    wire = sent(name, looped(cnllm.Message.from_dict(json.loads(json.dumps(turn.to_dict())))))[1]
    assert wire["reasoning_details"] == details
    assert "reasoning_content" not in wire


@each("name", [DEEPSEEK, KIMI, MIMO, "zai/glm-4.7", "vllm/any"])
def test_A15_it_goes_back_through_its_field_and_not_in_the_text(name: str) -> None:
    reads = "reasoning" if name == "vllm/any" else "reasoning_content"
    for message in sent(name, [*looped(called(name, reads)), AGAIN]):
        assert "<think" not in json.dumps(message)
        assert THOUGHT not in str(message.get("content"))
