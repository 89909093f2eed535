"""Write `catalogue.toml`, the providers and models that `providers.toml` does not describe by hand.

    python -m maintenance.catalogue CHECKOUT [--date 2026-07-02] > catalogue.toml

CHECKOUT is a checkout of https://github.com/anomalyco/models.dev (MIT). Titles, addresses, names of keys, limits,
prices, kinds of input and the support of tools are taken over; how an endpoint behaves on the wire is left unknown.
Entries that `providers.toml` has are left out, as are providers of another protocol, and names of keys that belong to
somebody else.
"""

from __future__ import annotations

import argparse
import copy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
_CHAT, _MESSAGES, _RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"
_PROTOCOLS = {
    "@ai-sdk/openai-compatible": _CHAT,
    "@ai-sdk/anthropic": _MESSAGES,
    "@ai-sdk/openai": _RESPONSES,
    # packages of one vendor each, which send the chat protocol
    "@ai-sdk/cerebras": _CHAT,
    "@ai-sdk/deepinfra": _CHAT,
    "@ai-sdk/groq": _CHAT,
    "@ai-sdk/mistral": _CHAT,
    "@ai-sdk/perplexity": _CHAT,
    "@ai-sdk/togetherai": _CHAT,
    "@ai-sdk/vercel": _CHAT,
    "@ai-sdk/xai": _CHAT,
    "@openrouter/ai-sdk-provider": _CHAT,
    "venice-ai-sdk-provider": _CHAT,
}
"""The protocol of a package, by the source of the package."""

_BASE_URLS = {
    # addresses that stand in the source of a package, and not in the file of the provider
    "@ai-sdk/deepinfra": "https://api.deepinfra.com/v1/openai",
    "@ai-sdk/perplexity": "https://api.perplexity.ai",
    "@ai-sdk/vercel": "https://api.v0.dev/v1",
    "venice-ai-sdk-provider": "https://api.venice.ai/api/v1",
}
_INPUTS = ("text", "image", "audio", "video", "pdf")
_HEAD = """\
# Providers and models that providers.toml does not describe by hand; it ranks below that file.
# Generated: python -m maintenance.catalogue. Corrections belong into providers.toml.
# What an endpoint does on the wire (reasoning, tool choice, streams) is unknown; limits and prices are the source's.
# Source: https://github.com/anomalyco/models.dev, MIT License, Copyright (c) 2025 models.dev.
schema = 1
"""


