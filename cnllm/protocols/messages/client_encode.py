"""Encode messages and tools as bodies of Anthropic Messages.

The system text stands beside the messages. Results are blocks of a user's message, before anything else in it, so
that the results of one round of calls and the user's next text are one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.protocols import EncodeInput
from cnllm.registry.flags import Flags
from cnllm.registry.reasoning_form import form
from cnllm.types import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.convert import is_content_of, result_parts
from cnllm.types.documents import decoded_text
from cnllm.types.media import file_name, media_kind, plain_mime
from cnllm.types.parts import CACHE_MARK, SYSTEM_ROLES, seal_data
from cnllm.types.tools import Function, arguments_of

__all__ = ["block_link", "drop_idle", "encode_body", "takes_medium"]

_CALLER_KEYS = (CACHE_MARK, "citations")
"""Keys that a caller may add to a block of text or a picture."""

Block = dict[str, Any]


def encode_body(request: EncodeInput, flags: Flags) -> dict[str, Any]:
    """Return the body without parameters and patches."""
    body: dict[str, Any] = {"model": request.model}
    start = next((i for i, m in enumerate(request.messages) if m.role not in SYSTEM_ROLES), len(request.messages))
    if system := _shortest([block for m in request.messages[:start] for block in _content(m, flags, request.names)]):
        body["system"] = system
    body["messages"] = _turns(request.messages[start:], flags, request.names)
    if request.tools:
        body["tools"] = [_tool(tool, request.names) for tool in request.tools]
        if (choice := _choice(request)) is not None:
            body["tool_choice"] = choice
    if request.method == "json_schema" and request.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
    if request.stream:
        body["stream"] = True
    return body


def block_link(data: Block) -> tuple[str | None, str | None]:
    """Return the id of the call that a block of a tool of the endpoint's is, and the id of the call that it answers."""
    kind = data.get("type")
    if not isinstance(kind, str) or not kind.endswith(("_tool_use", "_tool_result")):
        return None, None
    call, answered = data.get("id"), data.get("tool_use_id")
    if kind.endswith("_tool_use"):
        return call if isinstance(call, str) else None, None
    return None, answered if isinstance(answered, str) else None


