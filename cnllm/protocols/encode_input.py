"""Declare the input of an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from cnllm.types import Message
from cnllm.types.function import Function

__all__ = ["EncodeInput"]


class EncodeInput(Struct, frozen=True, kw_only=True):
    """A request before it is encoded. Everything in it is sent: the history is fitted, the choice is allowed.

    `names` renames functions: the caller's name → the wire's. `tool_name` is the tool of a named choice, by its name
    on the wire. `method`, `schema`, `schema_name` and `schema_keys` (`strict`, `description`) ask for an answer by a
    schema. `parallel` is set if the wire encodes it itself, because it is no parameter with a path of its own.
    """

    model: str
    messages: Sequence[Message]
    tools: Sequence[Function] = ()
    choice: Literal["auto", "none", "required", "named"] | None = None
    tool_name: str | None = None
    parallel: bool | None = None
    names: dict[str, str] = {}
    method: Literal["json_schema", "json_object", "tool", "prompt"] | None = None
    schema: dict[str, Any] | None = None
    schema_name: str = "answer"
    schema_keys: dict[str, Any] = {}
    stream: bool = False
