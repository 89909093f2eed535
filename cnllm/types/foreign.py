"""Read messages of other libraries, and their blocks of content: objects with `model_dump`, or with `kind` and `parts`.

The shape decides, not the library: a role with content or with blocks, contents with `parts`, items of Responses,
messages whose `type` is human or ai, and those whose `kind` is request or response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from cnllm.types import checks
from cnllm.types.convert import message_fields
from cnllm.types.message import Message
from cnllm.types.parts import CACHE_MARKS, ROLES, Media, Opaque, Part, Reasoning, Role, Seal, Text, ToolCall, ToolResult
from cnllm.types.wire_parts import (
    as_json,
    call_of,
    gemini_part,
    is_block,
    is_item,
    item_part,
    media_of,
    message_block,
    own_block,
)

__all__ = [
    "FOREIGN",
    "as_json",
    "call_of",
    "foreign_messages",
    "has_foreign_form",
    "is_foreign",
    "is_parts_message",
    "media_of",
]


_ROLE_BY_TYPE: dict[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}
_INSTEAD = "a cnllm.Message, a dict, or the message of a response (response.choices[0].message)"

Get = Callable[[str], Any]

_URLS = {"image-url": "image", "audio-url": "audio", "video-url": "video", "document-url": "file"}

FOREIGN = Seal("unknown", "unknown", "unknown")
"""The origin of a block that only its own endpoint understands: it is left out elsewhere, with a note."""

_TEXTS = {**dict.fromkeys(("text", "input_text", "output_text"), "text"), "refusal": "refusal"}
_REASONING = {"thinking": "thinking", "reasoning": "reasoning", "reasoning_text": "text", "summary_text": "text"}
_TEXT_KEYS = (*CACHE_MARKS, "citations")
_FILES = ("image", "audio", "video", "file")


def is_foreign(item: Any) -> bool:
    """Whether an object may be a message of another library."""
    return callable(getattr(item, "model_dump", None)) or is_parts_message(item)


def has_foreign_form(data: Mapping[str, Any]) -> bool:
    """Whether a dict without a role of OpenAI's is a message in the form of another library."""
    typed = _named_role(data.get("type")) is not None and "role" not in data
    return typed or is_item(data) or is_parts_message(data) or is_wire_turn(data)


def _named_role(kind: Any) -> Role | None:
    """Return the role that the type of a message names, also that of a chunk; None for another type."""
    return _ROLE_BY_TYPE.get(kind.lower().removesuffix("messagechunk")) if isinstance(kind, str) else None


def is_wire_turn(data: Mapping[str, Any]) -> bool:
    """Whether a dict is a turn with blocks of Anthropic's API, or with the parts of Gemini's."""
    role, content = data.get("role"), data.get("content")
    if isinstance(content, list):
        return role in ("user", "assistant") and any(map(is_block, content))
    parts = data.get("parts")
    if content is not None or role not in ("model", "user", "function") or not isinstance(parts, list):
        return False
    return all(isinstance(part, Mapping) and "kind" not in part for part in parts)


def foreign_messages(item: Any) -> list[Message]:
    """Return the messages of an object, or of a dict that it became. Raises `TypeError` or `ValueError`."""
    if is_parts_message(item):
        return _read_parts_message(item)
    if isinstance(item, Mapping):
        data = checks.as_dict("data", item)
    else:
        try:
            data = checks.as_dict("model_dump()", item.model_dump())
        except TypeError:
            raise
        except Exception as error:
            raise checks.unreadable("model_dump", error) from error
        if is_parts_message(data):
            return _read_parts_message(data)
    return _of_dict({key: value for key, value in data.items() if value is not None}, type(item).__name__)


def _of_dict(data: dict[str, Any], label: str) -> list[Message]:
    role = data.get("role")
    if isinstance(data.get("choices"), list) and data["choices"]:
        return foreign_messages(data["choices"][0].get("message") or {})
    if isinstance(data.get("candidates"), list) and data["candidates"]:
        return foreign_messages(data["candidates"][0].get("content") or {})
    if isinstance(data.get("output"), list):
        return _merge(message for item in data["output"] for message in foreign_messages(item))
    if (kind := _named_role(data.get("type"))) is not None:
        return _by_type(data, kind)
    if is_item(data):
        return _split("assistant", _block_parts(data))
    if role == "model" or (role in (None, "user", "function") and isinstance(data.get("parts"), list)):
        return _split("assistant" if role == "model" else "user", _parts_of(data.get("parts")))
    if role not in ROLES:
        raise TypeError(f"{label} is not a message in a form that cnllm knows; {_INSTEAD} is expected")
    if isinstance(data.get("content"), list) and role in ("user", "assistant"):
        rest = Message.from_dict({**{k: v for k, v in data.items() if k in _KEPT}, "content": None})
        parts = _parts_of(data["content"])
        if is_wire_turn(data):
            parts = [_own_part(part, role) for part in parts]
        if not any(type(part) is Reasoning for part in parts):
            parts = [*(p for p in rest.parts if type(p) is Reasoning), *parts]
        ids = {part.id for part in parts if type(part) is ToolCall}
        calls = [call for call in rest.tool_calls if call.id not in ids]
        turns = _split(role, [*parts, *calls], data.get("name"))
        return turns if rest.by is None else [replace(turn, by=rest.by) for turn in turns]
    return [Message.from_dict({key: value for key, value in data.items() if key in _KEPT or key == "content"})]


def _own_part(part: Part, role: str) -> Part:
    """Return a part of a turn of Anthropic's API, whose unknown blocks are of that API."""
    if type(part) is not Opaque or part.seal != FOREIGN:
        return part
    return own_block(part.data) if role == "assistant" else Opaque(part.data)


