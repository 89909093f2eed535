"""Where the parts of a reply stand, when the answer in it came as a call and ends up as its text."""

from __future__ import annotations

from typing import Any

import msgspec
from client.support import registry

from cnllm import BlockEnd, Opaque, Text, TextDelta, engine

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_a_part_before_an_answer_given_by_a_tool_is_told_once_and_where_it_stands() -> None:
    model = registry().resolve("openai-compatible/m", protocol="anthropic-messages", base_url="http://127.0.0.1:9")
    plan = engine.build_request(model, "hi", schema=SCHEMA, stream=True)
    assert plan.answer is not None
    assert plan.answer.method == "tool"
    odd = {"type": "server_tool_use", "id": "s1", "name": "look", "input": {}}
    call = {"type": "tool_use", "id": "c1", "name": plan.answer.name, "input": {}}
    pieces: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": odd},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"n": 1}'}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    parser = engine.StreamParser(model, plan=plan)
    events = [e for piece in pieces for e in parser.feed(b"data: " + msgspec.json.encode(piece) + b"\n\n")]
    events += parser.end()
    reply = parser.close()
    assert reply.parsed == {"n": 1}
    ended = {event.index: event.part for event in events if isinstance(event, BlockEnd)}
    assert sum(isinstance(event, BlockEnd) for event in events) == len(ended) == 2
    assert [ended[index] for index in sorted(ended)] == list(reply.message.parts)
    assert {type(part) for part in ended.values()} == {Text, Opaque}


def test_the_answer_is_the_call_that_was_delivered_as_such_whatever_its_index() -> None:
    """Of two calls of the answer tool the first to begin is the answer, also where the other one stands before it."""
    model = registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9")
    plan = engine.build_request(model, "hi", schema=SCHEMA, stream=True)
    assert plan.answer is not None
    plan = msgspec.structs.replace(plan, answer=msgspec.structs.replace(plan.answer, method="tool"))
    assert plan.answer is not None
    named = {"name": plan.answer.name}
    calls: list[dict[str, Any]] = [
        {"index": 1, "id": "b", "function": {}},  # it has no name yet, so that it has not begun
        {"index": 0, "id": "a", "function": {**named, "arguments": '{"n": 1}'}},
        {"index": 1, "function": {**named, "arguments": '{"n": 2}'}},
    ]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"tool_calls": [call]}} for call in calls]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    parser = engine.StreamParser(model, plan=plan)
    events = [e for c in choices for e in parser.feed(b"data: " + msgspec.json.encode({"choices": [c]}) + b"\n\n")]
    events += parser.end()
    reply = parser.close()
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == reply.text == '{"n": 1}'
    assert reply.parsed == {"n": 1}
    assert [note.said for note in reply.notes if note.code == "answer-twice"] == ['{"n": 2}']
