"""Anthropic Messages, as a server speaks it: replies, whole and as streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Seal,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageSeen,
)

__all__ = ["StreamEncoder", "write_error", "write_reply"]

_PROTOCOL = "anthropic-messages"
_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_WORDS = {
    "stop": ("end_turn", "stop_sequence", "pause_turn"),
    "length": ("max_tokens", "model_context_window_exceeded"),
}
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

Block = dict[str, Any]
Frames = list[tuple[str | None, Any]]


def write_reply(reply: Reply, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The body of a whole answer. Calls that were cut off are there with what can be said of their input."""
    parts = [*reply.message.parts, *reply.incomplete]
    return {
        "id": reply.id or "msg",
        "type": "message",
        "role": "assistant",
        "model": reply.model or "",
        "content": [block for part in parts if (block := _block(part)) is not None],
        "stop_reason": _reason(reply.finish, reply.raw_finish),
        "stop_sequence": None,
        "usage": _usage(reply.usage),
    }


def _reason(finish: str, raw: str | None) -> str:
    return raw if raw is not None and raw in _WORDS.get(finish, ()) else _FINISH.get(finish, "end_turn")


def _block(part: Part) -> Block | None:
    own = _own(part)
    match part:
        case Text():
            return {"type": "text", "text": part.text, **own}
        case Reasoning():
            if own.get("type") == "redacted_thinking":
                return own
            return {"type": "thinking", "thinking": part.text, "signature": "", **own}
        case ToolCall():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments or {}, **own}
        case Opaque() if isinstance(part.data, dict) and (part.seal is None or part.seal.protocol == _PROTOCOL):
            return part.data
    return None


def _own(part: Part) -> Block:
    """What a part goes back with, where this protocol gave it."""
    seal: Seal | None = part.seal
    known = seal is not None and seal.protocol == _PROTOCOL and isinstance(seal.data, dict)
    return dict(seal.data) if known and seal is not None else {}


def _usage(usage: Usage) -> dict[str, Any]:
    """The counts: what came from the cache or went there is not among the input here."""
    apart = (usage.cached or 0) + (usage.cache_write or 0)
    out: dict[str, Any] = {"input_tokens": max((usage.input or 0) - apart, 0), "output_tokens": usage.output or 0}
    if usage.cache_write is not None:
        out["cache_creation_input_tokens"] = usage.cache_write
    if usage.cached is not None:
        out["cache_read_input_tokens"] = usage.cached
    if usage.reasoning is not None:
        out["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return out


def write_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """The body of a refusal."""
    kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


# ── streams ──────────────────────────────────────────────────────────────────


class StreamEncoder:
    """Events of one reply: one block is open at a time, each closed before the next begins."""

    def __init__(self, id: str, model: str, request: Mapping[str, Any] | None = None) -> None:
        self._id = id
        self._model = model
        self._usage = Usage()
        self._open = ""  # the type of the block that is open
        self._place = -1
        self._calls: dict[int, list[str]] = {}  # input that waits for its block, by the call's index
        self._queue: list[ToolCallStart] = []  # calls that wait for the one before them
        self._current: int | None = None
        self._raw = ""

    def begin(self) -> Frames:
        message: dict[str, Any] = {
            "id": self._id or "msg",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(Usage()),
        }
        return [("message_start", {"type": "message_start", "message": message})]

    def event(self, event: Event) -> Frames:
        match event:
            case TextDelta():
                return [*self._begun({"type": "text", "text": ""}), self._delta("text_delta", "text", event.text)]
            case ReasoningDelta():
                head = {"type": "thinking", "thinking": "", "signature": ""}
                return [*self._begun(head), self._delta("thinking_delta", "thinking", event.text)]
            case BlockEnd():
                return self._ended(event.part)
            case ToolCallStart():
                self._queue.append(event)
                self._calls[event.index] = []
                return self._next_call()
            case ToolCallDelta():
                return self._input(event)
            case ToolCallEnd():
                return [*self._closed(), *self._next_call()] if event.index == self._current else []
            case UsageSeen():
                self._usage = event.usage
                return []
            case Finished(finish="error" | "cut"):
                return []  # what does not end well has no closing word
            case Finished():
                return self._end(event)
        return []

    def _frame(self, kind: str, **data: Any) -> tuple[str | None, Any]:
        return kind, {"type": kind, **data}

    def _delta(self, kind: str, key: str, value: Any) -> tuple[str | None, Any]:
        return self._frame("content_block_delta", index=self._place, delta={"type": kind, key: value})

    def _begun(self, block: Block, *, anew: bool = False) -> Frames:
        """Open a block, unless one of its type is."""
        if self._open == block["type"] and not anew:
            return []
        out = [*self._flushed(), *self._closed()]
        self._open = block["type"]
        self._place += 1
        return [*out, self._frame("content_block_start", index=self._place, content_block=block)]

    def _closed(self) -> Frames:
        if not self._open:
            return []
        self._open, self._current = "", None
        return [self._frame("content_block_stop", index=self._place)]

    def _ended(self, part: Part) -> Frames:
        """A part is complete: what goes back with it is told, and what came in no pieces."""
        own = _own(part)
        match part:
            case Text() if self._open == "text":
                cited = own.get("citations")
                told = (
                    [self._delta("citations_delta", "citation", c) for c in cited if c] if type(cited) is list else []
                )
                return [*told, *self._closed()]
            case Reasoning() if own.get("type") == "redacted_thinking":
                return [*self._begun(own, anew=True), *self._closed()]
            case Reasoning() if self._open == "thinking" or (own and not part.text):
                head = self._begun({"type": "thinking", "thinking": "", "signature": ""})
                signed = own.get("signature")
                told = [self._delta("signature_delta", "signature", signed)] if signed else []
                return [*head, *told, *self._closed()]
            case Opaque() if (block := _block(part)) is not None:
                return [*self._begun(block, anew=True), *self._closed()]
        return []

    # Calls may grow side by side; here one is written after the other.

    def _next_call(self) -> Frames:
        """Open the calls that wait, as far as the one that is open is complete."""
        out: Frames = []
        while self._queue and (self._current is None or _whole(self._raw)):
            out += self._open_call()
        return out

    def _open_call(self) -> Frames:
        event = self._queue.pop(0)
        waiting = "".join(self._calls.pop(event.index, ()))
        out = self._closed()
        self._open, self._current, self._raw = "tool_use", event.index, waiting
        self._place += 1
        block = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
        out.append(self._frame("content_block_start", index=self._place, content_block=block))
        if waiting:
            out.append(self._delta("input_json_delta", "partial_json", waiting))
        return out

    def _input(self, event: ToolCallDelta) -> Frames:
        if event.index in self._calls:
            self._calls[event.index].append(event.text)
            return []
        if event.index != self._current:
            return []
        self._raw += event.text
        return [self._delta("input_json_delta", "partial_json", event.text), *self._next_call()]

    def _flushed(self) -> Frames:
        out: Frames = []
        while self._queue:
            out += self._open_call()
        return out

    def _end(self, event: Finished) -> Frames:
        delta = {"stop_reason": _reason(event.finish, event.raw), "stop_sequence": None}
        told = self._frame("message_delta", delta=delta, usage=_usage(self._usage))
        return [*self._flushed(), *self._closed(), told, self._frame("message_stop")]

    def error(self, status: int, message: str, code: str | None) -> Frames:
        return [("error", write_error(status, message, code))]


def _whole(raw: str) -> bool:
    """Is it one complete JSON value?"""
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
