"""Find the line that set a value, and the source that backs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cnllm.config.process import cached_property
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
            return _line(layer, path)
    return ""


def _line(layer: Layer, path: list[str]) -> str:
    line = layer.document.line([*layer.path, *path]) if layer.path else None
    return f"{layer.document.label}:{line}" if line else layer.name


def setting_layer(layers: list[Layer], keys: list[str]) -> str:
    """Return the layer that last set a path of keys; "" where none does."""
    return next((layer.name for layer in reversed(layers) if merge.find_path(layer.table, keys) is not None), "")


def facts(layers: list[Layer], table: dict[str, Any], when: dict[str, Any]) -> Iterator[Fact]:
    """Yield every value of a merged table with its line and its source."""
    traced = [_Traced(layer, layers) for layer in reversed(layers)]
    for keys, value in [*merge.flatten(table), *merge.flatten({"when": when} if when else {})]:
        path = list(keys)
        where: str | None = None
        for one in traced:
            spelled = merge.find_path(one.layer.table, path)
            if where is None and (spelled is not None or one.unsets(path)):
                where = _line(one.layer, ["unset"] if spelled is None else spelled)
            if spelled is not None:
                break
        else:
            raise AssertionError(f"no layer sets {'.'.join(path)}")
        source = one.source(".".join(path))
        yield Fact(
            ".".join(path),
            _redacted(path, value),
            one.layer.name,
            where or "",
            source.get("url"),
            str(source["seen"]) if "seen" in source else None,
            source.get("how"),
        )


class _Traced:
    """A layer with what it unsets and the sources of its table, read once for all values."""

    def __init__(self, layer: Layer, layers: list[Layer]) -> None:
        self.layer = layer
        self._unset = [merge.unset_path(path) for path in layer.table.get("unset", ())]
        self._layers = layers

    @cached_property
    def _backed(self) -> list[tuple[str, dict[str, Any]]]:
        """The flags that have a source in the layer's own table (in any file), with it."""
        return [
            (".".join(merge.unset_path(flag)), source)
            for other in self._layers
            if other.path == self.layer.path
            for source in other.table.get("sources", {}).values()
            for flag in source.get("backs", ())
        ]

    def unsets(self, keys: list[str]) -> bool:
        return any(_starts_with(keys, path) for path in self._unset)

    def source(self, flag: str) -> dict[str, Any]:
        """Return the source that backs a flag most precisely."""
        best: tuple[int, dict[str, Any]] = (0, {})
        for prefix, source in self._backed:
            if flag.startswith(prefix) and len(prefix) > best[0] and flag[len(prefix) : len(prefix) + 1] in ("", "."):
                best = (len(prefix), source)
        return best[1]


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
