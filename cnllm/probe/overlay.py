"""Write what a probe proved as a registry file. Strings of the endpoint get into it through tomli-w alone."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import tomli_w

from cnllm.jsonpath import get
from cnllm.probe.approach import ProbedEndpoint
from cnllm.probe.exchange import on_one_line
from cnllm.probe.facts import FlagFact, split_mode

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
    found: ProbedEndpoint, facts: Iterable[FlagFact], provider: str, *, new: Mapping[str, Any] | None = None
) -> str:
    """Return a registry file with the facts that have a value.

    `new` is for a provider that the registry does not know: its `keys`, and which provider it `extends`.
    """
    date, place = datetime.date.today(), found.place
    proven = [f for f in facts if f.answer != "unknown" and not f.flag.startswith(_PROVIDER_FLAGS)]
    doc: dict[str, Any] = {}
    if new is not None:
        table = {
            "extends": new["extends"],
            "title": provider,
            "protocol": place.protocol,
            "base_url": place.base_url,
            "keys": new["keys"],
            "auth": place.auth and dict(zip(("header", "value"), place.auth, strict=True)),
        }
        doc["providers"] = {provider: {key: value for key, value in table.items() if value is not None}}
    model: dict[str, Any] = {}
    quotes: dict[str, list[str]] = {}
    for fact in proven:
        _put(model, fact.flag, fact.value)
        quotes.setdefault(on_one_line(fact.quote, _MOST_QUOTE), []).append(fact.flag)
    if quotes:
        source = {"url": place.base_url, "seen": date, "how": "probe"}
        model["sources"] = {
            f"probe-{number}" if quote else "probe": {
                **source,
                "backs": sorted({_source_name(model, flag) for flag in backs}),
                **({"quote": quote} if quote else {}),
            }
            for number, (quote, backs) in enumerate(sorted(quotes.items()))
        }
    doc["models"] = {f"{provider}/{found.id}": model}
    return f"{_MARK} on {date.isoformat()}. Each line was seen in two runs.\n{tomli_w.dumps(doc)}"


def _source_name(model: dict[str, Any], flag: str) -> str:
    """Return a flag as a source names it: the mode of a `when` is one key, and a path alone is the parameter's."""
    if mode := split_mode(flag)[0]:
        return f"when.{mode}"
    name = flag.removesuffix(".as")
    return flag if isinstance(get(model, name), dict) else name


def _put(table: dict[str, Any], flag: str, value: Any) -> None:
    """Set a flag in a table. The path of a parameter goes into the parameter's table where it has one."""
    *parents, last = flag.split(".")
    inner = table
    for key in parents:
        own = inner.get(key)
        if not isinstance(own, dict):
            own = inner[key] = {} if own is None else {"as": own}
        inner = own
    if isinstance(inner.get(last), dict) and isinstance(value, str):
        inner[last]["as"] = value
    else:
        inner[last] = value