def main() -> None:
    """Write the file to stdout, and what was left out to stderr."""
    parser = argparse.ArgumentParser(prog="python -m maintenance.catalogue", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--date", help="the day on which the checkout was current; default: the day of its commit")
    options = parser.parse_args()
    commit, day = _version(options.checkout)
    written = catalogue(options.checkout, f"anomalyco/models.dev@{commit[:7]}", options.date or day)
    sys.stdout.write(written)


def catalogue(checkout: Path, source: str, day: str) -> str:
    """Return the text of the file."""
    own = tomllib.loads((ROOT / "providers.toml").read_text(encoding="utf-8"))
    keys = _key_owners(own)
    lines = [_HEAD]
    providers = models = 0
    for folder in sorted(path for path in (checkout / "providers").iterdir() if path.is_dir()):
        name = folder.name
        table = tomllib.loads((folder / "provider.toml").read_text(encoding="utf-8"))
        known = own["providers"].get(name)
        provider = _provider(table) if known is None else {}
        if provider is None:
            _report(name, "another protocol, or an address that depends on the account")
            continue
        if known is not None and not _is_same_host(_base_url(own, name), table):
            _report(name, "providers.toml has this name for another address")
            continue
        if known is None:
            host = _host(provider["base_url"])
            for key in list(provider["keys"]):
                if host not in keys.get(key, {host}):
                    provider["keys"].remove(key)
                    _report(name, f"{key} is a key of another address")
        entries = dict(_models(checkout, folder, name, own["models"]))
        if known is not None and not entries:
            continue
        if known is None:
            providers += 1
            lines.append(f"\n[providers.{_key(name)}]")
            lines += [f"{key} = {_value(value)}" for key, value in provider.items()]
            backs = ["protocol", "base_url"]
            lines.append(f"[providers.{_key(name)}.sources]")
            lines.append(f"list = {_value(_source(source, name, day, backs))}")
        for id, entry in entries.items():
            models += 1
            backs = [flag for flag in entry if flag != "status"]
            if backs:
                entry["sources"] = {"list": _source(source, name, day, backs)}
            lines.append(f"[models.{_key(f'{name}/{id}')}]")
            lines += [f"{key} = {_value(value)}" for key, value in entry.items()]
    sys.stderr.write(f"{providers} providers, {models} models\n")
    return "\n".join(lines) + "\n"


def _provider(table: dict[str, Any]) -> dict[str, Any] | None:
    """Return our table of a provider; None where it does not speak one of the four protocols at a fixed address."""
    package = table["npm"]
    protocol, url = _PROTOCOLS.get(package), table.get("api") or _BASE_URLS.get(package)
    if protocol is None or url is None or "$" in url or not url.startswith("https://"):
        return None
    url = url.rstrip("/")
    if protocol == _MESSAGES:
        url = url.removesuffix("/v1")  # the package adds /messages, the protocol of the registry /v1/messages
    keys = [name for name in table.get("env", ()) if name.endswith(("KEY", "TOKEN", "PAT", "SECRET"))]
    out = {"title": table["name"], "protocol": protocol, "base_url": url, "keys": keys}
    if table.get("doc"):
        out["docs"] = table["doc"]
    return out


def _models(checkout: Path, folder: Path, name: str, own: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the models of a provider that providers.toml does not have, by their ids."""
    for file in sorted((folder / "models").rglob("*.toml")):
        id = file.relative_to(folder / "models").as_posix().removesuffix(".toml")
        if f"{name}/{id}" in own or not file.exists():  # a link to a file that was removed
            continue
        data = _with_base(checkout, tomllib.loads(file.read_text(encoding="utf-8")))
        modalities = data.get("modalities", {})
        if "text" not in modalities.get("output", ["text"]) or "text" not in modalities.get("input", ["text"]):
            continue  # pictures, speech, transcription: no chat
        if "provider" in data:  # another protocol or address than the provider's own
            continue
        yield id, _model(data)


def _model(data: dict[str, Any]) -> dict[str, Any]:
    """Return our table of a model."""
    out: dict[str, Any] = {}
    limit, cost = data.get("limit", {}), data.get("cost", {})
    if limits := {key: limit[key] for key in ("context", "output") if limit.get(key)}:
        out["limits"] = limits
    if cost.get("input") or cost.get("output"):  # no price is unknown, and 0 for both is most often unknown too
        names = {"input": "input", "output": "output", "cache_read": "cached", "cache_write": "cache_write"}
        out["price"] = {"currency": "USD"} | {ours: cost[theirs] for theirs, ours in names.items() if theirs in cost}
        if cost.get("tiers") or cost.get("context_over_200k"):
            del out["price"]  # dearer from some number of tokens on: one price for all would be too low
    if kinds := [kind for kind in data.get("modalities", {}).get("input", ()) if kind in _INPUTS]:
        out["input"] = ["file" if kind == "pdf" else kind for kind in kinds]
    if isinstance(data.get("tool_call"), bool):
        out["tools"] = {"supported": data["tool_call"]}
    if data.get("status") == "deprecated":
        out["status"] = {"is": "retired"}
    elif data.get("status") in ("alpha", "beta"):
        out["status"] = {"is": "preview"}
    return out


def _with_base(checkout: Path, data: dict[str, Any]) -> dict[str, Any]:
    """Return a model over the one on which it is based, without the fields that it leaves out."""
    base = data.get("base_model")
    if base is None:
        return data
    merged = copy.deepcopy(tomllib.loads((checkout / "models" / f"{base}.toml").read_text(encoding="utf-8")))
    merged.pop("cost", None)  # a price is the endpoint's
    for path in data.get("base_model_omit", ()):
        table = merged
        *keys, last = path.split(".")
        for key in keys:
            table = table.get(key, {})
        table.pop(last, None)
    return _merge(merged, data)


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return one table over another."""
    for key, value in over.items():
        below = under.get(key)
        under[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return under


def _key_owners(own: dict[str, Any]) -> dict[str, set[str]]:
    """Return the hosts to which each key of providers.toml belongs."""
    owners: dict[str, set[str]] = {}
    for name, table in own["providers"].items():
        for key in table.get("keys", ()):
            owners.setdefault(key, set()).add(_host(_base_url(own, name)))
    return owners


def _base_url(own: dict[str, Any], name: str) -> str:
    """Return the address of a provider of providers.toml, "" where it has none."""
    table: dict[str, Any] = own["providers"][name]
    url: str = table.get("base_url") or (_base_url(own, table["extends"]) if "extends" in table else "")
    return url


def _is_same_host(url: str, table: dict[str, Any]) -> bool:
    """Whether an address of ours and the one of a provider's file have the same host, as far as both are known."""
    theirs = table.get("api") or _BASE_URLS.get(table["npm"]) or ""
    return "$" not in theirs and (not theirs or _host(url) == _host(theirs))


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _source(source: str, name: str, day: str, backs: list[str]) -> dict[str, Any]:
    return {"url": f"{source}:providers/{name}", "seen": day, "how": "code", "backs": backs}


def _version(checkout: Path) -> tuple[str, str]:
    """Return the commit of a checkout, and its day."""
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%H %cs"]
    commit, day = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return commit, day


def _report(name: str, reason: str) -> None:
    sys.stderr.write(f"{name}: {reason}\n")


def _key(name: str) -> str:
    """Return a name as a key of TOML."""
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _value(name)


def _value(value: Any) -> str:
    """Return a value as TOML, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and len(value) == 10 and value[4] == value[7] == "-":
        return value  # a date
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


if __name__ == "__main__":
    main()
