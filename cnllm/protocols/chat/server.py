"""Decode requests and encode replies of OpenAI chat completions.

The simulator has a reader and an encoder of its own for this wire, because its endpoints differ by their flags
(`cnllm.simulator.chat_request`, `cnllm.simulator.chat`). They share no code with this module on purpose.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from cnllm.protocols import Recall, ServerCodec, Stamp, write_texts
from cnllm.protocols.allowed_tools import allow_tools
from cnllm.protocols.chat.fields import FIELDS
from cnllm.protocols.custom_tools import InputReader
from cnllm.protocols.fields import require_one_reply, require_types
from cnllm.protocols.reply_fields import stream_id, with_counts
from cnllm.protocols.server_interface import BatchForm, openai_error
from cnllm.types import (
    BlockEnd,
    Citation,
    CitationAdded,
    Event,
    ExtraAdded,
    Finished,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    Usage,
    UsageSeen,
)
from cnllm.types.convert import CACHE_MARK, call_of
from cnllm.types.custom_tools import custom_arguments, custom_function, custom_input
from cnllm.types.delivered import DeltaKey
from cnllm.types.media import as_media, data_url, is_file_part, media_kind
from cnllm.types.web_search import WebSearch

__all__ = ["CODEC"]

_PROTOCOL = "openai-chat"
_PREFIX = "chatcmpl-"
_OPTIONS = ("tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p", "max_tokens", "stop", "seed")
_FINISH = {"stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter"}


def read_request(body: dict[str, Any], path: str, stamp: Stamp, recall: Recall) -> Request:
    """Return the messages and options of a body. Raises `ValueError` with the message or key that is wrong."""
    require_types(body, FIELDS)
    require_one_reply(body.get("n"), "n")
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise ValueError("messages is not a list")
    messages_read = recall(messages, partial(_turn, stamp))
    options = {key: body[key] for key in _OPTIONS if body.get(key) is not None}
    _tools(options)
    if body.get("max_completion_tokens") is not None:
        options["max_tokens"] = body["max_completion_tokens"]
    extra = FIELDS.rest(body)
    if (effort := body.get("reasoning_effort")) is not None:
        options["reasoning"] = effort
    match body.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": dict()} as schema}:
            options["schema"] = {"json_schema": schema}
        case {"type": "json_schema", "json_schema": {"name": str()} as schema} if schema.get("schema") is None:
            extra["response_format"] = {"type": "json_object"}  # a schema is optional, and without one any object fits
        case None | {"type": "text"}:
            pass
        case other:
            extra["response_format"] = other
    if extra:
        options["extra_body"] = extra
    model = body.get("model")
    return Request(
        model=model if isinstance(model, str) else None,
        messages=messages_read,
        stream=body.get("stream") is True,
        options=options,
    )


def _turn(stamp: Stamp, index: int, turn: Any) -> tuple[Message]:
    """Return the message of a turn. Raises `ValueError` with its place."""
    if not isinstance(turn, dict):
        raise ValueError(f"messages[{index}] is not an object")
    try:
        return (_message(turn, stamp),)
    except (TypeError, ValueError) as error:
        raise ValueError(f"messages[{index}]: {error}") from error


def _tools(options: dict[str, Any]) -> None:
    """Decode custom tools as functions, and a choice of one, or among some."""
    if "tools" in options:
        if not isinstance(options["tools"], list):
            raise ValueError("tools is not a list")
        for index, tool in enumerate(options["tools"]):
            if not isinstance(tool, dict):
                raise ValueError(f"tools[{index}] is not an object")
        options["tools"] = [_tool(tool) for tool in options["tools"]]
    match options.get("tool_choice"):
        case {"type": "custom", "custom": {"name": str(name)}}:
            options["tool_choice"] = {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "allowed_tools": {"tools": list() as allowed} as choice}:
            names = [_tool_name(entry) for entry in allowed]
            allow_tools(options, choice.get("mode"), [name for name in names if name is not None])


def _tool(tool: Any) -> Any:
    """Decode a tool: a custom one becomes a function."""
    match tool:
        case {"type": "custom", "custom": {"name": str(name)} as custom}:
            return custom_function(name, custom)
        case {"function": dict()} if tool.get("type", "function") == "function" and not tool.keys() <= _TOOL_KEYS:
            return {key: value for key, value in tool.items() if key in _TOOL_KEYS}
    return tool


_TOOL_KEYS = frozenset(["type", "function", CACHE_MARK, "defer_loading"])


def read_search(data: Mapping[str, Any]) -> WebSearch | None:
    """Return the web search that a tool or the further keys of a body ask for."""
    options = data.get(_SEARCH_OPTIONS)
    if isinstance(options, Mapping):
        return WebSearch.of_client(options)
    kind = data.get("type")
    if not isinstance(kind, str) or not kind.startswith("web_search"):  # a tool of Responses, sent on this wire
        return None
    return WebSearch.of_client({key: value for key, value in data.items() if key != "type"})


_SEARCH_OPTIONS = "web_search_options"
"""The key of a body that asks for a web search."""


def _tool_name(entry: Any) -> str | None:
    """Return the name in an entry of allowed tools, or None."""
    match entry:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}}:
            return name
    return None


def _custom_tools(request: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the names of the custom tools in a request body."""
    tools = (request or {}).get("tools")
    entries = [tool for tool in tools if isinstance(tool, Mapping)] if isinstance(tools, list) else []
    return frozenset(name for t in entries if t.get("type") == "custom" and (name := _tool_name(t)) is not None)


