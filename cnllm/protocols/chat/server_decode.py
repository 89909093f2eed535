"""Decode requests of OpenAI chat completions.

The simulator has a reader of its own for this wire, because its endpoints differ by their flags
(`cnllm.simulator.chat_request`). It shares no code with this module on purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from cnllm.protocols import Recall, Stamp
from cnllm.protocols.chat.fields import FIELDS
from cnllm.protocols.client_tools import allow_tools
from cnllm.protocols.fields import require_one_reply, require_types
from cnllm.registry.flags import LEVELS
from cnllm.types import (
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from cnllm.types.client_data import EMPTY, count_text
from cnllm.types.convert import call_of
from cnllm.types.foreign import foreign_messages
from cnllm.types.media import as_media, is_file_part
from cnllm.types.parts import CACHE_MARK
from cnllm.types.tools import WebSearch, custom_function
from cnllm.types.wire_parts import is_block

__all__ = ["DETAILS", "PROTOCOL", "custom_tools", "offers_functions", "read_request", "read_search"]

PROTOCOL = "openai-chat"
_OPTIONS = ("tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p", "max_tokens", "stop", "seed")
_EFFORTS = frozenset(["none", "off", "on", *LEVELS])
"""The words for reasoning that are options. Another word stays in the body."""
DETAILS = "reasoning_details"
"""The field for parts of reasoning with their seals. OpenAI's own protocol has none; chat clients that send any back
know this one (https://openrouter.ai/docs/use-cases/reasoning-tokens), and a server writes one form for all."""


def read_request(body: dict[str, Any], path: str, stamp: Stamp, recall: Recall) -> Request:
    """Return the messages and options of a body. Raises `ValueError` with the message or key that is wrong."""
    require_types(body, FIELDS)
    require_one_reply(body.get("n"), "n")
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise ValueError("messages is not a list")
    messages_read = recall.turns(messages, partial(_turn, stamp))
    options = {key: body[key] for key in _OPTIONS if body.get(key) is not None}
    notes = _older_tools(body, options) + _tools(options, recall)
    if (limit := body.get("max_completion_tokens")) is not None:
        if options.get("max_tokens") not in (None, limit):
            notes.append(Note("key-foreign", "max_tokens", "max_tokens", "left out: max_completion_tokens counts"))
        options["max_tokens"] = limit
    extra = FIELDS.rest(body)
    if (effort := body.get("reasoning_effort")) is not None:
        if effort in _EFFORTS or effort.isdecimal():
            options["reasoning"] = effort
        else:
            extra["reasoning_effort"] = effort
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
    stream = body.get("stream") is True
    return Request(model=body.get("model"), messages=messages_read, stream=stream, options=options, notes=notes)


def _turn(stamp: Stamp, index: int, turn: Any) -> Sequence[Message]:
    """Return the messages of a turn. Raises `ValueError` with its place."""
    if not isinstance(turn, dict):
        raise ValueError(f"messages[{index}] is not an object")
    try:
        if (usual := _usual_message(turn)) is not None:
            return (usual,)
        content = turn.get("content")
        if turn.get("role") in ("user", "assistant") and isinstance(content, list) and any(map(is_block, content)):
            return [_without_origin(message, stamp) for message in foreign_messages(_plain_keys(turn))]
        return (_message(turn, stamp),)
    except (TypeError, ValueError) as error:
        raise ValueError(f"messages[{index}]: {error}") from error


def _without_origin(message: Message, stamp: Stamp) -> Message:
    """Return a turn with blocks of Messages, which some clients send here, without the authors that they claim."""
    if message.role != "assistant":
        return message
    parts = [msgspec.structs.replace(p, seal=stamp(None) if type(p) is Opaque else None) for p in message.parts]
    return msgspec.structs.replace(message, parts=tuple(parts))


def offers_functions(body: Mapping[str, Any] | None) -> bool:
    """Whether a body offers its functions in the older form, whose replies have one call and no id."""
    return body is not None and bool(body.get("functions")) and not body.get("tools")


def _older_tools(body: Mapping[str, Any], options: dict[str, Any]) -> list[Note]:
    """Decode functions in the older form, and the choice among them. Return notes on what is left out."""
    if not offers_functions(body):
        return [
            Note("key-foreign", "tools", key, f"left out: {counterpart} counts")
            for key, counterpart in (("functions", "tools"), ("function_call", "tool_choice"))
            if body.get(key)
        ]
    for index, function in enumerate(body["functions"]):
        if not isinstance(function, dict):
            raise ValueError(f"functions[{index}] is not an object")
    options["tools"] = [{"type": "function", "function": function} for function in body["functions"]]
    options.setdefault("parallel_tool_calls", False)
    if (choice := body.get("function_call")) is not None:
        is_named = isinstance(choice, dict)
        options.setdefault("tool_choice", {"type": "function", "function": choice} if is_named else choice)
    rows = FIELDS.request["tools[].function"]
    counts = Counter(key for f in body["functions"] for key in f if key not in rows and f[key] not in EMPTY)
    did = "left out: cnllm sends it on no wire"
    return [Note("key-foreign", "tools", count_text(f"functions[].{key}", n), did) for key, n in counts.items()]


def _tools(options: dict[str, Any], recall: Recall) -> list[Note]:
    """Decode custom tools as functions, and a choice of one, or among some. Return notes on what is left out."""
    notes: list[Note] = []
    if "tools" in options:
        notes += recall.tools(options["tools"], _flat_keys)
        options["tools"] = recall.tools(options["tools"], _read_tools)
    match options.get("tool_choice"):
        case {"type": "allowed_tools", "allowed_tools": {"tools": list() as allowed} as choice}:
            names = [name for entry in allowed if (name := _tool_name(entry)) is not None]
            notes += allow_tools(options, choice, "tool_choice.allowed_tools", names)
    return notes


def _flat_keys(tools: list[Any]) -> list[Note]:
    """Return notes on keys of functions that stand beside the function, and so mean nothing."""
    nested = [tool for tool in tools if isinstance(tool, dict) and ("function" in tool or "custom" in tool)]
    counts = Counter(key for tool in nested for key in tool if key in _FLAT_KEYS and tool[key] not in EMPTY)
    did = "left out: it stands beside the function"
    return [Note("key-foreign", "tools", count_text(f"tools[].{key}", n), did) for key, n in counts.items()]


def _read_tools(tools: list[Any]) -> list[dict[str, Any]]:
    """Decode tools. Raises `ValueError`."""
    return [_tool(tool, index) for index, tool in enumerate(tools)]


def _tool(tool: Any, index: int) -> dict[str, Any]:
    """Decode a tool: a custom one becomes a function. Raises `ValueError`."""
    if not isinstance(tool, dict):
        raise ValueError(f"tools[{index}] is not an object")
    own_form = _nested(tool)
    match own_form:
        case {"type": "custom", "custom": {"name": str(name)} as custom}:
            return custom_function(name, custom)
        case {"function": dict()} if (
            own_form.get("type", "function") == "function" and not own_form.keys() <= _TOOL_KEYS
        ):
            return {key: value for key, value in own_form.items() if key in _TOOL_KEYS}
    return own_form


def _nested(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in this protocol's form. Some clients send here the forms of Responses and of Messages, too.

    In those the name stands beside the type, which Messages leaves out.
    """
    schema = tool.get("parameters", tool.get("input_schema"))
    kind = tool.get("type", "function" if schema else None)
    if kind not in ("function", "custom") or not isinstance(tool.get("name"), str) or not _NESTED.isdisjoint(tool):
        return tool
    kind = "custom" if kind == "custom" and schema is None else "function"
    inner = {key: tool[key] for key in ("name", "description", "format", "strict") if tool.get(key) is not None}
    if schema is not None:
        inner["parameters"] = schema
    marks = {key: value for key, value in tool.items() if key in _TOOL_KEYS}
    return {**marks, "type": kind, kind: inner}


_NESTED = frozenset(["function", "custom"])
_FLAT_KEYS = ("name", "description", "parameters", "input_schema", "format", "strict")
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
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
            return name
    return None


def custom_tools(request: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the names of the custom tools in a request body."""
    tools = (request or {}).get("tools")
    found = tools if isinstance(tools, list) else ()
    entries = [_nested(tool) for tool in found if isinstance(tool, dict) and tool.get("type") == "custom"]
    return frozenset([n for t in entries if t["type"] == "custom" and (n := _tool_name(t)) is not None])


_PLAIN_ROLES = ("user", "assistant", "system")
_REASONING = ("reasoning", "reasoning_content")
"""The keys of reasoning as text. Some clients have an object there."""
_DETAIL_TEXTS = ("text", "summary", "content")
"""The keys of a detail of reasoning for its text."""
_PRIVATE_KEYS = (DETAILS, "by", "parts", "images", "audio")
"""Keys that are decoded apart, and those of our own messages, which would claim an author without proof."""


def _usual_message(message: dict[str, Any]) -> Message | None:
    """Decode a text, a result or a turn that calls functions, without further keys. None for other messages."""
    role, text = message.get("role"), message.get("content")
    if type(text) is not str or not 1 < len(message) < 4:
        return None
    if len(message) == 2:
        return Message(role, (Text(text),) if text else ()) if role in _PLAIN_ROLES else None
    if role == "tool" and type(id := message.get("tool_call_id")) is str:
        return Message("tool", (ToolResult(id, text),))
    calls = message.get("tool_calls")
    if role == "assistant" and type(calls) is list and calls and all(map(_is_function_call, calls)):
        called = [call_of(call, index) for index, call in enumerate(calls)]
        return Message("assistant", [Text(text), *called] if text else called)
    return None


def _message(message: dict[str, Any], stamp: Stamp) -> Message:
    """Decode a message. Reasoning details, and unknown keys of a call, are sealed to go back unchanged."""
    role, details = message.get("role"), message.get(DETAILS)
    plain = _plain_keys(message)
    if role == "assistant" and "content" not in plain:
        plain["content"] = None
    if plain.get("role") == "function":
        plain["role"] = "tool"
    objects = [plain.pop(key) for key in _REASONING if not isinstance(plain.get(key, ""), str)]
    details = details if isinstance(details, list) and details else objects
    parsed = Message.from_dict(plain)
    parts = list(parsed.parts)
    if details:
        reasoning = next((p for p in parts if type(p) is Reasoning), None)
        texts = [str(next(filter(None, map(d.get, _DETAIL_TEXTS)), "")) for d in details if type(d) is dict]
        text = "".join(texts) if reasoning is None else reasoning.text
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


def _plain_keys(message: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a message that have values and are not decoded apart."""
    return {key: value for key, value in message.items() if key not in _PRIVATE_KEYS and value is not None}


def _is_function_call(call: Any) -> bool:
    """Whether a call is one of a function, without further keys."""
    return type(call) is dict and call.keys() <= _CALL_KEYS and call.get("type", "function") == "function"


_CALL_KEYS = frozenset(["id", "type", "function"])


def _other_keys(call: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a call that have no place in `ToolCall`."""
    return {k: v for k, v in call.items() if k not in ("id", "type", "function", "custom", "index") and v is not None}
