"""Convert the content blocks of other libraries to parts, by their shape."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from cnllm.types import checks
from cnllm.types.arguments import decode_arguments
from cnllm.types.convert import message_fields, result_of
from cnllm.types.parts import Media, Opaque, Part, Reasoning, Seal, Text, ToolCall, ToolResult

__all__ = ["FOREIGN", "as_json", "block_parts", "call_of", "media_of", "parts_of"]

FOREIGN = Seal("unknown", "unknown", "unknown")
"""The origin of a block that only its own endpoint understands: it is left out elsewhere, with a note."""

_TEXTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
_REASONING = {"thinking": "thinking", "reasoning": "reasoning", "reasoning_text": "text", "summary_text": "text"}
_FILES = ("image", "audio", "video", "file")


def parts_of(content: Any) -> list[Part]:
    """Return the parts of a content: a string, a list of blocks, or None."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(str.__str__(content))] if content else []
    blocks = checks.as_list("content", content, "a string or a list of blocks")
    return [part for block in blocks for part in block_parts(block)]


def block_parts(block: Any) -> list[Part]:
    """Return the parts of one block; a block that nobody else understands is an `Opaque` with a foreign seal."""
    if isinstance(block, str):
        return [Text(str.__str__(block))] if block else []
    data = {key: value for key, value in checks.as_dict("content: a block", block).items() if value is not None}
    kind = data.get("type")
    if not isinstance(kind, str):
        return _untyped(data)
    if kind in _TEXTS and isinstance(text := data.get(_TEXTS[kind]), str):
        return [Text(text)] if text else []
    if kind in _REASONING:
        text = data.get(_REASONING[kind]) or _joined([*data.get("content", ()), *data.get("summary", ())])
        return [Reasoning(text)] if isinstance(text, str) and text else []
    match kind:
        case "tool_use" | "tool_call" | "function_call":
            arguments = data.get("input", data.get("args", data.get("arguments")))
            return [call_of(data.get("call_id", data.get("id")), data.get("name"), arguments)]
        case "tool_result" | "function_call_output":
            content = data.get("content", data.get("output"))
            return [
                _result(data.get("tool_use_id", data.get("call_id")), None, content, error=bool(data.get("is_error")))
            ]
    if kind in _FILES and (media := _file(kind, data)) is not None:
        return [media]
    known = message_fields({"role": "user", "content": [data]})[1]
    return [Opaque(part.data, FOREIGN) if isinstance(part, Opaque) and part.seal is None else part for part in known]


def call_of(id: Any, name: Any, arguments: Any) -> ToolCall:
    """Return a call; its arguments are an object or JSON text."""
    checks.require_text("the name of a call", name)
    call_id = id if isinstance(id, str) else ""
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


def _joined(items: Iterable[Any]) -> str:
    """Join the texts of a list of blocks."""
    return "\n\n".join(str(item["text"]) for item in items if isinstance(item, Mapping) and item.get("text"))


def _result(id: Any, name: Any, content: Any, *, error: bool) -> ToolResult:
    """Return the result of a call; its content is text, a list of blocks, or any other value."""
    if isinstance(content, list | tuple):
        parts = parts_of(content)
    else:
        parts = [] if content is None else [Text(as_json(content))]
    return result_of(str(id or ""), parts, name if isinstance(name, str) else None, error=error)


def _file(kind: str, data: Mapping[str, Any]) -> Media | None:
    """Return a file block with its data or URL beside its type; None for another form."""
    source = data.get("base64", data.get("data"))
    if isinstance(source, str | bytes):
        return media_of(kind, source, data.get("mime_type"))
    url = data.get("url")
    return Media(kind, None, url) if isinstance(url, str) else None


def _untyped(data: Mapping[str, Any]) -> list[Part]:
    """Return the parts of a block without a type: its only key says what it holds."""
    match data:
        case {"text": str(text)}:
            return ([Reasoning(text)] if data.get("thought") else [Text(text)]) if text else []
        case {"function_call": Mapping() as call}:
            return [call_of(call.get("id"), call.get("name"), call.get("args"))]
        case {"function_response": Mapping() as result}:
            name = result.get("name")
            return [_result(result.get("id") or name, name, result.get("response"), error=False)]
        case {"inline_data": Mapping() as blob}:
            return [media_of("file", blob.get("data", ""), blob.get("mime_type"))]
        case {"file_data": {"file_uri": str(url)} as file}:
            mime = file.get("mime_type")
            return [Media(mime.partition("/")[0] if isinstance(mime, str) else "file", None, url)]
    return [Opaque(dict(data), FOREIGN)]
