"""Write models in the forms of two public lists, so that corrections can be offered there.

What is unknown is left out, because neither list has a word for it. Prices in another currency than theirs are, too.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from importlib import resources
from typing import Any

import msgspec

from cnllm.model_facts.capabilities import capabilities
from cnllm.registry.flags import LEVELS, Flags
from cnllm.registry.model import Fact, Model
from cnllm.registry.registry import Registry
from cnllm.registry_files.public_lists import CURRENCY, PER_MILLION, PER_TOKEN, SUPPORTS, WORDS

__all__ = ["litellm_entries", "litellm_file", "models_dev_files"]

_ABOVE = 1_000  # tokens in the k of a key such as input_cost_per_token_above_200k_tokens
_STATUS = {"retired": "deprecated", "preview": "beta"}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")  # words that models.dev takes
_NEEDED = ("name", "attachment", "reasoning", "tool_call", "release_date", "last_updated", "open_weights")
_NEEDED_TABLES = {"limit": ("context", "output"), "modalities": ("input", "output")}
_CAPABILITIES = {
    "supports_function_calling": "tools",
    "supports_parallel_function_calling": "parallel-tools",
    "supports_reasoning": "reasoning",
    "supports_response_schema": "schema",
    "supports_web_search": "web-search",
}


_LITELLM_PRICES = {
    **PER_TOKEN,
    "price.cache_write_1h": "cache_creation_input_token_cost_above_1hr",
    "price.input_audio": "input_cost_per_audio_token",
}
_MODELS_DEV_PRICES = {**PER_MILLION, "price.input_audio": "input_audio"}
_PDF = {kind: word for word, kind in WORDS.items()}


def _names() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("public_names.toml").read_text(encoding="utf-8"))


def _served_models(registry: Registry, providers: Collection[str]) -> Iterator[Model]:
    """Yield the models of these providers, or of all."""
    return (registry.resolve(n) for n in registry.names() if not providers or n.partition("/")[0] in providers)


def _prices(flags: Flags, names: Mapping[str, str]) -> tuple[dict[str, float], dict[int, dict[str, float]]]:
    """Return the known prices by the list's name of each, and those of each tier by its border.

    There are none where the currency is another one. Lists have no prices by the length of the output.
    """
    price = flags.price
    if price is None or price.currency != CURRENCY:
        return {}, {}

    def by_name(values: Mapping[str, Any]) -> dict[str, float]:
        ours = ((key, values.get(flag.removeprefix("price."))) for flag, key in names.items())
        return {key: value for key, value in ours if value is not None}

    tiers = [tier for tier in price.tiers or () if "output_below" not in tier]
    return by_name(msgspec.to_builtins(price)), {int(tier.get("above", 0)): by_name(tier) for tier in tiers}


# ── LiteLLM ──────────────────────────────────────────────────────────────────
def litellm_entries(registry: Registry, providers: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the entries of the models whose endpoint LiteLLM has, by their names there."""
    names = _names()["litellm"]
    out: dict[str, dict[str, Any]] = {}
    for model in _served_models(registry, providers):
        there = names["providers"].get(model.provider)
        if there is not None:
            entry = {"litellm_provider": there, "mode": "chat", **dict(_litellm_entry(model))}
            out[model.id if there in names["bare"] else f"{there}/{model.id}"] = dict(sorted(entry.items()))
    return dict(sorted(out.items()))


def litellm_file(registry: Registry, providers: Collection[str] = ()) -> bytes:
    """Return these entries as LiteLLM's file has them."""
    return json.dumps(litellm_entries(registry, providers), indent=4, ensure_ascii=False).encode() + b"\n"


def _litellm_entry(model: Model) -> Iterator[tuple[str, Any]]:
    flags, can = model.flags, {name: one.value for name, one in capabilities(model, ()).items()}
    prices, tiers = _prices(flags, _LITELLM_PRICES)
    yield from ((key, _per_token(value)) for key, value in prices.items())
    for above, tier in tiers.items():
        if above % _ABOVE == 0:
            yield from ((f"{key}_above_{above // _ABOVE}k_tokens", _per_token(value)) for key, value in tier.items())
    if flags.limits.most_input is not None:
        yield "max_input_tokens", flags.limits.most_input
    if flags.limits.output is not None:
        yield "max_output_tokens", flags.limits.output
        yield "max_tokens", flags.limits.output
    for key, name in _CAPABILITIES.items():
        if can[name] is not None:
            yield key, can[name]
    if can["forced-tool"]:  # otherwise it may still take other values of tool_choice
        yield "supports_tool_choice", True
    if flags.input is not None:
        yield from ((f"supports_{word}", kind in flags.input) for kind, word in SUPPORTS.items())
    if PER_TOKEN["price.cached"] in prices:
        yield "supports_prompt_caching", True
    status = flags.status
    last = status and (status.shutdown or (status.since if status.is_ == "retired" else None))
    if last:
        yield "deprecation_date", last.isoformat()
    sources = {fact.flag: fact.source or "" for fact in model.explain()}
    for flag in ("limits.context", "price.input"):  # the last one counts
        if (source := sources.get(flag, "")).startswith("https://"):
            yield "source", source


def _per_token(price: float) -> float:
    """Return the price of a token, without the error of a division of floats."""
    return float(Decimal(str(price)) / 1_000_000)


