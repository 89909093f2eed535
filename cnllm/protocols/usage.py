"""Read the token counts of an endpoint as `Usage`."""

from __future__ import annotations

from typing import Any

from cnllm.jsonpath import get
from cnllm.registry.flags import Flags, UsagePaths
from cnllm.types import Usage

__all__ = ["merge_counts", "read_counts"]

_NONE = UsagePaths()
_DEPTH = 8  # nested objects; no path to a count is longer


def read_counts(data: dict[str, Any], flags: Flags) -> Usage:
    """Return the counts of a usage object by the declared paths; a missing or invalid count is unknown."""
    paths = flags.usage or _NONE
    reasoning = _count(data, paths.reasoning)
    cached = _count(data, paths.cached)
    written = _count(data, paths.cache_write)
    excluded = paths.excluded_from_totals or ()
    output = _plus(_count(data, paths.output), reasoning if "reasoning" in excluded else None)
    input = _plus(_count(data, paths.input), cached if "cached" in excluded else None)
    input = _plus(input, written if "cache_write" in excluded else None)
    total = _count(data, paths.total)
    if total is None and input is not None and output is not None:
        total = input + output
    return Usage(input, output, total, reasoning, cached, written)


def _count(data: dict[str, Any], paths: list[str] | None) -> int | None:
    """Return the first valid count at one of the paths, or None."""
    for path in paths or ():
        value = get(data, path) if "." in path else data.get(path)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is int and value >= 0:
            return value
    return None


def _plus(count: int | None, addition: int | None) -> int | None:
    """Return a count plus another one, if both are known."""
    return count if count is None or addition is None else count + addition


def merge_counts(counts: dict[str, Any], addition: dict[str, Any], depth: int = _DEPTH) -> None:
    """Merge counts that come in parts into the known ones; a zero never replaces a known count.

    `counts` changes and shares nothing with `addition`, so that each part takes time in its own size.
    """
    for key, value in addition.items():
        previous = counts.get(key)
        if type(value) is dict and depth:
            if type(previous) is not dict:
                if previous and not value:
                    continue
                previous = counts[key] = {}
            merge_counts(previous, value, depth - 1)
        elif value or not previous:
            counts[key] = value
