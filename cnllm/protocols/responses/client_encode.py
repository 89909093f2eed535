"""OpenAI Responses, writing: messages and tools → the body's own shapes.

The history is a flat list of items. What an endpoint gave out goes back as the item that it was: the seal of a part
holds all of the item that the part itself does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cnllm.protocols.encode_input import Ask, Offered
from cnllm.registry.flags import Flags
from cnllm.registry.reasoning_form import form
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.media import data_url, media_kind, upload_name

__all__ = ["write"]


def write(ask: Ask, flags: Flags) -> dict[str, Any]:
    """The body but for parameters and patches."""
    body: dict[str, Any] = {"model": ask.model}
    messages = list(ask.messages)
    first = flags.messages is not None and flags.messages.system == "first"
    if messages and (first or _instructs(messages[0])) and messages[0].role in ("system", "developer"):
        body["instructions"] = messages.pop(0).text
    elif first:  # who wants them apart wants them in any case
        body["instructions"] = ""
    body["input"] = _adjacent(_followed([i for message in messages for i in _items(message, flags, ask.names)]))
    if ask.tools:
        body["tools"] = [_tool(tool, flags, ask.names) for tool in ask.tools]
        if ask.choice is not None:
            body["tool_choice"] = {"type": "function", "name": ask.chosen} if ask.choice == "named" else ask.choice
    if ask.method == "json_schema" and ask.schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": ask.schema_name, "schema": ask.schema}}
    elif ask.method == "json_object":
        body["text"] = {"format": {"type": "json_object"}}
    if ask.stream:
        body["stream"] = True
    return body


def _instructs(message: Message) -> bool:
    """Did this message stand apart from the items where it came from?"""
    return any("instructions" in _sealed(p) for p in message.parts)


def _sealed(part: Part) -> dict[str, Any]:
    """What a part goes back with, or nothing."""
    data = None if part.seal is None else part.seal.data
    return data if type(data) is dict else {}


def _followed(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without reasoning that led to nothing: the endpoint demands the item that came of it."""
    out: list[dict[str, Any]] = []
    follows = False
    for item in reversed(items):
        thought = item.get("type") == "reasoning"
        if not thought:
            follows = item.get("role", "assistant") == "assistant" and item.get("type") != "function_call_output"
        if follows or not thought:
            out.append(item)
    out.reverse()
    return out


