"""The models that inputs are read with: few, and between them every value that any flag of the registry has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

import cnllm
from cnllm import engine
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.registry.read import builtin_path, read

__all__ = ["TOOLS", "covering", "registry", "request"]

PROTOCOLS = ("openai-chat", "anthropic-messages", "gemini", "openai-responses")
# What changes how something is read or written; the rest (prices, addresses, sources) does not.
_TOLD = ("reasoning", "tools", "tool_choice", "messages", "schema", "finish", "stream", "leaks", "usage", "input")
_MOST = 16  # of one wire; the first of them have the most to tell apart

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks it up.",
            "parameters": {
                "type": "object",
                "properties": {
                    "q": {"type": "string"},
                    "n": {"type": "integer"},
                    "places": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["q"],
            },
        },
    }
    for name in ("search", "get_weather")
]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@cache
def registry() -> Registry:
    """Return the built-in registry, without the user's files."""
    return Registry([read(builtin_path(), builtin=True)])


def _features(model: Model) -> Iterator[tuple[str, bytes]]:
    """Yield each of a model's flags with its value."""
    flags = msgspec.to_builtins(model.flags)
    for name in _TOLD:
        value = flags.get(name)
        if isinstance(value, dict):
            for key, inner in value.items():
                if inner is not None:
                    yield f"{name}.{key}", msgspec.json.encode(inner)
        elif isinstance(value, list):
            for inner in value:
                yield name, msgspec.json.encode(inner)


@cache
def covering(protocol: str | None = None) -> tuple[Model, ...]:
    """Return models of a wire, or of all four: greedily, each brings the most values that none before it has."""
    if protocol is None:
        return tuple(model for each in PROTOCOLS for model in covering(each))
    found: dict[Model, set[tuple[str, bytes]]] = {}
    seen: set[bytes] = set()
    for name in registry().names():
        try:
            model = registry().resolve(name, protocol=protocol)
        except cnllm.UnknownModel:
            continue  # it does not speak that one
        features = set(_features(model))
        signature = msgspec.json.encode(sorted(features))
        if model.protocol == protocol and signature not in seen and model.flags.base_url:
            seen.add(signature)
            found[model] = features
    chosen: list[Model] = []
    missing = set().union(*found.values())
    while missing and len(chosen) < _MOST:
        best = max(found, key=lambda model: (len(found[model] & missing), model.name))
        chosen.append(best)
        missing -= found.pop(best)
    return tuple(chosen)


@cache
def request(model: Model, mode: int) -> engine.Plan | None:
    """Return the request that a reply answers: by `mode` none, a plain one, one with tools, one with a schema."""
    options: dict[str, Any] = ({}, {}, {"tools": TOOLS}, {"schema": SCHEMA})[mode % 4]
    return engine.build_request(model, "hi", stream=True, **options) if mode % 4 else None
