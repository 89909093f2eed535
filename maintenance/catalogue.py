"""Write `catalogue.toml`, the providers and models that `providers.toml` does not describe by hand.

    python -m maintenance.catalogue SOURCE [SOURCE …] > catalogue.toml

A SOURCE is a checkout of https://github.com/anomalyco/models.dev (MIT), or its api.json with the date in its name
(api-2026-09-30.json); an earlier source wins over a later one. Titles, addresses, names of keys, limits, prices, kinds
of input and the support of tools are taken over; how an endpoint behaves on the wire is left unknown. Entries that
`providers.toml` has are left out, as are providers of another protocol, and names of keys that belong to somebody else.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cnllm.registry_files.public_lists import NO_CHAT

ROOT = Path(__file__).resolve().parent.parent
_CHAT, _MESSAGES, _RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"
_PROTOCOLS = {
    "@ai-sdk/openai-compatible": _CHAT,
    "@ai-sdk/anthropic": _MESSAGES,
    "@ai-sdk/openai": _RESPONSES,
    # packages of one vendor each, which send the chat protocol
    "@ai-sdk/cerebras": _CHAT,
    "@ai-sdk/cohere": _CHAT,  # its compatibility API: https://docs.cohere.com/docs/compatibility-api
    "@ai-sdk/deepinfra": _CHAT,
    "@ai-sdk/gateway": _CHAT,  # https://vercel.com/docs/ai-gateway/sdks-and-apis/openai-chat-completions
    "@ai-sdk/groq": _CHAT,
    "@ai-sdk/mistral": _CHAT,
    "@ai-sdk/perplexity": _CHAT,
    "@ai-sdk/togetherai": _CHAT,
    "@ai-sdk/vercel": _CHAT,
    "@ai-sdk/xai": _CHAT,
    "@aihubmix/ai-sdk-provider": _CHAT,  # https://docs.cline.bot/provider-config/aihubmix
    "@openrouter/ai-sdk-provider": _CHAT,
    "venice-ai-sdk-provider": _CHAT,
}
"""The protocol of a package, by the source of the package."""

_BASE_URLS = {
    # addresses that stand in the source or the manual of a package, and not in the file of the provider
    "@ai-sdk/cohere": "https://api.cohere.ai/compatibility/v1",
    "@ai-sdk/gateway": "https://ai-gateway.vercel.sh/v1",
    "@aihubmix/ai-sdk-provider": "https://aihubmix.com/v1",
    "@ai-sdk/deepinfra": "https://api.deepinfra.com/v1/openai",
    "@ai-sdk/perplexity": "https://api.perplexity.ai",
    "@ai-sdk/vercel": "https://api.v0.dev/v1",
    "venice-ai-sdk-provider": "https://api.venice.ai/api/v1",
}
_OTHER_IDS = {"@ai-sdk/amazon-bedrock", "@ai-sdk/google-vertex"}
"""Packages for a protocol of the cloud's own, under other ids than those of its compatible endpoint."""

_INPUTS = ("text", "image", "audio", "video", "pdf")
_BROAD_KEYS = {"GITHUB_TOKEN", "GITLAB_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN", "SNOWFLAKE_CORTEX_PAT", "NEON_API_KEY"}
"""Variables of keys that open far more than one endpoint: nobody meant them for this program."""

_PROVIDER_BACKS = ["protocol", "base_url"]
_BACKED = ("limits", "price", "input", "tools")
_HEAD = """\
# Providers and models that providers.toml does not describe by hand; it ranks below that file.
# Generated: python -m maintenance.catalogue. Corrections belong into providers.toml.
# What an endpoint does on the wire (reasoning, tool choice, streams) is unknown; limits and prices are the source's.
# Source: https://github.com/anomalyco/models.dev, MIT License, Copyright (c) 2025 models.dev.
schema = 1
"""


class Source(NamedTuple):
    """One list of providers: its name with the version, its day, and the tables of the providers by name."""

    name: str
    day: str
    providers: dict[str, dict[str, Any]]


def main() -> None:
    """Write the file to stdout, and what was left out to stderr."""
    parser = argparse.ArgumentParser(prog="python -m maintenance.catalogue", description=__doc__)
    parser.add_argument("sources", type=Path, nargs="+")
    options = parser.parse_args()
    sources = [read_checkout(path) if path.is_dir() else read_list(path) for path in options.sources]
    sys.stdout.write(catalogue(sources))


