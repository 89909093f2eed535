"""The same stream over the other three wires: half thinking, half text, one tool call, usage."""

import json
from functools import cache
from typing import Any

from benchmarks.tokens import ARGUMENTS, texts

PATHS = {
    "openai-chat": "/chat/completions",
    "anthropic-messages": "/v1/messages",
    "openai-responses": "/responses",
    "gemini": ":streamGenerateContent",
}
"""How the path of a request over each wire ends."""

_SIGNED = "RXJVQkNrZ0lCUkFDR0FJaVFKcz" * 8


def events(wire: str, n: int) -> list[bytes]:
    """Return the server-sent events of one wire, `n` of them with text or thinking."""
    return {"anthropic-messages": _messages, "gemini": _gemini, "openai-responses": _responses}[wire](n)


def _event(data: dict[str, Any], name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _named(data: dict[str, Any]) -> bytes:
    return _event(data, str(data["type"]))


def _fragments() -> list[str]:
    cuts = [len(ARGUMENTS) * i // 20 for i in range(21)]
    return [ARGUMENTS[cuts[i] : cuts[i + 1]] for i in range(20)]


@cache
def _messages(n: int) -> list[bytes]:
    thoughts, text = texts(n)

    def delta(index: int, **said: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": said}

    def block(index: int, **said: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": said}

    def stop(index: int) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": index}

    usage = {"input_tokens": 28, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 384, "output_tokens": 1}
    message: dict[str, Any] = {"id": "msg_01", "type": "message", "role": "assistant", "model": "bench", "content": []}
    found = [{"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}]
    found += [block(0, type="thinking", thinking="", signature="")]
    found += [delta(0, type="thinking_delta", thinking=token) for token in thoughts]
    found += [delta(0, type="signature_delta", signature=_SIGNED), stop(0)]
    found += [block(1, type="text", text="")]
    found += [delta(1, type="text_delta", text=token) for token in text]
    found += [stop(1)]
    found += [block(2, type="tool_use", id="toolu_01", name="get_weather", input={})]
    found += [delta(2, type="input_json_delta", partial_json=piece) for piece in _fragments()]
    found += [stop(2)]
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    found += [{"type": "message_delta", "delta": end, "usage": {"output_tokens": 311}}, {"type": "message_stop"}]
    return [_named(event) for event in found]


@cache
def _gemini(n: int) -> list[bytes]:
    thoughts, text = texts(n)

    def chunk(part: dict[str, Any], **more: Any) -> dict[str, Any]:
        counts = {"promptTokenCount": 412, "candidatesTokenCount": 131, "totalTokenCount": 723}
        candidate = {"content": {"parts": [part], "role": "model"}, "index": 0, **more}
        counts |= {"thoughtsTokenCount": 180, "cachedContentTokenCount": 384}
        return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "bench", "responseId": "r1"}

    call = {"functionCall": {"name": "get_weather", "args": json.loads(ARGUMENTS)}, "thoughtSignature": _SIGNED}
    found = [chunk({"text": token, "thought": True}) for token in thoughts]
    found += [chunk({"text": token}) for token in text]
    found += [chunk(call, finishReason="STOP")]
    return [_event(event) for event in found]


@cache
def _responses(n: int) -> list[bytes]:
    thoughts, text = texts(n)
    summary = {"type": "summary_text", "text": "".join(thoughts)}
    said = {"type": "output_text", "text": "".join(text), "annotations": []}
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [summary], "encrypted_content": _SIGNED}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "get_weather", "status": "completed"}
    call["arguments"] = ARGUMENTS
    response: dict[str, Any] = {"id": "resp_1", "object": "response", "created_at": 1763650000, "model": "bench"}
    response |= {"status": "in_progress", "output": [], "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    usage = {"input_tokens": 412, "output_tokens": 311, "total_tokens": 723}
    details = {"input_tokens_details": {"cached_tokens": 384}, "output_tokens_details": {"reasoning_tokens": 180}}
    done = response | {"status": "completed", "output": [reasoning, message, call], "usage": usage | details}

    def at(kind: str, index: int, item: str, **more: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "item_id": item, "output_index": index, **more}

    def item(kind: str, index: int, said: dict[str, Any]) -> dict[str, Any]:
        return {"type": f"response.output_item.{kind}", "output_index": index, "item": said}

    found = [{"type": "response.created", "response": response}]
    found += [item("added", 0, {"id": "rs_1", "type": "reasoning", "summary": []})]
    part = {"type": "summary_text", "text": ""}
    found += [at("reasoning_summary_part.added", 0, "rs_1", summary_index=0, part=part)]
    found += [at("reasoning_summary_text.delta", 0, "rs_1", summary_index=0, delta=token) for token in thoughts]
    found += [at("reasoning_summary_text.done", 0, "rs_1", summary_index=0, text=summary["text"])]
    found += [at("reasoning_summary_part.done", 0, "rs_1", summary_index=0, part=summary), item("done", 0, reasoning)]
    found += [item("added", 1, message | {"status": "in_progress", "content": []})]
    found += [at("content_part.added", 1, "msg_1", content_index=0, part=said | {"text": ""})]
    found += [at("output_text.delta", 1, "msg_1", content_index=0, delta=token, logprobs=[]) for token in text]
    found += [at("output_text.done", 1, "msg_1", content_index=0, text=said["text"], logprobs=[])]
    found += [at("content_part.done", 1, "msg_1", content_index=0, part=said), item("done", 1, message)]
    found += [item("added", 2, call | {"status": "in_progress", "arguments": ""})]
    found += [at("function_call_arguments.delta", 2, "fc_1", delta=piece) for piece in _fragments()]
    found += [at("function_call_arguments.done", 2, "fc_1", arguments=ARGUMENTS), item("done", 2, call)]
    found += [{"type": "response.completed", "response": done}]
    return [_named(event | {"sequence_number": number}) for number, event in enumerate(found)]
