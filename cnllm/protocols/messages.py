"""Anthropic Messages, as a server speaks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cnllm.protocols import Spoken, Stamp
from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Request,
    Seal,
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

__all__ = ["SPOKEN"]

_PROTOCOL = "anthropic-messages"
_PARAMS = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "stop_sequences": "stop"}
_OWN = ("model", "messages", "system", "stream", "tools", "tool_choice", "thinking", "output_config", "output_format")
_LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_FUNCTION = ("type", "name", "description", "input_schema", "strict")
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


# ── requests ─────────────────────────────────────────────────────────────────


def read_request(body: dict[str, Any], path: str, stamp: Stamp) -> Request:
    """Raises `ValueError` naming the message or key that is not as it must be."""
    turns = body.get("messages")
    if not isinstance(turns, list) or not turns:
        raise ValueError("messages: a list with a message in it is required")
    if type(body.get("max_tokens")) is not int:
        raise ValueError("max_tokens: an integer is required")
    messages: list[Message] = []
    if body.get("system") is not None:
        blocks = _listed(body["system"], "system")
        parts = [_part(block, f"system.{n}", "system", stamp) for n, block in enumerate(blocks)]
        messages += [Message("system", parts)] if parts else []
    for index, turn in enumerate(turns):
        messages += _turn(turn, f"messages.{index}", stamp)
    options: dict[str, Any] = {ours: body[key] for key, ours in _PARAMS.items() if body.get(key) is not None}
    extra = {key: value for key, value in body.items() if key not in _OWN and key not in _PARAMS and value is not None}
    _tools(body, options)
    _thinking(body, options, extra)
    if extra:
        options["extra_body"] = extra
    model = body.get("model")
    return Request(
        model=model if isinstance(model, str) else None,
        messages=messages,
        stream=body.get("stream") is True,
        options=options,
    )


def _listed(content: Any, where: str) -> list[Block]:
    """Content as blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise ValueError(f"{where}: a string or a list of blocks is required")
    for n, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise ValueError(f"{where}.{n}: an object with a type is required")
    return content


def _turn(turn: Any, where: str, stamp: Stamp) -> Iterator[Message]:
    """A turn as messages: each result in it is one of its own, before what else the user says."""
    if not isinstance(turn, dict):
        raise ValueError(f"{where}: an object is required")
    role = turn.get("role")
    if role not in ("user", "assistant", "system"):
        raise ValueError(f"{where}.role: user or assistant is required, not {role!r}")
    blocks = _listed(turn.get("content"), f"{where}.content")
    parts: list[Part] = []
    results = 0
    for n, block in enumerate(blocks):
        part = _part(block, f"{where}.content.{n}", role, stamp)
        if type(part) is ToolResult:
            results += 1
            yield Message("tool", [part])
        else:
            parts.append(part)
    if parts or not results:
        yield Message(role, parts)


def _part(block: Block, where: str, role: str, stamp: Stamp) -> Part:
    """One block. What the endpoint itself put beside an answer is sealed; a caller's marks stay the caller's."""
    beside = {key: value for key, value in block.items() if key not in ("type", "cache_control") and value is not None}
    marks = {"cache_control": block["cache_control"]} if block.get("cache_control") is not None else None
    match block["type"], role:
        case "text", _ if isinstance(block.get("text"), str):
            del beside["text"]
            if role == "assistant":
                return Text(block["text"], stamp(beside) if beside else None, marks)
            return Text(block["text"], None, {**beside, **(marks or {})} or None)
        case "image", "user" if (media := _media(block, marks)) is not None:
            return media
        case "thinking", "assistant" if isinstance(block.get("thinking"), str):
            del beside["thinking"]
            return Reasoning(block["thinking"], stamp(beside) if any(beside.values()) else None)
        case "redacted_thinking", "assistant":
            return Reasoning("", stamp(block))
        case "tool_use", "assistant":
            return _call(block, where, stamp)
        case "tool_result", "user":
            return _result(block, where, stamp)
        case ("tool_result" | "tool_use" | "thinking" | "text") as kind, _:
            raise ValueError(f"{where}: a block of type {kind} is not shaped as it must be, or may not stand here")
    return Opaque(block, stamp(None) if role == "assistant" else None)


def _media(block: Block, marks: Block | None) -> Media | None:
    match block.get("source"):
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return Media(kind, data, None, None, marks)
        case {"type": "url", "url": str(url)}:
            return Media("image", None, url, None, marks)
    return None


