"""The types that recording and replaying share, and chunks as JSON."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from cnllm.types import checks

__all__ = ["Answer", "AsyncAnswer", "Json", "Request", "as_bytes", "as_json", "require_plan"]

Answer = tuple[int, dict[str, str], Iterator[bytes]]
AsyncAnswer = tuple[int, dict[str, str], AsyncIterator[bytes]]
Json = dict[str, Any]


class Request(Protocol):
    """A request that a transport can send; `cnllm.Plan` is one."""

    @property
    def method(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def headers(self) -> dict[str, str]: ...
    @property
    def body(self) -> Any: ...


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


def as_bytes(chunk: str | dict[str, str]) -> bytes:
    """Return the bytes of a chunk, the inverse of `as_json`."""
    return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk["base64"])
