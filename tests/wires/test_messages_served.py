"""Anthropic Messages, served: requests read, replies and streams written, nothing lost on the way there and back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from cases import each

import cnllm
from cnllm import Message, Reply, engine

from .messages_support import MESSAGES, blocks_streamed, model, read

CALL = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}


# ── requests ─────────────────────────────────────────────────────────────────
def request(**more: Any) -> cnllm.Request:
    said = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    return engine.decode_request(MESSAGES, said | more)


def test_the_options_of_a_request_for_messages_are_read() -> None:
    tool = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}
    search = {"type": "web_search_20260209", "name": "web_search"}
    found = request(
        stream=True,
        system="Be short.",
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        stop_sequences=["END"],
        metadata={"user_id": "u"},
        tools=[tool, search],
        tool_choice={"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        thinking={"type": "adaptive", "display": "omitted"},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    )
    assert (found.model, found.stream) == ("m", True)
    assert [m.role for m in found.messages] == ["system", "user"]
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    assert found.options == {
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "tools": [{"type": "function", "function": function, "cache_control": {"type": "ephemeral"}}, search],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "reasoning": "high",
        "schema": {"json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "extra_body": {"top_k": 4, "metadata": {"user_id": "u"}, "thinking": {"display": "omitted"}},
    }


@each(
    "thinking, expected",
    [
        ({"type": "enabled", "budget_tokens": 2000}, 2000),
        ({"type": "enabled"}, "on"),
        ({"type": "adaptive"}, "on"),
        ({"type": "disabled"}, "off"),
        ({"type": "between_tools"}, "off"),
    ],
)
def test_how_much_thinking(thinking: dict[str, Any], expected: Any) -> None:
    assert request(thinking=thinking).options["reasoning"] == expected


@each("name", ["deepseek/deepseek-chat", "zai/glm-5.3", "anthropic/claude-haiku-4-5", "anthropic/claude-fable-5"])
def test_how_thinking_is_shown_is_asked_beside_thinking_alone(name: str) -> None:
    """Both forms without thinking are refused: `ThinkingConfigParam` of Anthropic's SDK has no such key there."""
    endpoint = cnllm.Registry.load().resolve(name, protocol=MESSAGES)
    shown = {"type": "enabled", "budget_tokens": 2048, "display": "summarized"}
    body = {"model": "x", "max_tokens": 100, "thinking": shown, "messages": [{"role": "user", "content": "hi"}]}
    for thinking in (shown, {**shown, "type": "adaptive"}, {"type": "disabled"}):
        request = engine.decode_request(MESSAGES, {**body, "thinking": thinking})
        plan = engine.build_request(endpoint, request.messages, **request.options)
        sent = plan.body.get("thinking")
        asks = sent is not None and sent["type"] in ("enabled", "adaptive")
        assert (sent or {}).get("display") == ("summarized" if asks and "display" in thinking else None)
        lost = [note for note in plan.notes if note.said == "thinking.display"]
        assert len(lost) == ("display" in thinking and not asks)


def test_an_effort_alone_asks_for_no_thinking() -> None:
    found = request(output_config={"effort": "low"}).options
    assert "reasoning" not in found
    assert found["extra_body"] == {"output_config": {"effort": "low"}}


@each("content", [{}, {"content": []}])
@each("where", [1, 2, 3])
def test_a_message_of_the_system_may_hold_nothing_but_an_effort(where: int, content: dict[str, Any]) -> None:
    """`BetaSystemMessageParam` of Anthropic's SDK: its content may be left out where it has an `output_config`."""
    turns: list[Any] = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    turns.insert(where, {"role": "system", **content, "output_config": {"effort": "low"}})
    found = request(messages=turns)
    plan = engine.build_request(model(), found.messages, **found.options)
    assert [turn["content"] for turn in plan.body["messages"]] == ["user", "assistant", "user"]
    notes = [*found.notes, *plan.notes]
    assert any("messages[].output_config" in note.said for note in notes)
    assert not any(note.code == "turn-empty" for note in notes)
    for wrong in ({"role": "system"}, {"role": "user", "output_config": {"effort": "low"}}):
        with pytest.raises(ValueError, match=r"messages\.0\.content"):
            request(messages=[wrong])


LOW: Any = {"role": "system", "content": [], "output_config": {"effort": "low"}}
MAX: Any = {"role": "system", "content": "Mind.", "output_config": {"effort": "max"}}
HI: Any = {"role": "user", "content": "Hi"}
OK: Any = {"role": "assistant", "content": [{**CALL}]}
DONE: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": CALL["id"], "content": "1"}]}


