"""Gemini generateContent, writing: messages and tools → the body's own shapes.

The model and whether to stream stand in the URL, parameters are put in by data; here are contents, tools and the form
of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import DecodeError, json

from cnllm.jsonpath import get, merge_patch
from cnllm.protocols.encode_input import EncodeInput, OfferedTool
from cnllm.registry.flags import Flags
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.arguments import decode_arguments

__all__ = ["encode_body"]

_PROTOCOL = "gemini"
_INVENTED = re.compile(r"call_\d+(_\d+)*")
"""Ids that we gave where the wire had none: it pairs calls and results by their order then."""
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "named": "ANY"}


def encode_body(ask: EncodeInput, flags: Flags) -> dict[str, Any]:
    """The body but for parameters and patches."""
    body: dict[str, Any] = {}
    system = [part for m in ask.messages if m.role in ("system", "developer") for part in _parts(m, ask.names)]
    if system:
        body["systemInstruction"] = {"parts": system}
    body["contents"] = _contents(ask.messages, ask.names)
    if ask.tools:
        body["tools"] = _tools(ask.tools, ask.names)
        if (config := _calling(ask)) is not None:
            body["toolConfig"] = {"functionCallingConfig": config}
    if ask.method in ("json_schema", "json_object"):
        body["generationConfig"] = {"responseMimeType": "application/json"}
        if ask.method == "json_schema" and ask.schema is not None:
            body["generationConfig"]["responseJsonSchema"] = ask.schema
    return body


def _contents(messages: Sequence[Message], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The turns. Results that follow one another are one turn, and so are the model's own."""
    out: list[dict[str, Any]] = []
    before = ""
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        parts = _parts(message, names)
        if message.role == before and before in ("tool", "assistant"):
            out[-1]["parts"] += parts
        elif parts or message.role == "user":
            role = "model" if message.role == "assistant" else "user"
            out.append({"role": role, "parts": parts or [{"text": ""}]})
            before = message.role
    return out


def _parts(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for part in message.parts:
        wire = _part(part, names)
        if wire is not None:
            merge_patch(wire, _sealed(part))
            out.append(wire)
    return out


def _sealed(part: Part) -> dict[str, Any]:
    """What goes back beside a part, or inside of it."""
    seal = part.seal
    return seal.data if seal is not None and seal.protocol == _PROTOCOL and type(seal.data) is dict else {}


def _part(part: Part, names: Mapping[str, str]) -> dict[str, Any] | None:
    """A part without its seal; None for one that says nothing."""
    match part:
        case Text():
            return {"text": part.text} if part.text or _sealed(part) else None
        case Reasoning():
            return {"text": part.text, "thought": True} if part.text or _sealed(part) else None
        case Media():
            return _media(part)
        case ToolCall():
            return {"functionCall": _call(part, names)}
        case ToolResult():
            return {"functionResponse": _result(part, names)}
        case Opaque():
            if part.seal is None and (file := _file(part.data)) is not None:
                return file
            own = part.seal is None or part.seal.protocol == _PROTOCOL
            return dict(part.data) if own and type(part.data) is dict else None


def _media(media: Media) -> dict[str, Any]:
    if media.data is not None:
        return {"inlineData": {"mimeType": media.type, "data": media.data}}
    kind = {"mimeType": media.type} if "/" in media.type else {}  # a bare kind ("image") is no MIME type
    return {"fileData": {**kind, "fileUri": media.url}}


def _file(data: Any) -> dict[str, Any] | None:
    """A file as chat completions have it, its content in the part; None for anything else."""
    url = get(data, "file.file_data")
    head, comma, content = url.partition(",") if type(url) is str else ("", "", "")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return {"inlineData": {"mimeType": head[5:-7], "data": content}}


def _call(call: ToolCall, names: Mapping[str, str]) -> dict[str, Any]:
    arguments = call.arguments
    if arguments is None:
        arguments = decode_arguments(call.raw)[0] or {}
    return {**_id(call.id), "name": names.get(call.name, call.name), "args": arguments}


def _result(result: ToolResult, names: Mapping[str, str]) -> dict[str, Any]:
    name = result.name or ""
    wire: dict[str, Any] = {**_id(result.id), "name": names.get(name, name), "response": _response(result)}
    if result.media:
        wire["parts"] = [_media(media) for media in result.media]
    return wire


def _id(id: str) -> dict[str, str]:
    return {"id": id} if id and not _INVENTED.fullmatch(id) else {}


def _response(result: ToolResult) -> dict[str, Any]:
    """A result is an object on this wire: that which the text is, or one around it."""
    if result.error:
        return {"error": result.text}
    if result.text.startswith("{"):
        try:
            found = json.decode(result.text)
        except (DecodeError, RecursionError, UnicodeEncodeError):
            found = None
        # {"output": "…"} is how text is wrapped: one that came so would be taken for its inside.
        wrapped = type(found) is dict and any(found.keys() == {k} and type(found[k]) is str for k in _WRAPS)
        if type(found) is dict and not wrapped:
            return found
    return {"output": result.text}


_WRAPS = ("output", "error")


# ── tools ────────────────────────────────────────────────────────────────────


def _tools(functions: Sequence[OfferedTool], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """One table of declarations, then the endpoint's own kinds of tool as they are."""
    declared = [_declared(f, names) for f in functions if f.definition is None]
    own = [f.definition for f in functions if f.definition is not None]
    return [*([{"functionDeclarations": declared}] if declared else []), *own]


def _declared(function: OfferedTool, names: Mapping[str, str]) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": names.get(function.name, function.name)}
    if function.description is not None:
        wire["description"] = function.description
    if function.parameters:
        wire["parametersJsonSchema"] = function.parameters
    return wire


def _calling(ask: EncodeInput) -> dict[str, Any] | None:
    """The wire's choice. Strict tools are a mode of the whole request: the model may call, and sticks to schemas."""
    if ask.choice in (None, "auto") and any(tool.strict for tool in ask.tools):
        return {"mode": "VALIDATED"}
    if ask.choice is None:
        return None
    config: dict[str, Any] = {"mode": _MODES[ask.choice]}
    if ask.choice == "named":
        config["allowedFunctionNames"] = [ask.chosen]
    return config
