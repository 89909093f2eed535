"""Dotted paths into JSON, as the registry writes them; a number is an index."""

from __future__ import annotations

from typing import Any

__all__ = ["at", "first", "leaves", "put", "within"]


def at(value: Any, path: str) -> Any:
    """What stands at a path, None where nothing does."""
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def first(value: Any, paths: list[str]) -> Any:
    """What stands at the first path that holds something."""
    return next((found for path in paths if (found := at(value, path)) is not None), None)


def put(target: dict[str, Any], path: str, value: Any) -> None:
    """Set a value at a path, making the tables on the way; lists on the way must be there."""
    *way, last = path.split(".")
    here: Any = target
    for key in way:
        here = here[int(key)] if isinstance(here, list) else here.setdefault(key, {})
    here[last] = value


def within(patch: Any, value: Any) -> bool:
    """Does `value` hold everything that `patch` holds? True is not 1 here."""
    if isinstance(patch, dict):
        return isinstance(value, dict) and all(k in value and within(v, value[k]) for k, v in patch.items())
    return type(patch) is type(value) and bool(patch == value)


def leaves(patch: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested tables by their dotted paths."""
    out: dict[str, Any] = {}
    for key, value in patch.items():
        if isinstance(value, dict):
            out |= leaves(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = value
    return out
