"""Dotted paths into JSON-like data: read, set, take away, merge.

A number in a path indexes a list when reading; when writing, only tables are entered and made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["get", "get_first", "merge_patch", "remove", "set_value"]


def get(data: Any, path: str) -> Any:
    """What stands at a path, or None."""
    if "." not in path and type(data) is dict:  # most paths
        return data.get(path)
    for key in path.split("."):
        if type(data) is dict:
            data = data.get(key)
        elif type(data) is list and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return None
    return data


def get_first(data: Any, paths: Iterable[str] | None) -> Any:
    """What stands at the first of several paths that has something, or None."""
    for path in paths or ():
        found = get(data, path)
        if found is not None:
            return found
    return None


def set_value(data: dict[str, Any], path: str, value: Any) -> None:
    """Set a value at a path, making the tables on the way. A non-table on the way is replaced."""
    *tables, last = path.split(".")
    for key in tables:
        inner = data.get(key)
        if type(inner) is not dict:
            inner = data[key] = {}
        data = inner
    data[last] = value


def remove(data: Any, path: str) -> Any:
    """Take away what stands at a path and return it, or None; tables that this leaves empty go too."""
    head, _, rest = path.partition(".")
    if type(data) is not dict or head not in data:
        return None
    if not rest:
        return data.pop(head)
    taken = remove(data[head], rest)
    if data[head] == {}:
        del data[head]
    return taken


def merge_patch(data: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merge a patch into data, in place: tables merge, everything else replaces. The patch is not shared with it.

    Tables inside the data are copied before they change, for they may be a caller's own.
    """
    for key, value in patch.items():
        if type(value) is dict:
            inner = data.get(key)
            inner = data[key] = dict(inner) if type(inner) is dict else {}
            merge_patch(inner, value)
        elif type(value) is list:
            data[key] = list(value)
        else:
            data[key] = value
