"""What the tests of errors share: the table of bodies, and the error that a body becomes."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import cnllm
from cnllm import engine
from cnllm.protocols import PROTOCOLS

Json = dict[str, Any]
Row = dict[str, Any]

BODIES = Path(__file__).with_name("bodies.json")
CLASSES: dict[str, type[cnllm.EndpointError]] = {
    "bad-key": cnllm.BadKey,
    "quota": cnllm.QuotaExceeded,
    "rate": cnllm.RateLimited,
    "overloaded": cnllm.Overloaded,
    "context": cnllm.ContextTooLong,
    "filtered": cnllm.ContentFiltered,
    "replay": cnllm.ReplayMissing,
    "bad-request": cnllm.BadRequest,
    "other": cnllm.EndpointError,
}
WIRES = PROTOCOLS


def rows() -> list[Row]:
    """The table: each row a body that an endpoint sent, and what it must become."""
    found: list[Row] = json.loads(BODIES.read_text())
    return found


@lru_cache(1)
def registry() -> cnllm.Registry:
    return cnllm.Registry.load()


@lru_cache(256)
def model(provider: str, wire: str, base_url: str | None = None) -> cnllm.Model:
    """Any model of a provider over a wire; an undeclared server where the provider is `openai-compatible`."""
    if provider == "openai-compatible":
        base_url = base_url or "http://127.0.0.1:9/v1"
    return registry().resolve(f"{provider}/some-model", protocol=wire, base_url=base_url)


def content(body: Any) -> bytes:
    return body.encode() if type(body) is str else json.dumps(body, ensure_ascii=False).encode()


def failure(model: cnllm.Model, status: int, sent: bytes, headers: dict[str, str] | None = None) -> cnllm.CnllmError:
    """The error that a response becomes."""
    try:
        engine.parse_response(model, status, headers or {}, sent)
    except cnllm.CnllmError as error:
        return error
    raise AssertionError(f"no error: {sent[:200]!r}")


def as_sent(row: Row) -> bytes:
    body = content(row["body"])
    return b"data: " + body + b"\n\n" if row.get("stream") else body
