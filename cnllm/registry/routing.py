"""Decide where a request goes and with which key: by entries of a registry table, and by the files that name both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from cnllm.registry import merge
from cnllm.registry.documents import Document
from cnllm.registry.layers import Layers
from cnllm.registry.merge import Layer
from cnllm.system.processes import cached_property

__all__ = [
    "KeyTrust",
    "builtin_origins",
    "host_entry",
    "origin_of",
    "path_problem",
    "routing_entry",
    "split_wire",
]


_ROUTING_KEYS = ("base_url", "path", "stream_path", "keys")


_HOST_HEADERS = ("host", ":authority")


def split_wire(target: str) -> tuple[str, str | None]:
    """Return the model and the wire of a target of a gateway: `MODEL?protocol=WIRE`. The wire is None without one."""
    model, mark, wire = target.partition("?protocol=")
    return model, wire if mark else None


def path_problem(path: str | None) -> str | None:
    """Return what is wrong with a path, which must not change the host or port of its address; None for a valid one."""
    if not path:
        return None
    if not path.startswith("/"):
        return "must begin with /"
    return None if path.isprintable() and not {" ", "\\"} & set(path) else "holds a character that a URL cannot hold"


def routing_entry(table: dict[str, Any]) -> list[str] | None:
    """Return the keys of the first entry that sets the address or the key of a request, in any mode; or None."""
    for keys, mode_table in _mode_tables(table):
        for key in _ROUTING_KEYS:
            if key in mode_table:
                return [*keys, key]
    return host_entry(table)


def host_entry(table: dict[str, Any]) -> list[str] | None:
    """Return the keys of a `host` header, in any mode; or None."""
    for keys, mode_table in _mode_tables(table):
        auth, extra = mode_table.get("auth"), mode_table.get("call", {}).get("extra_headers")
        names = [(["headers", name], name) for name in mode_table.get("headers") or ()]
        names += [(["call", "extra_headers", name], name) for name in extra or ()]
        names += [(["auth"], str(auth.get("header", "")))] if isinstance(auth, dict) else []
        for place, name in names:
            if name.strip().lower() in _HOST_HEADERS:
                return [*keys, *place]
    return None


def _mode_tables(table: dict[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield a table and its `when` tables, each with the keys that lead to it."""
    yield [], table
    for condition, mode_table in table.get("when", {}).items():
        yield ["when", condition], mode_table


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a URL, in lower case, without the scheme's default port."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port and (parts.scheme, parts.port) not in (("https", 443), ("http", 80)) else ""
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"


# ── trust in addresses ───────────────────────────────────────────────────────


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
                return layer.document.place([*layer.path, *(routing_entry(layer.table) or ())])
        return None


def _is_trusted(document: Document, *, own: bool) -> bool:
    """Whether the user trusts a file; with `own` the file in the config folder needs no confirmation."""
    if own and document.is_own:
        return True
    from cnllm.registry.trusted_files import is_trusted

    return is_trusted(document.path, document.text)


def builtin_origins(builtin: Layers, env: str) -> set[str] | None:
    """Return the origins of the built-in providers that name the key `env`; None where no provider names it."""
    found: set[str] | None = None
    for provider in builtin.names("providers"):
        layers = builtin.endpoint_layers(provider)
        if not any(_names_key(layer.table, env) for layer in layers):
            continue  # before the tables are merged, which takes longer
        merged = merge.merge_layers(layers)
        if _names_key(merged, env):
            mode_tables = [t for layer in layers for kind in ("on", "when") for t in layer.table.get(kind, {}).values()]
            origins = {origin_of(table["base_url"]) for table in (merged, *mode_tables) if "base_url" in table}
            found = origins if found is None else found | origins
    return found


def _names_key(table: dict[str, Any], env: str) -> bool:
    """Return whether a table names a key, in any case: names of variables have none on Windows."""
    return any(name.upper() == env.upper() for name in table.get("keys", ()))
