"""Write what a probe proved as a registry file. Strings of the endpoint get into it through tomli-w alone."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import tomli_w

from cnllm.jsonpath import set_value
from cnllm.probe.approach import Found
from cnllm.probe.facts import Fact

__all__ = ["overlay", "provider_name"]

_PROVIDER_FLAGS = ("auth.", "base_url", "path", "protocol", "keys")
_MOST_QUOTE = 160
_MARK = "# Written by cnllm probe"


def provider_name(base_url: str) -> str:
    """Return a name for the endpoint of a URL that the user gave."""
    parts = urlsplit(base_url)
    name = re.sub(r"[^a-z0-9]+", "-", (parts.hostname or "endpoint").lower()).strip("-")
    return f"{name}-{parts.port}" if parts.port else name


def overlay(
    found: Found,
    facts: Iterable[Fact],
    *,
    provider: str,
    keys: tuple[str, ...],
    date: datetime.date,
    parent: str | None,
    new: bool = True,
) -> str:
    """Return a registry file with the facts that have a value.

    `parent` is the provider that a new one starts from. `new`: the registry does not know the provider.
    """
    proven = [f for f in facts if f.answer != "unknown"]
    doc: dict[str, Any] = {}
    if new:
        table: dict[str, Any] = {
            **({"extends": parent} if parent is not None else {}),
            "title": provider,
            "protocol": found.place.protocol,
            "base_url": found.place.base_url,
            "keys": list(keys),
        }
        for fact in proven:
            if fact.flag.startswith("auth."):
                set_value(table, fact.flag, fact.value)
        doc["providers"] = {provider: table}
    model: dict[str, Any] = {}
    quotes: dict[str, list[str]] = {}
    for fact in proven:
        if fact.flag.startswith(_PROVIDER_FLAGS):
            continue
        _put(model, fact.flag, fact.value)
        quotes.setdefault(_quote(fact.quote), []).append(_backed(fact.flag))
    if quotes:
        model["sources"] = {
            f"probe-{number}" if quote else "probe": _source(found.place.base_url, date, quote, backs)
            for number, (quote, backs) in enumerate(sorted(quotes.items()))
        }
    doc["models"] = {f"{provider}/{found.id}": model}
    return f"{_MARK} on {date.isoformat()}. Each line was seen in two runs.\n{tomli_w.dumps(doc)}"


def _source(url: str, date: datetime.date, quote: str, backs: list[str]) -> dict[str, Any]:
    source: dict[str, Any] = {"url": url, "seen": date, "how": "probe", "backs": sorted(dict.fromkeys(backs))}
    if quote:
        source["quote"] = quote
    return source


def _quote(text: str) -> str:
    """Return the endpoint's words on one line, shortened."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MOST_QUOTE else line[: _MOST_QUOTE - 1] + "…"


def _backed(flag: str) -> str:
    """Return the flag as a source names it: the mode of a `when` is a key of its own."""
    return ".".join(flag.split(".")[:2]) if flag.startswith("when.") else flag


def _put(table: dict[str, Any], flag: str, value: Any) -> None:
    """Set a flag in a table; a parameter's rule may be a table or a word."""
    parts = flag.split(".")
    for depth in range(1, len(parts)):
        prefix = ".".join(parts[:depth])
        inner = _get(table, parts[:depth])
        if inner is not None and not isinstance(inner, dict):
            return  # a word stands there already
        del prefix
    inner = table
    for key in parts[:-1]:
        inner = inner.setdefault(key, {})
    if isinstance(inner.get(parts[-1]), dict) and not isinstance(value, dict):
        return
    inner[parts[-1]] = value


def _get(table: dict[str, Any], keys: list[str]) -> Any:
    value: Any = table
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
