"""Encode replies, streams and errors of OpenAI chat completions.

The simulator has an encoder of its own for this wire, because its endpoints differ by their flags
(`cnllm.simulator.chat`). It shares no code with this module on purpose.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from cnllm.protocols import Frames, ServerStream, write_texts
from cnllm.protocols.chat.server_decode import DETAILS, PROTOCOL, custom_tools, offers_functions
from cnllm.protocols.client_tools import ArgumentReader, InputReader, is_bare_input
from cnllm.protocols.reply_fields import citation_fields, is_refusal, select_keys, stream_id, with_counts
from cnllm.protocols.server_interface import openai_error
from cnllm.types import (
    BlockEnd,
    Citation,
    CitationAdded,
    Event,
    ExtraAdded,
    Finished,
    Media,
    Reasoning,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from cnllm.types.delivered import DeltaKey
from cnllm.types.media import data_url, media_kind
from cnllm.types.parts import seal_data
from cnllm.types.tools import custom_input, json_arguments

__all__ = ["PREFIX", "REPLY_KEYS", "StreamEncoder", "media_keys", "takes_raw", "write_reply"]

PREFIX = "chatcmpl-"
_ABOUT = ("service_tier", "system_fingerprint", "moderation", "metadata")
"""Keys beside the choices."""
REPLY_KEYS = frozenset([*_ABOUT, "logprobs", "annotations", "finish_reason", "refusal"])
"""The keys of `Reply.extra` that a reply can hold."""
_FINISH = {"stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter"}


def write_reply(reply: Reply, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the body of a whole reply."""
    text = reply.text or (None if reply.tool_calls else "")
    is_older = offers_functions(request)
    field = _field(reply.extra)
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, field: text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    details = [item for part in reply.message.parts if type(part) is Reasoning for item in _details(part)]
    if details:
        message[DETAILS] = details
    if Media in map(type, reply.message.parts):
        message |= media_keys([part for part in reply.message.parts if type(part) is Media])
    if annotations := [*map(_annotation, reply.citations), *reply.extra.get("annotations", ())]:
        message["annotations"] = annotations
    if reply.tool_calls:
        custom = custom_tools(request)
        calls = [_call(call, custom) for call in reply.tool_calls]
        if is_older:  # the form has one call; a client that executes more finds them in the newer one
            message["function_call"] = calls.pop(0)["function"]
        if calls:
            message["tool_calls"] = calls
    finish = _reason(reply.finish, reply.raw_finish, reply.extra, is_older=is_older)
    # OpenAI's description of the API requires `refusal` and `logprobs`: null where there is none.
    choice = {"index": 0, "message": message, "logprobs": _logprobs(reply.extra, field), "finish_reason": finish}
    body: dict[str, Any] = {
        "id": stream_id(reply.id or "", PREFIX),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": reply.model or "",
        "choices": [choice],
        **select_keys(reply.extra, _ABOUT),
    }
    if (usage := _usage(reply.usage, reply.extra)) is not None:
        body["usage"] = usage
    return body


def _reason(finish: str, raw: str | None, extra: dict[str, Any], *, is_older: bool) -> str:
    """Return the finish reason: the endpoint's own word where it is one of this protocol that nobody knows.

    A refusal of the model has a field of its own, and a usual end.
    """
    if finish == "content_filter" and is_refusal(extra):
        return "stop"
    if finish == "tool_calls" and is_older:
        return "function_call"
    is_own = finish == "length" and raw is not None and extra.get("finish_reason") == raw
    return raw if is_own and raw is not None else _FINISH.get(finish, "stop")


def _logprobs(extra: dict[str, Any], field: str) -> dict[str, Any] | None:
    """Return the log probabilities of the answer's tokens, by its field; None where there are none."""
    return {"content": None, "refusal": None, field: extra["logprobs"]} if extra.get("logprobs") else None


def _field(extra: dict[str, Any]) -> str:
    """Return the field of a message that has the text of a reply."""
    return "refusal" if is_refusal(extra) else "content"


def media_keys(media: list[Media]) -> dict[str, Any]:
    """Return the keys of a message with its images and its last sound.

    OpenAI's own protocol has no images in an answer; chat clients that read any know this form
    (https://openrouter.ai/docs/features/multimodal/image-generation).
    """
    keys: dict[str, Any] = {}
    if images := [part for part in media if media_kind(part) == "image"]:
        keys["images"] = [{"type": "image_url", "image_url": {"url": data_url(part)}} for part in images]
    for part in media:
        if media_kind(part) == "audio" and part.data is not None:
            extra = part.extra or {}
            head = {"id": extra.get("id") or "", "expires_at": extra.get("expires_at") or 0}
            keys["audio"] = {**head, "data": part.data, "transcript": extra.get("transcript") or ""}
    return keys


