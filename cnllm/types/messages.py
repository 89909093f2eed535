"""Read what a verb takes as messages: strings, messages, dicts, objects of other libraries.

A dict that is written in the call, or annotated as `MessageDict`, is checked by type checkers: its role and its keys. A
dict whose values are `Any` (from JSON) is accepted as it is, and so is a TypedDict or an object of another library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Required, TypedDict

from msgspec.structs import astuple as struct_values

from cnllm.types import checks
from cnllm.types.convert import message_fields, wrong_role
from cnllm.types.message import Message
from cnllm.types.parts import ROLES, Media, Opaque, Reasoning, Role, Text, ToolCall, ToolResult

__all__ = [
    "MessageDict",
    "Messages",
    "as_messages",
]


_PLAIN_ROLES: tuple[Role, ...] = ("user", "assistant", "system")
_EXPECTED_ITEM = "a string, a cnllm.Message, a dict, or a message of an SDK"
_EXPECTED_MESSAGES = (
    'a string ("Hi"), a cnllm.Message (Message.user("Hi")), a dict ({"role": "user", "content": "Hi"}), '
    "a message of an SDK, or a list of these,"
)


# ── types ────────────────────────────────────────────────────────────────────


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


class _ForeignTypedDict(Protocol):
    """A TypedDict of another library, such as those of OpenAI's SDK."""

    __total__: ClassVar[Any]  # Any: a subtype of this protocol is still a member of its own in a union


class _SDKObject(Protocol):
    """An object of pydantic, as an SDK returns it."""

    def model_dump(self) -> dict[str, Any]:
        """Return the fields as a dict."""


class _ForeignMessage(Protocol):
    """A message of pydantic-ai: `kind` is request or response."""

    @property
    def kind(self) -> str:
        """Return the kind."""

    @property
    def parts(self) -> Sequence[Any]:
        """Return the parts."""


_MessageLike = str | Message | MessageDict | _ForeignTypedDict | Mapping[str, _Untyped] | _SDKObject | _ForeignMessage
"""One message, in any of the forms that a verb takes. A string is a message of the user."""

Messages = _MessageLike | Sequence[_MessageLike] | Iterator[_MessageLike]
"""The messages of a call: a string, a `Message`, a dict, an SDK's object, or a list of these."""


# ── reading ──────────────────────────────────────────────────────────────────


def as_messages(messages: Any) -> list[Message]:
    """Return a string, messages, dicts, or a mixture of them as messages.

    Raises `TypeError` or `ValueError` naming the message.
    """
    if isinstance(messages, str):
        return [Message("user", (Text(messages),))]
    if isinstance(messages, Message | Mapping):
        messages = [messages]
    elif type(messages) is not list:
        messages = _message_list(messages)
    out: list[Message] = []
    for index, item in enumerate(messages):
        if type(item) is dict and len(item) == 2:  # the form of most messages
            role, content = item.get("role"), item.get("content")
            if type(role) is type(content) is str and content and role in _PLAIN_ROLES:
                out.append(Message(role, (Text(content),)))
                continue
        if type(item) is Message:
            if item.role not in ROLES:
                raise ValueError(f"messages[{index}]: {wrong_role(item.role)}")
            if not all(map(checks.has_plain_fields, item.parts)):
                fault = checks.message_fault(f"messages[{index}].", struct_values(item))
                if fault is not None:
                    raise fault
            out.append(item)
        elif isinstance(item, str):
            out.append(Message("user", (Text(item),)))
        else:
            try:
                if (type(item) is dict or isinstance(item, Mapping)) and not _is_wire_turn(item):
                    message = Message(*message_fields(item))
                    out.append(_behind_reasoning(out, message) if item.get("type") == "message" else message)
                elif isinstance(item, Mapping):
                    out += _dict_of_another_form(item)
                else:
                    _add_object(out, item)
            except (TypeError, ValueError) as error:
                if isinstance(item, Mapping) and (found := _read_instead(item)):
                    _add_foreign(out, item, found)
                    continue
                kind = TypeError if isinstance(error, TypeError) else ValueError
                separator = " " if str(error).startswith("is ") else ": "
                raise kind(f"messages[{index}]{separator}{error}") from error
    return out


def _message_list(messages: Any) -> list[Any]:
    """Return an iterable of messages as a list; one object of another library as a list of it."""
    from cnllm.types.foreign import is_foreign

    if not isinstance(messages, type) and is_foreign(messages):
        return [messages]
    return checks.as_list("messages", messages, _EXPECTED_MESSAGES)


def _is_wire_turn(item: Mapping[str, Any]) -> bool:
    """Whether a dict is a turn in the form of Anthropic's API or of Gemini's."""
    if type(item.get("content")) is not list and "parts" not in item:
        return False
    from cnllm.types.foreign import is_wire_turn

    return is_wire_turn(item)


def _read_instead(item: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a dict that is no OpenAI-style one; none where it cannot be read."""
    try:
        return _dict_of_another_form(item)
    except (TypeError, ValueError):
        return []


def _dict_of_another_form(item: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a dict in the form of another library; none where it has no such form.

    Raises `TypeError` or `ValueError`.
    """
    from cnllm.types.foreign import foreign_messages, has_foreign_form

    data = checks.as_dict("data", item)
    return foreign_messages(data) if has_foreign_form(data) else []


def _add_object(out: list[Message], item: Any) -> None:
    """Add the messages of an object of another library. Raises `TypeError` or `ValueError`."""
    from cnllm.types.foreign import foreign_messages, is_foreign

    if isinstance(item, type) or not is_foreign(item):
        raise TypeError(f"is {checks.kind_of(item)}; {_EXPECTED_ITEM} is expected")
    _add_foreign(out, item, foreign_messages(item))


def _add_foreign(out: list[Message], item: Any, found: list[Message]) -> None:
    """Add the messages of an item. Each request of a conversation may repeat its instructions, which come once."""
    from cnllm.types.foreign import is_parts_message

    repeats = len(found) > 1 and found[0].role == "system" and found[0] in out and is_parts_message(item)
    found = found[1:] if repeats else found
    if found and isinstance(item, Mapping) and "role" not in item:
        found = [_behind_reasoning(out, found[0]), *found[1:]]
    out += found


def _behind_reasoning(out: list[Message], message: Message) -> Message:
    """Return the message of an item with the reasoning before it: items of Responses are parts of one turn."""
    if message.role != "assistant" or not out or out[-1].role != "assistant":
        return message
    earlier = out[-1].parts
    if not earlier or any(type(part) is not Reasoning for part in earlier):
        return message
    out.pop()
    return Message("assistant", (*earlier, *message.parts), message.by, message.name, message.extra)
