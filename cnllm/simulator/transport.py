"""The simulator in the place of a network: a plan goes in, an endpoint's bytes come out."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from cnllm.protocols import server_codec
from cnllm.registry.model import Model
from cnllm.simulator import chat, write
from cnllm.simulator.check_request import ErrorResponse, check_request, error_response
from cnllm.simulator.read import CHAT, read_request
from cnllm.simulator.reply import make_reply
from cnllm.simulator.request import ParsedRequest, flags_for
from cnllm.simulator.violations import Violation

__all__ = [
    "MARK",
    "AsyncSimTransport",
    "ModelLookup",
    "OutgoingRequest",
    "SimTransport",
    "SimulatedResponse",
    "is_unlisted",
    "reject",
    "respond",
]

MARK = "x-cnllm-simulated"
_DEEPEST = 128
_TOO_DEEP = f"The body is nested deeper than {_DEEPEST} levels."


class OutgoingRequest(Protocol):
    """What a transport is handed: where a request goes, and its bytes."""

    @property
    def model(self) -> Model: ...
    @property
    def url(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def content(self) -> bytes: ...


class ModelLookup(Protocol):
    """What the simulator needs of a registry."""

    def resolve(self, name: str, *, protocol: str | None = None) -> Model: ...
    def names(self) -> list[str]: ...


class SimulatedResponse(Struct, frozen=True):
    """A response: its body comes in pieces, one per event where it streams."""

    status: int
    headers: dict[str, str]
    pieces: Iterable[bytes]


def is_unlisted(registry: ModelLookup | None, model: Model) -> bool:
    """Whether the endpoint's models are listed in the registry and this is none of them."""
    if all(note.code != "unknown-model" for note in model.notes):
        return False
    return registry is None or any(name.startswith(f"{model.provider}/") for name in registry.names())


def respond(
    model: Model,
    headers: Mapping[str, str],
    content: bytes,
    path: str = "",
    *,
    strict: bool = False,
    unlisted: bool = False,
    shown: str | None = None,
) -> SimulatedResponse:
    """What this endpoint answers to these bytes, sent to this path.

    `strict`: all that the flags deny is refused. `unlisted`: it serves no such model. `shown`: the name that stands in
    the answer in place of the model's; refusals then are in general words, which name nobody.
    """
    try:
        body = msgspec.json.decode(content)
    except RecursionError:
        return _turned_away(model, _TOO_DEEP)
    except (msgspec.DecodeError, UnicodeError) as error:
        return _turned_away(model, f"The body is not JSON: {error}")
    if not isinstance(body, dict):
        return _turned_away(model, "The body is not a JSON object.")
    if (why := _unusable(content, body)) is not None:
        return _turned_away(model, why)
    try:
        asked = read_request(model, body, path)
        refused = check_request(model, headers, asked, strict=strict, general=shown is not None, unlisted=unlisted)
        return _answered(model, asked, shown or model.id) if refused is None else _refused(refused)
    except (RecursionError, UnicodeError, OverflowError, ValueError) as error:
        return _turned_away(model, f"The body cannot be read: {error}")


def _turned_away(model: Model, why: str) -> SimulatedResponse:
    """Return a refusal in the shape of the model's wire."""
    return _refused(error_response(Violation("param", why), [], model))


def _unusable(content: bytes, body: dict[str, Any]) -> str | None:
    """Return why no endpoint reads a body that is JSON; None where one does."""
    if content.count(b"[") + content.count(b"{") > _DEEPEST and _is_deep(body):
        return _TOO_DEEP
    if b"\\ud" in content or b"\\uD" in content:
        try:
            msgspec.json.encode(body)
        except UnicodeEncodeError:
            return "The body holds half of a surrogate pair."
    return None


