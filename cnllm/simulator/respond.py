"""Return the response of an endpoint to the bytes of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from cnllm.protocols import server_api, server_codec
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry
from cnllm.schemas.work import depth
from cnllm.simulator import chat, codec
from cnllm.simulator.check_request import ErrorResponse, check_request, error_response
from cnllm.simulator.codec import read_request
from cnllm.simulator.reply import SimulatedReply, make_reply
from cnllm.simulator.request import ParsedRequest, flags_for
from cnllm.simulator.violations import Violation

__all__ = [
    "MARK",
    "NDJSON",
    "Change",
    "Endpoints",
    "SimulatedResponse",
    "error_body",
    "json_response",
    "read_object",
    "reject",
]

MARK = "x-cnllm-simulated"
NDJSON = "application/x-ndjson"
_JSON = {"content-type": "application/json", MARK: "1"}
_MAX_DEPTH = 128
Change = Callable[[ParsedRequest, SimulatedReply], SimulatedReply]
"""Returns the reply that a host sends in place of the simulator's own."""
_TOO_DEEP = f"The body is nested deeper than {_MAX_DEPTH} levels."


class SimulatedResponse(Struct, frozen=True):
    """A response. Its body comes in pieces, one per event if it streams."""

    status: int
    headers: dict[str, str]
    pieces: Iterable[bytes]


class Endpoints(Struct, frozen=True):
    """The endpoints of a registry. `strict`: refuse everything that the flags deny. `change` changes each reply."""

    registry: Registry | None = None
    strict: bool = False
    change: Change | None = None

    def respond(
        self,
        model: Model,
        headers: Mapping[str, str],
        content: bytes,
        path: str = "",
        public_name: str | None = None,
        query: str | None = None,
    ) -> SimulatedResponse:
        """Return the response of a model's endpoint to these bytes at this path.

        `query`: that of the request, where it says whether a stream has server-sent events. Without it each has.
        `public_name`: the name that replaces the model's in the response; errors then use general words without names.
        """
        try:
            body = read_object(content)
        except ValueError as error:
            return _bad_request(model, str(error))
        if (problem := _body_problem(content, body)) is not None:
            return _bad_request(model, problem)
        try:
            request = read_request(model, body, path)
            general, unlisted = public_name is not None, self._is_unlisted(model)
            rejection = check_request(model, headers, request, strict=self.strict, general=general, unlisted=unlisted)
            if rejection is not None:
                return error_body(rejection)
            response = _success(model, request, public_name or model.id, self.change)
            events_query = server_api(model.protocol).events_query
            if request.stream and None not in (query, events_query) and events_query not in parse_qsl(query):
                return SimulatedResponse(200, dict(_JSON), _json_array(response.pieces))
            return response
        except (RecursionError, UnicodeError, OverflowError, ValueError) as error:
            return _bad_request(model, f"The body cannot be read: {error}")

    def _is_unlisted(self, model: Model) -> bool:
        """Whether the registry lists the endpoint's models but not this one."""
        if all(note.code != "unknown-model" for note in model.notes):
            return False
        if self.registry is None:
            return self.strict
        return any(name.startswith(f"{model.provider}/") for name in self.registry.names())


def read_object(content: bytes) -> dict[str, Any]:
    """Return the object in a body. Raise `ValueError`, in the words of an endpoint, for a body that is none."""
    try:
        body = msgspec.json.decode(content)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ValueError("The body is not a JSON object.")
    return body


def _bad_request(model: Model, message: str) -> SimulatedResponse:
    """Return an error in the shape of the model's wire."""
    return error_body(error_response(Violation("param", message), model.protocol))


def _body_problem(content: bytes, body: dict[str, Any]) -> str | None:
    """Return why endpoints cannot read a body that is JSON; None if they can."""
    if content.count(b"[") + content.count(b"{") > _MAX_DEPTH and depth(body, _MAX_DEPTH + 2) > _MAX_DEPTH + 1:
        return _TOO_DEEP
    if b"\\ud" in content or b"\\uD" in content:
        try:
            msgspec.json.encode(body)
        except UnicodeEncodeError:
            return "The body holds half of a surrogate pair."
    return None


def _success(model: Model, request: ParsedRequest, name: str, change: Change | None) -> SimulatedResponse:
    flags, thinks = flags_for(model, request)
    reply = make_reply(name, flags, request, thinks=thinks)
    if change is not None:
        reply = change(request, reply)
    encoder = chat if server_codec(model.protocol).dialects else codec
    if request.stream:
        kind, pieces = "text/event-stream", encoder.encode_frames(model, flags, request, reply)
        if flags.stream.framing == "ndjson":
            is_marked = flags.stream.terminator in ("done", "any")
            kind, pieces = NDJSON, filter(None, map(partial(_json_line, is_marked=is_marked), pieces))
        return SimulatedResponse(200, {"content-type": kind, "cache-control": "no-cache", MARK: "1"}, pieces)
    body = encoder.encode_body(model, flags, request, reply)
    return json_response(body)


def _json_line(frame: bytes, *, is_marked: bool) -> bytes:
    """Return the data of an event as a line: nothing for a comment, and for an end marker that is not used."""
    data = b"".join(line[5:].strip() for line in frame.split(b"\n") if line.startswith(b"data:"))
    return b"" if not data or (data == b"[DONE]" and not is_marked) else data + b"\n"


def _json_array(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the events of a stream as the elements of an array."""
    before = b"["
    for frame in frames:
        yield before + _json_line(frame, is_marked=False)
        before = b","
    yield b"]"


def reject(
    violation: Violation, *, status: int | None = None, protocol: str | None = None, **headers: str
) -> SimulatedResponse:
    """Return an error outside any endpoint: bad JSON, an unknown path or wire. `protocol` sets its shape."""
    response = error_body(error_response(violation, protocol, status))
    return SimulatedResponse(response.status, response.headers | headers, response.pieces)


def error_body(error: ErrorResponse) -> SimulatedResponse:
    """Return an error as a response."""
    looks_json = error.body.lstrip().startswith(("{", "["))
    headers = _JSON if looks_json else {"content-type": "text/plain; charset=utf-8", MARK: "1"}
    return SimulatedResponse(error.status, dict(headers), [error.body.encode()])


def json_response(body: bytes) -> SimulatedResponse:
    """Return a body of JSON as a response."""
    return SimulatedResponse(200, dict(_JSON), [body])
