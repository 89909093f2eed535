"""Keep the counts of tokens that an endpoint sends in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cnllm.jsonpath import get
from cnllm.registry.flags import UsagePaths

__all__ = ["LARGEST_COUNT", "MOST_VALUES", "as_count", "forget_earlier", "merge_counts", "parts_within"]

LARGEST_COUNT = 2**53
"""The largest count of tokens that is believed: the largest number that every reader of JSON holds exactly."""
MOST_VALUES = 500
"""The most values of the usage of one reply."""
_DEPTH = 8  # nested objects; no path to a count is longer
_VALUE_LENGTH = 100  # characters that count as one value


def as_count(value: Any) -> int | None:
    """Return a count of tokens; None for a value that is none."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= LARGEST_COUNT else None


def parts_within(parts: Mapping[str, int], input: int | None, output: int | None, total: int | None) -> Sequence[str]:
    """Return the names of parts that the input or the output has in it, because only so the total is the sum.

    `parts` are counts that the wire has beside the input or, of reasoning, the output. Some replies have them within.
    """
    if not parts or None in (input, output, total):
        return ()
    excess = (input or 0) + (output or 0) + sum(parts.values()) - (total or 0)
    for names in (*([name] for name in reversed([*parts])), [*parts]):
        fits = all(parts[name] <= ((output if name == "reasoning" else input) or 0) for name in names)
        if fits and sum(parts[name] for name in names) == excess:
            return names
    return ()


def forget_earlier(counts: dict[str, Any], addition: dict[str, Any], paths: UsagePaths) -> None:
    """Forget what earlier chunks counted beside other tokens of the cache than this one has.

    The parts of the writes belong to their number. A zero is a count of the input that is not from the cache.
    """
    excluded = paths.excluded_from_totals or ()
    is_written, is_read = (_has_other(counts, addition, places) for places in (paths.cache_write, paths.cached))
    forgotten: list[str] = []
    if is_written:
        forgotten += [path for path in paths.cache_write_1h or () if get(addition, path) is None]
    if (is_written and "cache_write" in excluded) or (is_read and "cached" in excluded):
        forgotten += [path for path in paths.input or () if get(addition, path) == 0]
    for path in forgotten:
        counts.pop(path.partition(".")[0], None)


def _has_other(counts: dict[str, Any], addition: dict[str, Any], paths: Sequence[str] | None) -> bool:
    """Whether a chunk has another number than those before it, which is not 0, at one of the paths."""
    return any((number := as_count(get(addition, path))) and number != get(counts, path) for path in paths or ())


def merge_counts(counts: dict[str, Any], addition: dict[str, Any]) -> bool:
    """Merge counts that come in parts into the known ones; a zero never replaces a known count.

    `counts` changes and shares nothing with `addition`. It has a bound, so that each part takes time in its own size.
    Values beyond the bound are left out, and the answer is no.
    """
    room, is_whole = MOST_VALUES - _size(counts, MOST_VALUES), True

    def merge(counts: dict[str, Any], addition: dict[str, Any], depth: int) -> None:
        nonlocal room, is_whole
        for key, value in addition.items():
            previous = counts.get(key)
            is_object = type(value) is dict and depth > 0
            if (previous and not value) or (is_object and type(previous) is dict):
                pass
            elif key not in counts or type(value) is not int:
                size = (1 if is_object else _size(value, room)) + len(key) // _VALUE_LENGTH
                if size > room:
                    is_whole = False
                    continue
                room -= size
                counts[key] = {} if is_object else value
            else:
                counts[key] = value
            if is_object and type(counts[key]) is dict:
                merge(counts[key], value, depth - 1)

    merge(counts, addition, _DEPTH)
    return is_whole


def _size(value: Any, most: int) -> int:
    """Return about how many values a value has in it, if not more than so many; a long text counts as several."""
    size, rest = 0, [value]
    while rest and size <= most:
        value = rest.pop()
        size += 1
        if type(value) is dict:
            rest += value.values()
            size += sum(map(len, value)) // _VALUE_LENGTH
        elif type(value) is list:
            rest += value
        elif type(value) is str:
            size += len(value) // _VALUE_LENGTH
    return size
