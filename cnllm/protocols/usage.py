"""Read the token counts of an endpoint as `Usage`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cnllm.jsonpath import get
from cnllm.registry.flags import Flags, UsagePaths
from cnllm.types import Usage

__all__ = ["counts_reader", "merge_counts", "read_counts"]

_NONE = UsagePaths()
_DEPTH = 8  # nested objects; no path to a count is longer
_Paths = tuple[tuple[str, ...], ...]


def read_counts(data: dict[str, Any], flags: Flags) -> Usage:
    """Return the counts of a usage object by the declared paths; a missing or invalid count is unknown."""
    return counts_reader(flags)(data)


def counts_reader(flags: Flags) -> Callable[[dict[str, Any]], Usage]:
    """Return `read_counts` for these flags, their paths taken apart once."""
    paths = flags.usage or _NONE
    names = (paths.reasoning, paths.cached, paths.cache_write, paths.output, paths.input, paths.total)
    to_reasoning, to_cached, to_written, to_output, to_input, to_total = map(_split, names)
    excluded = paths.excluded_from_totals or ()

    def read(data: dict[str, Any]) -> Usage:
        reasoning = _count(data, to_reasoning)
        cached = _count(data, to_cached)
        written = _count(data, to_written)
        output, input, total = _count(data, to_output), _count(data, to_input), _count(data, to_total)
        if excluded:
            output = _plus(output, reasoning if "reasoning" in excluded else None)
            input = _plus(input, cached if "cached" in excluded else None)
            input = _plus(input, written if "cache_write" in excluded else None)
        if total is None and input is not None and output is not None:
            total = input + output
        return Usage(input, output, total, reasoning, cached, written)

    return read


def _split(paths: list[str] | None) -> _Paths:
    return tuple(tuple(path.split(".")) for path in paths or ())


def _count(data: dict[str, Any], paths: _Paths) -> int | None:
    """Return the first valid count at one of the paths, or None."""
    for path in paths:
        value = data.get(path[0])
        if len(path) > 1:
            value = value.get(path[1]) if len(path) == 2 and type(value) is dict else get(value, ".".join(path[1:]))
        if type(value) is int:
            if value >= 0:
                return value
        elif type(value) is float and value.is_integer() and value >= 0:
            return int(value)
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
