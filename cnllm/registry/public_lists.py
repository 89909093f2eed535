"""Read two public files of limits and prices from disk into one form. The content shows which of the two it is."""

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


class PublishedModel(Struct, frozen=True):
    """The data of a file on one model of one provider: values by flag, prices per million tokens.

    `input_only` means that the file's context is the input alone: the window may be larger by the output.
    """

    provider: str
    id: str
    values: dict[str, float]
    base_url: str | None = None
    input_only: bool = False


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
            yield PublishedModel(provider, id, values, base_url if isinstance(base_url, str) else None)


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
        id = rest if slash and prefix == provider else name
        yield PublishedModel(provider, id, values, input_only=True)


def _table(value: object) -> Mapping[str, Any]:
    """Return a value as a table; empty for anything else."""
    return value if isinstance(value, dict) else {}


def _numbers(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers of a table by our flags; other values (and a limit of 0) are unknown."""
    out: dict[str, float] = {}
    for flag, name in names.items():
        value = table.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and (value or flag.startswith("price.")):
            out[flag] = value
    return out