def _annotation(citation: Citation) -> dict[str, Any]:
    """Encode a source."""
    own = seal_data(citation.seal, PROTOCOL)
    if type(own.get("type")) is str:
        return own
    return {"type": "url_citation", "url_citation": citation_fields(citation)}


def _details(part: Reasoning) -> list[Any]:
    """Return the details of reasoning, if they are from this protocol."""
    seal = part.seal
    return seal.data if seal is not None and seal.protocol == PROTOCOL and type(seal.data) is list else []


def takes_raw(call: ToolCall, request: Mapping[str, Any] | None) -> bool:
    """Whether a reply to a request can hold a call whose arguments are no JSON object: they are a text here."""
    return call.name not in custom_tools(request) or is_bare_input(call.raw)


def _call(call: ToolCall, custom: frozenset[str]) -> dict[str, Any]:
    """Encode a call."""
    if call.name in custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": custom_input(call)}}
    function = {"name": call.name, "arguments": json_arguments(call)}
    return {"id": call.id, "type": "function", "function": function, **seal_data(call.seal, PROTOCOL)}


def _usage(usage: Usage, extra: dict[str, Any]) -> dict[str, Any] | None:
    """Return the known counts and the endpoint's own keys beside them; None if there are no counts."""
    if usage == Usage():
        return None
    out: dict[str, Any] = {
        "prompt_tokens": usage.input or 0,
        "completion_tokens": usage.output or 0,
        "total_tokens": usage.total if usage.total is not None else (usage.input or 0) + (usage.output or 0),
    }
    details = {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write}
    if details := {key: count for key, count in details.items() if count is not None}:
        out["prompt_tokens_details"] = details
    if usage.reasoning is not None:
        out["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return with_counts(out, extra, _DETAILS_OF_USAGE)


_DETAILS_OF_USAGE = {
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
}
"""The objects inside the counts, as Responses and as this protocol call them."""


class StreamEncoder(ServerStream):
    """The encoder of one reply's chunks."""

    begins_late = True

    def __init__(self, id: str, model: str, request: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        head = {"id": stream_id(id, PREFIX), "object": "chat.completion.chunk"}
        self._head = {**head, "created": int(time.time()), "model": model}
        self._around_texts: dict[DeltaKey, tuple[bytes, bytes]] = {}  # the bytes of a frame around each text
        self._before, self._after = self._around_delta()
        self._custom = custom_tools(request)
        self._is_older = offers_functions(request)
        self._annotations: list[Any] = []  # for one chunk: clients join lists by `index`, which sources do not have
        self._images = 0
        self._readers: dict[int, InputReader | ArgumentReader] = {}  # of custom tools, and functions without arguments
        options = (request or {}).get("stream_options")
        self._sends_usage = request is None or (isinstance(options, Mapping) and options.get("include_usage") is True)

    def _around_delta(self) -> list[bytes]:
        """Return the bytes before and behind the delta of a chunk."""
        empty = msgspec.json.encode({**self._head, "choices": [{"index": 0, "delta": {"": ""}, "finish_reason": None}]})
        return empty.rsplit(b'"":""', 1)

    def begin(self) -> Frames:
        """Return the frames before the first event."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def write(self, event: Event) -> Frames:
        """Return the frames of an event in the middle."""
        match event:
            case TextDelta() | ReasoningDelta():
                return [self._text_chunk(type(event), event.text)]
            case BlockEnd(part=Reasoning() as part) if _details(part):
                return [self._chunk({DETAILS: _details(part)})]
            case BlockEnd(part=Media() as part):
                return [self._chunk(keys)] if (keys := self._media_keys(part)) else []
            case ExtraAdded(extra=extra):
                self._head |= select_keys(extra, _ABOUT)
                self._before, self._after = self._around_delta()
                self._around_texts = {}
                self._annotations += extra.get("annotations", ())
                logprobs = _logprobs(extra, _field(self.extra))
                return [self._chunk({}, logprobs=logprobs)] if logprobs is not None else []
            case CitationAdded():
                self._annotations.append(_annotation(event.citation))
            case ToolCallStart():
                return [self._begin_call(event)]
            case ToolCallDelta():
                return self._call_piece(event.index, event.text)
            case ToolCallEnd():
                return self._end_call(event.index, event.call)
        return []

    def _media_keys(self, part: Media) -> dict[str, Any]:
        """Return the keys of a delta with an image, which has its place among the images, or a sound."""
        keys = media_keys([part])
        for image in keys.get("images", ()):
            image["index"] = self._images
            self._images += 1
        return keys

    def _begin_call(self, event: ToolCallStart) -> tuple[str | None, Any]:
        """Return the frame that begins a call."""
        is_custom = event.name in self._custom
        kind, key = ("custom", "input") if is_custom else ("function", "arguments")
        self._readers[event.index] = InputReader() if is_custom else ArgumentReader()
        beginning = {"name": event.name, key: ""}
        if self._is_older and event.index == 0:
            return self._chunk({"function_call": beginning})
        return self._chunk(self._call_delta(event.index, {"id": event.id, "type": kind, kind: beginning}))

    def _call_delta(self, index: int, keys: dict[str, Any]) -> dict[str, Any]:
        """Return a delta with keys of a call; in the older form the first call is none of the list."""
        return {"tool_calls": [{"index": index - self._is_older, **keys}]}

    def _call_piece(self, index: int, text: str) -> Frames:
        """Return the frames of a piece of a call's arguments."""
        reader = self._readers.get(index)
        if isinstance(reader, InputReader):
            return self._input_chunk(index, reader.feed(text))
        piece = text if reader is None else reader.feed(text)
        if reader is not None and reader.is_open:
            del self._readers[index]
        return [] if piece is None else [self._text_chunk(index, piece)]

    def _input_chunk(self, index: int, text: str) -> Frames:
        """Return the frame of a piece of a custom tool's input, unless it is empty."""
        return [self._chunk(self._call_delta(index, {"custom": {"input": text}}))] if text else []

    def _end_call(self, index: int, call: ToolCall) -> Frames:
        """Return the frames of what the pieces of a call lack."""
        reader = self._readers.pop(index, None)
        rest = "" if reader is None else reader.end(call)
        if isinstance(reader, InputReader):
            return self._input_chunk(index, rest)
        out = [self._text_chunk(index, rest)] if rest else []
        data = {} if self._is_older and index == 0 else seal_data(call.seal, PROTOCOL)
        return [*out, self._chunk(self._call_delta(index, data))] if data else out

    def end(self, event: Finished) -> Frames:
        """Return the frames that end the stream."""
        out = [self._chunk({"annotations": self._annotations})] if self._annotations else []
        out.append(self._chunk({}, _reason(event.finish, event.raw, self.extra, is_older=self._is_older)))
        if self._sends_usage and (usage := _usage(self.usage, self.extra)) is not None:
            out.append((None, {**self._head, "choices": [], "usage": usage}))
        return [*out, (None, b"[DONE]")]

    def texts(self, key: DeltaKey, texts: list[str]) -> bytes | None:
        """Return the bytes of several deltas; None for what is read piece by piece: a custom tool's input, or null."""
        if key in self._readers:
            return None
        if (around := self._around_texts.get(key)) is None:
            before, after = self._around_text(key)
            around = self._around_texts[key] = b"data: %b" % before, b"%b\n\n" % after
        return write_texts(around[0], texts, around[1])

    def _text_chunk(self, key: DeltaKey, text: str) -> tuple[str | None, Any]:
        """Return one chunk with text, as bytes: the rest of it is always the same."""
        before, after = self._around_text(key)
        return None, b"%b%b%b" % (before, msgspec.json.encode(text), after)

    def _around_text(self, key: DeltaKey) -> tuple[bytes, bytes]:
        """Return the bytes before and behind the text of a chunk."""
        if key == 0 and self._is_older:
            return b'%b"function_call":{"arguments":' % self._before, b"}%b" % self._after
        if type(key) is int:
            before = b'%b"tool_calls":[{"index":%d,"function":{"arguments":' % (self._before, key - self._is_older)
            return before, b"}}]%b" % self._after
        field = "reasoning_content" if key is ReasoningDelta else _field(self.extra)
        return b'%b"%b":' % (self._before, field.encode()), self._after

    def _chunk(
        self, delta: dict[str, Any], finish: str | None = None, logprobs: dict[str, Any] | None = None
    ) -> tuple[str | None, Any]:
        """Return one chunk."""
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
        return None, {**self._head, "choices": [choice if logprobs is None else {**choice, "logprobs": logprobs}]}

    def error(self, status: int, message: str, code: str | None) -> Frames:
        """Return the frames of a failure in the middle."""
        return [(None, openai_error(status, message, code))]
