"""Encode replies and events as bodies and streams of Gemini generateContent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cnllm.protocols import Frames, ServerStream
from cnllm.protocols.reply_fields import select_keys
from cnllm.types import (
    BlockEnd,
    Citation,
    CitationAdded,
    Event,
    ExtraAdded,
    Finished,
    Media,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Text,
    TextDelta,
    ToolCall,
    ToolCallEnd,
    Usage,
)
from cnllm.types.parts import seal_data

__all__ = ["REPLY_KEYS", "StreamEncoder", "takes_count", "write_error", "write_reply"]

_PROTOCOL = "gemini"
_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "content_filter": "SAFETY"}
_REASON = re.compile(r"[A-Z][A-Z_]+")
"""The form of the protocol's own finish reasons: such a reason is passed on unchanged."""
_GENERATED_ID = re.compile(r"call_\d+(_\d+)*")
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def write_reply(reply: Reply, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the body of a whole reply."""
    parts = [wire for part in reply.message.parts if (wire := _part(part)) is not None]
    candidate = {**_content(parts), "finishReason": _reason(reply.finish, reply.raw_finish), "index": 0}
    candidate |= _about_candidate(reply.citations, reply.text, reply.extra)
    head = {**select_keys(reply.extra, _OF_REPLY), **_head(reply.model, reply.id)}
    return {"candidates": [candidate], **_usage(reply.usage, reply.extra), **head}


_OF_CANDIDATE = (
    *("tokenCount", "avgLogprobs", "safetyRatings", "finishMessage", "citationMetadata", "groundingMetadata"),
    *("urlContextMetadata", "continuationToken"),
)
_OF_REPLY = ("modelStatus", "promptFeedback")
REPLY_KEYS = frozenset([*_OF_CANDIDATE, *_OF_REPLY, "logprobs", "logprobsResult", "refusal"])
"""The keys of `Reply.extra` that a reply can hold."""


def _content(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a candidate."""
    return {"content": {"parts": parts, "role": "model"} if parts else {"role": "model"}}


def _head(model: str | None, id: str | None) -> dict[str, Any]:
    """Return the model and the id of a reply."""
    head = {"modelVersion": model, "responseId": id}
    return {key: value for key, value in head.items() if value}


def _reason(finish: str, raw: str | None) -> str:
    """Return the finish reason: the endpoint's own word where it is none that other protocols have."""
    if raw is not None and _REASON.fullmatch(raw) and raw.lower() not in _FINISH:
        return raw
    return _FINISH.get(finish, "OTHER")


def _part(part: Part) -> dict[str, Any] | None:
    """Encode a part; None for one that has no place on this wire, or is empty."""
    other_keys = seal_data(part.seal, _PROTOCOL)
    match part:
        case Text():
            return {"text": part.text, **other_keys} if part.text or other_keys else None
        case Reasoning():
            return {"text": part.text, "thought": True, **other_keys} if part.text or other_keys else None
        case ToolCall():
            return None if part.arguments is None and part.raw else _call(part, other_keys)
        case Media():
            key = "inlineData" if part.data is not None else "fileData"
            value_field = {"data": part.data} if part.data is not None else {"fileUri": part.url}
            return {**other_keys, key: {"mimeType": part.type, **value_field, **other_keys.get(key, {})}}
        case Opaque() if part.seal is not None and part.seal.protocol == _PROTOCOL and type(part.data) is dict:
            return dict(part.data)
    return None


def _about_candidate(citations: Sequence[Citation], text: str, extra: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a candidate about its answer. Its own sources say more than those of the reply."""
    recited = _recited_pages(extra.get("citationMetadata"))
    others = [citation for citation in citations if citation.url not in recited]
    return {**_grounding(others, text), **select_keys(extra, _OF_CANDIDATE), **_logprobs(extra)}


def _recited_pages(metadata: Any) -> set[str]:
    """Return the pages that a candidate names as sources of what it repeats."""
    lists = [metadata.get(key) for key in ("citations", "citationSources")] if type(metadata) is dict else []
    items = [item for items in lists if type(items) is list for item in items if type(item) is dict]
    return {item["uri"] for item in items if type(item.get("uri")) is str}


def _logprobs(extra: dict[str, Any]) -> dict[str, Any]:
    """Return the key of a candidate with the log probabilities of its tokens."""
    tokens = [token for token in extra.get("logprobs") or () if type(token) is dict]
    others = [top if type(top := token.get("top_logprobs")) is list else () for token in tokens]
    top = [{"candidates": [_token(other) for other in each if type(other) is dict]} for each in others]
    known = {"chosenCandidates": [*map(_token, tokens)], "topCandidates": top} if tokens else {}
    result = {**known, **extra.get("logprobsResult", {})}
    return {"logprobsResult": result} if result else {}


def _token(token: dict[str, Any]) -> dict[str, Any]:
    """Encode one token."""
    id = {} if token.get("token_id") is None else {"tokenId": token["token_id"]}
    return {"token": token.get("token"), **id, "logProbability": token.get("logprob")}


def _grounding(citations: Sequence[Citation], text: str) -> dict[str, Any]:
    """Return the key of a candidate with the sources of an answer. Its places count bytes."""
    chunks: list[dict[str, Any]] = []
    supports: dict[tuple[int, int], list[int]] = {}
    indexes: dict[tuple[str | None, str | None], int] = {}
    for citation in citations:
        source = (citation.url, citation.title)
        if source not in indexes:
            indexes[source] = len(chunks)
            page = {key: value for key, value in zip(("uri", "title"), source, strict=True) if value is not None}
            chunks.append({"retrievedContext" if citation.url is None else "web": page})
        if citation.start is not None and citation.end is not None:
            supports.setdefault((citation.start, citation.end), []).append(indexes[source])
    metadata: dict[str, Any] = {"groundingChunks": chunks}
    if supports:
        metadata["groundingSupports"] = [
            {"segment": _segment(text, start, end), "groundingChunkIndices": numbers}
            for (start, end), numbers in supports.items()
        ]
    return {"groundingMetadata": metadata} if chunks else {}


def _segment(text: str, start: int, end: int) -> dict[str, Any]:
    """Encode a piece of the answer."""
    piece = text[start:end]
    first = len(text[:start].encode())
    return {**({"startIndex": first} if first else {}), "endIndex": first + len(piece.encode()), "text": piece}


def _call(call: ToolCall, other_keys: dict[str, Any]) -> dict[str, Any]:
    """Encode a call."""
    id = {} if not call.id or _GENERATED_ID.fullmatch(call.id) else {"id": call.id}
    function_call = {**id, "name": call.name, "args": call.arguments or {}, **other_keys.get("functionCall", {})}
    return {**other_keys, "functionCall": function_call}


def takes_count(name: str) -> bool:
    """Whether the counts can have a key: it has the form of this protocol's own."""
    return "_" not in name and not name.islower()


def _usage(usage: Usage, extra: dict[str, Any]) -> dict[str, Any]:
    """Return the known counts, and the endpoint's own keys in this protocol's form.

    On this wire the candidates' tokens do not include the thoughts.
    """
    answer = usage.output
    if answer is not None and usage.reasoning is not None:
        answer = max(answer - usage.reasoning, 0)
    own = {key: value for key, value in extra.get("usage", {}).items() if takes_count(key)}
    prompt, by_tools = usage.input, own.get("toolUsePromptTokenCount")
    counts = {
        "promptTokenCount": max(prompt - by_tools, 0) if prompt is not None and type(by_tools) is int else prompt,
        "candidatesTokenCount": answer,
        "totalTokenCount": usage.total,
        "cachedContentTokenCount": usage.cached or None,
        "thoughtsTokenCount": usage.reasoning or None,
    }
    known_counts = {**own, **{key: value for key, value in counts.items() if value is not None}}
    return {"usageMetadata": known_counts} if known_counts else {}


def write_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Return the body of an error."""
    word = _STATUS.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")
    error: dict[str, Any] = {"code": status, "message": message, "status": word}
    if code is not None and code != word:
        error["details"] = [{"reason": code}]
    return {"error": error}


class StreamEncoder(ServerStream):
    """The encoder of one reply's chunks. A call is sent when it is complete: the protocol has no pieces of one."""

    needs_arguments = True

    def __init__(self, id: str, model: str, request: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._head = _head(model, id)
        self._citations: list[Citation] = []
        self._texts: list[str] = []
        self._tokens: list[Any] = []  # log probabilities

    def write(self, event: Event) -> Frames:
        """Return the frames of an event in the middle."""
        match event:
            case TextDelta():
                self._texts.append(event.text)
                return [self._chunk({"text": event.text})]
            case ReasoningDelta():
                return [self._chunk({"text": event.text, "thought": True})]
            case BlockEnd():
                return self._end_part(event.part)
            case ExtraAdded(extra=extra):
                self._tokens += extra.get("logprobs", ())
                return []
            case CitationAdded():
                self._citations.append(event.citation)
                return []
            case ToolCallEnd(call=call):
                return self._write_part(call)
        return []

    def end(self, event: Finished) -> Frames:
        """Return the frame that ends the stream."""
        candidate = {**_content([{"text": ""}]), "finishReason": _reason(event.finish, event.raw), "index": 0}
        candidate |= _about_candidate(self._citations, "".join(self._texts), {**self.extra, "logprobs": self._tokens})
        head = {**select_keys(self.extra, _OF_REPLY), **self._head}
        return [(None, {"candidates": [candidate], **_usage(self.usage, self.extra), **head})]

    def _end_part(self, part: Part) -> Frames:
        """Return the frame of the data that the deltas lack: a seal, on a part without text, or a whole part."""
        if type(part) in (Text, Reasoning):
            part = msgspec.structs.replace(part, text="")
        return self._write_part(part)

    def _write_part(self, part: Part) -> Frames:
        """Return the frame of a part; nothing for one that has no place on this wire, or is empty."""
        return [] if (wire := _part(part)) is None else [self._chunk(wire)]

    def _chunk(self, part: dict[str, Any]) -> tuple[str | None, Any]:
        """Return one chunk."""
        return None, {"candidates": [{**_content([part]), "index": 0}], **self._head}

    def error(self, status: int, message: str, code: str | None) -> Frames:
        """Return the frames of a failure in the middle."""
        return [(None, write_error(status, message, code))]
