"""Write `catalogue.toml`, the providers and models that `providers.toml` does not describe by hand.

    python -m maintenance.catalogue SOURCE [SOURCE …] > catalogue.toml

A SOURCE is a checkout of https://github.com/anomalyco/models.dev (MIT), or its api.json with the date in its name
(api-2026-09-30.json). It may also be the folder of a package @earendil-works/pi-ai (MIT) with the date in its name
(pi-ai-2026-11-20). The first source has all that it lists. A later one adds the models that it lacks; where it is
newer, its limits and prices count. Titles, addresses, names of keys, limits, prices, kinds of input and the support of
tools are taken over; how an endpoint behaves on the wire is left unknown. Entries that `providers.toml` has are left
out, as are providers of another protocol, and names of keys that belong to somebody else.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
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
    "@saladtechnologies-oss/ai-sdk-provider": _CHAT,
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
    "@saladtechnologies-oss/ai-sdk-provider": "https://ai.salad.cloud/v1",
    "venice-ai-sdk-provider": "https://api.venice.ai/api/v1",
}
_OTHER_IDS = {"@ai-sdk/amazon-bedrock", "@ai-sdk/google-vertex"}
"""Packages for a protocol of the cloud's own, under other ids than those of its compatible endpoint."""

_LIST_NAMES = {"sensenova": "sensenova-token-plan"}
"""models.dev's name of a provider: ours, where that name is another address here."""
_LEFT_OUT = {
    # providers that are no address of ours, and why; DATA_SOURCES.md has the same reasons
    "atomic-chat": "a server of the user's own machine: openai-compatible with --base-url",
    "gitlab": "a wire of its own, and a key that opens the whole account",
    "google-vertex-anthropic": "Messages with the model in the path, at an address of the project",
    "lynkr": "a server of the user's own machine: openai-compatible with --base-url",
    "merge-gateway": "a wire of its own, and its package is not to be had",
    "qvac": "a server of the user's own machine: openai-compatible with --base-url",
    "sap-ai-core": "a wire of its own, with a service key that has to be exchanged for a token",
    "watsonx": "a wire of its own, with a key that has to be exchanged for a token",
}
_PI_NAMES = {
    # pi-ai's name of a provider: ours. Names that are not here are the same.
    "fireworks": "fireworks-ai",
    "kimi-coding": "kimi-for-coding",
    "openai-codex": "chatgpt",
    "qwen-token-plan": "alibaba-token-plan",
    "qwen-token-plan-cn": "alibaba-token-plan-cn",
    "qwen-token-plan-individual": "alibaba-token-plan",  # the same address
    "qwen-token-plan-individual-cn": "alibaba-token-plan-cn",
    "together": "togetherai",
    "vercel-ai-gateway": "vercel",
    "zai": "zai-coding-plan",  # its address is that of the plan
    "zai-coding-cn": "zhipuai-coding-plan",
}
_PI_WIRES = {
    "anthropic-messages": _MESSAGES,
    "azure-openai-responses": _RESPONSES,
    "google-generative-ai": "gemini",
    "mistral-conversations": _CHAT,
    "openai-codex-responses": _RESPONSES,
    "openai-completions": _CHAT,
    "openai-responses": _RESPONSES,
}
"""The protocol of each of pi-ai's wires. Others are no wire of ours: Bedrock's Converse, classifiers, pictures."""
_ONE_WIRE_EACH = {"github-copilot", "opencode", "opencode-go"}
"""Providers whose models answer on one wire each, another for each vendor; all others answer on the provider's."""
_PI_ONE_WIRE = {"cloudflare-ai-gateway"}
"""Providers of pi-ai that have another address for each wire; ours is that of the chat wire."""
_BATCH = re.compile(r"[:-]batch$")
_VARIABLE = re.compile(r"\$\{(\w+)\}")

_INPUTS = ("text", "image", "audio", "video", "pdf")
_FREE = re.compile(r"[:-]free$")
"""Ids whose price of 0 is a price; at others it is most often unknown."""
_BROAD_KEYS = {"GITHUB_TOKEN", "GITLAB_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN", "SNOWFLAKE_CORTEX_PAT", "NEON_API_KEY"}
"""Variables of keys that open far more than one endpoint: nobody meant them for this program."""

