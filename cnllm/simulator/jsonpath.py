"""Read and write JSON at dotted paths, as the registry writes them. A number is an index."""

from __future__ import annotations

from typing import Any

__all__ = ["at", "first", "leaves", "put", "within"]


def at(value: Any, path: str) -> Any:
    """Return the value at a path, or None if there is none."""
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def first(value: Any, paths: list[str]) -> Any:
    """Return the value at the first path that has one."""
    return next((match for path in paths if (match := at(value, path)) is not None), None)


def put(target: dict[str, Any], path: str, value: Any) -> None:
    """Set a value at a path. Create objects on the way; lists on the way must exist."""
    *parents, last = path.split(".")
    node: Any = target
    for key in parents:
        node = node[int(key)] if isinstance(node, list) else node.setdefault(key, {})
    node[last] = value


def within(patch: Any, value: Any) -> bool:
    """Whether `value` contains everything that `patch` contains. True is not equal to 1."""
    if isinstance(patch, dict):
        return isinstance(value, dict) and all(k in value and within(v, value[k]) for k, v in patch.items())
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
