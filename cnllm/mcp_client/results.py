"""Turn the result of an MCP tool into a result for the model."""

from __future__ import annotations

from typing import Any

from cnllm.tools import shown
from cnllm.types import Media, ToolResult

__all__ = ["MAX_TEXT", "tool_result"]

MAX_TEXT = 500_000  # characters of a result; no model's window holds much more
_MAX_MEDIA = 20  # pictures of a result


def tool_result(result: Any) -> ToolResult:
    """Return a `CallToolResult` as text, with its pictures and sounds as media.

    A link becomes its address, which is not fetched. A file that is no text and no picture becomes a line that names
    it. Structured content is used where there is no other.
    """
    texts: list[str] = []
    media: list[Media] = []
    for block in result.content:
        part = _part(block)
        if isinstance(part, str):
            texts.append(part)
        elif len(media) < _MAX_MEDIA:
            media.append(part)
        else:
            texts.append(f"[{part.type} left out: a result may hold {_MAX_MEDIA} media]")
    if not texts and not media and result.structured_content is not None:
        texts.append(shown(result.structured_content))
    text = "\n".join(texts)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[cut off after {MAX_TEXT} characters]"
    return ToolResult("", text, error=bool(result.is_error), media=tuple(media))


def _part(block: Any) -> str | Media:
    """Return a block of content as text or as a medium."""
    if block.type == "text":
        return str(block.text)
    if block.type in ("image", "audio"):
        return Media(block.mime_type, block.data)
    if block.type == "resource_link":
        title = block.title or block.name
        return f"[{title}: {block.uri}]" if title else f"[{block.uri}]"
    resource = block.resource
    if (text := getattr(resource, "text", None)) is not None:
        return str(text)
    kind = resource.mime_type or "application/octet-stream"
    if kind.partition("/")[0] in ("image", "audio"):
        return Media(kind, resource.blob)
    return f"[file left out: {resource.uri} ({kind})]"
