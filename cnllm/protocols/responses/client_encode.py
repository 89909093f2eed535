"""Encode messages and tools as bodies of OpenAI Responses.

The history is a flat list of items. A part from an endpoint goes back as the item that it was: the seal of a part
holds all of the item that the part itself does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cnllm.protocols import EncodeInput
from cnllm.registry.flags import Flags
from cnllm.registry.reasoning_form import form
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.convert import is_content_of, result_parts, text_with_error, with_error
from cnllm.types.lenient_json import decode_arguments
from cnllm.types.media import data_url, media_kind, sound_format, upload_name
from cnllm.types.message import join_texts
from cnllm.types.parts import SYSTEM_ROLES, seal_data
from cnllm.types.tools import Function, json_arguments

__all__ = ["TOOL_KEYS", "encode_body", "takes_medium"]

TOOL_KEYS = frozenset(["defer_loading", "allowed_callers", "async", "output_schema"])
"""Keys of a tool beside what a function has on each wire."""
_TEXTS = ("input_text", "output_text", "text")


def encode_body(request: EncodeInput, flags: Flags) -> dict[str, Any]:
    """Return the body without parameters and patches."""
    body: dict[str, Any] = {"model": request.model}
    messages = list(request.messages)
    always_instructions = flags.messages.system == "first"
    has_system = bool(messages) and messages[0].role in SYSTEM_ROLES
    if has_system and (always_instructions or _is_instructions(messages[0])):
        body["instructions"] = join_texts(p.text for p in messages.pop(0).parts if type(p) is Text)
    elif always_instructions:  # an endpoint that needs instructions needs them in every request
        body["instructions"] = ""
    items = [item for message in messages for item in _items(message, flags, request.names)]
    items = _results_after_calls(items)
    custom = {request.names.get(tool.name, tool.name) for tool in request.tools if tool.custom is not None}
    if items:  # there are none where the request names a prompt that the endpoint has stored
        body["input"] = _as_custom(items, custom)
    if request.tools:
        body["tools"] = [_tool(tool, flags, request.names) for tool in request.tools]
        if request.choice is not None:
            target = {"type": "custom" if request.tool_name in custom else "function", "name": request.tool_name}
            body["tool_choice"] = target if request.choice == "named" else request.choice
    if request.method == "json_schema" and request.schema is not None:
        head = {"type": "json_schema", "name": request.schema_name, **request.schema_keys}
        body["text"] = {"format": {**head, "schema": request.schema}}
    elif request.method == "json_object":
        body["text"] = {"format": {"type": "json_object"}}
    if request.stream:
        body["stream"] = True
    return body


def _is_instructions(message: Message) -> bool:
    """Whether a message was the instructions of a request."""
    return any("instructions" in seal_data(p.seal) for p in message.parts)


def _sealed_object(part: Part, key: str) -> dict[str, Any]:
    """Return the object under a key of the data of a part; empty where there is none."""
    value = seal_data(part.seal).get(key)
    return value if type(value) is dict else {}


def _results_after_calls(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items with results right after their calls. The result of a program's call names the program, too.

    Messages of the assistant between them, with their reasoning, come after the results.
    """
    out: list[dict[str, Any]] = []
    delayed: list[dict[str, Any]] = []
    callers: dict[Any, Any] = {}
    open_calls: set[Any] = set()
    answered_ids = {item.get("call_id") for item in items if item.get("type") == "function_call_output"}
    for position, item in enumerate(items):
        kind = item.get("type")
        following = items[position + 1] if position + 1 < len(items) else {}
        if kind == "function_call" and item.get("call_id") in answered_ids:
            open_calls.add(item.get("call_id"))
            if "caller" in item:
                callers[item.get("call_id")] = item["caller"]
        elif kind == "function_call_output":
            open_calls.discard(item.get("call_id"))
            if callers and (caller := callers.pop(item.get("call_id"), None)) is not None:
                item = {"caller": caller, **item}
        elif open_calls and (_is_assistant_message(item) or (kind == "reasoning" and _is_assistant_message(following))):
            delayed.append(item)
            continue
        out.append(item)
        if not open_calls:
            out += delayed
            delayed = []
    return out + delayed


