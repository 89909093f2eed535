"""Read what a caller writes as the content of a message: a string, a part, or a list of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cnllm.types import Media, Message, Opaque, Part, Reasoning, Role, Text, ToolCall, ToolResult, checks
from cnllm.types.convert import from_dict, result_text

__all__ = ["content_parts", "system_message", "tool_result"]

_EXPECTED = "a string, a part (cnllm.Text, cnllm.Media, …), or a list of them"
_PARTS = (Text, Media, Reasoning, ToolCall, ToolResult, Opaque)


def content_parts(place: str, content: Any, role: Role = "user") -> tuple[Part, ...]:
    """Return the parts of a content. Raises `TypeError` or `ValueError` with the place."""
    if type(content) is str:
        return (Text(content),) if content else ()
    if not isinstance(content, (str, Mapping, list, tuple, *_PARTS)):
        raise checks.wrong_type(place, content, _EXPECTED)
    parts: list[Part] = []
    for item in content if isinstance(content, list | tuple) else [content]:
        if isinstance(item, _PARTS):
            parts.append(item)
            continue
        try:
            parts += from_dict({"role": role, "content": [item]}).parts
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{place}: {error}") from error
    return tuple(parts)


def system_message(content: Any) -> Message:
    """Return the system message of a text, a part, or a list of them. Raises `TypeError` or `ValueError`."""
    for item in content if isinstance(content, list | tuple) else [content]:
        if isinstance(item, Reasoning | ToolCall | ToolResult):
            raise checks.wrong_type("system", item, "a string, a part, or a list of parts")
    return Message("system", content_parts("system", content, "system"))


def tool_result(id: str, content: Any, name: str | None = None, error: bool = False) -> ToolResult:
    """Return the result of a call. Raises `TypeError` for a content that is neither text nor media."""
    checks.require_text("id", id)
    if name is not None:
        checks.require_text("name", name)
    checks.require_type("error", error, bool, "True or False")
    texts: list[str] = []
    media: list[Media] = []
    blocks: list[Opaque] = []
    for part in content_parts("content", content):
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, Media):
            media.append(part)
        elif isinstance(part, Opaque):
            blocks.append(part)
        else:
            raise checks.wrong_type("content", part, "a string, a Text, a Media, or a list of them")
    return ToolResult(id, result_text(texts), name, error, tuple(media), None, tuple(blocks))
