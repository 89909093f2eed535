"""Read two public files of models into one form: from disk, or downloaded. The content shows which of the two it is."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.registry.data_rules import INPUT_KINDS
from cnllm.system.files import read_bounded

__all__ = [
    "CURRENCY",
    "LIST_URLS",
    "MAX_BYTES",
    "NO_CHAT",
    "PER_MILLION",
    "PER_TOKEN",
    "SUPPORTS",
    "WORDS",
    "ListName",
    "PublicList",
    "PublishedModel",
    "list_from_file",
    "published_models",
]

CURRENCY = "USD"
"""The currency of both files."""

ListName = Literal["models.dev", "litellm"]
"""The names of the two lists."""

LIST_URLS: dict[str, str] = {
    "models.dev": "https://models.dev/api.json",
    "litellm": "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json",
}
"""The addresses that the two projects name: the README of anomalyco/models.dev, and litellm/__init__.py."""

MAX_BYTES = 64 * 1024 * 1024
"""The largest list that is read; those of 2026-09 have 3 to 5 MB."""

NO_CHAT = re.compile(
    r"rerank|embed|moderation|whisper|(?:^|[-/])(?:(?:tts|asr)(?:-|$)|(?:bge|mini_lm)[-_])", re.IGNORECASE
)
"""Ids of models that answer no chat although a list says text for both directions."""

_HINT = "supported files: api.json of models.dev, and model_prices_and_context_window.json of litellm"
_MODES = ("chat", "completion", "responses", None)
PER_TOKEN = {
    "price.input": "input_cost_per_token",
    "price.output": "output_cost_per_token",
    "price.cached": "cache_read_input_token_cost",
    "price.cache_write": "cache_creation_input_token_cost",
}
PER_MILLION = {
    "price.input": "input",
    "price.output": "output",
    "price.cached": "cache_read",
    "price.cache_write": "cache_write",
}
_STATUS: dict[str, Literal["preview", "retired"]] = {"deprecated": "retired", "alpha": "preview", "beta": "preview"}
_OFF_PEAK = {flag.replace("price.", "price.off_peak."): name for flag, name in PER_TOKEN.items()}
WORDS = {"pdf": "file"}
SUPPORTS = {"image": "vision", "audio": "audio_input", "video": "video_input", "file": "pdf_input"}
_OFF_WORDS = {"none", "off", "disabled"}


class PublishedModel(Struct, frozen=True):
    """The data of a file on one model of one provider: values by flag, prices per million tokens.

    `input_only` means that the file's context is the input alone: the window may be larger by the output. What the file
    does not say is None: the kinds of `input`, whether the model reasons, whether that can be turned off, whether it
    takes tools. `listed_input` are the kinds only where the file lists them, in our words. `mode` is the reasoning mode
    where the file is certain of it. `tiered`: long requests cost more. `is_chat`: it answers a chat in text, at the
    provider's own address.
    """

    provider: str
    id: str
    values: dict[str, float]
    base_url: str | None = None
    input_only: bool = False
    input: frozenset[str] | None = None
    listed_input: tuple[str, ...] | None = None
    reasoning: bool | None = None
    reasoning_off: bool | None = None
    mode: Literal["never", "toggle", "always"] | None = None
    tools: bool | None = None
    currency: str = CURRENCY
    status: Literal["preview", "retired"] | None = None
    tiered: bool = False
    is_chat: bool = True


class PublicList(Struct, frozen=True):
    """A public list as it was read: its name, where from and when, and its models."""

    name: ListName
    url: str
    seen: datetime.date
    models: list[PublishedModel]


def list_from_file(path: Path, hint: str = _HINT) -> PublicList:
    """Return the list in a file, as of the day on which the file was written.

    Raises `RegistryError` where it cannot be read, with this hint, or is neither of the two.
    """
    try:
        content = read_bounded(path, MAX_BYTES)
        seen = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).date()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RegistryError(f"cannot be read: {reason}", file=str(path), hint=hint) from error
    name, models = published_models(content, str(path))
    return PublicList(name, _list_address(name, path), seen, models)


def _list_address(name: ListName, path: Path) -> str:
    """Return the source to cite: the list's own address, because a path says nothing on another machine."""
    return f"{LIST_URLS[name]} ({path.name})" if path.name.isprintable() else LIST_URLS[name]


def published_models(content: bytes, label: str) -> tuple[ListName, list[PublishedModel]]:
    """Return which of the two lists a content is, and every model of it. Raises `RegistryError` for any other."""
    try:
        data = msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:  # of msgspec; a thousand brackets
        raise RegistryError(f"is not JSON: {error}", file=label, hint=_HINT) from error
    entries = {k: v for k, v in data.items() if isinstance(v, dict)} if isinstance(data, dict) else {}
    reader: Callable[[dict[str, Any]], Iterator[PublishedModel]]
    name: ListName
    if any(isinstance(entry.get("models"), dict) for entry in entries.values()):
        name, reader = "models.dev", _nested_models
    elif any(isinstance(entry.get("litellm_provider"), str) for entry in entries.values()):
        name, reader = "litellm", _flat
    else:
        raise RegistryError("is not a list of models in a supported form", file=label, hint=_HINT)
    return name, list(reader(entries))