def _is_assistant_message(item: dict[str, Any]) -> bool:
    """Whether an item is a message of the assistant."""
    return item.get("role") == "assistant" and item.get("type", "message") == "message"


def _items(message: Message, flags: Flags, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the items of a message."""
    if message.role == "tool":
        yield from (_result(p, flags) for p in message.parts if type(p) is ToolResult)
    elif message.role == "assistant":
        yield from _assistant(message, flags, names)
    else:  # the type may be left out by the specification, and some endpoints refuse a message without it
        item: dict[str, Any] = {"type": "message", "role": message.role, "content": _content(message.parts)}
        item_keys = next(filter(None, (_sealed_object(part, "item") for part in message.parts)), {})
        yield item_keys if "type" in item_keys else {**item, **item_keys}  # one of another type is whole


# ── messages of the assistant ─────────────────────────────────────────────────


def _assistant(message: Message, flags: Flags, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield one item for each part; texts from one item go back as one.

    If reasoning lost its seal (somebody edited it), the items behind it have no id: the endpoint would miss the
    reasoning of an item that it knows.
    """
    without_ids = any(type(p) is Reasoning and not seal_data(p.seal) for p in message.parts)
    open_message: dict[str, Any] | None = None  # the message that the next text may continue
    for part in message.parts:
        item: dict[str, Any] | None
        match part:
            case Text():
                if open_message is not None and seal_data(part.seal).get("at"):
                    open_message["content"].append(_text_part(part))
                    continue
                item = _text(part)
            case ToolCall():
                item = _call(part, names)
            case Reasoning():
                item = _reasoning(part, flags)
            case Opaque() if type(part.data) is dict:
                item = part.data
            case Media() if type(own := seal_data(part.seal).get("item")) is dict:
                item = {**own, "result": part.data}
            case _:
                item = None
        open_message = item if item is not None and type(part) is Text and type(item["content"]) is list else None
        if item is None:
            continue
        if without_ids and type(part) in (Text, ToolCall) and "id" in item:
            item = {key: value for key, value in item.items() if key != "id"}
            open_message = item if open_message is not None else None
        yield item


def _text(part: Text) -> dict[str, Any] | None:
    """Encode a text as a message."""
    sealed = seal_data(part.seal)
    if type(item_keys := sealed.get("item")) is dict:
        return {"type": "message", "role": "assistant", **item_keys, "content": [_text_part(part)]}
    return {"type": "message", "role": "assistant", "content": part.text} if part.text else None


def _text_part(part: Text) -> dict[str, Any]:
    """Encode a text as a part of its message; a refusal stays one."""
    part_keys = _sealed_object(part, "part")
    if part_keys.get("type") == "refusal":
        return {"type": "refusal", "refusal": part.text, **part_keys}
    return {"type": "output_text", "text": part.text, **part_keys}


def _reasoning(part: Reasoning, flags: Flags) -> dict[str, Any] | None:
    """Encode reasoning: as received, or in plain text if the endpoint accepts that."""
    sealed = seal_data(part.seal)
    if sealed:
        return sealed
    if form(flags.reasoning) != "content-parts":
        return None
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": part.text}]}


def _call(call: ToolCall, names: dict[str, str]) -> dict[str, Any]:
    """Encode a call."""
    return {
        "type": "function_call",
        **seal_data(call.seal),
        "call_id": call.id,
        "name": names.get(call.name, call.name),
        "arguments": json_arguments(call),
    }


def _as_custom(items: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    """Return the items with the calls of these custom tools, and their results, in the form of custom tools.

    A call that came in this form keeps it, whether or not the tool is offered.
    """
    if not names and not any("input" in item for item in items):
        return items
    ids: set[Any] = set()
    out: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type")
        if kind == "function_call" and ("input" in item or item["name"] in names):
            ids.add(item["call_id"])
            arguments = decode_arguments(item["arguments"])[0]
            input = "" if arguments == {} else (arguments or {}).get("input")
            text = input if isinstance(input, str) else item["arguments"]
            rest = {key: value for key, value in item.items() if key not in ("arguments", "input")}
            item = {**rest, "type": "custom_tool_call", "input": text}
        elif kind == "function_call_output" and item.get("call_id") in ids:
            item = {**item, "type": "custom_tool_call_output"}
        out.append(item)
    return out


# ── results and content ───────────────────────────────────────────────────────


def _result(result: ToolResult, flags: Flags) -> dict[str, Any]:
    """Encode a tool result."""
    output: Any = text_with_error(result)
    parts = None if result.error else seal_data(result.seal).get("output")
    if type(parts) is list and is_content_of(result, parts, _TEXTS):
        output = parts
    elif result.media or result.blocks:
        output = [
            {"type": "input_text", "text": part.text} if type(part) is Text else _part(part)
            for part in result_parts(with_error(result))
        ]
    return {"type": "function_call_output", **_sealed_object(result, "item"), "call_id": result.id, "output": output}


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    """Return a string if there is only text, else a list of parts."""
    if all(type(p) is Text and "part" not in seal_data(p.seal) for p in parts) and len(parts) < 2:
        return "".join(p.text for p in parts if type(p) is Text)
    return [_part(p) for p in parts if type(p) in (Media, Opaque) or (type(p) is Text and p.text)]


def _part(part: Part) -> dict[str, Any]:
    """Encode a content part."""
    part_keys = _sealed_object(part, "part")
    match part:
        case Text():
            return {"type": "input_text", "text": part.text, **part_keys}
        case Media():
            return {**_media(part), **part_keys}
        case Opaque(data=dict() as data):
            if data.get("type") == "file" and type(data.get("file")) is dict:
                return {"type": "input_file", **data["file"]}
            return data
    return {"type": "input_text", "text": str(getattr(part, "data", ""))}


def takes_medium(media: Media, flags: Flags) -> bool:
    """Whether a medium has a form on this wire: all but a sound by URL."""
    return media.data is not None or media_kind(media) != "audio"


def _media(media: Media) -> dict[str, Any]:
    """Encode a medium."""
    kind = media_kind(media)
    if kind == "file":
        if media.data is None:
            return {"type": "input_file", "file_url": media.url}
        return {"type": "input_file", "filename": upload_name(media), "file_data": data_url(media)}
    if kind == "audio" and media.data is not None:
        sound = {"data": media.data, "format": sound_format(media)}
        return {"type": "input_audio", "input_audio": sound}
    detail = {key: media.extra[key] for key in ("detail",) if media.extra and key in media.extra}
    return {**detail, "type": f"input_{kind}", f"{kind}_url": data_url(media)}


# ── tools ─────────────────────────────────────────────────────────────────────


def _tool(tool: Function, flags: Flags, names: dict[str, str]) -> dict[str, Any]:
    """Encode a tool in the flat form.

    Without `strict` the endpoint makes a tool strict where its schema allows that. So it is missing only where a client
    of this wire left it to the endpoint: a null beside the function.
    """
    if tool.definition is not None:
        return tool.definition
    if tool.custom is not None:
        return _custom_tool(tool, names)
    wire = {"type": "function", **tool.head(names)}
    if not tool.parameters and flags.tools.parameters:
        wire["parameters"] = {"type": "object", "properties": {}}
    elif tool.parameters is not None:
        wire["parameters"] = tool.parameters
    is_open = tool.strict is None and "strict" in (tool.extra or {})
    if not is_open and flags.tools.strict is not False:
        wire["strict"] = bool(tool.strict)
    return {**wire, **_tool_keys(tool)}


def _tool_keys(tool: Function) -> dict[str, Any]:
    """Return the further keys of a tool that this wire knows."""
    return {key: value for key, value in (tool.extra or {}).items() if key in TOOL_KEYS}


def _custom_tool(tool: Function, names: dict[str, str]) -> dict[str, Any]:
    """Encode a custom tool. Chat completions write its grammar as an object of its own inside the format."""
    own = dict(tool.custom or {})
    format = own.get("format")
    if isinstance(format, dict) and isinstance(format.get("grammar"), dict):
        own["format"] = {"type": "grammar", **format["grammar"]}
    return {"type": "custom", "name": names.get(tool.name, tool.name), **own, **_tool_keys(tool)}
