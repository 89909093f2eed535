"""The wire protocols, one folder each, found by the protocol's name.

`wire` is the side that asks an endpoint, `speaks` the side that answers a client, for a gateway and the simulator. The
two share the types and no code, so that neither can hide an error of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.protocols.decode_sink import EventSink
from cnllm.protocols.encode_input import EncodeInput
from cnllm.registry.flags import Flags
from cnllm.types import Event, Media, Reply, Request, Seal

__all__ = [
    "PROTOCOLS",
    "EncodeInput",
    "EventSink",
    "Quick",
    "ServerCodec",
    "ServerStream",
    "Stamp",
    "Wire",
    "server_codec",
    "sse_frame",
    "wire",
]

Stamp = Callable[[Any], Seal]
"""What an endpoint wants back unchanged → the seal of a part."""

_MODULES = {
    "openai-chat": "chat",
    "anthropic-messages": "messages",
    "gemini": "gemini",
    "openai-responses": "responses",
}

PROTOCOLS = tuple(_MODULES)
"""The names of those that are spoken here."""


class ServerStream(Protocol):
    """Writes one stream. Each frame is (event name or None, data as JSON or the bytes that stand for it)."""

    def begin(self) -> list[tuple[str | None, Any]]:
        """What comes before the first event."""

    def event(self, event: Event) -> list[tuple[str | None, Any]]:
        """What one event comes to; `Finished` is the last and brings what ends a stream."""

    def error(self, status: int, message: str, code: str | None) -> list[tuple[str | None, Any]]:
        """A failure in the middle."""


class ServerCodec(Struct, frozen=True):
    """One protocol as a server speaks it.

    `read_request(body, path, stamp)`: `path` is the URL's, where that says the model or whether to stream; raises
    `ValueError` naming the place where a body is not shaped as the protocol demands. `write_reply(reply, request)` is a
    whole body, `write_error(status, message, code)` that of a refusal, `stream(id, model, request)` writes a stream;
    `request` is the body that is answered, of which some protocols repeat a part. `bearer`: whatever header an endpoint
    names, clients of this protocol may send the key as a bearer's token as well. `result_names`: a tool result has a
    place for the tool's name.
    """

    read_request: Callable[[dict[str, Any], str, Stamp], Request]
    write_reply: Callable[[Reply, Mapping[str, Any] | None], dict[str, Any]]
    write_error: Callable[[int, str, str | None], dict[str, Any]]
    stream: Callable[[str, str, Mapping[str, Any] | None], ServerStream]
    bearer: bool = False
    result_names: bool = False


def sse_frame(name: str | None, data: Any) -> bytes:
    """One frame of a stream as a server-sent event."""
    said = data if type(data) is bytes else msgspec.json.encode(data)
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + said + b"\n\n"


@cache
def server_codec(protocol: str) -> ServerCodec:
    """The protocol that goes by this name. Raises `RegistryError` for one that nobody here speaks."""
    name = _MODULES.get(protocol)
    if name is None:
        raise RegistryError(f"nobody here speaks {protocol}", hint=f"protocol is one of {', '.join(sorted(_MODULES))}")
    found: ServerCodec = import_module(f"cnllm.protocols.{name}.server").SPOKEN
    return found


Quick = Callable[[bytes], tuple[str, str | None] | None]
"""Reads the one kind of chunk that makes up nearly all of a stream: (text, field of the thinking or None for the
answer), or None for a chunk that anything else is in."""


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

    write: Callable[[EncodeInput, Flags], dict[str, Any]]
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
    found: Wire = import_module(f"cnllm.protocols.{name}.client").WIRE
    return found
