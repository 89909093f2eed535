"""Encode messages and tools as bodies of OpenAI chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.jsonpath import get, merge_patch, nest
from cnllm.protocols import EncodeInput
from cnllm.protocols.chat.client_paths import turn_writer
from cnllm.registry.flags import Flags, Messages, ReasoningFlags
from cnllm.registry.reasoning_form import form, place, text_place
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.convert import content_part, result_parts, text_with_error, with_error
from cnllm.types.media import NAME_KEYS, data_url, is_pdf, media_kind, upload_name
from cnllm.types.message import join_texts
from cnllm.types.parts import CACHE_MARKS, seal_data
from cnllm.types.tools import Function, json_arguments

__all__ = ["encode_body", "encode_turns", "takes_medium"]

_PROTOCOL = "openai-chat"
_SOUNDS = ("wav", "mp3", "aac", "amr", "3gp", "m4a", "ogg", "opus", "flac")


def encode_body(request: EncodeInput, flags: Flags) -> dict[str, Any]:
    """Return the body without parameters and patches."""
    body: dict[str, Any] = {"model": request.model, "messages": encode_turns(request.messages, flags, request.names)}
    if request.tools:
        body["tools"] = _tools(request.tools, flags, request.names)
        if request.choice is not None:
            target = {"type": "function", "function": {"name": request.tool_name}}
            body["tool_choice"] = target if request.choice == "named" else request.choice
    if request.method == "json_schema" and request.schema is not None:
        schema_form = {"name": request.schema_name, **request.schema_keys, "schema": request.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema_form}
    elif request.method == "json_object":
        body["response_format"] = {"type": "json_object"}
    if request.stream:
        body["stream"] = True
    return body


def encode_turns(messages: Sequence[Message], flags: Flags, names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the messages of the body, built key by key, so that none of the client's own data gets out.

    `names` renames functions. The messages are fitted already: every part in them is sent.
    """
    rules = flags.messages
    out: list[dict[str, Any]] = []
    for message in messages:
        parts, role = message.parts, message.role
        is_bare = len(parts) == 1 and role != "tool" and message.extra is None and message.name is None
        if is_bare and type(part := parts[0]) is Text and part.extra is None:  # the form of most messages
            out.append({"role": role, "content": part.text})
            continue
        if role == "tool":
            out += [_result(p, flags, rules) for p in message.parts if type(p) is ToolResult]
        elif message.role == "assistant":
            out.append(_assistant(message, flags, rules, names))
        else:
            wire: dict[str, Any] = {"role": message.role, "content": _content(message, rules)}
            if message.name is not None:
                wire["name"] = message.name
            out.append(_add_extra(wire, message, rules))
    write = turn_writer(flags)
    return out if write is None else [write(turn) for turn in out]


def _assistant(message: Message, flags: Flags, rules: Messages, names: dict[str, str]) -> dict[str, Any]:
    """Encode an assistant's message: reasoning, content, calls. This order keeps the prefix for a prefix cache."""
    wire: dict[str, Any] = {"role": "assistant"}
    calls = [p for p in message.parts if type(p) is ToolCall]
    if spoken := [p for p in message.parts if type(p) is Media and p.seal is not None and type(p.seal.data) is dict]:
        assert spoken[-1].seal is not None
        wire |= spoken[-1].seal.data  # the endpoint keeps a spoken answer under its id
        message = replace(message, parts=tuple([p for p in message.parts if p not in spoken]))
    content: Any = _content(message, rules)
    thoughts = [p for p in message.parts if type(p) is Reasoning]
    if thoughts:
        content = _encode_reasoning(wire, thoughts, content, flags)
    if content or not calls:
        wire["content"] = content
    elif rules.empty != "omit":
        wire["content"] = {"null": None, "empty": "", "space": " ", None: None}[rules.empty]
    if calls:
        wire["tool_calls"] = [_call(c, names) for c in calls]
    if message.name is not None:
        wire["name"] = message.name
    return _add_extra(wire, message, rules)


def _encode_reasoning(wire: dict[str, Any], thoughts: list[Reasoning], content: Any, flags: Flags) -> Any:
    """Write reasoning in its declared form. Return the content, which may contain it."""
    reasoning = flags.reasoning
    text = "".join(t.text for t in thoughts)
    field = place(reasoning) or "reasoning"
    match form(reasoning):
        case "details":
            details = [item for thought in thoughts for item in _details(thought)]
            wire[field] = details or [_text_detail(text)]  # an empty list counts as missing
        case "details-and-field":
            if details := [item for thought in thoughts for item in _details(thought)]:
                wire[field] = details
            wire[text_place(reasoning) or "reasoning"] = text
        case "tags":
            opening, closing = (reasoning.tags or ["", ""])[:2]
            tagged = "".join(_tagged_block(t, opening, closing) for t in thoughts)
            return tagged + content if type(content) is str else [{"type": "text", "text": tagged}, *(content or [])]
        case "content-parts" if reasoning.part is not None:
            parts = [part for thought in thoughts for part in _reasoning_parts(thought, reasoning.part, reasoning)]
            rest = [{"type": "text", "text": content}] if type(content) is str and content else content or []
            return [*parts, *rest] if parts else content
        case _:
            wire[field] = text
    return content


def _details(thought: Reasoning) -> list[Any]:
    """Return the list of details as received, or one of plain text."""
    if thought.seal is not None and type(thought.seal.data) is list:
        return thought.seal.data
    return [_text_detail(thought.text)] if thought.text else []


def _text_detail(text: str) -> dict[str, str]:
    """Return a detail of plain text."""
    return {"type": "reasoning.text", "text": text}