def _turns(messages: Sequence[Message], flags: Flags, names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the messages of the body."""
    out: list[dict[str, Any]] = []
    results: list[Block] | None = None  # the content that results are added to, until another message comes
    for message in messages:
        blocks = _content(message, flags, names)
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
            role = "system" if message.role in SYSTEM_ROLES else message.role
            out.append({"role": role, "content": _shortest(blocks)})
    return out


def _shortest(blocks: list[Block]) -> str | list[Block]:
    """Return a string for a single block of plain text, else the blocks."""
    if not blocks:
        return ""
    only = blocks[0]
    return only["text"] if len(blocks) == 1 and only.keys() == {"type", "text"} and only["type"] == "text" else blocks


def _content(message: Message, flags: Flags, names: dict[str, str]) -> list[Block]:
    """Return the blocks of a message, in order.

    The endpoint refuses empty text, so it is left out. White space alone is refused, too: between two texts it goes to
    the second one.
    """
    blocks: list[Block] = []
    space = ""
    for part in message.parts:
        if type(part) is Text and part.seal is None and not part.text.strip():
            space += part.text if blocks and blocks[-1].get("type") == "text" else ""
            continue
        if space and type(part) is Text:
            part = replace(part, text=space + part.text)
        space = ""
        if (block := _block(part, flags, names)) is not None:
            blocks.append(block)
    return blocks


def _block(part: Part, flags: Flags, names: dict[str, str]) -> Block | None:
    """Encode a part as a block; None if it has none."""
    match part:
        case Text():
            if not part.text.strip() and (not part.text or part.seal is None):
                return None
            return {"type": "text", "text": part.text, **seal_data(part.seal), **_caller_keys(part.extra)}
        case Reasoning():
            return _thought(part, flags)
        case Media():
            return _media(part)
        case ToolCall():
            call = {"id": part.id, "name": names.get(part.name, part.name), "input": arguments_of(part) or {}}
            return {"type": "tool_use", **call, **seal_data(part.seal)}
        case ToolResult():
            return _result(part)
        case Opaque():
            return part.data if type(part.data) is dict else None


def _caller_keys(extra: dict[str, Any] | None) -> dict[str, Any]:
    """Return the caller's keys of a block."""
    return {key: extra[key] for key in _CALLER_KEYS if key in extra} if extra else {}


def _thought(thought: Reasoning, flags: Flags) -> Block | None:
    """Encode reasoning: as received with its signature, or only its text if the endpoint needs no signature."""
    seal = thought.seal.data if thought.seal is not None and type(thought.seal.data) is dict else None
    if seal is not None and "type" in seal:
        return seal
    if seal is None and form(flags.reasoning) == "seal":
        return None
    return {"type": "thinking", "thinking": thought.text, **(seal or {"signature": ""})}


def takes_medium(media: Media, flags: Flags) -> bool:
    """Whether a medium has a form on this wire: pictures of four types, and PDFs and plain texts as documents."""
    kind = media_kind(media)
    if kind == "image":
        return media.data is None or plain_mime(media) in _PICTURES
    return kind == "file" and (media.data is None or media.type == _PDF or decoded_text(media) is not None)


def _media(media: Media) -> Block:
    """Encode a medium."""
    if media_kind(media) == "image":
        block: Block = {"type": "image"}
    else:
        document_keys = {key: (media.extra or {})[key] for key in _DOCUMENT_KEYS if key in (media.extra or {})}
        name = file_name(media)
        block = {"type": "document", **({"title": name} if name else {}), **document_keys}
    if media.data is None:
        source = {"type": "url", "url": media.url or ""}
    elif block["type"] == "document" and (text := decoded_text(media)) is not None:
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        source = {"type": "base64", "media_type": plain_mime(media), "data": media.data}
    return {**block, "source": source, **seal_data(media.seal), **_caller_keys(media.extra)}


_PDF = "application/pdf"
_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_DOCUMENT_KEYS = ("context", "citations")


def _result(result: ToolResult) -> Block:
    """Encode a result. The endpoint's own keys beside its text go back with it while the text is unchanged."""
    block: Block = {"type": "tool_result", "tool_use_id": result.id}
    data = seal_data(result.seal)
    if type(content := data.get("content")) is list and is_content_of(result, content, ("text",)):
        if content := [inner for inner in content if not _is_blank(inner)]:
            block["content"] = content
    elif result.media or result.blocks:
        block["content"] = [found for part in result_parts(result) if (found := _inside(part)) is not None]
    elif result.text.strip():
        block["content"] = result.text
    if result.error:
        block["is_error"] = True
    return {**block, **{key: value for key, value in data.items() if key != "content"}}


def _is_blank(block: Any) -> bool:
    """Whether a block is a text without words, which endpoints refuse."""
    return type(block) is dict and block.get("type") == "text" and not str(block.get("text") or "").strip()


def _inside(part: Text | Media | Opaque) -> Block | None:
    """Encode a part of a result; None for a block that is no object."""
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Media():
            return _media(part)
    return part.data if type(part.data) is dict else None


def _tool(tool: Function, names: dict[str, str]) -> dict[str, Any]:
    """Encode a tool; an endpoint's own kind is sent as it is."""
    if tool.definition is not None:
        return tool.definition
    wire = tool.head(names)
    wire["input_schema"] = tool.parameters or {"type": "object", "properties": {}}
    if tool.strict is not None:
        wire["strict"] = tool.strict
    return {**{key: value for key, value in (tool.extra or {}).items() if value is not None}, **wire}


def _choice(request: EncodeInput) -> dict[str, Any] | None:
    """Return the tool choice, with `disable_parallel_tool_use` inside it."""
    types = {"auto": "auto", "required": "any", "none": "none", "named": "tool"}
    choice: dict[str, Any] = {} if request.choice is None else {"type": types[request.choice]}
    if request.choice == "named":
        choice["name"] = request.tool_name
    if request.parallel is False and request.choice != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return choice or None


def drop_idle(body: dict[str, Any]) -> list[str]:
    """Remove the details of reasoning that the body does not ask for, and return their paths."""
    thinking = body.get("thinking")
    if type(thinking) is not dict or thinking.get("type") not in (None, "disabled"):
        return []
    body["thinking"] = {key: value for key, value in thinking.items() if key == "type"}
    if not body["thinking"]:
        del body["thinking"]
    return [f"thinking.{key}" for key in thinking if key != "type"]
