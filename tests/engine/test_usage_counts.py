"""Counts of tokens on every wire, whole and streamed: whole numbers from 0 to 2**53, else unknown and noted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import engine

REGISTRY = cnllm.Registry.load()
VALID: list[float] = [0, 1, 12, 12.0, 2**53, float(2**53)]
INVALID: list[Any] = [-1, 12.5, 2**53 + 1, 2**63, 10**19, 10**400, 1e308, "12", True, [], {"a": 1}]


def chat(input: Any, output: Any, stream: bool) -> list[Any]:
    usage = {"prompt_tokens": input, "completion_tokens": output}
    message = {"role": "assistant", "content": "Hi"}
    choice = {"index": 0, "finish_reason": "stop", ("delta" if stream else "message"): message}
    return [{"id": "x", "choices": [choice], "usage": usage}, *(["[DONE]"] if stream else [])]


def messages(input: Any, output: Any, stream: bool) -> list[Any]:
    usage = {"input_tokens": input, "output_tokens": output}
    message = {"id": "x", "type": "message", "role": "assistant", "content": [], "usage": usage}
    text = {"type": "text", "text": "Hi"}
    if not stream:
        return [{**message, "content": [text], "stop_reason": "end_turn"}]
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": text},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}},
        {"type": "message_stop"},
    ]


def responses(input: Any, output: Any, stream: bool) -> list[Any]:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}], "id": "m"}
    usage = {"input_tokens": input, "output_tokens": output}
    body = {"id": "x", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [{"type": "response.completed", "response": body}] if stream else [body]


def gemini(input: Any, output: Any, stream: bool) -> list[Any]:
    usage = {"promptTokenCount": input, "candidatesTokenCount": output}
    content = {"role": "model", "parts": [{"text": "Hi"}]}
    return [{"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}]


WIRES: dict[str, Any] = {
    "openai-chat": chat,
    "anthropic-messages": messages,
    "openai-responses": responses,
    "gemini": gemini,
}


def read(protocol: str, input: Any, output: Any, stream: bool) -> cnllm.Reply:
    model = REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)
    plan = engine.build_request(model, "Hi", stream=stream, max_tokens=100)
    events = WIRES[protocol](input, output, stream)
    if not stream:
        return engine.parse_response(model, 200, {}, json.dumps(events[0]).encode(), plan=plan)
    parser = engine.StreamParser(model, plan=plan)
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        text = event if isinstance(event, str) else json.dumps(event)
        parser.feed(f"{name}data: {text}\n\n".encode())
    return parser.close()


@each("protocol", list(WIRES))
@pytest.mark.parametrize("stream", [False, True])
def test_a_count_is_a_whole_number_or_unknown(protocol: str, stream: bool) -> None:
    for value in VALID:
        reply = read(protocol, value, 7, stream)
        assert (reply.usage.input, type(reply.usage.input), reply.usage.output) == (int(value), int, 7)
        assert [note for note in reply.notes if note.code == "usage-invalid"] == []
        assert read(protocol, 7, value, stream).usage.output == int(value)
    for value in INVALID:
        for is_input in (True, False):
            reply = read(protocol, value if is_input else 7, 7 if is_input else value, stream)
            counts = (reply.usage.input, reply.usage.output)
            assert counts == ((None, 7) if is_input else (7, None)), value
            notes = [note for note in reply.notes if note.code == "usage-invalid"]
            assert len(notes) == 1, value
            assert len(str(notes[0])) < 300
            assert reply.text == "Hi"
            json.dumps(reply.to_dict())


@each("protocol", list(WIRES))
def test_a_sum_that_is_no_count_is_unknown(protocol: str) -> None:
    assert read(protocol, 2**53, 2**53, False).usage.total is None


@each("protocol", list(WIRES))
@pytest.mark.parametrize("many", [{f"k{i}": i for i in range(2000)}, {"k": [1] * 2000}, {"k": {"l": "x" * 200_000}}])
def test_a_usage_object_keeps_a_bounded_number_of_values(protocol: str, many: dict[str, Any]) -> None:
    model = REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)
    plan = engine.build_request(model, "Hi", stream=True)
    parser = engine.StreamParser(model, plan=plan)
    for event in WIRES[protocol](3, 7, True):
        if isinstance(event, dict):
            for usage in (event.get("usage"), event.get("usageMetadata"), (event.get("response") or {}).get("usage")):
                if isinstance(usage, dict):
                    usage.update(many)
        parser.feed(b"data: " + (event.encode() if isinstance(event, str) else json.dumps(event).encode()) + b"\n\n")
    reply = parser.close()
    assert (reply.usage.input, reply.usage.output, reply.text) == (3, 7, "Hi")
    assert len(json.dumps(reply.extra)) < 20_000
    assert [note.code for note in reply.notes].count("usage-invalid") == 1


@each("protocol", list(WIRES))
def test_counts_of_a_whole_body_are_all_kept_or_noted(protocol: str) -> None:
    model = REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)
    [body] = WIRES[protocol](3, 7, False)
    details = {f"k{i}": i for i in range(2000)}
    body["usageMetadata" if protocol == "gemini" else "usage"]["details"] = details
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=engine.build_request(model, "Hi"))
    assert (reply.usage.input, reply.usage.output) == (3, 7)
    is_noted = "usage-invalid" in [note.code for note in reply.notes]
    assert is_noted or reply.extra["usage"]["details"] == details
