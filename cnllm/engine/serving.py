"""Requests in and replies out of every protocol: what a server between clients and models needs."""

from __future__ import annotations

from typing import Any

import msgspec

from cnllm.model import Model
from cnllm.protocols import framed, speaks
from cnllm.types import Event, Message, Reply, Request, Seal

__all__ = ["StreamWriter", "decode_request", "encode_error", "encode_reply"]


def decode_request(protocol: str, body: dict[str, Any], *, path: str = "", origin: Model | None = None) -> Request:
    """A request body → the messages and options it means.

    `path` is the URL's path, which on one protocol names the model and says whether to stream. `origin` is the model
    that wrote the assistant's turns: what it wants back (signatures, encrypted reasoning) is sealed as its own and goes
    back to it alone; without one it goes nowhere. Raises `ValueError` naming the place that is not as it must be.
    """
    protocol_of, provider, id = (origin.protocol, origin.provider, origin.id) if origin else (protocol, "", "")

    def stamp(data: Any) -> Seal:
        return Seal(protocol_of, provider, id, data)

    read = speaks(protocol).read_request(body, path.partition("?")[0], stamp)
    if origin is None:
        return read
    return msgspec.structs.replace(read, messages=[_by(message, origin.name) for message in read.messages])


def _by(message: Message, name: str) -> Message:
    return msgspec.structs.replace(message, by=name) if message.role == "assistant" else message


def encode_reply(protocol: str, reply: Reply) -> dict[str, Any]:
    """A reply → the body of a whole answer in that protocol."""
    return speaks(protocol).write_reply(reply)


def encode_error(protocol: str, status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """A failure → the body of a refusal in that protocol."""
    return speaks(protocol).write_error(status, message, code)


class StreamWriter:
    """Writes a stream of that protocol: `begin`, then each event, to `Finished`; every call gives the bytes to send."""

    def __init__(self, protocol: str, *, id: str = "", model: str = "") -> None:
        self._writes = speaks(protocol).stream(id, model)

    def begin(self) -> bytes:
        """What comes before the first event."""
        return _framed(self._writes.begin())

    def feed(self, event: Event) -> bytes:
        """One event. What has no place in the protocol (notes) is no bytes."""
        return _framed(self._writes.event(event))

    def error(self, status: int, message: str, code: str | None = None) -> bytes:
        """A failure after the stream began; nothing may follow."""
        return _framed(self._writes.error(status, message, code))


def _framed(frames: list[tuple[str | None, Any]]) -> bytes:
    return b"".join(framed(name, data) for name, data in frames)
