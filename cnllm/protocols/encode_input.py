"""Declare the input of an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from cnllm.types import Message

__all__ = ["EncodeInput", "OfferedTool"]


class OfferedTool(Protocol):
    """A tool of the request. `definition` is an endpoint's own kind of tool, sent as it is.

    `extra` are the keys beside the function (cache marks), for wires that support them.
    """

    @property
    def name(self) -> str:
        """Return the name."""

    @property
    def description(self) -> str | None:
        """Return the description, or None."""

    @property
    def parameters(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the parameters, or None."""

    @property
    def strict(self) -> bool | None:
        """Whether the arguments must follow the schema; None if nothing is set."""

    @property
    def definition(self) -> dict[str, Any] | None:
        """Return the definition of an endpoint's own kind of tool, or None."""

    @property
    def extra(self) -> dict[str, Any] | None:
        """Return the keys beside the function, or None."""

    @property
    def custom(self) -> dict[str, Any] | None:
        """Return the own description and format of a custom tool that the endpoint knows as such; None for others."""


class EncodeInput(Struct, frozen=True, kw_only=True):
    """A request before it is encoded. Everything in it is sent: the history is fitted, the choice is allowed.

    `names` renames functions: the caller's name → the wire's. `tool_name` is the tool of a named choice, by its name
    on the wire. `method`, `schema`, `schema_name` and `schema_keys` (`strict`, `description`) ask for an answer by a
    schema. `parallel` is set if the wire encodes it itself, because it is no parameter with a path of its own.
    """

    model: str
    messages: Sequence[Message]
    tools: Sequence[OfferedTool] = ()
    choice: Literal["auto", "none", "required", "named"] | None = None
    tool_name: str | None = None
    parallel: bool | None = None
    names: dict[str, str] = {}
    method: Literal["json_schema", "json_object", "tool", "prompt"] | None = None
    schema: dict[str, Any] | None = None
    schema_name: str = "answer"
    schema_keys: dict[str, Any] = {}
    stream: bool = False
