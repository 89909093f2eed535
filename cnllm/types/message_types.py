"""The types of what a verb takes as messages: `Messages`, and `MessageDict` for one written as a dict.

A dict that is written in the call, or annotated as `MessageDict`, is checked by type checkers: its role and its keys. A
dict whose values are `Any` (from JSON) is accepted as it is, and so is a TypedDict or an object of another library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Required, TypedDict

from cnllm.types.message import Message
from cnllm.types.parts import Media, Opaque, Reasoning, Role, Text, ToolCall, ToolResult

__all__ = ["ForeignMessage", "ForeignTypedDict", "MessageDict", "MessageLike", "Messages", "SDKObject"]


class MessageDict(TypedDict, total=False):
    """A message as an OpenAI-style dict."""

    role: Required[Role]
    content: str | Sequence[str | Text | Media | Reasoning | ToolCall | ToolResult | Opaque | Mapping[str, Any]] | None
    tool_calls: Sequence[Mapping[str, Any]] | None
    tool_call_id: str
    name: str | None
    reasoning: str | None
    reasoning_content: str | None
    by: str | None
    parts: Sequence[Any]
    refusal: str | None
    error: bool
    prefix: bool
    partial: bool
    cache_control: Mapping[str, Any]


class _Untyped:
    """Nothing is one: a `Mapping[str, _Untyped]` is a mapping whose values are `Any`."""


class ForeignTypedDict(Protocol):
    """A TypedDict of another library, such as those of OpenAI's SDK."""

    __total__: ClassVar[Any]  # Any: a subtype of this protocol is still a member of its own in a union


class SDKObject(Protocol):
    """An object of pydantic, as an SDK returns it."""

    def model_dump(self) -> dict[str, Any]:
        """Return the fields as a dict."""


class ForeignMessage(Protocol):
    """A message of pydantic-ai: `kind` is request or response."""

    @property
    def kind(self) -> str:
        """Return the kind."""

    @property
    def parts(self) -> Sequence[Any]:
        """Return the parts."""


MessageLike = str | Message | MessageDict | ForeignTypedDict | Mapping[str, _Untyped] | SDKObject | ForeignMessage
"""One message, in any of the forms that a verb takes. A string is a message of the user."""

Messages = MessageLike | Sequence[MessageLike] | Iterator[MessageLike]
"""The messages of a call: a string, a `Message`, a dict, an SDK's object, or a list of these."""