_PROVIDER_BACKS = ["protocol", "base_url"]
_BACKED = ("protocol", "limits", "price", "input", "tools")
_HEAD = """\
# Providers and models that providers.toml does not describe by hand; it ranks below that file.
# Generated: python -m maintenance.catalogue. Corrections belong into providers.toml.
# What an endpoint does on the wire (reasoning, tool choice, streams) is unknown; limits and prices are the source's.
# Source: https://github.com/anomalyco/models.dev, MIT License, Copyright (c) 2025 models.dev.
# Entries that cite pi-ai: https://www.npmjs.com/package/@earendil-works/pi-ai, MIT License.
schema = 1
"""


class Source(NamedTuple):
    """One list of providers: its name with the version, its day, and the tables of the providers by name."""

    name: str
    day: str
    providers: dict[str, dict[str, Any]]
    cited: str = "list"
    path: str = ""

    @property
    def citation(self) -> dict[str, str]:
        """The source as a citation."""
        return {"url": self.name, "seen": self.day, "how": "catalogue"} | ({"path": self.path} if self.path else {})


def main() -> None:
    """Write the file to stdout, and what was left out to stderr."""
    parser = argparse.ArgumentParser(prog="python -m maintenance.catalogue", description=__doc__)
    parser.add_argument("sources", type=Path, nargs="+")
    options = parser.parse_args()
    sources = [_read(path) for path in options.sources]
    sys.stdout.write(catalogue(sources))


def _read(path: Path) -> Source:
    if not path.is_dir():
        return read_list(path)
    return read_package(path) if (path / "package.json").exists() else read_checkout(path)


def catalogue(sources: Sequence[Source]) -> str:
    """Return the text of the file."""
    own = tomllib.loads((ROOT / "providers.toml").read_text(encoding="utf-8"))
    owners = _key_owners(own)
    tables: dict[str, dict[str, Any]] = {}
    models: dict[str, dict[str, Any]] = {}
    for number, source in enumerate(sources, start=1):
        for name, given in sorted(source.providers.items()):
            entries = {id: entry for id, entry in _models(given) if f"{name}/{id}" not in own["models"]}
            first = sources[0].providers.get(name, {}).get("models", {}) if number > 1 else {}
            widened = {id for id, entry in entries.items() if _widen_input(entry, id, first.get(id))}
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
                        _report(name, _LEFT_OUT.get(name, "another protocol"))
                        continue
                    _drop_foreign_keys(name, new, owners)
                    tables[name] = {
                        **new,
                        "sources": {f"list{number}": _source(source, name, [f for f in _PROVIDER_BACKS if f in new])},
                    }
                table = tables[name]
            backs: set[str] = set()
            for id, entry in entries.items():
                known = models.setdefault(f"{name}/{id}", {})
                if number == 1:
                    known.update(entry)
                    backs |= {f"models.{flag}" for flag in entry if flag in _BACKED}
                else:
                    had_input = "input" in known
                    _add(known, entry, source, is_newer=source.day > sources[0].day)
                    if id in widened and not had_input:
                        known["sources"][source.cited].remove("input")
                        backs.add("models.input")
            if backs:
                cited = table["sources"].setdefault("list1", _source(sources[0], name, []))
                cited["backs"] += sorted(backs - {*cited["backs"]})
    described = {name: table for name, table in tables.items() if len(table) > 1 or table["sources"]}
    sys.stderr.write(f"{sum('protocol' in table for table in tables.values())} providers, {len(models)} models\n")
    lines = [_HEAD]
    for name, table in sorted(described.items()):
        lines += [f"[providers.{_key(name)}]"]
        lines += [f"{key} = {_value(value)}" for key, value in table.items() if key != "sources"]
        lines += [f"sources.{key} = {_value(value)}" for key, value in table["sources"].items()]
    lines += ["", "[models]", *(f"{_key(name)} = {_value(entry)}" for name, entry in sorted(models.items()))]
    if later := [source for source in sources[1:] if source.cited]:
        lines += ["", "[sources]", *(f"{_key(source.cited)} = {_value(source.citation)}" for source in later)]
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
    providers = {_LIST_NAMES.get(name, name): table for name, table in json.loads(file.read_bytes()).items()}
    return Source("https://models.dev/api.json", file.stem[-len("2026-09-30") :], providers)