def _call(block: Block, where: str, stamp: Stamp) -> ToolCall:
    id, name, given = block.get("id"), block.get("name"), block.get("input")
    if not isinstance(id, str) or not isinstance(name, str) or not id or not name:
        raise ValueError(f"{where}: an id and a name are required")
    if not isinstance(given, dict):
        raise ValueError(f"{where}.input: an object is required")
    beside = {k: v for k, v in block.items() if k not in ("type", "id", "name", "input") and v is not None}
    raw = msgspec.json.encode(given).decode() if given else ""
    return ToolCall(id, name, given, raw, seal=stamp(beside) if beside else None)


def _result(block: Block, where: str, stamp: Stamp) -> ToolResult:
    """A result. Blocks that text and pictures cannot say are kept beside them, for whom they were written."""
    id = block.get("tool_use_id")
    if not isinstance(id, str) or not id:
        raise ValueError(f"{where}.tool_use_id: it is required")
    content = block.get("content")
    blocks = [] if content is None else _listed(content, f"{where}.content")
    text = "".join(b["text"] for b in blocks if b["type"] == "text" and isinstance(b.get("text"), str))
    pictures = [(b, _media(b, None)) for b in blocks if b["type"] == "image"]
    kept = {k: v for k, v in block.items() if k not in ("type", "tool_use_id", "content", "is_error") and v is not None}
    said: list[Block] = [{"type": "text", "text": text}] if text else []
    told = [*said, *(b for b, media in pictures if media is not None and b.keys() == {"type", "source"})]
    if blocks not in (told, [{"type": "text", "text": ""}]):
        kept["content"] = blocks
    return ToolResult(
        id,
        text,
        None,
        block.get("is_error") is True,
        tuple(media for _, media in pictures if media is not None),
        stamp(kept) if kept else None,
    )


def _tools(body: dict[str, Any], options: dict[str, Any]) -> None:
    """Functions in the neutral shape; the endpoint's own tools, and functions with more beside them, as they are."""
    tools = body.get("tools")
    if tools is not None:
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise ValueError("tools: a list of objects is required")
        options["tools"] = [_tool(tool, f"tools.{index}") for index, tool in enumerate(tools)]
    choice = body.get("tool_choice")
    if choice is None:
        return
    match choice:
        case {"type": "tool", "name": str(name)}:
            options["tool_choice"] = {"type": "function", "function": {"name": name}}
        case {"type": ("auto" | "any" | "none") as kind}:
            options["tool_choice"] = _CHOICES[kind]
        case _:
            raise ValueError("tool_choice: an object of type auto, any, tool or none is required")
    if isinstance(choice.get("disable_parallel_tool_use"), bool):
        options["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]


def _tool(tool: Block, where: str) -> Block:
    if tool.get("type") not in (None, "custom"):
        return tool
    if not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), dict):
        raise ValueError(f"{where}: a name and an input_schema are required")
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    function |= {key: tool[key] for key in ("description", "strict") if tool.get(key) is not None}
    beside = {key: value for key, value in tool.items() if key not in _FUNCTION and value is not None}
    return {"type": "function", "function": function, **beside}


def _thinking(body: dict[str, Any], options: dict[str, Any], extra: dict[str, Any]) -> None:
    """How much thinking is asked for, and the form of the answer."""
    asked, config = body.get("thinking"), body.get("output_config")
    config = dict(config) if isinstance(config, dict) else {}
    shape = config.pop("format", None) or body.get("output_format")
    if isinstance(shape, dict) and isinstance(shape.get("schema"), dict):
        options["schema"] = {"json_schema": {"name": "answer", "schema": shape["schema"]}}
    rest: dict[str, Any] = {}
    if isinstance(asked, dict):
        rest = {key: value for key, value in asked.items() if key not in ("type", "budget_tokens")}
        match asked.get("type"):
            case "enabled":
                budget = asked.get("budget_tokens")
                options["reasoning"] = budget if type(budget) is int else "on"
            case "adaptive":
                level = config.pop("effort", None)
                options["reasoning"] = level if level in _LEVELS else "on"
            case "disabled" | "between_tools":
                options["reasoning"] = "off"
            case _:
                rest = asked
    if rest:
        extra["thinking"] = rest
    if config:
        extra["output_config"] = config


# ── replies ──────────────────────────────────────────────────────────────────


def write_reply(reply: Reply) -> dict[str, Any]:
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


class _Stream:
    """Events of one reply: one block is open at a time, each closed before the next begins."""

    def __init__(self, id: str, model: str) -> None:
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


SPOKEN = Spoken(
    read_request=read_request, write_reply=write_reply, write_error=write_error, stream=_Stream, bearer=True
)
