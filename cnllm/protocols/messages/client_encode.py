"""Anthropic Messages, writing: turns and tools → the body's own shapes.

The system's text stands apart from the turns. Results are blocks of a user's turn, before anything else in it, so
that those of one round of calls and what the user says next are one turn.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

from cnllm.protocols.encode_input import Ask, Offered
from cnllm.registry.flags import Flags
from cnllm.registry.reasoning_form import form
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.arguments import decode_arguments
from cnllm.types.convert import result_text
from cnllm.types.media import file_name, media_kind

__all__ = ["write"]

_SYSTEM = ("system", "developer")
_MARKS = ("cache_control", "citations")
"""What a caller may put beside the text or the picture of a block."""

Block = dict[str, Any]


def write(ask: Ask, flags: Flags) -> dict[str, Any]:
    """The body but for parameters and patches."""
    body: dict[str, Any] = {"model": ask.model}
    start = next((i for i, m in enumerate(ask.messages) if m.role not in _SYSTEM), len(ask.messages))
    if system := _shortest([block for m in ask.messages[:start] for block in _content(m, flags, ask.names)]):
        body["system"] = system
    body["messages"] = _turns(ask.messages[start:], flags, ask.names)
    if ask.tools:
        body["tools"] = [_tool(tool, ask.names) for tool in ask.tools]
        if (choice := _choice(ask)) is not None:
            body["tool_choice"] = choice
    if ask.method == "json_schema" and ask.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": ask.schema}}
    if ask.stream:
        body["stream"] = True
    return body


def _turns(messages: Sequence[Message], flags: Flags, names: dict[str, str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    results: list[Block] | None = None  # the turn that results stand in, while nothing else has come
    for message in messages:
        blocks = list(_content(message, flags, names))
        if message.role == "tool":
            if results is None:
                results = []
                out.append({"role": "user", "content": results})
            results += blocks
        elif message.role == "user" and results is not None:
            results += blocks
            results = None
        elif blocks or message.role == "user":
            results = None
            role = "system" if message.role in _SYSTEM else message.role
            out.append({"role": role, "content": _shortest(blocks)})
    return out


def _shortest(blocks: list[Block]) -> str | list[Block]:
    """A string where one block of plain text is all there is."""
    if not blocks:
        return ""
    only = blocks[0]
    return only["text"] if len(blocks) == 1 and only.keys() == {"type", "text"} and only["type"] == "text" else blocks


def _content(message: Message, flags: Flags, names: dict[str, str]) -> Iterable[Block]:
    """The blocks of a turn, in order. Text that is nothing is refused, so there is none."""
    for part in message.parts:
        block = _block(part, flags, names)
        if block is not None:
            yield block


def _block(part: Part, flags: Flags, names: dict[str, str]) -> Block | None:
    match part:
        case Text():
            if not part.text.strip() and (not part.text or part.seal is None):
                return None
            return {"type": "text", "text": part.text, **_sealed(part), **_marks(part.extra)}
        case Reasoning():
            return _thought(part, flags)
        case Media():
            return _media(part)
        case ToolCall():
            name = names.get(part.name, part.name)
            return {"type": "tool_use", "id": part.id, "name": name, "input": _input(part), **_sealed(part)}
        case ToolResult():
            return _result(part)
        case Opaque():
            return part.data if type(part.data) is dict else None


def _sealed(part: Text | ToolCall) -> dict[str, Any]:
    return part.seal.data if part.seal is not None and type(part.seal.data) is dict else {}


def _marks(extra: dict[str, Any] | None) -> dict[str, Any]:
    return {key: extra[key] for key in _MARKS if key in extra} if extra else {}


def _thought(thought: Reasoning, flags: Flags) -> Block | None:
    """Thinking as it came: signed, or where the endpoint wants no signature, the text alone."""
    seal = thought.seal.data if thought.seal is not None and type(thought.seal.data) is dict else None
    if seal is not None and "type" in seal:
        return seal
    if seal is None and flags.reasoning is not None and form(flags.reasoning) == "seal":
        return None
    return {"type": "thinking", "thinking": thought.text, **(seal or {"signature": ""})}


def takes(media: Media, flags: Flags) -> bool:
    """Whether a medium has a form on this wire: pictures, and PDFs and plain texts as documents."""
    kind = media_kind(media)
    return kind == "image" or (
        kind == "file" and (media.data is None or media.type == _PDF or _plain(media) is not None)
    )


def _media(media: Media) -> Block:
    if media_kind(media) == "image":
        block: Block = {"type": "image"}
    else:
        beside = {key: (media.extra or {})[key] for key in _DOCUMENT if key in (media.extra or {})}
        name = file_name(media)
        block = {"type": "document", **({"title": name} if name else {}), **beside}
    if media.data is None:
        source = {"type": "url", "url": media.url or ""}
    elif block["type"] == "document" and (text := _plain(media)) is not None:
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        source = {"type": "base64", "media_type": media.type, "data": media.data}
    return {**block, "source": source, **_marks(media.extra)}


def _plain(media: Media) -> str | None:
    """The text of a file of plain text; None for any other."""
    if media.data is None or media.type.partition("/")[0] != "text":
        return None
    try:
        return base64.b64decode(media.data, validate=True).decode()
    except ValueError:
        return None


_PDF = "application/pdf"
_DOCUMENT = ("context", "citations")


def _input(call: ToolCall) -> dict[str, Any]:
    if call.arguments is not None:
        return call.arguments
    return decode_arguments(call.raw)[0] or {}


def _result(result: ToolResult) -> Block:
    """A result; what an endpoint's own had beside its text goes back with it while the text is the same."""
    block: Block = {"type": "tool_result", "tool_use_id": result.id}
    kept = result.seal.data if result.seal is not None and type(result.seal.data) is dict else {}
    texts = [{"type": "text", "text": result.text}] if result.text.strip() else []
    if "content" in kept and _told(kept["content"]) == result.text:
        block["content"] = kept["content"]
    elif result.media:
        block["content"] = [*texts, *(_media(media) for media in result.media)]
    elif texts:
        block["content"] = result.text
    if result.error:
        block["is_error"] = True
    return {**block, **{key: value for key, value in kept.items() if key != "content"}}


def _told(content: Any) -> str:
    blocks = content if type(content) is list else ()
    return result_text(
        b["text"] for b in blocks if type(b) is dict and b.get("type") == "text" and type(b["text"]) is str
    )


def _tool(tool: Offered, names: dict[str, str]) -> dict[str, Any]:
    """A tool; an endpoint's own kind goes as it is."""
    if tool.definition is not None:
        return tool.definition
    wire: dict[str, Any] = {"name": names.get(tool.name, tool.name)}
    if tool.description is not None:
        wire["description"] = tool.description
    wire["input_schema"] = tool.parameters or {"type": "object", "properties": {}}
    if tool.strict is not None:
        wire["strict"] = tool.strict
    return {**(tool.extra or {}), **wire}


def _choice(ask: Ask) -> dict[str, Any] | None:
    """The choice, with the wish for one call at a time inside it."""
    words = {"auto": "auto", "required": "any", "none": "none", "named": "tool"}
    choice: dict[str, Any] = {} if ask.choice is None else {"type": words[ask.choice]}
    if ask.choice == "named":
        choice["name"] = ask.chosen
    if ask.parallel is False and ask.choice != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return choice or None
