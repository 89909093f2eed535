"""A character whose two halves come in two deltas is one character, in calls as in texts, for every client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cnllm import Event, Registry, Reply, ToolCallDelta, engine
from cnllm.protocols import PROTOCOLS

Json = dict[str, Any]
CHAT, MESSAGES, GEMINI, RESPONSES = PROTOCOLS
WHOLE = '{"a":"x😀y"}'
PIECES = ('{"a":"x\ud83d', '\ude00y"}')


def chat(kind: str, key: str, pieces: tuple[str, ...]) -> list[Json]:
    head: Json = {"index": 0, "id": "c1", "type": kind}
    calls: list[Json] = [{"index": 0, kind: {key: piece}} for piece in pieces]
    calls[0] = {**head, kind: {"name": "run", **calls[0][kind]}}
    choices = [{"index": 0, "delta": {"tool_calls": [call]}} for call in calls]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    return [{"id": "1", "model": "m", "choices": [choice]} for choice in choices]


def messages(pieces: tuple[str, ...]) -> list[Json]:
    block = {"type": "tool_use", "id": "c1", "name": "run", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return [
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "model": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]


def responses(kind: str, key: str, event: str, pieces: tuple[str, ...]) -> list[Json]:
    item = {"type": kind, "id": "i1", "call_id": "c1", "name": "run", key: "", "status": "in_progress"}
    done = {**item, key: "".join(pieces), "status": "completed"}
    place = {"item_id": "i1", "output_index": 0}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({"type": f"response.{event}.delta", **place, "delta": piece} for piece in pieces),
        {"type": f"response.{event}.done", **place, key: done[key]},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {"status": "completed", "output": [done]}},
    ]


def streams(*pieces: str) -> dict[str, tuple[str, list[Json]]]:
    return {
        "chat": (CHAT, chat("function", "arguments", pieces)),
        "chat, custom": (CHAT, chat("custom", "input", pieces)),
        "messages": (MESSAGES, messages(pieces)),
        "responses": (RESPONSES, responses("function_call", "arguments", "function_call_arguments", pieces)),
        "responses, custom": (RESPONSES, responses("custom_tool_call", "input", "custom_tool_call_input", pieces)),
    }


def read(protocol: str, chunks: list[Json]) -> tuple[list[Event], Reply]:
    model = Registry.load().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)
    parser = engine.StreamParser(model)
    events = [event for chunk in chunks for event in parser.feed(b"data: %b\n\n" % json.dumps(chunk).encode())]
    events += [*parser.feed(b"data: [DONE]\n\n"), *parser.end()]
    return events, parser.close()


@pytest.mark.parametrize("case", streams(*PIECES))
def test_a_character_in_the_arguments_of_a_call_may_come_in_two_deltas(case: str) -> None:
    protocol, chunks = streams(*PIECES)[case]
    events, reply = read(protocol, chunks)
    assert reply.finish == "tool_calls"
    assert not reply.incomplete
    [call] = reply.tool_calls
    arguments = {"input": WHOLE} if "custom" in case else {"a": "x😀y"}
    assert call.arguments == arguments
    assert json.loads("".join(event.text for event in events if type(event) is ToolCallDelta)) == arguments
    for client in PROTOCOLS:
        writer = engine.StreamWriter(client, id="x", model="m")
        _, seen = read(client, frames_of(writer.begin() + b"".join(map(writer.feed, events))))
        assert [call.arguments for call in seen.tool_calls] == [arguments], client


def frames_of(data: bytes) -> list[Json]:
    lines = [line[6:] for line in data.splitlines() if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("case", ["chat", "messages", "responses", "responses, custom"])
@pytest.mark.parametrize(
    "pieces", [('{"a":"x\ud83d', 'y"}'), ('{"a":"x\ud83d', "\ud83d", 'y"}'), ('{"a":"x\ude00y"}',)]
)
def test_half_of_a_character_that_stays_alone_is_replaced(case: str, pieces: tuple[str, ...]) -> None:
    protocol, chunks = streams(*pieces)[case]
    _, reply = read(protocol, chunks)
    [call] = [*reply.tool_calls, *reply.incomplete]
    halves = sum(map("".join(pieces).count, "\ud83d\ude00"))
    inner = {"a": "x" + "\ufffd" * halves + "y"}
    arguments = json.loads(call.raw)
    assert (json.loads(arguments["input"]) if "custom" in case else arguments) == inner
    assert not reply.incomplete


def test_a_character_in_an_item_of_reasoning_may_come_in_two_deltas() -> None:
    detail = {"type": "reasoning.text", "index": 0, "format": "unknown", "id": "r1"}
    deltas: list[Json] = [
        *({"reasoning": piece, "reasoning_details": [{**detail, "text": piece}]} for piece in PIECES),
        {"content": "Done."},
    ]
    choices: list[Json] = [{"index": 0, "delta": delta} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    _, reply = read(CHAT, [{"id": "1", "choices": [choice]} for choice in choices])
    assert reply.reasoning == WHOLE
    assert [part.seal.data for part in reply.message.parts if part.seal] == [[{**detail, "text": WHOLE}]]
