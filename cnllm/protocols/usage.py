"""Token counts as an endpoint gives them → Usage."""

from __future__ import annotations

from typing import Any

from cnllm.jsonpath import get
from cnllm.registry.flags import Flags, UsagePaths
from cnllm.types import Usage

__all__ = ["merge_counts", "read_counts"]

_NONE = UsagePaths()
_DEPTH = 8  # objects within one another; no path to a count is as long


def read_counts(data: dict[str, Any], flags: Flags) -> Usage:
    """A usage object by the declared paths; what is not there, or is no count, is unknown."""
    paths = flags.usage or _NONE
    reasoning = _count(data, paths.reasoning)
    cached = _count(data, paths.cached)
    written = _count(data, paths.cache_write)
    apart = paths.excluded_from_totals or ()
    output = _plus(_count(data, paths.output), reasoning if "reasoning" in apart else None)
    input = _plus(_count(data, paths.input), cached if "cached" in apart else None)
    input = _plus(input, written if "cache_write" in apart else None)
    total = _count(data, paths.total)
    if total is None and input is not None and output is not None:
        total = input + output
    return Usage(input, output, total, reasoning, cached, written)


def _count(data: dict[str, Any], paths: list[str] | None) -> int | None:
    for path in paths or ():
        found = get(data, path) if "." in path else data.get(path)
        if type(found) is float and found.is_integer():
            found = int(found)
        if type(found) is int and found >= 0:
            return found
    return None


def _plus(count: int | None, more: int | None) -> int | None:
    return count if count is None or more is None else count + more


def merge_counts(known: dict[str, Any], new: dict[str, Any], depth: int = _DEPTH) -> None:
    """Lay counts that come in parts over those that are known; nothing known is lost to a zero.

    `known` changes and shares nothing with `new`, so that each part takes time in its own size.
    """
    for key, value in new.items():
        before = known.get(key)
        if type(value) is dict and depth:
            if type(before) is not dict:
                if before and not value:
                    continue
                before = known[key] = {}
            merge_counts(before, value, depth - 1)
        elif value or not before:
            known[key] = value