# ── models.dev ───────────────────────────────────────────────────────────────
def models_dev_files(registry: Registry, providers: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each file, a model or a provider, as in the repository of models.dev."""
    wires = _names()["wires"]
    models: dict[str, list[Model]] = {}
    for model in _served_models(registry, providers):
        models.setdefault(model.provider, []).append(model)
    for provider, served in models.items():
        yield f"providers/{provider}/provider.toml", _provider_file(served[0], wires)
        for model in served:
            yield f"providers/{provider}/models/{model.id}.toml", _model_file(model)


def _provider_file(model: Model, wires: Mapping[str, Any]) -> bytes:
    flags, facts = model.flags, {fact.flag: fact for fact in model.explain()}
    source = facts["base_url"].source if "base_url" in facts else None
    wire = wires.get(model.protocol, {"api": True})
    table = {
        "name": flags.title,
        "env": flags.keys or None,
        "npm": wire.get("npm"),
        "api": facts["base_url"].value if wire["api"] and "base_url" in facts else None,  # without a password
        "doc": source if source is not None and source.startswith("https://") else None,
    }
    flag = {"name": "title", "env": "keys", "api": "base_url"}
    return _toml([("", [(key, value, facts.get(flag.get(key, ""))) for key, value in table.items()])], tuple(table)[:3])


def _model_file(model: Model) -> bytes:
    flags, facts = model.flags, {fact.flag: fact for fact in model.explain()}
    can = capabilities(model, facts.values())
    kinds, status, limits = flags.input, flags.status, flags.limits
    prices, tiers = _prices(flags, _MODELS_DEV_PRICES)
    flag_of = {key: flag for flag, key in _MODELS_DEV_PRICES.items()}
    # the parameters of a wire say nothing of an endpoint
    candidates = (fact for name, fact in facts.items() if f"{name}.".startswith("params.temperature."))
    temperature = next((fact for fact in candidates if not fact.layer.startswith("protocols.")), None)
    reasons = can["reasoning"].value
    options = _reasoning_options(flags) if reasons else []
    top: list[_Row] = [
        ("attachment", None if kinds is None else set(kinds) != {"text"}, facts.get("input")),
        # the list does not take a model that reasons without its options
        ("reasoning", reasons if options or not reasons else None, can["reasoning"].fact),
        ("tool_call", can["tools"].value, can["tools"].fact),
        ("structured_output", can["schema"].value, can["schema"].fact),
        ("temperature", temperature and temperature.value not in (False, "ignored"), temperature),
        ("release_date", status and status.released and status.released.isoformat(), facts.get("status.released")),
        ("status", _STATUS.get(str(status and status.is_)), facts.get("status.is")),
    ]
    tables: list[tuple[str, list[_Row]]] = [
        ("", top),
        *(("[reasoning_options]", _rows(option)) for option in options),
        ("cost", [(key, value, facts.get(flag_of[key])) for key, value in prices.items()]),
        *(
            ("[cost.tiers]", [("tier", _Inline(size=above), facts.get("price.tiers")), *_rows(tier)])
            for above, tier in tiers.items()
        ),
        (
            "limit",
            [(key, getattr(limits, key), facts.get(f"limits.{key}")) for key in ("context", "input", "output")],
        ),
        ("modalities", [("input", kinds and [_PDF.get(kind, kind) for kind in kinds], facts.get("input"))]),
    ]
    return _toml(tables, _NEEDED, _NEEDED_TABLES)


def _rows(values: Mapping[str, Any]) -> list[_Row]:
    return [(key, value, None) for key, value in values.items()]


def _reasoning_options(flags: Flags) -> list[dict[str, Any]]:
    """Return how reasoning is chosen, in the words of models.dev."""
    rules, out = flags.reasoning, list[dict[str, Any]]()
    if rules.mode == "toggle" and (rules.off or rules.on):
        out.append({"type": "toggle"})
    words = [word for level in LEVELS if rules.effort and (word := getattr(rules.effort, level)) is not None]
    if words and set(words) <= set(_EFFORTS):
        out.append({"type": "effort", "values": list(dict.fromkeys(words))})
    if rules.budget is not None and rules.budget.at:
        bounds = {"min": rules.budget.min, "max": rules.budget.max}
        out.append({"type": "budget_tokens", **{key: value for key, value in bounds.items() if value is not None}})
    return out


class _Inline(dict[str, Any]):
    """A table that stands on one line."""


_Row = tuple[str, Any, Fact | None]


def _toml(
    tables: Iterable[tuple[str, list[_Row]]], needed: Iterable[str], inner: Mapping[str, Iterable[str]] | None = None
) -> bytes:
    """Return tables as TOML, each value with its source, and at the top what the list wants and nobody knows here."""
    lines: list[str] = []
    known: set[str] = set()
    for title, rows in tables:
        rows = [row for row in rows if row[1] is not None]
        if title and rows:
            lines += ["", f"[{title}]"]
        for key, value, fact in rows:
            known.add(f"{title}.{key}" if title else key)
            text = json.dumps(value, ensure_ascii=False)
            if isinstance(value, _Inline):
                text = "{ " + ", ".join(f"{name} = {json.dumps(one)}" for name, one in value.items()) + " }"
            source = f" # {fact.source} ({fact.how}, {fact.seen})" if fact is not None and fact.source else ""
            lines.append(f"{key} = {text}{source}")
    names = [*needed, *(f"{table}.{key}" for table, keys in (inner or {}).items() for key in keys)]
    missing = [key for key in names if key not in known]
    head = [f"# unknown to cnllm, and needed: {', '.join(missing)}"] if missing else []
    return "\n".join([*head, *lines, ""]).encode()