def _as_function(call: Any) -> Any:
    """Return a call of a custom tool as one of a function."""
    match call:
        case {"type": "custom", "custom": {"name": str(name), "input": str(input)}}:
            function = {"name": name, "arguments": custom_arguments(input)[1]}
            return {"id": call.get("id"), "type": "function", "function": function}
    return call


_DETAILS = "reasoning_details"
"""The field for parts of reasoning with their seals. OpenAI's own protocol has none; chat clients that send any back
know this one (https://openrouter.ai/docs/use-cases/reasoning-tokens), and a server writes one form for all."""
_PLAIN_ROLES = ("user", "assistant", "system")
_PRIVATE_KEYS = (_DETAILS, "by", "parts", "images", "audio")
"""Keys that are decoded apart, and those of our own messages, which would claim an author without proof."""


def _message(message: dict[str, Any], stamp: Stamp) -> Message:
    """Decode a message. Reasoning details, and unknown keys of a call, are sealed to go back unchanged."""
    role, text = message.get("role"), message.get("content")
    if len(message) == 2 and type(text) is str and role in _PLAIN_ROLES:
        return Message(role, (Text(text),) if text else ())
    if len(message) == 3 and type(text) is str:  # the other usual forms: a result, and a turn that calls functions
        if role == "tool" and type(id := message.get("tool_call_id")) is str:
            return Message("tool", (ToolResult(id, text),))
        calls = message.get("tool_calls")
        if role == "assistant" and type(calls) is list and calls and all(map(_is_function_call, calls)):
            called = [call_of(call, index) for index, call in enumerate(calls)]
            return Message("assistant", [Text(text), *called] if text else called)
    details = message.get(_DETAILS)
    plain = {k: v for k, v in message.items() if k not in _PRIVATE_KEYS and v is not None}
    if isinstance(plain.get("tool_calls"), list):
        plain["tool_calls"] = [_as_function(call) for call in plain["tool_calls"]]
    if role == "assistant" and "content" not in plain:
        plain["content"] = None
    if plain.get("role") == "function":
        plain["role"] = "tool"
    parsed = Message.from_dict(plain)
    parts = list(parsed.parts)
    if isinstance(details, list) and details:
        reasoning = next((p for p in parts if type(p) is Reasoning), None)
        text = (
            reasoning.text
            if reasoning is not None
            else "".join(str(d.get("text", "")) for d in details if type(d) is dict)
        )
        parts = [Reasoning(text, stamp(details)), *(p for p in parts if p is not reasoning)]
    images = message.get("images") if role == "assistant" else None
    for image in images if isinstance(images, list) else ():
        if isinstance(image, dict) and (media := as_media(image)) is not None:
            parts.append(media)
    match message:
        case {"role": "assistant", "audio": {"id": str(id)}}:  # an answer that the endpoint keeps under this id
            parts.append(Media("audio", "", None, stamp({"audio": {"id": id}})))
    extras = [_other_keys(call) for call in plain.get("tool_calls") or () if isinstance(call, dict)]
    for index, part in enumerate(parts):
        if type(part) is Opaque and not is_file_part(part.data):
            parts[index] = msgspec.structs.replace(part, seal=stamp(None))
        if type(part) is ToolResult and part.blocks:
            sealed = [b if is_file_part(b.data) else Opaque(b.data, stamp(None)) for b in part.blocks]
            parts[index] = msgspec.structs.replace(part, blocks=tuple(sealed))
        if type(part) is ToolCall and extras and (extra := extras.pop(0)):
            parts[index] = msgspec.structs.replace(part, seal=stamp(extra))
    return msgspec.structs.replace(parsed, parts=tuple(parts))


def _is_function_call(call: Any) -> bool:
    """Whether a call is one of a function, without further keys."""
    return type(call) is dict and call.keys() <= _CALL_KEYS and call.get("type", "function") == "function"


_CALL_KEYS = frozenset(["id", "type", "function"])


