"""Build the bodies of questions: the wire's own encoder writes them, and nothing in them is adjusted."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import merge_patch, set_value
from cnllm.protocols import EncodeInput, wire
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags, Messages, Tools
from cnllm.registry.model import Model, conditions
from cnllm.types import Message
from cnllm.types.tools import Function

__all__ = ["Bodies", "plain_model"]


def plain_model(model: Model) -> Model:
    """Return the model without any rule that changes a request: what a question says is sent as it is."""

    def plain(flags: Flags) -> Flags:
        return replace(
            flags,
            messages=Messages(system="any", developer=True, empty="null", consecutive_roles="keep"),
            tools=Tools(result_name=flags.tools.result_name, result_media=True),
            call=None,
        )

    return model.derive(plain)


class Bodies(Struct, frozen=True):
    """Builds bodies for one model. `base` are the values by path that every request needs, as far as is known."""

    model: Model
    base: dict[str, Any] = {}
    drop: tuple[str, ...] = ()

    @property
    def turns(self) -> str:
        """Return the key of the messages."""
        return wire(self.model.protocol).turns

    def path(self, name: str) -> str:
        """Return where the wire has a parameter; its own name where the wire does not have it."""
        return param_rules.path(name, (self.model.flags.params or {}).get(name))

    def build(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Function] = (),
        stream: bool = False,
        values: Mapping[str, Any] | None = None,
        reasons: bool = False,
        **parts: Any,
    ) -> dict[str, Any]:
        """Return a body. `values` are further values by path, `reasons` says whether the model is to reason.

        `parts` are further fields of the encoder's input: choice, tool_name, parallel, method, schema.
        """
        flags = self.model.flags_for(conditions(stream=stream, tools=bool(tools), reasoning=reasons))
        source = EncodeInput(model=self.model.id, messages=messages, tools=tools, stream=stream, **parts)
        body = copy.deepcopy(wire(self.model.protocol).encode_body(source, flags))
        if flags.body.set:
            dropped = {*self.drop, *(flags.body.drop or ())}
            merge_patch(body, {k: v for k, v in flags.body.set.items() if k not in dropped})
        for path, value in {**self.base, **(values or {})}.items():
            set_value(body, path, copy.deepcopy(value))
        return body