_KEPT = ("role", "tool_calls", "tool_call_id", "name", "reasoning", "reasoning_content", "refusal", "by")


def _by_type(data: dict[str, Any], role: Role) -> list[Message]:
    """Return the messages of a dict whose `type` is human, ai, system or tool."""
    extra = data.get("additional_kwargs") or {}
    name = data.get("name")
    if role == "tool":
        result = _parts_of(data.get("content"))
        text = "\n\n".join(part.text for part in result if isinstance(part, Text))
        content = [text, *(part for part in result if isinstance(part, Media | Opaque))]
        error = data.get("status") == "error"
        return [Message.tool(str(data.get("tool_call_id", "")), content, name=name, error=error)]
    parts = _parts_of(data.get("content"))
    if role == "system":
        other = extra.get("__openai_role__")
        return [Message(cast(Role, other) if other == "developer" else "system", parts)]
    if role == "user":
        return _split("user", parts, name)
    calls = [call_of(c.get("id"), c.get("name"), c.get("args")) for c in data.get("tool_calls") or ()]
    calls += [call_of(c.get("id"), c.get("name"), c.get("args") or "") for c in data.get("invalid_tool_calls") or ()]
    known = {call.id for call in calls}
    parts = [part for part in parts if not (isinstance(part, ToolCall) and part.id in known)]
    reasoning = extra.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning and not any(isinstance(part, Reasoning) for part in parts):
        parts = [Reasoning(reasoning), *parts]
    return _split("assistant", [*parts, *calls], name)


def _split(role: Role, parts: list[Part], name: Any = None) -> list[Message]:
    """Return a turn, with the results of tools in a message of their own before it."""
    results = [part for part in parts if isinstance(part, ToolResult)]
    others = [part for part in parts if not isinstance(part, ToolResult)]
    out = [Message("tool", tuple(results))] if results else []
    if others or not out:
        out.append(Message(role, tuple(others), None, name if isinstance(name, str) else None))
    return out


def _merge(messages: Iterable[Message]) -> list[Message]:
    """Return the messages of one response, with its neighbours of the assistant in one."""
    out: list[Message] = []
    for message in messages:
        if out and out[-1].role == message.role == "assistant":
            out[-1] = Message("assistant", (*out[-1].parts, *message.parts))
        else:
            out.append(message)
    return out


def _getter(value: Any) -> Get:
    """Return a function that reads a field of an object or of a dict; None where it has none."""
    return value.get if isinstance(value, Mapping) else lambda name: getattr(value, name, None)


# ── messages with `kind` and `parts` ─────────────────────────────────────────


def is_parts_message(value: Any) -> bool:
    """Whether a value is a message of this form."""
    get = _getter(value)
    return get("kind") in ("request", "response") and isinstance(get("parts"), list | tuple)


def _read_parts_message(value: Any) -> list[Message]:
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
        case "retry-prompt":
            text, error = _text(part, content), True
            if get("tool_name") is None:
                return [Message("user", text)]
        case kind:
            raise ValueError(f"a part of the kind {checks.short_text(kind)} has no place in a request to another model")
    return [Message("tool", (ToolResult(str(get("tool_call_id")), text, get("tool_name"), error),))]


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


# ── blocks of content ────────────────────────────────────────────────────────


def _parts_of(content: Any) -> list[Part]:
    """Return the parts of a content: a string, a list of blocks, or None."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(str.__str__(content))] if content else []
    blocks = checks.as_list("content", content, "a string or a list of blocks")
    return [part for block in blocks for part in _block_parts(block)]


def _block_parts(block: Any) -> list[Part]:
    """Return the parts of one block; a block that nobody else understands is an `Opaque` with a foreign seal."""
    if isinstance(block, str):
        return [Text(str.__str__(block))] if block else []
    data = {key: value for key, value in checks.as_dict("content: a block", block).items() if value is not None}
    kind = data.get("type")
    if not isinstance(kind, str):
        part = gemini_part(data)
        return [] if part is None else [part]
    if kind in _TEXTS and isinstance(text := data.get(_TEXTS[kind]), str):
        keys = {key: data[key] for key in _TEXT_KEYS if data.get(key)}
        return [Text(text, None, keys or None)] if text else []
    if is_block(data):
        return [message_block(data, _parts_of)]
    if kind == "tool_call" or is_item(data):
        part = item_part(data, _parts_of)
        return [part] if type(part) is not Reasoning or part.text or part.seal else []
    if kind in _REASONING:
        text = data.get(_REASONING[kind]) or _join([*data.get("content", ()), *data.get("summary", ())])
        return [Reasoning(text)] if isinstance(text, str) and text else []
    if kind in _FILES and (media := _file(kind, data)) is not None:
        return [media]
    known = message_fields({"role": "user", "content": [data]})[1]
    return [Opaque(part.data, FOREIGN) if isinstance(part, Opaque) and part.seal is None else part for part in known]


def _join(items: Iterable[Any]) -> str:
    """Join the texts of a list of blocks."""
    return "\n\n".join(str(item["text"]) for item in items if isinstance(item, Mapping) and item.get("text"))


def _file(kind: str, data: Mapping[str, Any]) -> Media | None:
    """Return a file block with its data or URL beside its type; None for another form."""
    source = data.get("base64", data.get("data"))
    if isinstance(source, str | bytes):
        return media_of(kind, source, data.get("mime_type"))
    url = data.get("url")
    return Media(kind, None, url) if isinstance(url, str) else None
