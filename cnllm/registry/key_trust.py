"""Decide whether a key may be sent to an address, by the files that name the two."""

from __future__ import annotations

from typing import Any

from cnllm.registry import merge
from cnllm.registry.documents import Document
from cnllm.registry.layers import Layers
from cnllm.registry.merge import Layer
from cnllm.registry.routing import host_entry, origin_of, routing_entry
from cnllm.system.processes import cached_property

__all__ = ["KeyTrust", "builtin_origins"]


class KeyTrust:
    """Decides for the layers of one model. What the layers set is searched once; which files are trusted may change."""

    def __init__(self, layers: list[Layer]) -> None:
        self._layers = layers

    @cached_property
    def _host_layers(self) -> list[Layer]:
        """Return the layers of other files than the built-in one that set a `host` header."""
        return [layer for layer in self._layers if not layer.document.builtin and host_entry(layer.table)]

    @cached_property
    def _routing_layers(self) -> list[Layer]:
        """Return the layers that decide the address or the key, except for those of the built-in file."""
        return [la for la in self._layers if routing_entry(la.table) and not (la.path and la.document.builtin)]

    def distrusted_place(self, origin: str, key_origins: set[str] | None) -> str | None:
        """Return the place that keeps a key from `origin`, or None where the key may go there.

        `key_origins` are the origins at which the built-in file uses the key; None where it does not name the key.

        A key that the built-in file names may go to origins of that file. It may go elsewhere if everything that
        decides the address or the key is in files that the user trusts. Any other key may go to addresses from trusted
        files and from the user's own file in the config folder. Options of the call itself are the caller's will.
        """
        if key_origins is not None and origin in key_origins:
            doubtful = self._host_layers  # a `host` header selects another site on the same machine
        else:
            doubtful = self._routing_layers
            if key_origins is None:
                doubtful = [layer for layer in doubtful if layer.path]
            if not doubtful:
                return "the built-in registry"
        for layer in doubtful:
            if not layer.path:
                return layer.name
            if not _is_trusted(layer.document, own=key_origins is None):
                line = layer.document.line([*layer.path, *(routing_entry(layer.table) or ())])
                return f"{layer.document.label}:{line}" if line else layer.document.label
        return None


def _is_trusted(document: Document, *, own: bool) -> bool:
    """Whether the user trusts a file; with `own` the file in the config folder needs no confirmation."""
    if own and document.is_own:
        return True
    from cnllm.registry.trusted_files import is_trusted

    return is_trusted(document.path, document.digest)


def builtin_origins(builtin: Layers, env: str) -> set[str] | None:
    """Return the origins of the built-in providers that name the key `env`; None where no provider names it."""
    found: set[str] | None = None
    for provider in builtin.names("providers"):
        tables = [
            t
            for name in reversed(builtin.extends_chain("providers", provider))
            for t in builtin.table_layers(("providers", name), None)
        ]
        if not any(_names_key(layer.table, env) for layer in tables):
            continue  # before the tables are merged, which takes longer
        merged = merge.merge_layers(tables)
        if _names_key(merged, env):
            mode_tables = [t for layer in tables for kind in ("on", "when") for t in layer.table.get(kind, {}).values()]
            origins = {origin_of(table["base_url"]) for table in (merged, *mode_tables) if "base_url" in table}
            found = origins if found is None else found | origins
    return found


def _names_key(table: dict[str, Any], env: str) -> bool:
    """Return whether a table names a key, in any case: names of variables have none on Windows."""
    return any(name.upper() == env.upper() for name in table.get("keys", ()))