def _other_keys(call: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a call that have no place in `ToolCall`."""
    return {k: v for k, v in call.items() if k not in ("id", "type", "function", "index") and v is not None}


# ── replies ───────────────────────────────────────────────────────────────────


def write_reply(reply: Reply, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the body of a whole reply."""
    text = reply.text or (None if reply.tool_calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    details = [item for part in reply.message.parts if type(part) is Reasoning for item in _details(part)]
    if details:
        message[_DETAILS] = details
    message |= _media_keys([part for part in reply.message.parts if type(part) is Media])
    if reply.citations:
        message["annotations"] = [_annotation(citation) for citation in reply.citations]
    if reply.tool_calls:
        custom = _custom_tools(request)
        message["tool_calls"] = [_call(call, custom) for call in reply.tool_calls]
    finish = _FINISH.get(reply.finish, "stop")
    # OpenAI's description of the API requires `refusal` and `logprobs`: null where there is none.
    choice = {"index": 0, "message": message, "logprobs": _logprobs(reply.extra), "finish_reason": finish}
    body: dict[str, Any] = {
        "id": stream_id(reply.id or "", _PREFIX),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": reply.model or "",
        "choices": [choice],
        **_about(reply.extra),
    }
    if (usage := _usage(reply.usage, reply.extra)) is not None:
        body["usage"] = usage
    return body


def _logprobs(extra: dict[str, Any]) -> dict[str, Any] | None:
    """Return the log probabilities of the answer's tokens; None where there are none."""
    return {"content": extra["logprobs"], "refusal": None} if extra.get("logprobs") else None


def _about(extra: dict[str, Any]) -> dict[str, Any]:
    """Return the keys beside the choices."""
    return {key: extra[key] for key in ("service_tier", "system_fingerprint", "moderation", "metadata") if key in extra}


def _media_keys(media: list[Media]) -> dict[str, Any]:
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
    """Encode a source. The range is empty where the source is for no piece of the answer."""
    data = None if citation.seal is None or citation.seal.protocol != _PROTOCOL else citation.seal.data
    if type(data) is dict and type(data.get("type")) is str:
        return data
    span = {"start_index": citation.start or 0, "end_index": citation.end or 0}
    url, title = citation.url or "", citation.title or citation.url or ""
    return {"type": "url_citation", "url_citation": {**span, "title": title, "url": url}}


def _details(part: Reasoning) -> list[Any]:
    """Return the details of reasoning, if they are from this protocol."""
    data = _seal_data(part)
    return data if type(data) is list else []


def _seal_data(part: Part) -> Any:
    """Return the data that goes back with a part, if it is from this protocol."""
    return part.seal.data if part.seal is not None and part.seal.protocol == _PROTOCOL else None


def _call(call: ToolCall, custom: frozenset[str]) -> dict[str, Any]:
    """Encode a call."""
    if call.name in custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": custom_input(call)}}
    arguments = call.raw or msgspec.json.encode(call.arguments or {}).decode()
    data = _seal_data(call)
    other_keys = data if type(data) is dict else {}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}, **other_keys}


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


