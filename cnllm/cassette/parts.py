"""The types that recording and replaying share, and chunks as JSON."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from cnllm.types import checks

__all__ = [
    "Answer",
    "AsyncAnswer",
    "Json",
    "RecordedExchange",
    "as_json",
    "read_exchange",
    "require_plan",
    "url_path",
]

Answer = tuple[int, dict[str, str], Iterator[bytes]]
AsyncAnswer = tuple[int, dict[str, str], AsyncIterator[bytes]]
Json = dict[str, Any]


def require_plan(plan: Any) -> None:
    """Raise `TypeError` for a value that is not a request."""
    try:
        valid = isinstance(plan.method, str) and isinstance(plan.url, str) and isinstance(plan.headers, dict)
    except Exception:  # noqa: BLE001  an object whose attributes raise is no request
        valid = False
    if not valid:
        raise checks.wrong_type("plan", plan, "a request (a cnllm.Plan)")


def as_json(chunk: bytes) -> str | dict[str, str]:
    """Return a chunk as text, or as {"base64": …} where it is not UTF-8 by itself."""
    try:
        return chunk.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(chunk).decode()}


class _Base64(Struct, frozen=True):
    base64: str


class RecordedRequest(Struct, frozen=True):
    """The request of an exchange."""

    method: str
    url: str
    body: Any = None
    headers: dict[str, str] = {}


class RecordedResponse(Struct, frozen=True):
    """The response of an exchange, as far as it came. `times` are the seconds from the request to each chunk."""

    status: Annotated[int, Meta(ge=100, le=999)]
    headers: dict[str, str]
    chunks: list[str | _Base64]
    times: list[float] = []


class RecordedError(Struct, frozen=True):
    """The failure of an exchange: the name of its class, and the message."""

    type: str
    message: str


class RecordedExchange(Struct, frozen=True):
    """A line of a cassette. One that was abandoned before its response has neither a response nor an error."""

    request: RecordedRequest
    response: RecordedResponse | None = None
    ended: Literal["whole", "abandoned", "failed"] = "whole"
    error: RecordedError | None = None
    when: str = ""

    @property
    def key(self) -> tuple[str, str, Any]:
        """Return what a request must equal to be answered: method, path and body."""
        return self.request.method, url_path(self.request.url), self.request.body

    @property
    def chunks(self) -> list[bytes]:
        """Return the bytes of the response as they came."""
        return [] if self.response is None else [_as_bytes(chunk) for chunk in self.response.chunks]


def read_exchange(line: bytes) -> RecordedExchange:
    """Read a line of a cassette. Raises `ValueError` or `RecursionError` for a line that is none."""
    # json takes half of a surrogate pair, unlike msgspec
    exchange = msgspec.convert(json.loads(line), RecordedExchange)
    has_end = exchange.ended != "failed" and (exchange.response is not None or exchange.ended == "abandoned")
    if exchange.error is None and not has_end:
        raise ValueError("it has no answer and no error")
    _ = exchange.chunks  # raises for bytes that are no Base64
    return exchange


def url_path(url: str) -> str:
    """Return the part between host and query. `urlsplit` would fail on a redacted host."""
    return re.sub(r"^[^:/?#]+://[^/?#]*|[?#].*", "", url)


def _as_bytes(chunk: str | _Base64) -> bytes:
    """Return the bytes of a chunk, the inverse of `as_json`."""
    return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk.base64, validate=True)
