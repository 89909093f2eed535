"""Read parts in the form of another wire: blocks of Anthropic's API, parts of Gemini's, items of Responses.

What only such an endpoint understands (signatures, encrypted reasoning, its own tools) is sealed for its wire: it goes
to any model there, and to no other wire.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from cnllm.types import checks
from cnllm.types.convert import result_of
from cnllm.types.lenient_json import decode_arguments
from cnllm.types.parts import ANY_MODEL, Media, Opaque, Part, Reasoning, Seal, Text, ToolCall, ToolResult
from cnllm.types.tools import custom_arguments

__all__ = [
    "ReadContent",
    "as_json",
    "call_of",
    "gemini_part",
    "is_block",
    "is_item",
    "item_part",
    "media_of",
    "message_block",
    "own_block",
    "summary_of",
    "unwrap_response",
]

ReadContent = Callable[[Any], list[Part]]
Sealable = TypeVar("Sealable", ToolCall, ToolResult)

_BLOCKS = frozenset(["tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use"])
_ITEMS = frozenset(["reasoning", "compaction", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"])
_ITEM_ENDINGS = ("_call", "_call_output")


def is_block(block: Any) -> bool:
    """Whether a content part is a block that only Anthropic's API has."""
    if not isinstance(block, Mapping) or not isinstance(kind := block.get("type"), str):
        return False
    if kind == "thinking":  # another vendor has a list under this key
        return isinstance(block.get("thinking"), str)
    return kind in _BLOCKS or kind.endswith("_tool_result")


def is_item(data: Mapping[str, Any]) -> bool:
    """Whether a dict is an item of Responses that is no message."""
    kind = data.get("type")
    return isinstance(kind, str) and "role" not in data and (kind in _ITEMS or kind.endswith(_ITEM_ENDINGS))


def message_block(block: Mapping[str, Any], read: ReadContent) -> Part:
    """Return the part of such a block; `read` reads a list of content. Raises `TypeError` or `ValueError`."""
    rest = {key: value for key, value in block.items() if value is not None}
    kind = rest.pop("type")
    if kind == "thinking":
        text = rest.pop("thinking")
        return Reasoning(text, _seal("anthropic-messages", rest) if any(rest.values()) else None)
    if kind == "tool_use":
        call = call_of(rest.pop("id", None), rest.pop("name", None), rest.pop("input", None))
        return _add_seal(call, "anthropic-messages", rest)
    if kind == "tool_result":
        content, id = rest.pop("content", None), rest.pop("tool_use_id", None)
        parts = [Opaque(part.data) if type(part) is Opaque else part for part in _content(content, read)]
        result = result_of(_id(id), parts, None, error=bool(rest.pop("is_error", False)))
        return _add_seal(result, "anthropic-messages", rest, own=False)
    return own_block(block)


def summary_of(data: Any) -> str | None:
    """Return the summary of all before it, sealed or in words, that a block or an item holds; None for any other."""
    match data:
        case {"type": "compaction", "encrypted_content": str(text)}:  # an item of Responses
            return text
        case {"type": "compaction", "content": str(text)}:  # a block of Anthropic's API
            return text
    return None


def own_block(block: Mapping[str, Any]) -> Opaque:
    """Return a block that only endpoints of Anthropic's API understand."""
    return Opaque(dict(block), _seal("anthropic-messages", None))


def item_part(item: Mapping[str, Any], read: ReadContent) -> Part:
    """Return the part of an item of Responses; `read` reads a list of content. Raises `TypeError` or `ValueError`."""
    kind, id = item["type"], item.get("call_id", item.get("id"))
    if kind in ("function_call", "tool_call"):
        return call_of(id, item.get("name"), item.get("args", item.get("arguments")))
    if kind == "custom_tool_call":
        arguments, raw = custom_arguments(checks.as_text("input", item.get("input")))
        return ToolCall(_id(id), str(item.get("name")), arguments, raw)
    if kind in ("function_call_output", "custom_tool_call_output"):
        return result_of(_id(id), _content(item.get("output"), read), None, error=False)
    if kind == "reasoning":
        pieces = [*(item.get("content") or ()), *(item.get("summary") or ())]
        texts = [str(piece["text"]) for piece in pieces if isinstance(piece, Mapping) and piece.get("text")]
        texts = [item["reasoning"]] if isinstance(item.get("reasoning"), str) else texts
        data = {key: value for key, value in item.items() if value is not None}
        return Reasoning("\n\n".join(texts), _seal("openai-responses", data) if data.get("encrypted_content") else None)
    return Opaque(dict(item), _seal("openai-responses", None))


