"""Read two public files of models from disk into one form. The content shows which of the two it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.errors import RegistryError

__all__ = ["CURRENCY", "PublishedModel", "read_published"]

CURRENCY = "USD"
"""The currency of both files."""

_HINT = "supported files: api.json of models.dev, and model_prices_and_context_window.json of litellm"
_MODES = ("chat", "completion", "responses", None)
_PER_TOKEN = {
    "price.input": "input_cost_per_token",
    "price.output": "output_cost_per_token",
    "price.cached": "cache_read_input_token_cost",
    "price.cache_write": "cache_creation_input_token_cost",
}
_PER_MILLION = {"price.input": "input", "price.output": "output", "price.cached": "cache_read"}
_PER_MILLION |= {"price.cache_write": "cache_write"}
_OFF_PEAK = {flag.replace("price.", "price.off_peak."): name for flag, name in _PER_TOKEN.items()}
_KINDS = {"pdf": "file"}
_SUPPORTS = {"image": "vision", "audio": "audio_input", "video": "video_input", "file": "pdf_input"}
_OFF_WORDS = {"none", "off", "disabled"}


class PublishedModel(Struct, frozen=True):
    """The data of a file on one model of one provider: values by flag, prices per million tokens.

    `input_only` means that the file's context is the input alone: the window may be larger by the output. What the file
    does not say is None: the kinds of `input`, whether the model reasons, whether that can be turned off, whether it
    takes tools.
    """

    provider: str
    id: str
    values: dict[str, float]
    base_url: str | None = None
    input_only: bool = False
    input: frozenset[str] | None = None
    reasoning: bool | None = None
    reasoning_off: bool | None = None
    tools: bool | None = None
    currency: str = CURRENCY


def read_published(path: Path) -> list[PublishedModel]:
    """Return every model of a file. Raises `RegistryError` where it cannot be read or is neither of the two."""
    try:
        data = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise RegistryError(f"cannot be read: {error.strerror}", file=str(path), hint=_HINT) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RegistryError(f"is not JSON: {error}", file=str(path), hint=_HINT) from error
    entries = {k: v for k, v in data.items() if isinstance(v, dict)} if isinstance(data, dict) else {}
    reader: Callable[[dict[str, Any]], Iterator[PublishedModel]] | None = None
    if any(isinstance(entry.get("models"), dict) for entry in entries.values()):
        reader = _nested
    elif any(isinstance(entry.get("litellm_provider"), str) for entry in entries.values()):
        reader = _flat
    if reader is None:
        raise RegistryError("is not a list of models in a supported form", file=str(path), hint=_HINT)
    return list(reader(entries))


def _nested(entries: dict[str, Any]) -> Iterator[PublishedModel]:
    """Yield the models of providers that hold models, as in models.dev."""
    for provider, entry in entries.items():
        base_url = entry.get("api")
        models = entry.get("models")
        for id, model in models.items() if isinstance(models, dict) else ():
            if not isinstance(model, dict):
                continue
            limit, cost = _table(model.get("limit")), _table(model.get("cost"))
            values = _numbers(limit, {"limits.context": "context", "limits.output": "output"})
            values |= _numbers(cost, _PER_MILLION)
            kinds = _table(model.get("modalities")).get("input")
            yield PublishedModel(
                provider,
                id,
                values,
                base_url if isinstance(base_url, str) else None,
                input=frozenset(_KINDS.get(k, k) for k in kinds if isinstance(k, str))
                if isinstance(kinds, list)
                else None,
                reasoning=_yes_or_no(model, "reasoning"),
                reasoning_off=_has_switch(model.get("reasoning_options")),
                tools=_yes_or_no(model, "tool_call"),
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
        values |= {flag: round(value * 1e6, 9) for flag, value in _numbers(entry, _PER_TOKEN).items()}
        values |= {
            flag: round(value * 1e6, 9)
            for flag, value in _numbers(_table(entry.get("off_peak_pricing")), _OFF_PEAK).items()
        }
        id = rest if slash and prefix == provider else name
        kinds = {kind for kind, word in _SUPPORTS.items() if entry.get(f"supports_{word}") is True}
        yield PublishedModel(
            provider,
            id,
            values,
            input_only=True,
            input=frozenset({"text", *kinds}) if kinds else None,  # the file leaves out what it does not know
            reasoning=_yes_or_no(entry, "supports_reasoning"),
            tools=_yes_or_no(entry, "supports_function_calling"),
        )


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