def _nested_models(entries: dict[str, Any]) -> Iterator[PublishedModel]:
    """Yield the models of providers that hold models, as in models.dev."""
    for provider, entry in entries.items():
        base_url = entry.get("api")
        models = entry.get("models")
        for id, model in models.items() if isinstance(models, dict) else ():
            if not isinstance(model, dict):
                continue
            limit, cost = _table(model.get("limit")), _table(model.get("cost"))
            values = _numbers(limit, {"limits.context": "context", "limits.output": "output"})
            values |= _numbers(cost, PER_MILLION)
            modalities = _table(model.get("modalities"))
            kinds = modalities.get("input")
            yield PublishedModel(
                provider,
                id,
                values,
                base_url if isinstance(base_url, str) else None,
                input=frozenset(WORDS.get(k, k) for k in kinds if isinstance(k, str))
                if isinstance(kinds, list)
                else None,
                listed_input=_listed_input(kinds),
                reasoning=_yes_or_no(model, "reasoning"),
                reasoning_off=_has_switch(model.get("reasoning_options")),
                mode=_mode(model),
                tools=_yes_or_no(model, "tool_call"),
                status=_STATUS.get(str(model.get("status"))),
                tiered=bool(cost.get("tiers") or cost.get("context_over_200k")),
                is_chat=all("text" in (_listed_input(modalities.get(way)) or ("text",)) for way in ("input", "output"))
                and "provider" not in model
                and not NO_CHAT.search(id),
            )


def _flat(entries: dict[str, Any]) -> Iterator[PublishedModel]:
    """Yield the models that name their provider, as in litellm.

    A prefix of the name that repeats the provider is no part of the id.
    """
    for name, entry in entries.items():
        provider = entry.get("litellm_provider")
        if not isinstance(provider, str) or entry.get("mode") not in _MODES:
            continue
        prefix, slash, rest = name.partition("/")
        values = _numbers(entry, {"limits.context": "max_input_tokens", "limits.output": "max_output_tokens"})
        prices = _numbers(entry, PER_TOKEN) | _numbers(_table(entry.get("off_peak_pricing")), _OFF_PEAK)
        values |= {flag: round(value * 1e6, 9) for flag, value in prices.items()}
        id = rest if slash and prefix == provider else name
        kinds = {kind for kind, word in SUPPORTS.items() if entry.get(f"supports_{word}") is True}
        yield PublishedModel(
            provider,
            id,
            values,
            input_only=True,
            input=frozenset({"text", *kinds}) if kinds else None,  # the file leaves out what it does not know
            listed_input=_listed_input(entry.get("supported_modalities")),
            reasoning=_yes_or_no(entry, "supports_reasoning"),
            tools=_yes_or_no(entry, "supports_function_calling"),
            tiered=any("_above_" in key for key in entry),
            is_chat=entry.get("mode") == "chat" and not NO_CHAT.search(id),
        )


def _listed_input(value: object) -> tuple[str, ...] | None:
    """Return the kinds of input in our words; None where they are unknown, or one is no kind of ours."""
    if not isinstance(value, list) or not value or not all(isinstance(kind, str) for kind in value):
        return None
    kinds = [WORDS.get(kind, kind) for kind in map(str, value)]
    return tuple(dict.fromkeys(kinds)) if set(kinds) <= set(INPUT_KINDS) else None


def _mode(model: Mapping[str, Any]) -> Literal["never", "toggle", "always"] | None:
    """Return whether a model reasons, and can be told; None where the list does not say."""
    options = model.get("reasoning_options")
    if model.get("reasoning") is False:
        return "never"
    if model.get("reasoning") is not True or not isinstance(options, list):
        return None
    if _has_switch(options):
        return "toggle"
    return None if any(isinstance(option, dict) for option in options) else "always"


def _table(value: object) -> Mapping[str, Any]:
    """Return a value as a table; empty for anything else."""
    return value if isinstance(value, dict) else {}


def _yes_or_no(table: Mapping[str, Any], name: str) -> bool | None:
    """Return a boolean of a table, None for anything else."""
    value = table.get(name)
    return value if isinstance(value, bool) else None


def _has_switch(options: object) -> bool | None:
    """Return True where the options of reasoning have a switch or a level that turns it off; otherwise nobody knows."""
    for option in options if isinstance(options, list) else ():
        words = _table(option).get("values")
        if _table(option).get("type") == "toggle" or (isinstance(words, list) and _OFF_WORDS & {*map(str, words)}):
            return True
    return None


def _numbers(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers of a table by our flags; other values (and a limit of 0) are unknown."""
    out: dict[str, float] = {}
    for flag, name in names.items():
        value = table.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and (value or flag.startswith("price.")):
            out[flag] = value
    return out
