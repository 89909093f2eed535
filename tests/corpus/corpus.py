"""The recorded traffic: where it is, how it is read, and which models it is read with.

The recordings are not part of the project. They are looked for in `../shared/wire` beside the repository;
where that folder is absent, every test here skips. To test a further wire, add an
oracle for its frames to `ORACLES` in oracle.py, and an expectation for each of its errors to test_errors.py. What is
special about a wire beside chat completions stands in a module of its name (`special`).
"""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import Registry
from cnllm.protocols import PROTOCOLS

WIRE = Path(__file__).resolve().parents[3] / "shared" / "wire"
ABSENT = "The recorded traffic (../shared/wire) is not here."

BASE_URL = "http://127.0.0.1:9/v1"

PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "alibaba": ("alibaba",),
    "anthropic": ("anthropic",),
    "azure": ("azure",),
    "bytedance": ("volcengine",),
    "cerebras": ("cerebras",),
    "chatgpt": ("chatgpt",),
    "deepseek": ("deepseek",),
    "google": ("google",),
    "groq": ("groq",),
    "huggingface": ("huggingface",),
    "llamacpp": ("llamacpp",),
    "minimax": ("minimax",),
    "mistral": ("mistral",),
    "ollama": ("ollama", "ollama-cloud"),
    "openai": ("openai",),
    "openrouter": ("openrouter",),
    "tencent": ("hunyuan",),
    "together": ("togetherai",),
    "xai": ("xai",),
    "zhipu": ("zhipuai", "zai"),
}
"""Corpus folder → the registry's own entries for that endpoint. Folders that are not named have none."""

GENERIC = "openai-compatible"

HOMELESS = (GENERIC, "azure")
"""Endpoints whose address is the customer's to name."""


@dataclass(frozen=True)
class Exchange:
    """One recorded request and its answer."""

    id: str
    folder: str
    model: str
    protocol: str
    stream: bool
    request: dict[str, Any] | None
    status: int
    content_type: str
    body: str
    expected: dict[str, Any] | None
    error_in_200: bool

    @property
    def content(self) -> bytes:
        """The bytes of the answer."""
        return self.body.encode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer; the recordings keep one only."""
        return {"content-type": self.content_type}

    @property
    def sent(self) -> dict[str, Any] | None:
        """The body of the request."""
        return self.request["body"] if self.request else None

    @property
    def accepted(self) -> bool:
        """Did the endpoint take the request?"""
        return self.status == 200 and not self.error_in_200

    @property
    def failed(self) -> bool:
        """Does the answer say that something went wrong, at once or in the middle?"""
        return not self.accepted or bool(self.expected and self.expected.get("stream_error"))


@functools.cache
def exchanges() -> tuple[Exchange, ...]:
    """All exchanges of the protocols under test."""
    found = []
    for file in sorted(WIRE.glob("*/*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        for number, exchange in enumerate(record["exchanges"]):
            if exchange["protocol"] not in PROTOCOLS:
                continue
            request, response = exchange["request"], exchange["response"]
            named = (request or {}).get("body", {}).get("model")
            in_path = re.search(r"/models/([^/?]+):", (request or {}).get("url", ""))
            found.append(
                Exchange(
                    id=f"{file.parent.name}/{file.stem}#{number}",
                    folder=file.parent.name,
                    model=named or (in_path[1] if in_path else record["model"]),
                    protocol=exchange["protocol"],
                    stream=exchange["stream"],
                    request=request,
                    status=response["status"],
                    content_type=response["content_type"],
                    body=response["body"],
                    expected=exchange["expected"],
                    error_in_200=bool(exchange.get("error_in_200")),
                )
            )
    return tuple(found)


_OWN = {"anthropic-messages": "messages", "gemini": "gemini", "openai-responses": "responses"}


def special(protocol: str) -> Any:
    """The module with what is special about a wire; None for chat completions.

    It has `asked(exchange, model)` → the contract's messages and options of a request, and `differences(exchange,
    body)` → what a rebuilt body has differently, as (where, recorded, rebuilt).
    """
    return importlib.import_module(f"{__package__}.{_OWN[protocol]}") if protocol in _OWN else None


@dataclass(frozen=True)
class Case:
    """One exchange, to be read as one endpoint's."""

    exchange: Exchange
    provider: str

    def resolve(self) -> Any:
        """The model, or a skip where the registry does not describe that endpoint (yet)."""
        return resolve(self.provider, self.exchange.model, self.exchange.protocol)


def cases(wanted: Callable[[Exchange], bool], *, generic: bool = True, own: bool = True) -> list[Any]:
    """Parameters named `case`: each wanted exchange, read as anybody's and as its endpoint's own."""
    if not WIRE.is_dir():
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=ABSENT))]
    params = []
    for exchange in filter(wanted, exchanges()):
        providers = ((GENERIC,) if generic else ()) + (PROVIDERS.get(exchange.folder, ()) if own else ())
        params += [pytest.param(Case(exchange, name), id=f"{exchange.id}-{name}") for name in providers]
    return params


@functools.cache
def registry() -> Registry:
    """The built-in registry."""
    return Registry.load()


@functools.cache
def resolve(provider: str, model: str, protocol: str) -> Any:
    """A provider's model on the wire that was recorded; skips where the registry has no such endpoint."""
    if not described(provider, protocol):
        pytest.skip(f"The registry does not describe {provider} on {protocol} yet.")
    base_url = BASE_URL if provider in HOMELESS else None
    return registry().resolve(f"{provider}/{model}", base_url=base_url, protocol=protocol)


@functools.cache
def described(provider: str, protocol: str) -> bool:
    """Does the registry know this endpoint? Any id of a known provider resolves, and the generic one must."""
    if provider == GENERIC:
        return True
    try:
        registry().resolve(f"{provider}/an-id-nobody-described", base_url=BASE_URL, protocol=protocol)
    except cnllm.UnknownModel:
        return False
    return True
