"""A reply of each wire with each kind of part, the same reply as a stream, and ways to read and to write both."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from faults.honest import closed

from cnllm import Event, Reply, engine

from .clients import CHAT, GEMINI, MESSAGES, RESPONSES, endpoint
from .requests import Json

TEXT = "It rains today."
THOUGHT = "I look it up."
ARGUMENTS = '{"city":"Oslo"}'

BODIES: dict[str, Json] = {
    CHAT: {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1764000000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": TEXT,
                    "reasoning_content": THOUGHT,
                    "tool_calls": [
                        {"id": "call_1a", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 20,
            "completion_tokens": 10,
            "total_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    },
    MESSAGES: {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": THOUGHT, "signature": "sig"},
            {"type": "text", "text": TEXT},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 16,
            "cache_read_input_tokens": 4,
            "output_tokens": 10,
            "output_tokens_details": {"thinking_tokens": 3},
        },
    },
    GEMINI: {
        "responseId": "r1",
        "modelVersion": "m",
        "candidates": [
            {
                "index": 0,
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": THOUGHT, "thought": True},
                        {"text": TEXT},
                        {"functionCall": {"id": "call_1a", "name": "weather", "args": {"city": "Oslo"}}},
                    ],
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 20,
            "cachedContentTokenCount": 4,
            "candidatesTokenCount": 7,
            "thoughtsTokenCount": 3,
            "totalTokenCount": 30,
        },
    },
    RESPONSES: {
        "id": "resp_1",
        "object": "response",
        "created_at": 1764000000,
        "status": "completed",
        "model": "m",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": THOUGHT}]},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "status": "completed",
                "call_id": "call_1a",
                "name": "weather",
                "arguments": ARGUMENTS,
            },
        ],
        "usage": {
            "input_tokens": 20,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 30,
        },
    },
}
"""A whole reply of each wire: reasoning, a text, a call, and the usual counts."""


# ── the same reply as a stream ───────────────────────────────────────────────


def streamed(protocol: str, body: Json) -> list[Json]:
    """The events with which an endpoint of a wire streams a reply."""
    return list(_STREAMS[protocol](copy.deepcopy(body)))


def pieces_of(text: str) -> list[str]:
    """A text in short pieces, as far as it has any."""
    size = max(len(text) // 4, 1)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _chat(body: Json) -> Iterator[Json]:
    choices, usage = body.pop("choices", []), body.pop("usage", None)
    head = {**body, "object": "chat.completion.chunk"}

    def chunk(choice: Json, delta: Json, **keys: Any) -> Json:
        return {**head, "choices": [{"index": choice.get("index", 0), "delta": delta, "finish_reason": None, **keys}]}

    for choice in choices:
        message = choice["message"]
        yield chunk(choice, {"role": "assistant", "content": ""})
        for key, value in message.items():
            if key == "tool_calls":
                for index, call in enumerate(value or ()):
                    kind = call.get("type", "function")
                    field = "input" if kind == "custom" else "arguments"
                    pieces = pieces_of(call[kind].get(field) or "")
                    begun = {**call, "index": index, kind: {**call[kind], **({field: ""} if pieces else {})}}
                    yield chunk(choice, {"tool_calls": [begun]})
                    for piece in pieces:
                        yield chunk(choice, {"tool_calls": [{"index": index, kind: {field: piece}}]})
            elif key == "audio" and value:
                yield chunk(choice, {key: {"id": value["id"], "transcript": value["transcript"]}})
                yield chunk(choice, {key: {"data": value["data"]}})
                yield chunk(choice, {key: {"expires_at": value["expires_at"]}})
            elif isinstance(value, str) and key != "role":
                for piece in pieces_of(value):
                    yield chunk(choice, {key: piece})
            elif value and key != "role":
                yield chunk(choice, {key: value})
        rest = {key: value for key, value in choice.items() if key not in ("index", "message", "finish_reason")}
        yield chunk(choice, {}, **rest, finish_reason=choice["finish_reason"])
    if usage is not None:
        yield {**head, "choices": [], "usage": usage}


_AT_START = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")
_ONLY_AT_START = (*_AT_START, "service_tier", "inference_geo", "speed")


def _messages(body: Json) -> Iterator[Json]:
    content, usage = body.pop("content"), body.pop("usage", {})
    delta: Json = {
        key: body.pop(key) for key in ("stop_reason", "stop_sequence", "stop_details", "container") if key in body
    }
    beside: Json = {key: body.pop(key) for key in ("context_management", "input_transformations") if key in body}
    first = {key: usage[key] for key in _ONLY_AT_START if key in usage}
    head = {**body, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**first, "output_tokens": 1}}
    yield {"type": "message_start", "message": head}
    yield {"type": "ping"}
    for index, block in enumerate(content):
        kind = block.get("type")
        pieces: list[Json] = []
        if kind == "text":
            citations = block.pop("citations", None) or []
            pieces = [{"type": "citations_delta", "citation": citation} for citation in citations]
            pieces += [{"type": "text_delta", "text": piece} for piece in pieces_of(block["text"])]
            block = {**block, "text": "", **({"citations": []} if citations else {})}
        elif kind == "thinking":
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in pieces_of(block["thinking"])]
            pieces.append({"type": "signature_delta", "signature": block["signature"]})
            block = {**block, "thinking": "", "signature": ""}
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            pieces = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in ("", *pieces_of(json.dumps(block["input"])))
            ]
            block = {**block, "input": {}}
        elif kind == "compaction":
            keys = {key: block[key] for key in ("content", "encrypted_content") if key in block}
            pieces = [{"type": "compaction_delta", **keys}]
            block = {**block, **dict.fromkeys(keys)}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for piece in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": piece}
        yield {"type": "content_block_stop", "index": index}
    later = {key: value for key, value in usage.items() if key not in _ONLY_AT_START or key in _AT_START[:3]}
    yield {"type": "message_delta", "delta": delta, "usage": later, **beside}
    yield {"type": "message_stop"}


def _gemini(body: Json) -> Iterator[Json]:
    candidates, usage = body.pop("candidates", []), body.pop("usageMetadata", None)
    head: Json = {key: body.pop(key) for key in ("responseId", "modelVersion", "createTime") if key in body}
    for candidate in candidates:
        index = candidate.get("index", 0)
        for part in candidate.pop("content", {}).get("parts", []):
            pieces = [part]
            if isinstance(part.get("text"), str) and len(part["text"]) > 1:
                *firsts, last = pieces_of(part["text"])
                thought = {"thought": True} if part.get("thought") else {}
                pieces = [*({"text": text, **thought} for text in firsts), {**part, "text": last}]
            for piece in pieces:
                yield {"candidates": [{"content": {"role": "model", "parts": [piece]}, "index": index}], **head}
    counts = {} if usage is None else {"usageMetadata": usage}
    end: Json = {"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, **c} for c in candidates]}
    yield {**(end if candidates else {}), **counts, **body, **head}


def _responses(body: Json) -> Iterator[Json]:
    begun = {**body, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None, "error": None}
    number = 0

    def event(kind: str, **fields: Any) -> Json:
        nonlocal number
        number += 1
        return {"type": kind, "sequence_number": number, **fields}

    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(body["output"]):
        place = {"output_index": index, "item_id": item.get("id", "")}
        kind = item.get("type")
        added: Json = {**item, "status": "in_progress"}
        if kind == "message":
            yield event("response.output_item.added", output_index=index, item={**added, "content": []})
            for number_of_part, part in enumerate(item["content"]):
                at = {**place, "content_index": number_of_part}
                key = "refusal" if part["type"] == "refusal" else "text"
                empty = {**part, key: "", **({"annotations": []} if key == "text" else {})}
                yield event("response.content_part.added", **at, part=empty)
                name = "response.refusal" if key == "refusal" else "response.output_text"
                for piece in pieces_of(part.get(key) or ""):
                    yield event(f"{name}.delta", **at, delta=piece)
                for place_of, annotation in enumerate(part.get("annotations") or ()):
                    yield event(f"{name}.annotation.added", **at, annotation_index=place_of, annotation=annotation)
                yield event(f"{name}.done", **at, **{key: part.get(key)})
                yield event("response.content_part.done", **at, part=part)
        elif kind == "reasoning":
            lists: Json = {key: [] for key in ("summary", "content") if key in item}
            yield event("response.output_item.added", output_index=index, item={**added, **lists})
            for key, name in (("summary", "reasoning_summary_text"), ("content", "reasoning_text")):
                for number_of_part, part in enumerate(item.get(key) or ()):
                    at = {**place, f"{key}_index": number_of_part}
                    for piece in pieces_of(part["text"]):
                        yield event(f"response.{name}.delta", **at, delta=piece)
                    yield event(f"response.{name}.done", **at, text=part["text"])
        elif kind in ("function_call", "custom_tool_call"):
            key, name = (
                ("arguments", "function_call_arguments")
                if kind == "function_call"
                else ("input", "custom_tool_call_input")
            )
            yield event("response.output_item.added", output_index=index, item={**added, key: ""})
            for piece in pieces_of(item[key]):
                yield event(f"response.{name}.delta", **place, delta=piece)
            yield event(f"response.{name}.done", **place, **{key: item[key]})
        else:
            yield event("response.output_item.added", output_index=index, item=added)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{body['status']}", response=body)


_STREAMS = {CHAT: _chat, MESSAGES: _messages, GEMINI: _gemini, RESPONSES: _responses}
_NAMED = (MESSAGES, RESPONSES)


def frames(protocol: str, events: list[Json]) -> list[bytes]:
    """The events of a stream as bytes, with the marker that ends it."""
    names = [f"event: {event['type']}\n" if protocol in _NAMED else "" for event in events]
    out = [f"{name}data: {json.dumps(event)}\n\n".encode() for name, event in zip(names, events, strict=True)]
    return [*out, b"data: [DONE]\n\n"] if protocol == CHAT else out


# ── reading and writing ──────────────────────────────────────────────────────


def whole(protocol: str, body: Json) -> Reply:
    """The reply in a whole body."""
    return read(protocol, json.dumps(body).encode())[1]


def read(protocol: str, content: bytes) -> tuple[list[Event], Reply]:
    """The events and the reply in the bytes of a body or a stream."""
    parser = engine.StreamParser(endpoint(protocol))
    events = parser.feed(content)
    reply, _ = closed(parser, events)
    assert reply is not None
    return events, reply


def written(client: str, events: list[Event], request: Json | None = None) -> bytes:
    """The stream that a client gets for events."""
    request = {"stream_options": {"include_usage": True}, **(request or {})}
    writer = engine.StreamWriter(client, id="x1", model="m", request=request)
    return writer.begin() + b"".join(map(writer.feed, events))