def _is_deep(body: Any) -> bool:
    """Whether JSON is nested deeper than any endpoint takes it. Walks by levels, without recursion."""
    level = [body]
    for _ in range(_DEEPEST):
        level = [
            each
            for value in level
            for each in (value.values() if isinstance(value, dict) else value)
            if isinstance(each, dict | list)
        ]
        if not level:
            return False
    return True


def _answered(model: Model, asked: ParsedRequest, shown: str) -> SimulatedResponse:
    flags, thinks = flags_for(model, asked)
    said = make_reply(shown, flags, asked, thinks)
    if asked.stream:
        told = (chat if model.protocol == CHAT else write).encode_frames(model, flags, asked, said)
        return SimulatedResponse(
            200, {"content-type": "text/event-stream", "cache-control": "no-cache", MARK: "1"}, told
        )
    body_of = (chat if model.protocol == CHAT else write).encode_body(model, flags, asked, said)
    return SimulatedResponse(200, _json(), [body_of])


def reject(
    wrong: Violation, *, status: int | None = None, protocol: str | None = None, **headers: str
) -> SimulatedResponse:
    """A refusal that no endpoint words: bad JSON, no such path, a wire not spoken. `protocol` gives its shape."""
    plain = error_response(wrong, [])
    if protocol is not None and protocol != CHAT:
        said = server_codec(protocol).write_error(status or plain.status, wrong.message, wrong.on)
        plain = ErrorResponse(status=plain.status, body=msgspec.json.encode(said).decode())
    kept = _refused(ErrorResponse(status=status or plain.status, body=plain.body))
    return SimulatedResponse(kept.status, kept.headers | headers, kept.pieces)


def _refused(refused: ErrorResponse) -> SimulatedResponse:
    looks_json = refused.body.lstrip().startswith(("{", "["))
    headers = _json() if looks_json else {"content-type": "text/plain; charset=utf-8", MARK: "1"}
    return SimulatedResponse(refused.status, headers, [refused.body.encode()])


def _json() -> dict[str, str]:
    return {"content-type": "application/json", MARK: "1"}


def _sent(plan: OutgoingRequest, registry: ModelLookup | None, strict: bool) -> SimulatedResponse:
    unlisted = strict and is_unlisted(registry, plan.model)
    path = unquote(urlsplit(plan.url).path)
    return respond(plan.model, plan.headers, plan.content, path, strict=strict, unlisted=unlisted)


class SimTransport:
    """A transport that answers out of the registry; `pace` is the seconds between the pieces of a stream.

    With `strict` it refuses all that the flags of a model deny, also what real endpoints are not known to refuse.
    """

    def __init__(self, registry: ModelLookup | None = None, pace: float = 0.0, *, strict: bool = False) -> None:
        self.registry = registry
        self.pace = pace
        self.strict = strict

    def send(self, plan: OutgoingRequest) -> tuple[int, dict[str, str], Iterator[bytes]]:
        """Status, headers, and the body in pieces."""
        answered = _sent(plan, self.registry, self.strict)
        return answered.status, answered.headers, self._paced(answered.pieces)

    def _paced(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for index, piece in enumerate(pieces):
            if index and self.pace:
                time.sleep(self.pace)
            yield piece

    def close(self) -> None:
        """Nothing is held open."""


class AsyncSimTransport:
    """The same for code that awaits; under asyncio and trio alike."""

    def __init__(self, registry: ModelLookup | None = None, pace: float = 0.0, *, strict: bool = False) -> None:
        self.registry = registry
        self.pace = pace
        self.strict = strict

    async def send(self, plan: OutgoingRequest) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Status, headers, and the body in pieces."""
        answered = _sent(plan, self.registry, self.strict)
        return answered.status, answered.headers, self._paced(answered.pieces)

    async def _paced(self, pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
        for index, piece in enumerate(pieces):
            if index and self.pace:
                import anyio  # comes with httpx; only a paced answer needs it

                await anyio.sleep(self.pace)
            yield piece

    async def aclose(self) -> None:
        """Nothing is held open."""
