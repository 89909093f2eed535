"""Check values that have the right type and cannot be meant: addresses, negative numbers, names of models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import fields

from cnllm.registry.fault import Fault
from cnllm.registry.flags import Table
from cnllm.registry.problem import dotted_path

__all__ = ["SCHEMA", "unnamed_model", "value_faults"]

SCHEMA = 1
"""The version of the format that this program reads."""

_PATHS = re.compile(r"/(?:chat/completions|messages|responses|models|completions)/?$")
_LOCAL = re.compile(r"(?:localhost|127\.|0\.0\.0\.0|192\.168\.|10\.|\[?::1)")


def value_faults(data: dict[str, Any]) -> Iterator[Fault]:
    """Yield the faults of values in a file's data."""
    schema = data.get("schema")
    if type(schema) is int and schema != SCHEMA:
        yield Fault(["schema"], f"schema = {schema}; this program reads schema {SCHEMA}", meant=SCHEMA)
    yield from _walk(data, [])


def _walk(table: dict[str, Any], path: list[str]) -> Iterator[Fault]:
    for key, value in table.items():
        if type(value) is dict:
            yield from _walk(value, [*path, key])
        elif key == "base_url" and type(value) is str:
            yield from _url_faults(value, [*path, key], has_path="path" in table)
        elif path and path[-1] in ("limits", "price") and type(value) in (int, float) and value < 0:
            yield Fault([*path, key], f"{dotted_path([*path, key])} = {value}; it cannot be negative", meant=-value)


def _url_faults(url: str, path: list[str], *, has_path: bool) -> Iterator[Fault]:
    name = dotted_path(path)
    if not re.match(r"https?://", url, re.IGNORECASE):
        scheme = "http" if _LOCAL.match(url) else "https"
        bare = url.removeprefix("//")
        meant = f"{scheme}://{bare}" if "://" not in url and "@" not in url else None
        yield Fault(path, f"{name} does not begin with http:// or https://", meant=meant)
    elif (match := _PATHS.search(url)) and not has_path:
        meant = url[: match.start()] if "@" not in url else None
        yield Fault(path, f"{name} ends with {match[0]}, which cnllm adds to each request", meant=meant)


def unnamed_model(name: str, table: Any) -> Fault:
    """Return the fault of a model whose name has no provider: its head lacks quotes, or the provider."""
    keys = [name]
    flags = {field.encode_name for field in fields(Table)}
    while type(table) is dict and table and not flags & table.keys():
        keys.append(next(iter(table)))
        table = table[keys[-1]]
    id = ".".join(keys)
    provider, _, rest = id.partition(".")
    is_dotted = len(keys) > 1 and not rest[:1].isdigit()
    meant = f'[models."{provider}/{rest}"]' if is_dotted else f'[models."PROVIDER/{id}"]'
    return Fault(["models", name], f'models.{id}: a model is named "provider/id", in quotes', corrected=meant)
