"""The wire protocols: plain functions, one module a wire and direction, found by the protocol's name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.flags import Flags
from cnllm.types import Event, Media
from cnllm.wires.ask import Ask
from cnllm.wires.sink import Sink

__all__ = ["Ask", "Quick", "Sink", "Wire", "wire"]

Quick = Callable[[bytes], tuple[str, str | None] | None]
"""Reads the one kind of chunk that makes up nearly all of a stream: (text, field of the thinking or None for the
answer), or None for a chunk that anything else is in."""

_MODULES = {
    "openai-chat": "chat",
    "anthropic-messages": "messages",
    "gemini": "gemini",
    "openai-responses": "responses",
}


class Wire(Struct, frozen=True):
    """One wire protocol.

    `write(ask, flags)` makes the body but for parameters and patches, which are data; its turns stand under the key
    `turns`. `chunk(data, flags, sink, whole=)` reads one decoded chunk, or one body. `quick(flags)` is the fast way for
    its commonest chunk. `ordered`: parts come one after the other and go back in the order in which they came.
    `arrays`: a stream may come as one JSON array of chunks. `lists`: parameters that are lists, where one will do, too.
    `takes(media, flags)` says whether a medium can be written at all, `parts` are the wire's own types of content parts
    that may name a file which the endpoint keeps.
    `tells_length`: the word for the end of a whole reply says that no limit was reached.
    `apart`: with these places of a system message it stands beside the turns, and is none of them.
    """

    write: Callable[[Ask, Flags], dict[str, Any]]
    chunk: Callable[..., list[Event]]
    turns: str
    quick: Callable[[Flags], Quick] | None = None
    ordered: bool = True
    arrays: bool = False
    lists: tuple[str, ...] = ()
    apart: tuple[str | None, ...] = ()
    takes: Callable[[Media, Flags], bool] = lambda media, flags: True
    parts: frozenset[str] = frozenset()
    tells_length: bool = True


@cache
def wire(protocol: str) -> Wire:
    """The wire that goes by this name. Raises `RegistryError` for one that nobody here speaks."""
    name = _MODULES.get(protocol)
    if name is None:
        raise RegistryError(f"nobody here speaks {protocol}", hint=f"protocol is one of {', '.join(sorted(_MODULES))}")
    found: Wire = import_module(f"cnllm.wires.{name}").WIRE
    return found
