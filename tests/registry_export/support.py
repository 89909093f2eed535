"""A reader of the exported document that knows nothing of cnllm, and what its values are compared by."""

from __future__ import annotations

from typing import Any

import msgspec

from cnllm.registry.flags import Flags
from cnllm.registry.merge import flatten


def resolved(document: dict[str, Any], name: str, wire: str | None = None) -> dict[str, Any]:
    """Return every fact of a model, as the page for readers of the document explains it."""
    model = document["models"][name]
    wire = wire or model["wire"]
    endpoint = document["providers"][model["provider"]]["wires"][wire]
    own = model if wire == model["wire"] else model["wires"][wire]
    family = model["family"]
    parts = (document["wires"][wire], document["families"].get(family), endpoint, endpoint.get("families", {}).get(family), own)  # fmt: skip # noqa: E501
    facts: dict[str, Any] = {}
    for part in filter(None, parts):
        for flag in part.get("without", ()):
            facts.pop(flag, None)
        facts |= part["facts"]
    tables = {flag[:at] for flag in facts for at, sign in enumerate(flag) if sign == "."}
    for flag in document["flags"].keys() - facts.keys() - tables:
        facts[flag] = {"value": "unknown", "source": "unknown"}
    return {flag: read(document, fact) for flag, fact in facts.items()}


def read(document: dict[str, Any], fact: dict[str, Any]) -> dict[str, Any]:
    """Return a fact with its value and its source."""
    value = document["values"][fact["ref"]] if "ref" in fact else fact["value"]
    return {"value": value, **document["sources"][fact["source"]], **({"rounded": True} if "rounded" in fact else {})}


def flat(flags: Flags) -> dict[str, Any]:
    """Return the values of flags by their dotted names."""
    return {".".join(keys): value for keys, value in flatten(msgspec.to_builtins(flags))}


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON: 1 is 1.0, and neither is True."""
    return bool(_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return ("bool", value) if isinstance(value, bool) else value
