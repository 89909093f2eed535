"""Encode messages and tools as bodies of Gemini generateContent.

The model and whether to stream stand in the URL, and parameters are added as data. This module writes contents,
tools and the form of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import DecodeError, json

from cnllm.jsonpath import merge_patch
from cnllm.protocols import EncodeInput
from cnllm.registry.flags import Flags
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.documents import decoded_text
from cnllm.types.media import file_name, plain_mime
from cnllm.types.parts import SYSTEM_ROLES, seal_data
from cnllm.types.tools import Function, arguments_of

__all__ = ["TOOL_KEYS", "encode_body", "takes_medium"]

TOOL_KEYS = frozenset(["response", "responseJsonSchema", "behavior"])
"""Keys of a function beside its name, description and parameters."""

_PROTOCOL = "gemini"
_GENERATED_ID = re.compile(r"call_(?:\d+(?:_\d+)*|n[0-9a-f]{24})")
"""Ids that we, or the gateway, made because the wire had none. The wire then pairs calls and results by their order."""
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "named": "ANY"}


def encode_body(request: EncodeInput, flags: Flags) -> dict[str, Any]:
    """Return the body without parameters and patches."""
    body: dict[str, Any] = {}
    instructions = [message for message in request.messages if message.role in SYSTEM_ROLES]
    if system := [part for message in instructions for part in _parts(message, request.names)]:
        body["systemInstruction"] = {"parts": system}
    body["contents"] = _contents(request.messages, request.names)
    if request.tools:
        body["tools"] = _tools(request.tools, request.names)
        if (config := _calling_config(request)) is not None:
            body["toolConfig"] = {"functionCallingConfig": config}
    if request.method in ("json_schema", "json_object"):
        body["generationConfig"] = {"responseMimeType": "application/json"}
        if request.method == "json_schema" and request.schema is not None:
            body["generationConfig"]["responseJsonSchema"] = request.schema
    return body


def _contents(messages: Sequence[Message], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the contents. Results in a row are one content, and so are the model's messages in a row."""
    out: list[dict[str, Any]] = []
    previous_role = ""
    for message in messages:
        if message.role in SYSTEM_ROLES:
            continue
        parts = _parts(message, names)
        if message.role == previous_role and previous_role in ("tool", "assistant"):
            out[-1]["parts"] += parts
        elif parts or message.role == "user":
            role = "model" if message.role == "assistant" else "user"
            out.append({"role": role, "parts": parts or [{"text": ""}]})
            previous_role = message.role
    return out


def _parts(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Encode the parts of a message."""
    out: list[dict[str, Any]] = []
    for part in message.parts:
        wire = _part(part, names)
        if wire is not None:
            merge_patch(wire, seal_data(part.seal, _PROTOCOL))
            out.append(wire)
    return out


def _part(part: Part, names: Mapping[str, str]) -> dict[str, Any] | None:
    """Encode a part without its seal; None for an empty one."""
    match part:
        case Text():
            return {"text": part.text} if part.text or seal_data(part.seal, _PROTOCOL) else None
        case Reasoning():
            return {"text": part.text, "thought": True} if part.text or seal_data(part.seal, _PROTOCOL) else None
        case Media():
            return _media(part)
        case ToolCall():
            return {"functionCall": _call(part, names)}
        case ToolResult():
            return {"functionResponse": _result(part, names)}
        case Opaque():
            is_own = part.seal is None or part.seal.protocol == _PROTOCOL
            return dict(part.data) if is_own and type(part.data) is dict else None


def takes_medium(media: Media, flags: Flags) -> bool:
    """Whether a medium has a form on this wire: all but text files with a name, for which user messages have no place.

    The API takes no other text than `text/…`.
    """
    if media.data is None or media.seal is not None or decoded_text(media) is None:
        return True
    return media.type.startswith("text/") and file_name(media) is None


def _media(media: Media) -> dict[str, Any]:
    """Encode a medium."""
    if media.data is not None:
        return {"inlineData": {"mimeType": plain_mime(media), "data": media.data}}
    mime_type = {"mimeType": media.type} if "/" in media.type else {}  # a bare kind ("image") is no MIME type
    return {"fileData": {**mime_type, "fileUri": media.url}}


def _named_media(media: Media) -> dict[str, Any]:
    """Encode a medium of a result, whose text may refer to its name."""
    wire = _media(media)
    if (name := file_name(media)) is not None:
        for fields in wire.values():
            fields["displayName"] = name
    return wire


def _call(call: ToolCall, names: Mapping[str, str]) -> dict[str, Any]:
    """Encode a call."""
    return {**_id(call.id), "name": names.get(call.name, call.name), "args": arguments_of(call) or {}}


def _result(result: ToolResult, names: Mapping[str, str]) -> dict[str, Any]:
    """Encode a tool result."""
    name = result.name or ""
    wire: dict[str, Any] = {**_id(result.id), "name": names.get(name, name), "response": _response(result)}
    if result.media or result.blocks:
        others = [dict(block.data) for block in result.blocks if type(block.data) is dict]
        wire["parts"] = [*(_named_media(media) for media in result.media), *others]
    return wire


def _id(id: str) -> dict[str, str]:
    """Return the id as a key, unless we made it."""
    return {"id": id} if id and not _GENERATED_ID.fullmatch(id) else {}


def _response(result: ToolResult) -> dict[str, Any]:
    """Return a result as an object: the object that the text is, or one around the text."""
    if result.error:
        return {"error": result.text}
    if result.text.startswith("{"):
        try:
            value = json.decode(result.text)
        except (DecodeError, RecursionError, UnicodeEncodeError):
            value = None
        # {"output": "…"} is the wrapper of a text: an object of this form would be read as the text inside.
        is_wrapper = type(value) is dict and any(value.keys() == {k} and type(value[k]) is str for k in _WRAPPER_KEYS)
        if type(value) is dict and not is_wrapper:
            return value
    return {"output": result.text}


_WRAPPER_KEYS = ("output", "error")


# ── tools ─────────────────────────────────────────────────────────────────────


def _tools(functions: Sequence[Function], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the tools: one object with all declarations, then the endpoint's own kinds of tool as they are."""
    declarations = [_declaration(f, names) for f in functions if f.definition is None]
    own_tools = [f.definition for f in functions if f.definition is not None]
    return [*([{"functionDeclarations": declarations}] if declarations else []), *own_tools]


def _declaration(function: Function, names: Mapping[str, str]) -> dict[str, Any]:
    """Encode the declaration of a function."""
    wire = function.head(names)
    if function.parameters:
        wire["parametersJsonSchema"] = function.parameters
    return {**{key: value for key, value in (function.extra or {}).items() if key in TOOL_KEYS}, **wire}


def _calling_config(request: EncodeInput) -> dict[str, Any] | None:
    """Return the wire's tool choice.

    Strict tools are a mode of the whole request: the model may call, and follows the schemas.
    """
    if request.choice in (None, "auto") and any(tool.strict for tool in request.tools):
        return {"mode": "VALIDATED"}
    if request.choice is None:
        return None
    config: dict[str, Any] = {"mode": _MODES[request.choice]}
    if request.choice == "named":
        config["allowedFunctionNames"] = [request.tool_name]
    return config
