"""One small stream of each wire, as its endpoints write it: a thought, text, two calls, usage, an end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from client.peer import DONE, call_delta, delta, frame, texts, usage
from client.support import registry

import cnllm

REASONING, TEXT = "Hm, 光。", "The sky is 蓝。"
CALLS = [("now", {}), ("search", {"q": "天 sky"})]


@dataclass(frozen=True)
class Wire:
    """A protocol, its stream's events, and the word that proves that the model came to its end."""

    protocol: str
    events: list[bytes]
    proof: bytes

    @property
    def content(self) -> bytes:
        return b"".join(self.events)

    def model(self, base_url: str = "http://127.0.0.1:9/v1") -> cnllm.Model:
        return registry().resolve("openai-compatible/m", base_url=base_url, protocol=self.protocol)


def named(**event: Any) -> bytes:
    return f"event: {event['type']}\n".encode() + frame(event)


def _chat() -> list[bytes]:
    return [
        delta(role="assistant"),
        *(delta(reasoning_content=piece) for piece in ("Hm, ", "光。")),
        *texts("The sky", " is 蓝。"),
        call_delta(0, "{}", id="c0", name="now"),
        call_delta(1, '{"q":', id="c1", name="search"),
        call_delta(1, ' "天 sky"}'),
        delta(finish="tool_calls"),
        usage(),
        DONE,
    ]


def _messages() -> list[bytes]:
    def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
        return [
            named(type="content_block_start", index=index, content_block=begun),
            *(named(type="content_block_delta", index=index, delta=one) for one in deltas),
            named(type="content_block_stop", index=index),
        ]

    def call(index: int, name: str, *pieces: str) -> list[bytes]:
        begun = {"type": "tool_use", "id": f"c{index}", "name": name, "input": {}}
        return block(index, begun, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))

    message = {"id": "r1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return [
        named(type="message_start", message={**message, "usage": {"input_tokens": 3, "output_tokens": 1}}),
        named(type="ping"),
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm, "},
            {"type": "thinking_delta", "thinking": "光。"},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "The sky"},
            {"type": "text_delta", "text": " is 蓝。"},
        ),
        *call(2, "now"),
        *call(3, "search", '{"q":', ' "天 sky"}'),
        named(type="message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 4}),
        named(type="message_stop"),
    ]


def _gemini() -> list[bytes]:
    def chunk(*parts: dict[str, Any], **more: Any) -> bytes:
        candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}
        counts = {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}
        return frame({"candidates": [candidate], "usageMetadata": counts, "modelVersion": "m", "responseId": "r1"})

    return [
        chunk({"text": "Hm, ", "thought": True}),
        chunk({"text": "光。", "thought": True}),
        chunk({"text": "The sky"}),
        chunk({"text": " is 蓝。"}),
        *(chunk({"functionCall": {"name": name, "args": args}}) for name, args in CALLS),
        chunk({"text": ""}, finishReason="STOP"),
    ]


def _responses() -> list[bytes]:
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "i0", "summary": [{"type": "summary_text", "text": REASONING}]},
        {
            "type": "message",
            "id": "i1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
        },
        *(
            {
                "type": "function_call",
                "id": f"i{2 + n}",
                "call_id": f"c{n}",
                "name": name,
                "arguments": json.dumps(args, ensure_ascii=False),
                "status": "completed",
            }
            for n, (name, args) in enumerate(CALLS)
        ),
    ]
    empty: list[dict[str, Any]] = [
        {"summary": []},
        {"content": [], "status": "in_progress"},
        {"arguments": "", "status": "in_progress"},
        {"arguments": "", "status": "in_progress"},
    ]
    kinds: list[tuple[str, dict[str, Any], list[str]]] = [
        ("reasoning_summary_text", {"summary_index": 0}, ["Hm, ", "光。"]),
        ("output_text", {"content_index": 0}, ["The sky", " is 蓝。"]),
        ("function_call_arguments", {}, ["{}"]),
        ("function_call_arguments", {}, ['{"q":', ' "天 sky"}']),
    ]
    response = {"id": "r1", "object": "response", "model": "m"}
    out = [named(type="response.created", response={**response, "status": "in_progress", "output": []})]
    for n, (item, begun, (kind, where, pieces)) in enumerate(zip(items, empty, kinds, strict=True)):
        place = {"output_index": n, "item_id": item["id"], **where}
        out.append(named(type="response.output_item.added", output_index=n, item={**item, **begun}))
        out += [named(type=f"response.{kind}.delta", delta=piece, **place) for piece in pieces]
        out.append(named(type="response.output_item.done", output_index=n, item=item))
    counts = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    done = {**response, "status": "completed", "output": items, "usage": counts}
    return [*out, named(type="response.completed", response=done)]


WIRES = {
    wire.protocol: wire
    for wire in (
        Wire("openai-chat", _chat(), b'"finish_reason": "tool_calls"'),
        Wire("anthropic-messages", _messages(), b'"stop_reason": "tool_use"'),
        Wire("gemini", _gemini(), b'"finishReason": "STOP"'),
        Wire("openai-responses", _responses(), b'"type": "response.completed"'),
    )
}
