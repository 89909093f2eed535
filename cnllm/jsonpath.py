"""Read, set, remove, merge and compare values in JSON-like data by dotted paths.

A number in a path is the index of a list when reading. When writing, only objects are entered and created. The path `.`
is the data itself, when reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["contains", "get", "get_first", "leaves", "merge_patch", "nest", "path_fault", "remove", "set_value"]


def get(data: Any, path: str) -> Any:
    """Return the value at a path, or None."""
    if "." not in path and type(data) is dict:  # most paths
        return data.get(path)
    if path == ".":
        return data
    for key in path.split("."):
        if type(data) is dict:
            data = data.get(key)
        elif type(data) is list and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return None
    return data


def get_first(data: Any, paths: Iterable[str] | None) -> Any:
    """Return the first value that is not None at one of several paths, or None."""
    for path in paths or ():
        value = get(data, path)
        if value is not None:
            return value
    return None


def set_value(data: dict[str, Any], path: str, value: Any) -> None:
    """Set a value at a path and create the objects on the way. A value on the way that is no object is replaced."""
    *parents, last = path.split(".")
    for key in parents:
        inner = data.get(key)
        if type(inner) is not dict:
            inner = data[key] = {}
        data = inner
    data[last] = value


def nest(path: str, value: Any) -> dict[str, Any]:
    """Return an object that holds nothing but a value at a path."""
    data: dict[str, Any] = {}
    set_value(data, path, value)
    return data


def path_fault(path: str, *, written: bool) -> str | None:
    """Return why a path never names a value, None where it may; `written`: values are set or removed there, too."""
    keys = path.split(".")
    if path == "." and not written:
        return None
    if not all(keys):
        return "a key between its dots is empty"
    if path.startswith(("$", "/")) or "[" in path:
        return "a path is keys with dots between them, as in `choices.0.usage`"
    if path != path.strip() or any(key != key.strip() for key in keys):
        return "there is a space beside a key"
    if written and any(key.isdigit() for key in keys):
        return "a number is the index of a list, and a value is set only in objects"
    return None


def remove(data: Any, path: str) -> Any:
    """Remove the value at a path and return it, or None. Objects that this leaves empty are removed, too."""
    head, _, rest = path.partition(".")
    if type(data) is not dict or head not in data:
        return None
    if not rest:
        return data.pop(head)
    value = remove(data[head], rest)
    if data[head] == {}:
        del data[head]
    return value


def merge_patch(data: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merge a patch into data, in place: objects are merged, every other value is replaced.

    The patch shares nothing with the data. Objects inside the data are copied before they change, because they may
    belong to a caller.
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


def contains(value: Any, patch: Any) -> bool:
    """Whether a value contains everything that a patch contains. True is not equal to 1."""
    if isinstance(patch, dict):
        return isinstance(value, dict) and all(k in value and contains(value[k], v) for k, v in patch.items())
    return type(patch) is type(value) and bool(patch == value)


def leaves(patch: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested objects by their dotted paths."""
    out: dict[str, Any] = {}
    for key, value in patch.items():
        if isinstance(value, dict):
            out |= leaves(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = value
    return out
