"""An endpoint of chat completions that was asked for custom tools calls them with plain text: the call is not lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import Registry, engine

Json = dict[str, Any]
MODEL = Registry.load().resolve("openai-compatible/m", protocol="openai-chat", base_url="http://127.0.0.1:9/v1")
INPUT = '*** Begin Patch\n+ "quoted" \\ 你好\t\n*** End Patch'


def frame(delta: Json, finish: str | None = None) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish}]})}\n\n".encode()


def pieces(input: str) -> list[bytes]:
    """Two calls, the first with its input in pieces."""
    head = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "apply_patch", "input": ""}}
    other = {"index": 1, "id": "call_2", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    texts = [input[at : at + 5] for at in range(0, len(input), 5)]
    deltas = [head, *({"index": 0, "custom": {"input": text}} for text in texts), other]
    return [frame({"tool_calls": [delta]}) for delta in deltas]


@each("input", [INPUT, "", "4 + 4"])
@each("streamed", [False, True])
def test_a_call_of_a_custom_tool_is_one_with_its_input_as_the_argument(input: str, streamed: bool) -> None:
    if streamed:
        parser = engine.StreamParser(MODEL)
        events = [event for piece in pieces(input) for event in parser.feed(piece)]
        events += parser.feed(frame({}, "tool_calls") + b"data: [DONE]\n\n")
        reply = parser.close()
        deltas = [event.text for event in events if isinstance(event, cnllm.ToolCallDelta) and event.index == 0]
        assert "".join(deltas) == reply.tool_calls[0].raw
    else:
        call = {"id": "call_1", "type": "custom", "custom": {"name": "apply_patch", "input": input}}
        read = {"id": "call_2", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call, read]}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
        reply = engine.parse_response(MODEL, 200, {}, json.dumps(body).encode())
    call_ = reply.tool_calls[0]
    assert (call_.id, call_.name, call_.arguments) == ("call_1", "apply_patch", {"input": input})
    assert [other.name for other in reply.tool_calls[1:]] == ["read"]
    assert (reply.finish, reply.incomplete) == ("tool_calls", [])


def test_an_input_that_was_cut_off_is_no_whole_call() -> None:
    parser = engine.StreamParser(MODEL)
    parser.feed(b"".join(pieces(INPUT)[:3]))
    with pytest.raises(cnllm.StreamCut) as caught:
        parser.close()
    assert caught.value.reply is not None
    assert caught.value.reply.tool_calls == []
    assert [call.name for call in caught.value.reply.incomplete] == ["apply_patch"]


@each("typed", [True, False])
@each("kind", ["function", "custom"])
@each("streamed", [False, True])
def test_of_a_call_that_has_the_places_of_both_kinds_the_one_that_says_something_counts(
    typed: bool, kind: str, streamed: bool
) -> None:
    blank = {"function": {"name": "", "arguments": ""}, "custom": {"name": "", "input": ""}}
    full = {"function": {"name": "look", "arguments": '{"at":"sky"}'}, "custom": {"name": "look", "input": "sky"}}
    call = {"index": 0, "id": "call_1", **blank, kind: full[kind], **({"type": kind} if typed else {})}
    if streamed:
        parser = engine.StreamParser(MODEL)
        parser.feed(frame({"tool_calls": [call]}) + frame({"tool_calls": [{**blank, "index": 0, "id": ""}]}))
        parser.feed(frame({}, "tool_calls") + b"data: [DONE]\n\n")
        reply = parser.close()
    else:
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
        reply = engine.parse_response(MODEL, 200, {}, json.dumps(body).encode())
    [read] = reply.tool_calls
    assert (read.id, read.name) == ("call_1", "look")
    assert read.arguments == ({"at": "sky"} if kind == "function" else {"input": "sky"})
    assert (reply.finish, reply.incomplete) == ("tool_calls", [])
