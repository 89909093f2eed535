"""The parts of a message, and who speaks in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

__all__ = [
    "CACHE_MARK",
    "CACHE_MARKS",
    "MESSAGE_KEYS",
    "ROLES",
    "SYSTEM_ROLES",
    "Content",
    "Fields",
    "Media",
    "Opaque",
    "Part",
    "Reasoning",
    "Role",
    "Seal",
    "Text",
    "ToolCall",
    "ToolResult",
    "seal_data",
]

Role = Literal["system", "developer", "user", "assistant", "tool"]
"""Who speaks in a message."""

ROLES: tuple[Role, ...] = get_args(Role)

SYSTEM_ROLES = frozenset(["system", "developer"])
"""The roles of instructions."""

MESSAGE_KEYS = frozenset(
    ["role", "content", "reasoning", "reasoning_content", "tool_calls", "tool_call_id", "name", "by", "parts"]
)
"""The keys of a message as a dict."""

CACHE_MARK = "cache_control"
"""The key of a content part that marks the end of a prefix to keep in the prompt cache."""
CACHE_MARKS = (CACHE_MARK, "prompt_cache_breakpoint")
"""That key, and the one for which chat completions have another word."""

ANY_MODEL = "*"
"""The author of a caller's own messages, in the place of a model's id."""


class Seal(Struct, frozen=True, omit_defaults=True):
    """Data that an endpoint wants back unchanged with a part, and the only origin it may go back to.

    `data` is the wire's own JSON (a signature, a details list, an encrypted blob); cnllm does not look inside. Without
    a provider it goes to endpoints of its protocol: in the user's messages to all, in the assistant's only where the
    model is `ANY_MODEL`, which stands for the author of a caller's own messages.
    """

    protocol: str
    provider: str
    model: str
    data: Any = None


def seal_data(seal: Seal | None, protocol: str | None = None) -> dict[str, Any]:
    """Return the data of a seal, of this protocol if one is named; empty where there are none, or no object."""
    if seal is None or type(seal.data) is not dict or protocol not in (None, seal.protocol):
        return {}
    return seal.data


class Text(Struct, frozen=True, tag="text", tag_field="kind", omit_defaults=True):
    """Plain text of a turn. `extra` holds further keys of a caller's content part (cache marks)."""

    text: str
    seal: Seal | None = None
    extra: dict[str, Any] | None = None


class Reasoning(Struct, frozen=True, tag="reasoning", tag_field="kind", omit_defaults=True):
    """The reasoning of a model before or between its answers."""

    text: str
    seal: Seal | None = None


class Media(Struct, frozen=True, tag="media", tag_field="kind", omit_defaults=True):
    """An image, video or sound: `data` in base64 with `type` as its MIME type, or a `url` with `type` as its kind.

    `extra` holds further keys of the content part it came from (`detail`).
    """

    type: str
    data: str | None = None
    url: str | None = None
    seal: Seal | None = None
    extra: dict[str, Any] | None = None


class ToolCall(Struct, frozen=True, tag="tool_call", tag_field="kind", omit_defaults=True):
    """A call of a tool that the model asks for.

    `arguments` is the decoded object, or None when `raw` is not a JSON object; `problem` then says why. `via` says how
    it arrived: structured on the wire, or written into the text. `excluded` means that the request did not offer this
    tool, or that its `tool_choice` excludes it; such a call has no `arguments`, and must never be executed.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None = None
    raw: str = ""
    via: Literal["wire", "text"] = "wire"
    problem: str | None = None
    seal: Seal | None = None
    excluded: bool = False


class ToolResult(Struct, frozen=True, tag="tool_result", tag_field="kind", omit_defaults=True):
    """The result of a call: `id` is the call's; `error` marks a failure.

    `media` are images, sounds and files in the result. `blocks` is what else is in it and is no text: results of a
    search, references to tools, files that an endpoint keeps. `order` is the content as it came: its texts, and the
    number of each medium or block, counted through both. It is empty where the text comes first, then media, then
    blocks, and says nothing where the content is another one by now.
    """

    id: str
    text: str = ""
    name: str | None = None
    error: bool = False
    media: tuple[Media, ...] = ()
    seal: Seal | None = None
    blocks: tuple[Opaque, ...] = ()
    order: tuple[str | int, ...] = ()


class Opaque(Struct, frozen=True, tag="opaque", tag_field="kind", omit_defaults=True):
    """A part that cnllm does not understand, kept whole. With a seal it goes back to its origin only."""

    data: Any
    seal: Seal | None = None


Part = Text | Reasoning | Media | ToolCall | ToolResult | Opaque

Fields = tuple[Role, tuple[Part, ...], str | None, str | None, dict[str, Any] | None]
"""The fields of a message: its role, parts, `by`, name and extra keys."""

Content = str | Part | Mapping[str, Any] | Sequence[str | Part | Mapping[str, Any]]
"""The content of a message: a string, a part, or a list of them. A dict is a content part of OpenAI's."""