def gemini_part(part: Mapping[str, Any]) -> Part | None:
    """Return a part of Gemini's, with names in either spelling; None for an empty text."""
    data = {_camel(key): value for key, value in part.items() if value is not None}
    is_thought = bool(data.pop("thought", False))
    signature = data.pop("thoughtSignature", None)
    if isinstance(signature, bytes):
        signature = b64encode(signature).decode()
    seal = _seal("gemini", {"thoughtSignature": signature}) if signature else None
    match data:
        case {"text": str(text)}:
            if not text and seal is None:
                return None
            return Reasoning(text, seal) if is_thought else Text(text, seal)
        case {"functionCall": Mapping() as call}:
            found = call_of(call.get("id"), call.get("name"), call.get("args"))
            return found if seal is None else _add_seal(found, "gemini", seal.data)
        case {"functionResponse": Mapping() as result}:
            return _response(result)
        case {"inlineData": Mapping() as blob}:
            return media_of("file", blob.get("data", ""), blob.get("mimeType", blob.get("mime_type")))
        case {"fileData": Mapping() as file}:
            mime, url = (file.get(name, file.get(other)) for name, other in _FILE_NAMES)
            if isinstance(url, str):
                return Media(mime if isinstance(mime, str) else "file", None, url)
    return Opaque(dict(part), _seal("gemini", None))


_FILE_NAMES = (("mimeType", "mime_type"), ("fileUri", "file_uri"))


def _response(result: Mapping[str, Any]) -> Part:
    """Return the result in a response of a function."""
    name, id = result.get("name"), result.get("id")
    response, error = unwrap_response(result.get("response"))
    media = [part for each in result.get("parts") or () if (part := gemini_part(each)) is not None]
    parts = [*([] if response is None else [Text(as_json(response))]), *media]
    return result_of(_id(id), parts, name if isinstance(name, str) else None, error=error)


def unwrap_response(response: Any) -> tuple[Any, bool]:
    """Return (response, whether it is a failure): the text inside `output` or `error`, else the response itself."""
    match response:
        case {"output": str(text), **rest} if not rest:
            return text, False
        case {"error": str(text), **rest} if not rest:
            return text, True
    return response, False


def call_of(id: Any, name: Any, arguments: Any) -> ToolCall:
    """Return a call; its arguments are an object or JSON text."""
    checks.require_text("the name of a call", name)
    call_id = _id(id)
    if isinstance(arguments, str):
        decoded, problem = decode_arguments(arguments)
        return ToolCall(call_id, name, decoded, arguments, "wire", problem)
    return ToolCall(call_id, name, checks.as_dict("the arguments of a call", {} if arguments is None else arguments))


def media_of(kind: str, data: Any, mime: Any = None) -> Media:
    """Return a file of bytes or of base64; `kind` stands for its MIME type where that is unknown."""
    text = b64encode(data).decode() if isinstance(data, bytes) else checks.as_text("data", data)
    return Media(mime if isinstance(mime, str) else kind, text)


def as_json(value: Any) -> str:
    """Return a value as text: a string as it is, anything else as JSON."""
    if isinstance(value, str):
        return str.__str__(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _content(value: Any, read: ReadContent) -> list[Part]:
    """Return a list of content as `read` reads it, and any other value as a text; nothing for None."""
    if isinstance(value, list | tuple):
        return read(value)
    return [] if value is None else [Text(as_json(value))]


def _id(value: Any) -> str:
    """Return the id of a call; "" for anything that is no text."""
    return value if isinstance(value, str) else ""


def _seal(protocol: str, data: Any) -> Seal:
    """Return a seal for any model of a wire."""
    return Seal(protocol, "", ANY_MODEL, data)


def _add_seal(part: Sealable, protocol: str, data: dict[str, Any], *, own: bool = True) -> Sealable:
    """Return a part with the keys that it has beside its own, if any. With `own` they came from the endpoint."""
    if not data:
        return part
    return replace(part, seal=_seal(protocol, data) if own else Seal(protocol, "", "", data))


def _camel(name: str) -> str:
    """Return a name in camel case."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