def _reasoning_parts(thought: Reasoning, kind: str, rules: ReasoningFlags) -> list[Any]:
    """Return the parts of reasoning as received, or a new one."""
    received = thought.seal.data if thought.seal is not None else None
    if type(received) is list and all(type(part) is dict and part.get("type") == kind for part in received):
        return received
    if not thought.text:
        return []
    forms: dict[str | None, Any] = {"text": thought.text, "texts": [thought.text]}
    return [{"type": kind, kind: forms.get(rules.part_form, [{"type": "text", "text": thought.text}])}]


def _tagged_block(thought: Reasoning, opening: str, closing: str) -> str:
    """Return the tagged block as received, or a new one."""
    if thought.seal is not None and type(thought.seal.data) is str:
        return thought.seal.data
    return f"{opening}{thought.text}{closing}" if thought.text else ""


def _content(message: Message, rules: Messages) -> str | list[dict[str, Any]]:
    """Return a string if there is only text and the endpoint accepts a string, else a list of parts."""
    if len(message.parts) == 1 and type(single := message.parts[0]) is Text and single.extra is None:
        return single.text
    parts = [p for p in message.parts if type(p) in (Media, Opaque) or (type(p) is Text and p.text)]
    plain = all(type(p) is Text and (p.extra is None or rules.content == "string") for p in parts)
    if plain and (len(parts) < 2 or rules.content != "parts"):
        texts = [p.text for p in parts if type(p) is Text]
        return "".join(texts) if message.role == "assistant" else join_texts(texts)
    return [_part(p, message.role, rules) for p in parts]


def takes_medium(media: Media, flags: Flags) -> bool:
    """Whether a medium has a form on this wire; for sounds and files this depends on the endpoint."""
    rules = flags.messages
    match media_kind(media):
        case "audio":
            return media.data is not None or rules.audio_url is not None
        case "file":
            if media.data is None:
                return rules.file_url is not None
            return rules.file_url != "file_url" and is_pdf(media)  # the only documented type of this part
    return True


def _media(media: Media, rules: Messages) -> dict[str, Any]:
    """Encode a medium."""
    match media_kind(media):
        case "audio" if media.data is None and rules.audio_url == "input_audio":
            ending = (media.url or "").partition("?")[0].rpartition(".")[2]
            return {
                "type": "input_audio",
                "input_audio": {"data": media.url, "format": ending if ending in _SOUNDS else "wav"},
            }
        case "audio" if media.data is None:
            return {"type": "audio_url", "audio_url": {"url": media.url}}
        case "file" if media.data is not None or rules.file_url != "file_url":
            mark = {key: media.extra[key] for key in CACHE_MARKS if media.extra and key in media.extra}
            return {"type": "file", "file": {"filename": upload_name(media), "file_data": data_url(media)}, **mark}
        case "image" | "audio" | "video" if media.extra:
            extra = {key: value for key, value in media.extra.items() if key not in NAME_KEYS}
            return content_part(msgspec.structs.replace(media, extra=extra or None))
    return content_part(media)


def _part(part: Part, role: str, rules: Messages) -> Any:
    """Encode a content part.

    Keys that came with an assistant's text (annotations, log probabilities) belong to the client and are not sent
    back.
    """
    if type(part) is Opaque:
        return part.data
    if type(part) is Media:
        return _media(part, rules)
    if role == "assistant" and type(part) is Text and part.extra is not None:
        marks = {key: part.extra[key] for key in CACHE_MARKS if key in part.extra}
        part = Text(part.text, None, marks or None)
    return content_part(part)  # type: ignore[arg-type]


def _call(call: ToolCall, names: dict[str, str]) -> dict[str, Any]:
    """Encode a call as received. A call without arguments, or with none as text, gets an empty object."""
    function = {"name": names.get(call.name, call.name), "arguments": json_arguments(call)}
    return {"id": call.id, "type": "function", "function": function, **seal_data(call.seal)}


def _result(result: ToolResult, flags: Flags, rules: Messages) -> dict[str, Any]:
    """Encode a tool result."""
    wire: dict[str, Any] = {"role": "tool"}
    if result.id:
        wire["tool_call_id"] = result.id
    if flags.tools.result_name and result.name:
        wire["name"] = result.name
    keys = {} if rules.content == "string" else seal_data(result.seal, _PROTOCOL)
    content: list[dict[str, Any]] = []
    if result.media or result.blocks or keys:
        content = [_part(part, "tool", rules) for part in result_parts(with_error(result))]
        if texts := [part for part in content if part.get("type") == "text"]:
            texts[-1].update(keys)
    wire["content"] = content or text_with_error(result)
    return wire


def _add_extra(wire: dict[str, Any], message: Message, rules: Messages) -> dict[str, Any]:
    """Add further keys of a caller's dict that the endpoint accepts."""
    for path in rules.fields or ():
        if message.extra and (path in message.extra or get(message.extra, path) is not None):
            merge_patch(wire, nest(path, get(message.extra, path)))
    return wire


def _tools(functions: Sequence[Function], flags: Flags, names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the tool definitions; an endpoint's own kind of tool is sent as it is."""
    out: list[dict[str, Any]] = []
    for function in functions:
        if function.definition is not None:
            out.append(function.definition)
            continue
        wire = function.head(names)
        if not function.parameters and flags.tools.parameters:
            wire["parameters"] = {"type": "object", "properties": {}}
        elif function.parameters is not None:
            wire["parameters"] = function.parameters
        if function.strict is not None:
            wire["strict"] = function.strict
        out.append({"type": "function", "function": wire})
    return out