@each(
    "turns, effort",
    [
        ([HI, LOW], "low"),
        ([LOW, HI], "low"),
        ([HI, LOW, OK, DONE], "low"),
        ([HI, OK, LOW, DONE], "high"),  # results are not the user's words: it holds from the next ones on
        ([HI, OK, DONE, LOW], "high"),
        ([HI, OK, DONE, LOW, HI], "low"),
        ([HI, LOW, MAX], "max"),
        ([HI, MAX, OK, DONE, LOW], "max"),
        ([HI, {**LOW, "output_config": {}}], "high"),
        ([HI, {**LOW, "output_config": {"effort": None}}], "high"),
    ],
)
def test_the_effort_that_a_message_sets_is_that_of_the_request(turns: list[Any], effort: str) -> None:
    """https://github.com/router-for-me/CLIProxyAPI/issues/5738: Claude Code sets it so."""
    found = request(messages=turns, thinking={"type": "adaptive"}, output_config={"effort": "high"})
    assert found.options["reasoning"] == effort
    assert bool([note for note in found.notes if note.code == "reasoning-level"]) is (effort != "high")


@each(
    "more, place",
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["Hi"]}, "messages.0"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
        ({"messages": [{"role": "user", "content": [{**CALL}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "assistant", "content": [{**CALL, "input": "x"}]}]}, "input"),
        ({"max_tokens": None}, "max_tokens"),
        ({"tools": [{"name": "f"}]}, "tools.0"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"system": 3}, "system"),
    ],
)
def test_what_is_not_shaped_as_it_must_be_is_named(more: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=place.replace(".", r"\.")):
        request(**more)


def test_without_an_origin_nothing_sealed_goes_anywhere() -> None:
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [signed, {"type": "text", "text": "Yes."}]},
    ]
    found = request(messages=[*turns, {"role": "user", "content": "So?"}])
    plan = engine.build_request(model(), found.messages, **found.options)
    assert plan.body["messages"][1] == {"role": "assistant", "content": "Yes."}
    own = engine.decode_request(MESSAGES, {"max_tokens": 1, "messages": turns}, origin=model())
    assert engine.build_request(model(), own.messages).body["messages"] == turns


# ── streams ──────────────────────────────────────────────────────────────────
def _read(of: cnllm.Model, content: bytes) -> Reply:
    parser = engine.StreamParser(of)
    parser.feed(content)
    return parser.close()


def written(*events: Any) -> Reply:
    writer = engine.StreamWriter(MESSAGES, id="msg", model="m")
    return _read(model(), writer.begin() + b"".join(writer.feed(event) for event in events))


def test_calls_that_grow_side_by_side_are_written_one_after_the_other() -> None:
    reply = written(
        cnllm.ToolCallStart(0, "a", "f"),
        cnllm.ToolCallStart(1, "b", "g"),
        cnllm.ToolCallDelta(1, '{"x":'),
        cnllm.ToolCallDelta(0, '{"y": 1}'),
        cnllm.ToolCallDelta(1, " 2}"),
        cnllm.ToolCallEnd(0, cnllm.ToolCall("a", "f", {"y": 1})),
        cnllm.ToolCallEnd(1, cnllm.ToolCall("b", "g", {"x": 2})),
        cnllm.Finished("tool_calls"),
    )
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("f", {"y": 1}), ("g", {"x": 2})]
    assert reply.raw_finish == "tool_use"


def test_thinking_from_another_protocol_is_written_unsigned() -> None:
    seal = cnllm.Seal("gemini", "google", "m", {"thoughtSignature": "x"})
    reply = written(
        cnllm.ReasoningDelta("Hm."),
        cnllm.TextDelta("Yes."),
        cnllm.BlockEnd(0, cnllm.Reasoning("Hm.", seal)),
        cnllm.BlockEnd(1, cnllm.Text("Yes.", seal)),
        cnllm.Finished("stop"),
    )
    assert (reply.reasoning, reply.text, reply.finish) == ("Hm.", "Yes.", "stop")
    assert all(p.seal is None for p in reply.message.parts)


def test_what_breaks_off_has_no_closing_word() -> None:
    with pytest.raises(cnllm.StreamCut):
        written(cnllm.TextDelta("Yes"), cnllm.Finished("cut"))
    writer = engine.StreamWriter(MESSAGES)
    content = writer.begin() + writer.feed(cnllm.TextDelta("Yes")) + writer.error(529, "Overloaded")
    with pytest.raises(cnllm.Overloaded):
        _read(model(), content)