def read_package(folder: Path) -> Source:
    """Read the package pi-ai, whose folder's name ends with its date. Its models take tools, as its README says."""
    version = json.loads((folder / "package.json").read_bytes())["version"]
    providers: dict[str, dict[str, Any]] = {}
    for file in sorted((folder / "dist/providers/data").glob("[a-z]*.json")):
        name = _PI_NAMES.get(file.stem, file.stem)
        left_out = 0
        for wire, entries in json.loads(file.read_bytes()).items():
            for entry in entries.values() if isinstance(entries, dict) else ():
                elsewhere = file.stem in _PI_ONE_WIRE and _PI_WIRES.get(wire) != _CHAT
                if elsewhere or wire not in _PI_WIRES or _BATCH.search(entry["id"]):
                    left_out += 1
                    continue
                model = _pi_model(entry)
                if name in _ONE_WIRE_EACH and _PI_WIRES[wire] != _CHAT:
                    model["wire"] = _PI_WIRES[wire]
                providers.setdefault(name, {"models": {}})["models"].setdefault(entry["id"], model)
        if left_out:
            _report(file.stem, f"{left_out} ids of another wire or address, or for batches alone")
    url = f"https://www.npmjs.com/package/@earendil-works/pi-ai/v/{version}"
    return Source(url, folder.name[-len("2026-11-10") :], providers, "pi-ai", "dist/providers/data")