def _adjacent(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results right after their calls: what the assistant said between them, with its reasoning, comes after them."""
    out: list[dict[str, Any]] = []
    held: list[dict[str, Any]] = []
    waiting: set[Any] = set()
    answered = {item.get("call_id") for item in items if item.get("type") == "function_call_output"}
    for place, item in enumerate(items):
        kind = item.get("type")
        following = items[place + 1] if place + 1 < len(items) else {}
        if kind == "function_call" and item.get("call_id") in answered:
            waiting.add(item.get("call_id"))
        elif kind == "function_call_output":
            waiting.discard(item.get("call_id"))
        elif waiting and (_says(item) or (kind == "reasoning" and _says(following))):
            held.append(item)
            continue
        out.append(item)
        if not waiting:
            out += held
            held = []
    return out + held


def _says(item: dict[str, Any]) -> bool:
    """Is it a message of the assistant's?"""
    return item.get("role") == "assistant" and item.get("type", "message") == "message"


def _items(message: Message, flags: Flags, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The items that a message comes to."""
    if message.role == "tool":
        yield from (_result(p, flags) for p in message.parts if type(p) is ToolResult)
    elif message.role == "assistant":
        yield from _assistant(message, flags, names)
    else:
        item: dict[str, Any] = {"role": message.role, "content": _content(message.parts)}
        beside: dict[str, Any] = next((i for p in message.parts if type(i := _sealed(p).get("item")) is dict), {})
        yield {**item, **beside}


# ── what the assistant said ──────────────────────────────────────────────────


def _assistant(message: Message, flags: Flags, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """One item for each part; texts that came as one item go back as one.

    Where reasoning lost its seal (somebody edited it), what followed it has no id: the endpoint would miss the
    reasoning of an item that it knows.
    """
    bare = any(type(p) is Reasoning and not _sealed(p) for p in message.parts)
    said: dict[str, Any] | None = None  # the message that the next text may belong to
    for part in message.parts:
        item: dict[str, Any] | None
        match part:
            case Text():
                if said is not None and _sealed(part).get("at"):
                    said["content"].append(_said(part))
                    continue
                item = _text(part)
            case ToolCall():
                item = _call(part, names)
            case Reasoning():
                item = _thought(part, flags)
            case Opaque() if type(part.data) is dict:
                item = part.data
            case Media():  # only a user can show pictures
                item = {"role": "user", "content": [_part(part)]}
            case _:
                item = None
        said = item if item is not None and type(part) is Text and type(item["content"]) is list else None
        if item is None:
            continue
        if bare and type(part) in (Text, ToolCall) and "id" in item:
            item = {key: value for key, value in item.items() if key != "id"}
            said = item if said is not None else None
        yield item


def _text(part: Text) -> dict[str, Any] | None:
    sealed = _sealed(part)
    if type(beside := sealed.get("item")) is dict:
        return {"type": "message", "role": "assistant", **beside, "content": [_said(part)]}
    return {"role": "assistant", "content": part.text} if part.text else None


def _said(part: Text) -> dict[str, Any]:
    """A text as a part of the message it came in; what was a refusal is one again."""
    beside = _sealed(part).get("part")
    beside = beside if type(beside) is dict else {}
    if beside.get("type") == "refusal":
        return {"type": "refusal", "refusal": part.text, **beside}
    return {"type": "output_text", "text": part.text, **beside}


def _thought(part: Reasoning, flags: Flags) -> dict[str, Any] | None:
    """Reasoning as it was, or in plain text where the endpoint takes it so."""
    sealed = _sealed(part)
    if sealed:
        return sealed
    if flags.reasoning is None or form(flags.reasoning) != "content-parts" or not part.text:
        return None
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": part.text}]}


def _call(call: ToolCall, names: dict[str, str]) -> dict[str, Any]:
    raw = call.raw if call.raw.strip() not in ("", "null") else ""
    return {
        "type": "function_call",
        **_sealed(call),
        "call_id": call.id,
        "name": names.get(call.name, call.name),
        "arguments": raw or msgspec.json.encode(call.arguments or {}).decode(),
    }


# ── what it was told ─────────────────────────────────────────────────────────


def _result(result: ToolResult, flags: Flags) -> dict[str, Any]:
    output: Any = result.text
    sealed = _sealed(result)
    if type(parts := sealed.get("output")) is list:  # parts of kinds that nobody here knows
        output = parts
    elif result.media:
        texts = [{"type": "input_text", "text": result.text}] if result.text else []
        output = [*texts, *(_part(m) for m in result.media)]
    beside = sealed.get("item")
    beside = beside if type(beside) is dict else {}
    return {"type": "function_call_output", **beside, "call_id": result.id, "output": output}


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    """A string where text is all there is, else a list of parts."""
    if all(type(p) is Text and "part" not in _sealed(p) for p in parts) and len(parts) < 2:
        return "".join(p.text for p in parts if type(p) is Text)
    return [_part(p) for p in parts if type(p) in (Media, Opaque) or (type(p) is Text and p.text)]


def _part(part: Part) -> dict[str, Any]:
    beside = _sealed(part).get("part")
    beside = beside if type(beside) is dict else {}
    match part:
        case Text():
            return {"type": "input_text", "text": part.text, **beside}
        case Media():
            return {**_media(part), **beside}
        case Opaque(data=dict() as data):
            if data.get("type") == "file" and type(data.get("file")) is dict:
                return {"type": "input_file", **data["file"]}
            return data
    return {"type": "input_text", "text": str(getattr(part, "data", ""))}


def takes(media: Media, flags: Flags) -> bool:
    """Whether a medium has a form on this wire: everything but a sound by URL."""
    return media.data is not None or media_kind(media) != "audio"


def _media(media: Media) -> dict[str, Any]:
    extra = media.extra or {}
    kind = media_kind(media)
    if kind == "file":
        if media.data is None:
            return {"type": "input_file", "file_url": media.url}
        return {"type": "input_file", "filename": upload_name(media), "file_data": data_url(media)}
    if kind == "audio" and media.data is not None:
        sound = {"data": media.data, "format": media.type.partition("/")[2]}
        return {"type": "input_audio", "input_audio": {**extra, **sound}}
    return {**extra, "type": f"input_{kind}", f"{kind}_url": data_url(media)}


# ── tools ────────────────────────────────────────────────────────────────────


def _tool(tool: Offered, flags: Flags, names: dict[str, str]) -> dict[str, Any]:
    """A tool in the flat shape. What is not said of `strict` would mean that it is wanted."""
    if tool.definition is not None:
        return tool.definition
    wire: dict[str, Any] = {"type": "function", "name": names.get(tool.name, tool.name)}
    if tool.description is not None:
        wire["description"] = tool.description
    if not tool.parameters and flags.tools is not None and flags.tools.parameters:
        wire["parameters"] = {"type": "object", "properties": {}}
    elif tool.parameters is not None:
        wire["parameters"] = tool.parameters
    if flags.tools is None or flags.tools.strict is not False:
        wire["strict"] = bool(tool.strict)
    return wire
