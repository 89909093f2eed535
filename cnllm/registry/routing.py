"""Find the entries of a registry table that decide where a request goes, and with which key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

__all__ = ["host_entry", "origin_of", "path_problem", "routing_entry", "split_wire"]


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
    """Return the keys of a `host` header, or None."""
    for keys, mode_table in _mode_tables(table):
        for source in (mode_table, *(v for name, v in mode_table.get("call", {}).items() if name == "extra_headers")):
            for name in (source.get("headers") if source is mode_table else source) or ():
                if name.strip().lower() in _HOST_HEADERS:
                    return [*keys, *(["headers"] if source is mode_table else ["call", "extra_headers"]), name]
    auth = next(((k, s["auth"]) for k, s in _mode_tables(table) if isinstance(s.get("auth"), dict)), None)
    if auth is not None and str(auth[1].get("header", "")).strip().lower() in _HOST_HEADERS:
        return [*auth[0], "auth"]
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