@each(
    "word",
    ["end_turn", "stop_sequence", "pause_turn", "max_tokens", "model_context_window_exceeded", "refusal", "brand_new"],
)
def test_the_endpoints_word_for_the_end_is_kept(word: str) -> None:
    content = blocks_streamed(({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Yes"}]), reason=word)
    events, reply = read(content)
    assert engine.encode_reply(MESSAGES, reply)["stop_reason"] == word
    writer = engine.StreamWriter(MESSAGES, id="msg", model="m")
    assert f'"stop_reason":"{word}"'.encode() in writer.begin() + b"".join(map(writer.feed, events))


@each("word, expected", [("stop", "end_turn"), ("max_tokens", "end_turn"), (None, "end_turn")])
def test_a_word_that_means_another_end_is_not_kept(word: str | None, expected: str) -> None:
    content = blocks_streamed(({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Yes"}]))
    reply = msgspec.structs.replace(read(content)[1], raw_finish=word)
    assert engine.encode_reply(MESSAGES, reply)["stop_reason"] == expected


def test_a_reply_of_another_protocol() -> None:
    of = cnllm.Registry.load().resolve("deepseek/deepseek-flash")
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    message = {"role": "assistant", "content": "Look.", "reasoning_content": "Hm.", "tool_calls": [call]}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 3}
    said = {"id": "x", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    reply = engine.parse_response(of, 200, {}, json.dumps({**said, "usage": usage}).encode())
    body = engine.encode_reply(MESSAGES, reply)
    assert body["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Look."},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    ]
    assert body["stop_reason"] == "tool_use"
    assert body["usage"] == {
        "input_tokens": 6,
        "cache_creation_input_tokens": None,
        "cache_read_input_tokens": 3,
        "output_tokens": 4,
    }


def test_everything_of_an_answer_goes_back_through_a_gateway() -> None:
    """Answer → neutral → answer for a client → that client's next request → neutral → the endpoint."""
    search = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}}
    hidden = {"type": "redacted_thinking", "data": "AAAA"}
    signed = {"type": "thinking_delta", "thinking": "Hm."}
    content = blocks_streamed(
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [signed, {"type": "signature_delta", "signature": "s"}],
        ),
        (hidden, []),
        (search, []),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Yes."}]),
    )
    _, reply = read(content)
    body = engine.encode_reply(MESSAGES, reply)
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": body["content"]}]
    again = engine.decode_request(MESSAGES, {"max_tokens": 1, "messages": turns}, origin=model())
    assert again.messages[1] == Message("assistant", reply.message.parts, model().name)
    assert engine.build_request(model(), again.messages).body["messages"][1]["content"] == body["content"]


def test_a_signature_alone_is_a_block_of_thinking_without_words() -> None:
    seal = cnllm.Seal(MESSAGES, "", "", {"type": "thinking", "signature": "s"})
    writer = engine.StreamWriter(MESSAGES, id="x", model="m")
    data = writer.begin() + writer.feed(cnllm.BlockEnd(0, cnllm.Reasoning("", seal)))
    frames = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
    begun, signature = frames[1], frames[2]
    assert begun["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert signature["delta"] == {"type": "signature_delta", "signature": "s"}


# ── calls that cannot be read ────────────────────────────────────────────────
def events_of(*events: cnllm.Event) -> list[dict[str, Any]]:
    """The frames of a stream."""
    writer = engine.StreamWriter(MESSAGES)
    content = writer.begin() + b"".join(map(writer.feed, events))
    return [json.loads(line[6:]) for line in content.decode().splitlines() if line.startswith("data: {")]


def unread(index: int, raw: str) -> list[cnllm.Event]:
    """A call with arguments that are no object."""
    call = cnllm.ToolCall(f"toolu_{index}", "look_up", None, raw, problem="no object")
    start = cnllm.ToolCallStart(index, call.id, call.name)
    return [start, cnllm.ToolCallDelta(index, raw), cnllm.ToolCallEnd(index, call)]


@each("raw", ['{"a":1,}', '["a"]', '"{}"', '{"a"'])
def test_the_block_of_a_call_that_cannot_be_read_stays_open(raw: str) -> None:
    start, delta, end = unread(0, raw)
    call, piece, _ = unread(1, "{}")
    after: list[cnllm.Event] = [cnllm.TextDelta("so"), cnllm.BlockEnd(1, cnllm.Text("so"))]
    for between in ([], [call, piece], after):
        for events in ([start, delta, end, *between], [start, delta, *between, end]):
            kinds = [frame["type"] for frame in events_of(*events, cnllm.Finished("tool_calls"))]
            assert kinds == ["message_start", "content_block_start", "content_block_delta"]


def test_what_waits_for_such_a_block_is_written_where_the_reply_ended_at_a_limit() -> None:
    start, delta, _ = unread(0, '{"a":1,}')
    found = events_of(start, delta, cnllm.TextDelta("so"), cnllm.TextDelta(" be it"), cnllm.Finished("length"))
    assert [(f["type"], f.get("index")) for f in found[1:]] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert "".join(f["delta"]["text"] for f in found if f.get("index") == 1 and "delta" in f) == "so be it"


def test_an_unknown_input_leaves_the_estimate_of_the_beginning() -> None:
    """A client adds up the counts of a stream, and takes null for nothing new."""
    for usage, expected in ((cnllm.Usage(), None), (cnllm.Usage(output=4), None), (cnllm.Usage(input=0), 0)):
        writer = engine.StreamWriter(MESSAGES, input_tokens=31)
        content = writer.begin() + writer.feed(cnllm.UsageSeen(usage)) + writer.feed(cnllm.Finished("stop"))
        found = [json.loads(line[6:]) for line in content.decode().splitlines() if line.startswith("data: {")]
        assert found[0]["message"]["usage"]["input_tokens"] == 31
        assert found[-2]["usage"]["input_tokens"] == expected
        assert found[-2]["usage"]["output_tokens"] == (usage.output or 0)
