"""One turn of a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from cnllm.types.parts import MESSAGE_KEYS, Content, Part, Reasoning, Role, Text, ToolCall, ToolResult

__all__ = ["Message", "join_texts", "system_message"]


def _parts(parts: Any) -> tuple[Part, ...]:
    """Return parts as a tuple; a string is a text. Raises `TypeError` for anything else."""
    if type(parts) is list:
        return tuple(parts)
    from cnllm.types import checks

    if isinstance(parts, str):
        return (Text(str.__str__(parts)),) if parts else ()
    return tuple(checks.as_list("parts", parts, "a string, or a list of cnllm's parts (Text, Media, ToolCall, …),"))


def _role(role: Any) -> str:
    """Return a role as a string. Raises `TypeError` for anything else."""
    from cnllm.types import checks

    checks.require_type("role", role, str, "a string (system, developer, user, assistant or tool)")
    return str.__str__(role)


class Message(Struct, frozen=True, omit_defaults=True):
    """One turn. `parts` are ordered and authoritative; `by` is the "provider/model" that wrote it.

    `Message.user("Hi")`, `.system`, `.assistant` and `.tool` are short forms; a string is a text. `name` is the
    speaker's, on wires that have such a field; `extra` holds further keys of a caller's dict, which are sent only where
    the registry allows them (`messages.fields`).
    """

    role: Role
    parts: tuple[Part, ...] = ()
    by: str | None = None
    name: str | None = None
    extra: dict[str, Any] | None = None

    if TYPE_CHECKING:  # the constructor takes more than the fields hold

        def __init__(
            self,
            role: Role,
            parts: str | Sequence[Part] = (),
            by: str | None = None,
            name: str | None = None,
            extra: dict[str, Any] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.parts) is not tuple:
            msgspec.structs.force_setattr(self, "parts", _parts(self.parts))
        if self.extra is not None:
            if type(self.extra) is not dict:
                from cnllm.types import checks

                msgspec.structs.force_setattr(self, "extra", checks.as_dict("extra", self.extra, "a dict or None"))
            if not MESSAGE_KEYS.isdisjoint(self.extra):
                names = ", ".join(MESSAGE_KEYS & self.extra.keys())
                raise ValueError(f"extra holds {names}, which are keys of a message itself")
            if not self.extra:
                msgspec.structs.force_setattr(self, "extra", None)
        if type(self.role) is not str:
            msgspec.structs.force_setattr(self, "role", _role(self.role))
        if self.name is not None and self.role == "tool":  # a result has the name of its tool itself
            msgspec.structs.force_setattr(self, "name", None)

    @staticmethod
    def system(content: Content) -> Message:
        """Return a system message of a string, a part, or a list of them."""
        return _message("system", content)

    @staticmethod
    def user(content: Content) -> Message:
        """Return a message of the user: a string, a part (`Media` is a picture), or a list of them."""
        return _message("user", content)

    @staticmethod
    def assistant(content: Content) -> Message:
        """Return a turn of the model: a string, a part (`Reasoning`, `ToolCall`), or a list of them."""
        return _message("assistant", content)

    @staticmethod
    def tool(id: str, content: Content, *, name: str | None = None, error: bool = False) -> Message:
        """Return the result of the call with this id: a string, a part (`Media` is a picture), or a list of them.

        `name` is the tool's. `error` marks a failure.
        """
        from cnllm.types.convert import tool_result

        return Message("tool", (tool_result(id, content, name, error=error),))

    @property
    def text(self) -> str:
        """Return the text parts, joined."""
        return "".join([p.text for p in self.parts if type(p) is Text])

    @property
    def reasoning(self) -> str:
        """Return the reasoning parts, joined."""
        return "".join([p.text for p in self.parts if type(p) is Reasoning])

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Return the calls, in order."""
        return [p for p in self.parts if type(p) is ToolCall]

    def to_dict(self) -> dict[str, Any]:
        """Return an OpenAI-style dict that JSON can hold.

        `parts` is among its keys where the flat keys would lose something.
        """
        from cnllm.types.convert import dict_of_message

        return dict_of_message(msgspec.structs.astuple(self))

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Message:
        """Return the message of an OpenAI-style dict; the opposite of `to_dict`.

        A flat key that differs from `parts` was edited: it wins, and the parts that it replaces lose their seals.
        Raises `TypeError` or `ValueError` naming the key that is wrong.
        """
        from cnllm.types.convert import message_fields

        return Message(*message_fields(data))


def _message(role: Role, content: Content) -> Message:
    """Return a message of a string, a part, or a list of them. Raises `TypeError` or `ValueError`."""
    from cnllm.types.convert import content_parts

    return Message(role, content_parts("content", content))


def join_texts(texts: Iterable[str]) -> str:
    """Return the texts of a question or an instruction as one: a blank line is between two without white space there.

    A model reads a list of texts as several. Where a wire has one string, the last word of a text would run into the
    first one of the next.
    """
    whole = ""
    for text in texts:
        is_apart = not whole or not text or whole[-1].isspace() or text[0].isspace()
        whole += text if is_apart else f"\n\n{text}"
    return whole


def system_message(content: Any) -> Message:
    """Return the system message of a text, a part, or a list of them. Raises `TypeError` or `ValueError`."""
    from cnllm.types import checks
    from cnllm.types.convert import content_parts

    for item in content if isinstance(content, list | tuple) else [content]:
        if isinstance(item, Reasoning | ToolCall | ToolResult):
            raise checks.wrong_type("system", item, "a string, a part, or a list of parts")
    return Message("system", content_parts("system", content, "system"))
