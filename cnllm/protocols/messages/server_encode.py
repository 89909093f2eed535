"""Encode replies of Anthropic Messages, whole and as streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cnllm.protocols import Frames, ServerStream, write_texts
from cnllm.protocols.client_tools import ArgumentReader
from cnllm.protocols.event_order import citations_by_part
from cnllm.protocols.reply_fields import select_keys, stream_id, with_counts
from cnllm.types import (
    BlockEnd,
    Citation,
    CitationAdded,
    Event,
    Finished,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from cnllm.types.delivered import DeltaKey
from cnllm.types.parts import seal_data

__all__ = ["REPLY_KEYS", "THREAD_CODE", "StreamEncoder", "write_error", "write_reply"]

_PROTOCOL = "anthropic-messages"
_PREFIX = "msg_"
THREAD_CODE = "thread_unsupported_request"
"""The code by which Anthropic's SDK goes on without a thread, which it asks for by itself in a loop of tools."""

_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_RAW_REASONS = {
    "stop": ("end_turn", "stop_sequence", "pause_turn"),
    "length": ("max_tokens", "model_context_window_exceeded", "pause_turn", "compaction"),
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
_NOTHING: Block = {"type": "text", "text": ""}
"""A text that holds a seal of another protocol alone. Anthropic refuses it in the next request, and streams lack it."""


def write_reply(reply: Reply, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the body of a whole reply.

    A call that is incomplete, or whose arguments cannot be read, is left out: a block of it would pass for a whole one.
    """
    blocks: list[Block] = []
    citations = [citation for citation in reply.citations if not seal_data(citation.seal, _PROTOCOL)]
    for part, _, own in citations_by_part(reply.message.parts, citations, len(reply.text)):
        if (block := _block(part)) is not None and (own or block != _NOTHING):
            if own:
                block["citations"] = [*(block.get("citations") or []), *map(_citation, own)]
            blocks.append(block)
    if citations and not any(type(part) is Text for part in reply.message.parts):  # as a stream has them
        blocks.append({"type": "text", "text": "", "citations": [*map(_citation, citations)]})
    return {
        "id": stream_id(reply.id or "", _PREFIX),
        "type": "message",
        "role": "assistant",
        "model": reply.model or "",
        "content": blocks,
        "stop_reason": _reason(reply.finish, reply.raw_finish, reply.extra),
        "stop_sequence": reply.extra.get("stop_sequence"),
        **select_keys(reply.extra, _ABOUT),
        "usage": _usage(reply.usage, reply.extra),
    }


def _reason(finish: str, raw: str | None, extra: dict[str, Any]) -> str:
    """Return the stop reason: the endpoint's own word where it is one of this protocol."""
    is_own = raw in _RAW_REASONS.get(finish, ()) or (finish == "length" and extra.get("stop_reason") == raw)
    return raw if is_own and raw is not None else _FINISH.get(finish, "end_turn")


def _block(part: Part) -> Block | None:
    """Encode a part as a block; None if it has none."""
    sealed = seal_data(part.seal, _PROTOCOL)
    match part:
        case Text():
            return {"type": "text", "text": part.text, **sealed}
        case Reasoning():
            if sealed.get("type") == "redacted_thinking":
                return dict(sealed)
            return {"type": "thinking", "thinking": part.text, "signature": "", **sealed}
        case ToolCall() if part.arguments is not None or not part.raw:
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments or {}, **sealed}
        case Opaque() if isinstance(part.data, dict) and (part.seal is None or part.seal.protocol == _PROTOCOL):
            return part.data
    return None


def _citation(citation: Citation) -> Block:
    """Encode a source of a block. What this protocol's own search would seal is empty."""
    if own := seal_data(citation.seal, _PROTOCOL):
        return dict(own)
    if citation.url is None:
        head = {"type": "search_result_location", "source": citation.title or "", "title": citation.title}
        place = {"search_result_index": 0, "start_block_index": 0, "end_block_index": 0}
        return {**head, "cited_text": "", **place}
    head = {"type": "web_search_result_location", "url": citation.url, "title": citation.title}
    return {**head, "cited_text": "", "encrypted_index": ""}


def _usage(usage: Usage, extra: dict[str, Any]) -> dict[str, Any]:
    """Return the counts, and the endpoint's own keys beside them.

    On this wire the input does not include tokens read from the cache or written to it.

    Anthropic's description of the API requires the counts of the cache: null where they are unknown. The counts of the
    input and the output are numbers: 0 where they are unknown.
    """
    cache_tokens = (usage.cached or 0) + (usage.cache_write or 0)
    out: dict[str, Any] = {
        "input_tokens": max((usage.input or 0) - cache_tokens, 0),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output or 0,
    }
    if usage.reasoning is not None:
        out["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if usage.cache_write is not None and usage.cache_write_1h is not None:
        hourly = min(usage.cache_write_1h, usage.cache_write)
        shorter = usage.cache_write - hourly
        out["cache_creation"] = {"ephemeral_5m_input_tokens": shorter, "ephemeral_1h_input_tokens": hourly}
    return with_counts(out, extra, {})


_ABOUT = ("stop_details", "container", "diagnostics", "context_management", "input_transformations")
_AT_START = ("diagnostics", "input_transformations")
"""Those that a stream has in its first event."""
REPLY_KEYS = frozenset([*_ABOUT, "stop_sequence", "stop_reason", "refusal"])
"""The keys of `Reply.extra` that a reply can hold."""


def write_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Return the body of an error."""
    kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error: dict[str, Any] = {"type": kind, "message": message}
    if code == THREAD_CODE:
        error["details"] = {"error_code": code, "unsupported": ["thread"]}
    return {"type": "error", "error": error}


# ── streams ───────────────────────────────────────────────────────────────────


_TEXT_PIECE = b'{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%b}}'
_INPUT_PIECE = b'{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%b}}'
_THINKING_PIECE = b'{"type":"content_block_delta","index":%d,"delta":{"type":"thinking_delta","thinking":%b}}'


class StreamEncoder(ServerStream):
    """The encoder of one reply's events: one block is open at a time, and closes before the next begins.

    A client takes a block of a call that has closed for a whole call. So a block whose input cannot be read stays open;
    `EventOrder` lets something follow it only where the reply ended at a limit.
    """

    needs_arguments = True
    begins_late = True

    def __init__(self, id: str, model: str, request: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._id = stream_id(id, _PREFIX)
        self._model = model
        self._open = ""  # the type of the open block
        self._place = -1
        self._call: int | None = None  # the index of the open call
        self._reader = ArgumentReader()  # of its input
        self._citations: list[Citation] = []  # that wait for a block of text

    def begin(self) -> Frames:
        """Return the frames before the first event."""
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            **select_keys(self.extra, _AT_START),
            "usage": _usage(Usage(input=self.input_tokens) if self.usage.input is None else self.usage, self.extra),
        }
        return [("message_start", {"type": "message_start", "message": message})]

    def write(self, event: Event) -> Frames:
        """Return the frames of an event in the middle."""
        match event:
            case TextDelta():
                begin = self._begin_block({"type": "text", "text": ""})
                return [*begin, self._text_piece(_TEXT_PIECE, event.text), *self._write_citations()]
            case CitationAdded():
                if not seal_data(event.citation.seal, _PROTOCOL):  # or its block has it
                    self._citations.append(event.citation)
                return self._write_citations() if self._open == "text" else []
            case ReasoningDelta():
                head = {"type": "thinking", "thinking": "", "signature": ""}
                return [*self._begin_block(head), self._text_piece(_THINKING_PIECE, event.text)]
            case BlockEnd():
                return self._end_part(event.part)
            case ToolCallStart(id=id, name=name):
                keys = seal_data(event.seal, _PROTOCOL)
                out = self._begin_block({"type": "tool_use", "id": id, "name": name, "input": {}, **keys}, always=True)
                self._call, self._reader = event.index, ArgumentReader()
                return out
            case ToolCallDelta(index=self._call) if (text := self._reader.feed(event.text)) is not None:
                return [self._text_piece(_INPUT_PIECE, text)]
            case ToolCallEnd(index=self._call):
                return self._close_block()
        return []

    def _frame(self, kind: str, **data: Any) -> tuple[str | None, Any]:
        """Return one frame."""
        return kind, {"type": kind, **data}

    def _delta(self, kind: str, key: str, value: Any) -> tuple[str | None, Any]:
        """Return the frame of a delta."""
        return self._frame("content_block_delta", index=self._place, delta={"type": kind, key: value})

    def texts(self, key: DeltaKey, texts: list[str]) -> bytes | None:
        """Return the bytes of several deltas of the open block; None where another one is open, or null waits."""
        if type(key) is int:
            if key != self._call or not self._reader.is_open:
                return None
            piece = _INPUT_PIECE
        elif self._open == ("text" if key is TextDelta else "thinking"):
            piece = _TEXT_PIECE if key is TextDelta else _THINKING_PIECE
        else:
            return None
        before, _, after = (piece % (self._place, b"\0")).partition(b"\0")
        return write_texts(b"event: content_block_delta\ndata: %b" % before, texts, b"%b\n\n" % after)

    def _text_piece(self, frame: bytes, text: str) -> tuple[str | None, Any]:
        """Return the frame of a delta of text, as bytes: the rest of it is always the same."""
        return "content_block_delta", frame % (self._place, msgspec.json.encode(text))

    def _write_citations(self) -> Frames:
        """Return the frames of the sources that wait."""
        citations, self._citations = self._citations, []
        return [self._delta("citations_delta", "citation", _citation(citation)) for citation in citations]

    def _begin_block(self, block: Block, *, always: bool = False) -> Frames:
        """Open a block, unless one of its type is open."""
        kind = block.get("type")
        if self._open == kind and not always:
            return []
        out = self._close_block()
        self._open = kind if type(kind) is str and kind else "unknown"
        self._place += 1
        return [*out, self._frame("content_block_start", index=self._place, content_block=block)]

    def _close_block(self) -> Frames:
        """Close the open block."""
        if not self._open:
            return []
        self._open, self._call = "", None
        return [self._frame("content_block_stop", index=self._place)]

    def _end_part(self, part: Part) -> Frames:
        """Complete a part: write its seal, and the part itself if it came in no pieces."""
        sealed = seal_data(part.seal, _PROTOCOL)
        match part:
            case Text() if self._open == "text":
                citations = sealed.get("citations")
                citations = filter(None, citations) if type(citations) is list else ()
                deltas = [self._delta("citations_delta", "citation", citation) for citation in citations]
                return [*deltas, *self._close_block()]
            case Reasoning() if sealed.get("type") == "redacted_thinking":
                return [*self._begin_block(sealed, always=True), *self._close_block()]
            case Reasoning() if self._open == "thinking" or (sealed and not part.text):
                head = self._begin_block({"type": "thinking", "thinking": "", "signature": ""})
                signature = sealed.get("signature")
                deltas = [self._delta("signature_delta", "signature", signature)] if signature else []
                return [*head, *deltas, *self._close_block()]
            case Opaque() if (block := _block(part)) is not None:
                return [*self._begin_block(block, always=True), *self._close_block()]
        return []

    def end(self, event: Finished) -> Frames:
        """Return the frames that end the stream."""
        stop = self.extra.get("stop_sequence")
        about = select_keys(self.extra, _ABOUT)
        outside = {key: about.pop(key) for key in ("context_management", "input_transformations") if key in about}
        delta = {"stop_reason": _reason(event.finish, event.raw, self.extra), "stop_sequence": stop, **about}
        usage = _usage(self.usage, self.extra)
        if self.usage.input is None:
            usage["input_tokens"] = None  # the number of `message_start` holds on
        delta_frame = self._frame("message_delta", delta=delta, usage=usage, **outside)
        out: Frames = []
        if self._citations:  # they came after their text had ended
            out += [*self._begin_block({"type": "text", "text": ""}), *self._write_citations()]
        return [*out, *self._close_block(), delta_frame, self._frame("message_stop")]

    def error(self, status: int, message: str, code: str | None) -> Frames:
        """Return the frames of a failure in the middle."""
        return [("error", write_error(status, message, code))]
