"""A reply of reasoning and nothing else ends as if it were whole: a note says that it is not, on every wire."""

import functools
import json
from typing import Any

from cases import each

from cnllm import Model, Reply, engine
from cnllm.types import Finished, NoteAdded

from .gemini_support import registry

WIRES = ("openai-chat", "anthropic-messages", "openai-responses", "gemini")
Json = dict[str, Any]


@functools.cache
def model(wire: str) -> Model:
    return registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9", protocol=wire)


def whole(wire: str, thought: str, text: str | None) -> Json:
    match wire:
        case "openai-chat":
            message = {"role": "assistant", "reasoning_content": thought, "content": text}
            return {"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        case "anthropic-messages":
            blocks: list[Json] = [{"type": "thinking", "thinking": thought, "signature": "s"}]
            blocks += [] if text is None else [{"type": "text", "text": text}]
            return {"id": "1", "type": "message", "role": "assistant", "content": blocks, "stop_reason": "end_turn"}
        case "openai-responses":
            summary = [{"type": "summary_text", "text": thought}] if thought else []
            items: list[Json] = [{"type": "reasoning", "id": "r", "summary": summary, "encrypted_content": "e"}]
            parts: list[Json] = [{"type": "output_text", "text": text, "annotations": []}]
            items += [] if text is None else [{"type": "message", "id": "m", "role": "assistant", "content": parts}]
            return {"id": "1", "object": "response", "status": "completed", "output": items}
        case _:
            said: list[Json] = [{"text": thought, "thought": True}] + ([] if text is None else [{"text": text}])
            return {"candidates": [{"content": {"role": "model", "parts": said}, "finishReason": "STOP"}]}


def streamed(wire: str, thought: str) -> bytes:
    match wire:
        case "openai-chat":
            deltas = [({"reasoning_content": thought}, None), ({}, "stop")]
            chunks: list[Json] = [
                {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} for delta, finish in deltas
            ]
        case "anthropic-messages":
            chunks = [
                {"type": "message_start", "message": {"id": "1", "role": "assistant", "content": [], "usage": {}}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": thought}},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
                {"type": "message_stop"},
            ]
        case "openai-responses":
            chunks = [{"type": "response.completed", "response": whole(wire, thought, None)}]
        case _:
            chunks = [whole(wire, thought, None)]
    heads = [f"event: {chunk['type']}\n" if "type" in chunk else "" for chunk in chunks]
    return "".join(f"{head}data: {json.dumps(chunk)}\n\n" for head, chunk in zip(heads, chunks, strict=True)).encode()


def codes(reply: Reply) -> list[str]:
    return [note.code for note in reply.notes if note.code == "answer-missing"]


@each("wire", WIRES)
def test_reasoning_without_an_answer_gets_a_note(wire: str) -> None:
    for text in (None, "", "\n\n"):
        reply = engine.parse_response(model(wire), 200, {}, json.dumps(whole(wire, "Hm.", text)).encode())
        assert (reply.finish, reply.reasoning, codes(reply)) == ("stop", "Hm.", ["answer-missing"]), text
    reply = engine.parse_response(model(wire), 200, {}, json.dumps(whole(wire, "Hm.", "Hello")).encode())
    assert codes(reply) == []


@each("wire", WIRES)
def test_a_stream_of_reasoning_without_an_answer_gets_a_note_before_it_ends(wire: str) -> None:
    parser = engine.StreamParser(model(wire))
    events = [*parser.feed(streamed(wire, "Hm.")), *parser.end()]
    assert codes(parser.close()) == ["answer-missing"]
    told = [
        type(e) for e in events if isinstance(e, Finished) or (isinstance(e, NoteAdded) and "missing" in e.note.code)
    ]
    assert told == [NoteAdded, Finished]


def test_reasoning_that_only_the_endpoint_can_read_counts_too() -> None:
    body = json.dumps(whole("openai-responses", "", None)).encode()
    assert codes(engine.parse_response(model("openai-responses"), 200, {}, body)) == ["answer-missing"]


def test_a_length_finish_says_it_in_its_own_words_and_a_call_is_an_answer() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for finish, more in (("length", {}), ("tool_calls", {"tool_calls": [call]}), ("content_filter", {})):
        body = whole("openai-chat", "Hm.", None)
        body["choices"][0]["finish_reason"] = finish
        body["choices"][0]["message"].update(more)
        assert codes(engine.parse_response(model("openai-chat"), 200, {}, json.dumps(body).encode())) == []
