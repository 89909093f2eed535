"""What a wire is given to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from cnllm.types import Message

__all__ = ["EncodeInput", "OfferedTool"]


class OfferedTool(Protocol):
    """A tool as it is offered. `definition` is an endpoint's own kind of tool, sent as it is.

    `extra` is what stood beside the function (cache marks), for wires that know such a thing.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str | None: ...
    @property
    def parameters(self) -> dict[str, Any] | None: ...
    @property
    def strict(self) -> bool | None: ...
    @property
    def definition(self) -> dict[str, Any] | None: ...
    @property
    def extra(self) -> dict[str, Any] | None: ...


class EncodeInput(Struct, frozen=True, kw_only=True):
    """A request before it is spelt. Everything in it is meant to be sent: the history is fitted, the choice allowed.

    `names` renames functions: the caller's name → the wire's. `chosen` is a name on the wire. `method`, `schema` and
    `schema_name` ask for an answer by a schema. `parallel` is set where the wire spells it itself: where it is no
    parameter with a path of its own.
    """

    model: str
    messages: Sequence[Message]
    tools: Sequence[OfferedTool] = ()
    choice: Literal["auto", "none", "required", "named"] | None = None
    chosen: str | None = None
    parallel: bool | None = None
    names: dict[str, str] = {}
    method: Literal["json_schema", "json_object", "tool", "prompt"] | None = None
    schema: dict[str, Any] | None = None
    schema_name: str = "answer"
    stream: bool = False