class StreamEncoder:
    """The encoder of one reply's chunks."""

    def __init__(self, id: str, model: str, request: Mapping[str, Any] | None = None) -> None:
        head = {"id": stream_id(id, _PREFIX), "object": "chat.completion.chunk"}
        self._head = {**head, "created": int(time.time()), "model": model}
        self._before, self._after = self._around_delta()
        self._custom = _custom_tools(request)
        self._inputs: dict[int, InputReader] = {}  # of calls of custom tools
        options = (request or {}).get("stream_options")
        self._sends_usage = request is None or (isinstance(options, Mapping) and options.get("include_usage") is True)
        self._usage: Usage | None = None
        self._extra: dict[str, Any] = {}

    def _around_delta(self) -> list[bytes]:
        """Return the bytes before and behind the delta of a chunk."""
        empty = msgspec.json.encode({**self._head, "choices": [{"index": 0, "delta": {"": ""}, "finish_reason": None}]})
        return empty.rsplit(b'"":""', 1)

    def expect_input(self, tokens: int) -> None:
        """Ignore the estimate: this protocol counts tokens at the end only."""

    def begin(self) -> list[tuple[str | None, Any]]:
        """Return the frames before the first event."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def event(self, event: Event) -> list[tuple[str | None, Any]]:
        """Return the frames of one event."""
        match event:
            case TextDelta() | ReasoningDelta():
                return [self._text_chunk(type(event), event.text)]
            case BlockEnd(part=Reasoning() as part) if _details(part):
                return [self._chunk({_DETAILS: _details(part)})]
            case BlockEnd(part=Media() as part):
                return [self._chunk(keys)] if (keys := _media_keys([part])) else []
            case ExtraAdded(extra=extra):
                self._extra |= extra
                self._head |= _about(extra)
                self._before, self._after = self._around_delta()
                return [self._chunk({}, logprobs=_logprobs(extra))] if "logprobs" in extra else []
            case CitationAdded():
                return [self._chunk({"annotations": [_annotation(event.citation)]})]
            case ToolCallStart():
                return [self._begin_call(event)]
            case ToolCallDelta():
                return self._call_piece(event.index, event.text)
            case ToolCallEnd():
                return self._end_call(event.index, event.call)
            case UsageSeen():
                self._usage = event.usage
                return []
            case Finished(finish="error" | "cut"):
                return []  # an incomplete reply gets no end frame
            case Finished():
                return self._end(_FINISH[event.finish])
        return []

    def _begin_call(self, event: ToolCallStart) -> tuple[str | None, Any]:
        """Return the frame that begins a call."""
        head = {"index": event.index, "id": event.id}
        if event.name in self._custom:
            self._inputs[event.index] = InputReader()
            return self._chunk(
                {"tool_calls": [{**head, "type": "custom", "custom": {"name": event.name, "input": ""}}]}
            )
        function = {"name": event.name, "arguments": ""}
        return self._chunk({"tool_calls": [{**head, "type": "function", "function": function}]})

    def _call_piece(self, index: int, text: str) -> list[tuple[str | None, Any]]:
        """Return the frames of a piece of a call's arguments."""
        reader = self._inputs.get(index)
        if reader is None:
            return [self._text_chunk(index, text)]
        piece = reader.feed(text)
        return [self._chunk({"tool_calls": [{"index": index, "custom": {"input": piece}}]})] if piece else []

    def _end_call(self, index: int, call: ToolCall) -> list[tuple[str | None, Any]]:
        """Return the frames of what the pieces of a call lack."""
        reader = self._inputs.get(index)
        if reader is None:
            data = _seal_data(call)
            return [self._chunk({"tool_calls": [{"index": index, **data}]})] if type(data) is dict and data else []
        input = custom_input(call)
        if input == reader.text or not input.startswith(reader.text):
            return []
        return [self._chunk({"tool_calls": [{"index": index, "custom": {"input": input[len(reader.text) :]}}]})]

    def _end(self, finish: str) -> list[tuple[str | None, Any]]:
        """Return the frames that end the stream."""
        out = [self._chunk({}, finish)]
        if self._sends_usage and self._usage is not None and (usage := _usage(self._usage, self._extra)) is not None:
            out.append((None, {**self._head, "choices": [], "usage": usage}))
        return [*out, (None, b"[DONE]")]

    def texts(self, key: DeltaKey, texts: list[str]) -> bytes | None:
        """Return the bytes of several deltas; None for the input of a custom tool, which is decoded piece by piece."""
        if key in self._inputs:
            return None
        before, after = self._around_text(key)
        return write_texts(b"data: %b" % before, texts, b"%b\n\n" % after)

    def _text_chunk(self, key: DeltaKey, text: str) -> tuple[str | None, Any]:
        """Return one chunk with text, as bytes: the rest of it is always the same."""
        before, after = self._around_text(key)
        return None, b"%b%b%b" % (before, msgspec.json.encode(text), after)

    def _around_text(self, key: DeltaKey) -> tuple[bytes, bytes]:
        """Return the bytes before and behind the text of a chunk."""
        if type(key) is int:
            before = b'%b"tool_calls":[{"index":%d,"function":{"arguments":' % (self._before, key)
            return before, b"}}]%b" % self._after
        return self._before + (b'"content":' if key is TextDelta else b'"reasoning_content":'), self._after

    def _chunk(
        self, delta: dict[str, Any], finish: str | None = None, logprobs: dict[str, Any] | None = None
    ) -> tuple[str | None, Any]:
        """Return one chunk."""
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
        return None, {**self._head, "choices": [choice if logprobs is None else {**choice, "logprobs": logprobs}]}

    def error(self, status: int, message: str, code: str | None) -> list[tuple[str | None, Any]]:
        """Return the frames of a failure in the middle."""
        return [(None, openai_error(status, message, code))]


CODEC = ServerCodec(
    read_request=read_request,
    read_search=read_search,
    write_reply=write_reply,
    write_error=openai_error,
    stream=StreamEncoder,
    result_names=True,
    feature_headers=("openai-beta",),
    paths=("/v1/chat/completions", "/chat/completions"),
    dialects=True,
    takes_media=lambda media: bool(_media_keys([media])),
    batch=BatchForm(job={"object": "batch"}, page={"object": "list"}, total="request_counts.total"),
)
