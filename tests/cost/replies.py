"""Replies of the four wires that report so many tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Made", "chat", "gemini", "messages", "responses"]

MONDAY = 1795363200  # 2026-11-23, 00:00 in Beijing


class Made(NamedTuple):
    """A whole body, and its chunks: those before the usage, and the one with it. `zero` is a later chunk of zeros."""

    protocol: str
    body: dict[str, Any]
    chunks: list[dict[str, Any]]
    last: dict[str, Any]
    zero: dict[str, Any]


def chat(
    input: int,
    output: int,
    *,
    read: int | None = None,
    write: int | None = None,
    thought: int | None = None,
    at: float | None = 10,
    service_tier: str | None = None,
    **others: Any,
) -> Made:
    """Return a reply of the chat wire. `at`: hours since Monday in Beijing."""
    usage: dict[str, Any] = {"prompt_tokens": input, "completion_tokens": output, **others}
    if read is not None or write is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": read or 0, "cache_write_tokens": write or 0}
    if thought is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": thought}
    head: dict[str, Any] = {"id": "a", "model": "m"}
    if at is not None:
        head["created"] = int(MONDAY + at * 3600)
    if service_tier is not None:
        head["service_tier"] = service_tier
    message = {"role": "assistant", "content": "Yes."}
    body = {**head, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    text = {**head, "choices": [{"index": 0, "delta": message}]}
    stop = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    last = {**head, "choices": [], "usage": usage}
    return Made("openai-chat", body, [text, stop], last, {**head, "choices": [], "usage": zeros})


def responses(
    input: int,
    output: int,
    *,
    read: int | None = None,
    write: int | None = None,
    thought: int | None = None,
    searches: int = 0,
    service_tier: str | None = None,
    **others: Any,
) -> Made:
    """Return a reply of the Responses wire, with items of so many searches."""
    usage: dict[str, Any] = {"input_tokens": input, "output_tokens": output, **others}
    if read is not None or write is not None:
        usage["input_tokens_details"] = {"cached_tokens": read or 0, "cache_write_tokens": write or 0}
    if thought is not None:
        usage["output_tokens_details"] = {"reasoning_tokens": thought}
    content = [{"type": "output_text", "text": "Yes.", "annotations": []}]
    items = [{"type": "web_search_call", "id": f"s{n}", "status": "completed"} for n in range(searches)]
    items.append({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content})  # type: ignore[dict-item]
    body: dict[str, Any] = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": items}
    body |= {"created_at": MONDAY + 36000, "usage": usage}
    if service_tier is not None:
        body["service_tier"] = service_tier
    start = {"type": "response.created", "response": {**body, "status": "in_progress", "output": [], "usage": None}}
    delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": searches, "content_index": 0}
    zeros = {"type": "response.in_progress", "response": {"usage": {"input_tokens": 0, "output_tokens": 0}}}
    last = {"type": "response.completed", "response": body}
    return Made("openai-responses", body, [start, {**delta, "delta": "Yes."}], last, zeros)


def messages(
    input: int, output: int, *, read: int = 0, short: int = 0, hour: int = 0, searches: int = 0, **others: Any
) -> Made:
    """Return a reply of the Messages wire. `short` and `hour` are tokens written to a cache for that long."""
    usage: dict[str, Any] = {"input_tokens": input, "output_tokens": output, "cache_read_input_tokens": read, **others}
    usage["cache_creation_input_tokens"] = short + hour
    usage["cache_creation"] = {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": hour}
    if searches:
        usage["server_tool_use"] = {"web_search_requests": searches}
    head = {"type": "message", "id": "a", "model": "m", "role": "assistant"}
    text = {"type": "text", "text": "Yes."}
    body = {**head, "content": [text], "stop_reason": "end_turn", "usage": usage}
    start = {"type": "message_start", "message": {**head, "content": [], "usage": {**usage, "output_tokens": 1}}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}}
    if searches:
        last["usage"]["server_tool_use"] = usage["server_tool_use"]  # type: ignore[index]
    zeros = {"type": "message_delta", "delta": {}, "usage": dict.fromkeys(("input_tokens", "output_tokens"), 0)}
    return Made(
        "anthropic-messages", body, [start, block, delta, {"type": "content_block_stop", "index": 0}], last, zeros
    )


def gemini(
    input: int,
    output: int,
    *,
    read: int | None = None,
    thought: int | None = None,
    by_tools: int | None = None,
    sound: int | None = None,
    queries: list[str] | None = None,
    **others: Any,
) -> Made:
    """Return a reply of the Gemini wire. `queries` are those of a search, `sound` the tokens of sound in the input."""
    usage: dict[str, Any] = {"promptTokenCount": input, "candidatesTokenCount": output, **others}
    counts = {"cachedContentTokenCount": read, "thoughtsTokenCount": thought, "toolUsePromptTokenCount": by_tools}
    usage |= {name: count for name, count in counts.items() if count is not None}
    if sound is not None:
        rest = {"modality": "TEXT", "tokenCount": input - sound}
        usage["promptTokensDetails"] = [rest, {"modality": "AUDIO", "tokenCount": sound}]
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": [{"text": "Yes."}]}}
    end: dict[str, Any] = {"finishReason": "STOP"}
    if queries is not None:
        end["groundingMetadata"] = {"webSearchQueries": queries}
    body = {"responseId": "a", "candidates": [{**candidate, **end}], "usageMetadata": usage}
    empty = {"index": 0, "content": {"role": "model", "parts": [{"text": ""}]}}
    last = {"responseId": "a", "candidates": [{**empty, **end}], "usageMetadata": usage}
    zeros = {"responseId": "a", "usageMetadata": {"promptTokenCount": 0, "candidatesTokenCount": 0}}
    return Made("gemini", body, [{"responseId": "a", "candidates": [candidate]}], last, zeros)