def catalogue(sources: Sequence[Source]) -> str:
    """Return the text of the file."""
    own = tomllib.loads((ROOT / "providers.toml").read_text(encoding="utf-8"))
    owners = _key_owners(own)
    tables: dict[str, dict[str, Any]] = {}
    models: dict[str, str] = {}
    for number, source in enumerate(sources, start=1):
        for name, given in sorted(source.providers.items()):
            entries = {id: entry for id, entry in _models(given) if f"{name}/{id}" not in own["models"]}
            if name in own["providers"]:
                if given.get("npm") in _OTHER_IDS:
                    _report(name, "the list has the ids of another protocol")
                    continue
                if not _is_same_host(_base_url(own, name), given):
                    _report(name, "providers.toml has this name for another address")
                    continue
                table = tables.setdefault(name, {"sources": {}})
            else:
                if name not in tables:
                    if (new := _provider(given)) is None:
                        _report(name, "another protocol, or an address that depends on the account")
                        continue
                    _drop_foreign_keys(name, new, owners)
                    tables[name] = {**new, "sources": {f"list{number}": _source(source, name, _PROVIDER_BACKS)}}
                table = tables[name]
            backs: set[str] = set()
            for id, entry in entries.items():
                if f"{name}/{id}" not in models:
                    models[f"{name}/{id}"] = _value(
                        entry | ({} if number == 1 else {"sources": _own(source, name, entry)})
                    )
                    backs |= {f"models.{flag}" for flag in entry if flag in _BACKED}
            if backs and number == 1:
                cited = table["sources"].setdefault("list1", _source(source, name, []))
                cited["backs"] += sorted(backs)
    described = {name: table for name, table in tables.items() if len(table) > 1 or table["sources"]}
    sys.stderr.write(f"{sum('protocol' in table for table in tables.values())} providers, {len(models)} models\n")
    lines = [_HEAD]
    for name, table in sorted(described.items()):
        lines += [f"[providers.{_key(name)}]"]
        lines += [f"{key} = {_value(value)}" for key, value in table.items() if key != "sources"]
        lines += [f"sources.{key} = {_value(value)}" for key, value in table["sources"].items()]
    lines += ["", "[models]", *(f"{_key(name)} = {entry}" for name, entry in sorted(models.items()))]
    return "\n".join(lines) + "\n"


def read_checkout(folder: Path) -> Source:
    """Read a checkout of models.dev: a folder of TOML files for each provider."""
    commit, day = _version(folder)
    providers: dict[str, dict[str, Any]] = {}
    for place in sorted(path for path in (folder / "providers").iterdir() if path.is_dir()):
        table = tomllib.loads((place / "provider.toml").read_text(encoding="utf-8"))
        table["models"] = {
            file.relative_to(place / "models").as_posix().removesuffix(".toml"): _with_base(
                folder, tomllib.loads(file.read_text(encoding="utf-8"))
            )
            for file in sorted((place / "models").rglob("*.toml"))
            if file.exists()  # a link may lead to a file that was removed
        }
        providers[place.name] = table
    return Source(f"anomalyco/models.dev@{commit[:7]}", day, providers)


def read_list(file: Path) -> Source:
    """Read an api.json of models.dev, whose name ends with its date."""
    return Source("https://models.dev/api.json", file.stem[-len("2026-09-30") :], json.loads(file.read_bytes()))


def _provider(table: dict[str, Any]) -> dict[str, Any] | None:
    """Return our table of a provider; None where it does not speak one of the four protocols at a fixed address."""
    package = str(table.get("npm"))
    protocol, url = _PROTOCOLS.get(package), table.get("api") or _BASE_URLS.get(package)
    if protocol is None or url is None or "$" in url or not url.startswith("https://"):
        return None
    url = url.rstrip("/")
    if protocol == _MESSAGES:
        url = url.removesuffix("/v1")  # the package adds /messages, the protocol of the registry /v1/messages
    keys = [name for name in table.get("env", ()) if name.endswith(("KEY", "TOKEN", "PAT", "SECRET"))]
    out = {"title": table.get("name", urlsplit(url).hostname), "protocol": protocol, "base_url": url, "keys": keys}
    if protocol == _CHAT:
        out = {"extends": "openai-compatible", **out}  # which reads what any endpoint may send
    return out


def _models(table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the models of a provider that answer a chat in text, by their ids."""
    for id, data in table.get("models", {}).items():
        modalities = data.get("modalities", {})
        if "text" not in modalities.get("output", ["text"]) or "text" not in modalities.get("input", ["text"]):
            continue  # pictures, speech, transcription: no chat
        if NO_CHAT.search(id):
            continue
        if "provider" in data:  # another protocol or address than the provider's own
            continue
        yield id, _model(data)


def _drop_foreign_keys(name: str, provider: dict[str, Any], owners: dict[str, set[str]]) -> None:
    """Remove the names of keys that belong to another address."""
    host = _host(provider["base_url"])
    for key in list(provider["keys"]):
        if host not in owners.get(key, {host}) or key in _BROAD_KEYS:
            provider["keys"].remove(key)
            _report(name, f"{key} is a key of another address, or opens more than this endpoint")


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
    if data.get("tool_call") is True:  # a no of the list's would take the tools out of requests; traffic shows it wrong
        out["tools"] = {"supported": True}
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
    theirs = table.get("api") or _BASE_URLS.get(str(table.get("npm"))) or ""
    return "$" not in theirs and (not theirs or _host(url) == _host(theirs))


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _own(source: Source, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the sources of a model that is not in the first list, which its provider cites."""
    return {"list": _source(source, name, [flag for flag in entry if flag in _BACKED])}


def _source(source: Source, name: str, backs: list[str]) -> dict[str, Any]:
    place = f":providers/{name}" if "@" in source.name else f"#{name}"
    return {"url": source.name + place, "seen": source.day, "how": "code", "backs": [*backs]}


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
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a list may write 1e6
    return repr(value)


if __name__ == "__main__":
    main()