def _pi_model(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of pi-ai as models.dev would write it. A cached price of 0 is unknown."""
    names = {"input": "input", "output": "output", "cacheRead": "cache_read", "cacheWrite": "cache_write"}

    def prices(cost: dict[str, Any]) -> dict[str, Any]:
        return {
            ours: cost[theirs] for theirs, ours in names.items() if cost.get(theirs) or theirs in ("input", "output")
        }

    cost = entry.get("cost") or {"input": 0, "output": 0}
    tiers = [
        prices(tier) | {"tier": {"type": "context", "size": tier["inputTokensAbove"]}} for tier in cost.get("tiers", ())
    ]
    return {
        "limit": {"context": entry.get("contextWindow"), "output": entry.get("maxTokens")},
        "cost": prices(cost) | ({"tiers": tiers} if tiers else {}),
        "modalities": {"input": entry.get("input", [])},
        "tool_call": True,
    }


def _add(known: dict[str, Any], entry: dict[str, Any], source: Source, *, is_newer: bool) -> None:
    """Add what a later list says of a model: what is not known, and of a newer list other limits and prices."""
    backs = []
    for flag, value in entry.items():
        old = known.get(flag)
        if old is None:
            new = value
        elif not is_newer or flag not in ("limits", "price"):
            continue
        else:
            new = old | value
            if flag == "limits" and old.get("output", 0) > new.get("output", 0):
                new["output"] = old["output"]  # at a router a list may have the limit of one host
            if flag == "price" and (old["input"], old["output"]) != (value["input"], value["output"]):
                new = value  # what the older list says of the cache and of long input went with its price
        if new != old:
            known[flag] = new
            backs += [flag] if flag in _BACKED else []
    if backs:
        known["sources"] = {source.cited: backs}


def _widen_input(entry: dict[str, Any], id: str, first: dict[str, Any] | None) -> bool:
    """Add the kinds of input that the first list has of a model, and return whether there are more.

    pi-ai has words for text and pictures alone, so that it says nothing of the other kinds.
    """
    kinds = _model(id, first).get("input", []) if first is not None else []
    is_wider = set(entry.get("input", ())) < set(kinds)
    if is_wider:
        entry["input"] = kinds
    return is_wider


def _provider(table: dict[str, Any]) -> dict[str, Any] | None:
    """Return our table of a provider; None where it does not speak one of the four protocols, or on this machine.

    An address that depends on the account has to be given by the user: the table has none, and its title says so.
    """
    package = str(table.get("npm"))
    protocol, url = _PROTOCOLS.get(package), table.get("api") or _BASE_URLS.get(package)
    if protocol is None or url is None or not url.startswith(("https://", "${")):
        return None
    title = table.get("name", urlsplit(url).hostname)
    if variables := _VARIABLE.findall(url):
        title, url = f"{title} (give --base-url; it holds {' and '.join(variables)})", ""
    url = url.rstrip("/")
    if protocol == _MESSAGES:
        url = url.removesuffix("/v1")  # the package adds /messages, the protocol of the registry /v1/messages
    keys = [name for name in table.get("env", ()) if name.endswith(("KEY", "TOKEN", "PAT", "SECRET"))]
    out = {"title": title, "protocol": protocol} | ({"base_url": url} if url else {}) | {"keys": keys}
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
        yield id, _model(id, data)


def _drop_foreign_keys(name: str, provider: dict[str, Any], owners: dict[str, set[str]]) -> None:
    """Remove the names of keys that belong to another address."""
    host = _host(provider.get("base_url", ""))
    for key in list(provider["keys"]):
        if host not in owners.get(key, {host}) or key in _BROAD_KEYS:
            provider["keys"].remove(key)
            _report(name, f"{key} is a key of another address, or opens more than this endpoint")


def _model(id: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return our table of a model."""
    out: dict[str, Any] = {}
    limit, cost = data.get("limit", {}), data.get("cost", {})
    if "wire" in data:
        out["protocol"] = data["wire"]
    if limits := {key: limit[key] for key in ("context", "input", "output") if limit.get(key)}:
        if limits.get("input", 0) >= limits.get("context", 0):
            limits.pop("input", None)  # a copy of the window
        out["limits"] = limits
    is_price = cost.get("input") or cost.get("output") or (_FREE.search(id) and cost.get("input") == 0)
    if is_price and (price := _price(cost)):
        out["price"] = price
    if kinds := [kind for kind in data.get("modalities", {}).get("input", ()) if kind in _INPUTS]:
        out["input"] = ["file" if kind == "pdf" else kind for kind in kinds]
    if data.get("tool_call") is True:  # a no of the list's would take the tools out of requests; traffic shows it wrong
        out["tools"] = {"supported": True}
    if data.get("status") == "deprecated":
        out["status"] = {"is": "retired"}
    elif data.get("status") in ("alpha", "beta"):
        out["status"] = {"is": "preview"}
    return out


def _price(cost: dict[str, Any]) -> dict[str, Any] | None:
    """Return our table of prices; None where long input costs more and the list does not say from where on."""
    names = {"input": "input", "output": "output", "cache_read": "cached", "cache_write": "cache_write"}

    def rates(table: dict[str, Any]) -> dict[str, Any]:
        return {ours: table[theirs] for theirs, ours in names.items() if theirs in table}

    tiers = [(tier.get("tier", {}), rates(tier)) for tier in cost.get("tiers", ())]
    if not tiers and cost.get("context_over_200k"):
        tiers = [({"type": "context", "size": 200_000}, rates(cost["context_over_200k"]))]
    if any(border.get("type") != "context" or not border.get("size") for border, _ in tiers):
        return None
    table = {"currency": "USD"} | rates(cost)
    dearer = [{"above": border["size"]} | tier for border, tier in sorted(tiers, key=lambda pair: int(pair[0]["size"]))]
    return table | ({"tiers": dearer} if dearer else {})


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
    """Whether an address of ours and the one of a provider's file have the same host, as far as both are known.

    Two addresses that depend on the account are the same.
    """
    theirs = table.get("api") or _BASE_URLS.get(str(table.get("npm"))) or ""
    return not theirs or (not url if "$" in theirs else _host(url) == _host(theirs))


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


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
