"""Read messages that describe themselves by `kind` and `parts`, as pydantic-ai's do: objects, or dicts of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cnllm.types import checks
from cnllm.types.foreign_blocks import FOREIGN, as_json, call_of, media_of
from cnllm.types.message import Message
from cnllm.types.parts import Media, Opaque, Part, Reasoning, Text, ToolResult

__all__ = ["is_parts_message", "read_parts_message"]

Get = Callable[[str], Any]

_URLS = {"image-url": "image", "audio-url": "audio", "video-url": "video", "document-url": "file"}


def _getter(value: Any) -> Get:
    """Return a function that reads a field of an object or of a dict; None where it has none."""
    return value.get if isinstance(value, Mapping) else lambda name: getattr(value, name, None)


def is_parts_message(value: Any) -> bool:
    """Whether a value is a message of this form."""
    get = _getter(value)
    return get("kind") in ("request", "response") and isinstance(get("parts"), list | tuple)


def read_parts_message(value: Any) -> list[Message]:
    """Return the messages of a value: a request may hold several. Raises `TypeError` or `ValueError`."""
    get = _getter(value)
    if get("kind") == "response":
        provider, model = get("provider_name"), get("model_name")
        by = f"{provider}/{model}" if isinstance(provider, str) and isinstance(model, str) else None
        return [Message("assistant", [part for each in get("parts") for part in _answer(each)], by)]
    out: list[Message] = []
    if isinstance(instructions := get("instructions"), str) and instructions:
        out.append(Message("system", instructions))
    for part in get("parts"):
        out += _request(part)
    return out


def _answer(part: Any) -> list[Part]:
    """Return the parts of one part of an answer."""
    get = _getter(part)
    content = get("content")
    match get("part_kind"):
        case "text":
            return [Text(content)] if content else []
        case "thinking":
            return [Reasoning(content)] if content else []
        case "tool-call":
            return [call_of(get("tool_call_id"), get("tool_name"), get("args"))]
        case "file":
            return [_item(content)]
    return [Opaque({"kind": str(get("part_kind"))}, FOREIGN)]


def _request(part: Any) -> list[Message]:
    """Return the messages of one part of a request."""
    get = _getter(part)
    content = get("content")
    match get("part_kind"):
        case "system-prompt":
            return [Message("system", checks.as_text("content", content))]
        case "user-prompt":
            items = [content] if isinstance(content, str) else checks.as_list("content", content, "a string or a list")
            return [Message("user", [_item(item) for item in items])]
        case "tool-return":
            text = as_json(content) if isinstance(content, str | Mapping | list | None) else _text(part, content)
            error = get("outcome") not in (None, "success")
            return [Message("tool", (ToolResult(str(get("tool_call_id")), text, get("tool_name"), error),))]
        case "retry-prompt":
            text = _text(part, content)
            if get("tool_name") is None:
                return [Message("user", text)]
            return [Message("tool", (ToolResult(str(get("tool_call_id")), text, get("tool_name"), True),))]
        case kind:
            raise ValueError(f"a part of the kind {checks.short_text(kind)} has no place in a request to another model")


def _text(part: Any, content: Any) -> str:
    """Return the text that the library itself would send for a part; its content where it has no such method."""
    for name in ("model_response_str", "model_response"):
        if callable(method := getattr(part, name, None)):
            return checks.as_text("content", method())
    return as_json(content)


def _item(item: Any) -> Part:
    """Return one item of a user's prompt."""
    if isinstance(item, str):
        return Text(item)
    get = _getter(item)
    kind = get("kind")
    if kind in _URLS:
        return Media(_URLS[kind], None, checks.as_text("url", get("url")))
    if kind == "binary":
        return media_of("file", get("data"), get("media_type"))
    if isinstance(text := get("content"), str):
        return Text(text)
    return Opaque({"kind": str(kind)}, FOREIGN)
