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
_Paths = tuple[tuple[str, str | None], ...]


def read_counts(data: dict[str, Any], flags: Flags) -> Usage:
    """Return the counts of a usage object by the declared paths; a missing or invalid count is unknown."""
    return counts_reader(flags)(data)


def counts_reader(flags: Flags) -> Callable[[dict[str, Any]], Usage]:
    """Return `read_counts` for these flags, their paths taken apart once."""
    paths = flags.usage or _NONE
    names = (paths.reasoning, paths.cached, paths.cache_write, paths.output, paths.input, paths.total)
    places = tuple(map(_split, names))
    excluded = paths.excluded_from_totals or ()

    def read(data: dict[str, Any]) -> Usage:
        counts: list[int | None] = []
        for paths in places:
            for outer, inner in paths:
                value = data.get(outer)
                if inner is not None:
                    value = value.get(inner) if type(value) is dict and "." not in inner else get(value, inner)
                if type(value) is int:
                    if value >= 0:
                        counts.append(value)
                        break
                elif type(value) is float and value.is_integer() and value >= 0:
                    counts.append(int(value))
                    break
            else:
                counts.append(None)
        reasoning, cached, written, output, input, total = counts
        if excluded:
            output = _plus(output, reasoning if "reasoning" in excluded else None)
            input = _plus(input, cached if "cached" in excluded else None)
            input = _plus(input, written if "cache_write" in excluded else None)
        if total is None and input is not None and output is not None:
            total = input + output
        return Usage(input, output, total, reasoning, cached, written)

    return read


def _split(paths: list[str] | None) -> _Paths:
    """Return each path as its first key and the rest; None where there is no rest."""
    return tuple((outer, inner or None) for outer, _, inner in (path.partition(".") for path in paths or ()))


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
