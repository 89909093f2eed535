"""The mode of a request, and the flags that follow from it.

What a request holds decides its mode (with tools, with reasoning, …), the mode decides the flags (`when` tables), and
the flags decide what a request may hold. `settle` goes round this circle until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode.reasoning import is_reasoning
from cnllm.engine.options import RequestOptions
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model, conditions
from cnllm.types import Message
from cnllm.types.tools import Function

__all__ = ["MOST_PASSES", "Draft", "Step", "draft", "settle"]

MOST_PASSES = 4
"""How often the steps run at most. Each step only takes something away, so that real registries need two passes."""

_STRICT = attrgetter("strict")


class Draft(Struct, frozen=True, kw_only=True):
    """A request whose body is not written yet: the options so far, their mode, and the flags of this mode.

    `stream` says whether the caller iterates over a stream, `streams` whether one goes over the wire: the mode is that
    of the wire. `tools` are those that the body offers: fewer than `options.tools` where a choice is narrowed to one of
    them. `strict_forms` hold the caller's own parameters, by tool, where strict mode changed them. `images` says
    whether any message holds a picture or another medium, `depends_on_messages` whether a step has read them.
    """

    model: Model
    messages: list[Message]
    stream: bool
    streams: bool
    images: bool
    options: RequestOptions
    mode: frozenset[str]
    flags: Flags
    tools: tuple[Function, ...]
    strict_forms: dict[str, dict[str, Any]] = {}
    depends_on_messages: bool = False

    def with_options(self, options: RequestOptions) -> Draft:
        """Return the draft with other options, in the mode and with the flags that follow from them."""
        if options is self.options:
            return self
        tools = options.tools
        if self.tools is not self.options.tools:  # a choice was narrowed to some of them
            names = {tool.name for tool in self.tools}
            tools = tuple(tool for tool in tools if tool.name in names)
        return replace(self, options=options, tools=tools)._in_its_mode()

    def with_streams(self, *, streams: bool) -> Draft:
        """Return the draft with a stream over the wire or without one, in the mode that follows from it."""
        return replace(self, streams=streams)._in_its_mode()

    def _in_its_mode(self) -> Draft:
        """Return the draft in the mode and with the flags that follow from the rest of it."""
        mode = _mode(self.model, self.options, stream=self.streams, images=self.images)
        return self if mode == self.mode else replace(self, mode=mode, flags=self.model.flags_for(mode))


Step = Callable[[Draft, Ledger], Draft]
"""A step of `settle`: it takes away what the flags of the mode refuse, with a note, and leaves the rest as it is."""


def draft(model: Model, messages: list[Message], options: RequestOptions, *, stream: bool, images: bool) -> Draft:
    """Return the draft of a request as the caller asked for it."""
    mode = _mode(model, options, stream=stream, images=images)
    return Draft(
        model=model,
        messages=messages,
        stream=stream,
        streams=stream,
        images=images,
        options=options,
        mode=mode,
        flags=model.flags_for(mode),
        tools=options.tools,
    )


def settle(request: Draft, steps: Sequence[Step], ledger: Ledger) -> Draft:
    """Run the steps until the mode no longer changes, at most `MOST_PASSES` times. The ledger follows the mode."""
    for _ in range(MOST_PASSES):
        mode = request.mode
        for step in steps:
            ledger.mode = request.mode
            request = step(request, ledger)
        if request.mode == mode:
            break
    ledger.mode = request.mode
    return request


def _mode(model: Model, options: RequestOptions, *, stream: bool, images: bool) -> frozenset[str]:
    """Return the conditions that hold for a request (see `cnllm.registry.model.conditions`)."""
    return conditions(
        reasoning=is_reasoning(options.reasoning, model.flags.reasoning),
        tools=bool(options.tools),
        stream=stream,
        schema=options.schema is not None,
        strict=any(map(_STRICT, options.tools)),
        forced=options.choice in ("required", "named"),
        images=images,
        search=options.search is not None,
    )
