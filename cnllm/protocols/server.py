"""Requests in and replies out of every protocol: what a server between clients and models needs."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from cnllm.protocols import ServerCodec, server_codec, sse_frame
from cnllm.registry.model import Model
from cnllm.types import (
    Event,
    Finished,
    Message,
    Reply,
    Request,
    Seal,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    checks,
)
from cnllm.types.faults import struct_fault
from cnllm.types.lenient_json import replace_surrogates

_EVENTS = frozenset(get_args(Event))

__all__ = ["StreamWriter", "decode_request", "encode_error", "encode_reply"]


def decode_request(protocol: str, body: dict[str, Any], *, path: str = "", origin: Model | None = None) -> Request:
    """A request body → the messages and options it means.

    `path` is the URL's path, which on one protocol names the model and says whether to stream. `origin` is the model
    that wrote the assistant's turns: what it wants back (signatures, encrypted reasoning) is sealed as its own and goes
    back to it alone; without one it goes nowhere. Raises `ValueError` naming the place that is not as it must be.
    """
    body = checks.as_dict("body", body, "the body of a request (a dict)")
    checks.require_text("path", path)
    if origin is not None:
        checks.require_type("origin", origin, Model, "a cnllm.Model or None")
    protocol_of, provider, id = (origin.protocol, origin.provider, origin.id) if origin else (protocol, "", "")

    def stamp(data: Any) -> Seal:
        return Seal(protocol_of, provider, id, data)

    read = _spoken(protocol).read_request(body, path.partition("?")[0], stamp)
    if origin is None:
        return read
    return msgspec.structs.replace(read, messages=[_by(message, origin.name) for message in read.messages])


def _by(message: Message, name: str) -> Message:
    return msgspec.structs.replace(message, by=name) if message.role == "assistant" else message


def encode_reply(protocol: str, reply: Reply, *, request: dict[str, Any] | None = None) -> dict[str, Any]:
    """A reply → the body of a whole answer in that protocol. `request`: the body it answers, which some repeat.

    An excluded call is left out, as whoever reads the body would execute it; the reply's notes still name it.
    """
    spoken = _spoken(protocol)
    checks.require_type("reply", reply, Reply, "a cnllm.Reply")
    return spoken.write_reply(_executable(reply), _request(request))


def _executable(reply: Reply) -> Reply:
    """The reply without its excluded calls."""
    parts = reply.message.parts
    if not any(type(part) is ToolCall and part.excluded for part in (*parts, *reply.tool_calls, *reply.incomplete)):
        return reply
    calls = [call for call in reply.tool_calls if not call.excluded]
    kept = tuple(part for part in parts if type(part) is not ToolCall or not part.excluded)
    none_left = reply.finish == "tool_calls" and not calls
    return msgspec.structs.replace(
        reply,
        tool_calls=calls,
        incomplete=[call for call in reply.incomplete if not call.excluded],
        message=msgspec.structs.replace(reply.message, parts=kept),
        finish="stop" if none_left else reply.finish,
        raw_finish=None if none_left else reply.raw_finish,
    )


def encode_error(protocol: str, status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """A failure → the body of a refusal in that protocol."""
    spoken = _spoken(protocol)
    return spoken.write_error(*_error(status, message, code))


class StreamWriter:
    """Writes a stream of that protocol: `begin`, then each event, to `Finished`; every call gives the bytes to send.

    An excluded call is left out, as whoever reads the stream would execute it.

    `request`: the body that is answered, which some protocols repeat.
    """

    def __init__(self, protocol: str, *, id: str = "", model: str = "", request: dict[str, Any] | None = None) -> None:
        spoken = _spoken(protocol)
        checks.require_text("id", id)
        checks.require_text("model", model)
        self._writes = spoken.stream(id, model, _request(request))
        self._excluded: set[int] = set()
        self._places: dict[int, int] = {}  # of the calls that are written, by the index that the reply gives them

    def begin(self) -> bytes:
        """What comes before the first event."""
        return _framed(self._writes.begin())

    def feed(self, event: Event) -> bytes:
        """One event. What has no place in the protocol (notes, excluded calls) is no bytes."""
        if type(event) not in _EVENTS:
            raise checks.wrong_type("event", event, "an event of a reply (cnllm.Event)")
        try:
            kept = self._kept(event)
            return b"" if kept is None else _framed(self._writes.event(kept))
        except checks.FAILURES as error:
            if (named := struct_fault("event", event)) is not None:
                raise named from error
            raise

    def _kept(self, event: Event) -> Event | None:
        """The event as the reader gets it; None for one of an excluded call."""
        match event:
            case ToolCallStart(index=index) | ToolCallDelta(index=index) | ToolCallEnd(index=index):
                if (type(event) is ToolCallStart and event.excluded) or (
                    type(event) is ToolCallEnd and event.call.excluded
                ):
                    self._excluded.add(index)
                if index in self._excluded:
                    return None
                place = self._places.setdefault(index, len(self._places))
                return event if place == index else msgspec.structs.replace(event, index=place)
            case Finished(finish="tool_calls") if self._excluded and not self._places:
                return Finished("stop", None)
        return event

    def error(self, status: int, message: str, code: str | None = None) -> bytes:
        """A failure after the stream began; nothing may follow."""
        return _framed(self._writes.error(*_error(status, message, code)))


def _request(request: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if request is None else checks.as_dict("request", request, "the body of a request (a dict) or None")


def _spoken(protocol: str) -> ServerCodec:
    checks.require_text("protocol", protocol)
    return server_codec(str.__str__(protocol))


def _error(status: int, message: str, code: str | None) -> tuple[int, str, str | None]:
    """Return what an error holds, as JSON can. Raises `TypeError` for anything else."""
    checks.require_type("status", status, int, "the status of an HTTP response (a number)")
    checks.require_text("message", message)
    if code is not None:
        checks.require_type("code", code, str, "a string or None")
        code = replace_surrogates(str.__str__(code))
    return int(status), replace_surrogates(str.__str__(message)), code


def _framed(frames: list[tuple[str | None, Any]]) -> bytes:
    return b"".join(sse_frame(name, data) for name, data in frames)
