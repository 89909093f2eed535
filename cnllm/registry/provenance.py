"""Find the line that set a value, and the source that backs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cnllm.registry import merge
from cnllm.registry.merge import Layer
from cnllm.registry.model import Fact

__all__ = ["facts", "setting_layer", "setting_line"]


def setting_line(layers: list[Layer], keys: list[str]) -> str:
    """Return the "file:line" that last set (or unset) a path of keys; "" where none does."""
    for layer in reversed(layers):
        path = merge.find_path(layer.table, keys)
        if path is None and any(_starts_with(keys, merge.unset_path(u)) for u in layer.table.get("unset", ())):
            path = ["unset"]
        if path is not None:
            line = layer.document.line([*layer.path, *path]) if layer.path else None
            return f"{layer.document.label}:{line}" if line else layer.name
    return ""


def setting_layer(layers: list[Layer], keys: list[str]) -> str:
    """Return the layer that last set a path of keys; "" where none does."""
    return next((layer.name for layer in reversed(layers) if merge.find_path(layer.table, keys) is not None), "")


def facts(layers: list[Layer], table: dict[str, Any], when: dict[str, Any]) -> Iterator[Fact]:
    """Yield every value of a merged table with its line and its source."""
    for keys, value in [*merge.flatten(table), *merge.flatten({"when": when} if when else {})]:
        path = list(keys)
        layer = next(la for la in reversed(layers) if merge.find_path(la.table, path) is not None)
        source = _source(layers, layer, path)
        yield Fact(
            ".".join(path),
            _redacted(path, value),
            layer.name,
            setting_line(layers, path),
            source.get("url"),
            str(source["seen"]) if "seen" in source else None,
            source.get("how"),
        )


def _redacted(path: list[str], value: object) -> object:
    """Return a flag's value for display: a URL or a header may hold a password."""
    if not {"base_url", "headers", "auth"} & set(path):
        return value
    from cnllm.config import redact

    if path[-1] == "base_url" and isinstance(value, str):
        return redact.redact_url(value)
    if path[-1] == "headers" and isinstance(value, dict):
        return redact.redact_request_headers(value)
    if path[-2:-1] == ["headers"] and isinstance(value, str):
        return redact.redact_request_headers({path[-1]: value})[path[-1]]
    if path[-2:] == ["auth", "value"] and isinstance(value, str) and "{key}" not in value:
        return redact.MARK
    return value


def _starts_with(keys: list[str], start: list[str]) -> bool:
    return keys[: len(start)] == start


def _source(layers: list[Layer], layer: Layer, path: list[str]) -> dict[str, Any]:
    """Return the source in a layer's own table (in any file) that backs a flag most precisely."""
    flag = ".".join(path)
    best: tuple[int, dict[str, Any]] = (0, {})
    for other in layers:
        if other.path != layer.path:
            continue
        for source in other.table.get("sources", {}).values():
            for flag_path in source.get("backs", ()):
                prefix = ".".join(merge.unset_path(flag_path))
                if (flag == prefix or flag.startswith(prefix + ".")) and len(prefix) > best[0]:
                    best = (len(prefix), source)
    return best[1]
