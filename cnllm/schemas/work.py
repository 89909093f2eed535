"""Limit the work of one validation, counted in steps and not in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

__all__ = ["WorkBudget", "WorkLimitExceeded", "canonical", "depth"]

STEPS = 50_000  # steps of any validation
STEPS_A_VALUE = 40  # more steps for each value of a large instance
_MAX_STEPS = 400_000
_MAX_MESSAGE = 1_000  # characters of an error's message


class WorkLimitExceeded(Exception):
    """A validation took more steps than its limit; whether the value is valid is not known."""


class WorkBudget:
    """The steps of one validation, and the number of values that could not be judged.

    jsonschema passes one object, its `format_checker`, to the validator of every schema below. The budget takes its
    place.
    """

    def __init__(self, value: Any, steps_a_value: int = STEPS_A_VALUE, most: int = _MAX_STEPS) -> None:
        self._value = value
        self._steps_a_value = steps_a_value
        self._limit = STEPS
        self._most = most
        self._is_final = False
        self.steps = 0
        self.unknown = 0
        self.enums: dict[int, frozenset[str]] = {}  # by the identity of the values in the schema: it is not shared

    def spend(self, steps: int) -> None:
        """Count steps. Raises `WorkLimitExceeded`."""
        self.steps += steps
        if self.steps > self._limit:
            self._extend()

    def _extend(self) -> None:
        """Raise the limit once for a large value. Raises `WorkLimitExceeded`."""
        if not self._is_final:
            self._is_final = True
            self._limit = max(STEPS, min(self._most, self._steps_a_value * _size(self._value)))
        if self.steps > self._limit:
            raise WorkLimitExceeded(f"it takes more than {self._limit} steps")

    def count_error(self, error: Any) -> Any:
        """Count an error of jsonschema by the length of its message, and shorten the message."""
        self.spend(2 + len(error.message) // 64)
        if len(error.message) > _MAX_MESSAGE:
            error.message = f"{error.message[:_MAX_MESSAGE]}…"
        return error


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values of each level: the value itself, those in it, and so on."""
    level = [value]
    while level:
        yield level
        inner: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                inner += item.values()
            elif isinstance(item, Sequence) and not isinstance(item, str | bytes):
                inner += item
        level = inner


def _size(value: Any) -> int:
    """Return the number of values inside a value, with itself and its names."""
    count = 0
    for level in _levels(value):
        count += len(level) + sum(len(item) for item in level if isinstance(item, Mapping))
        if count >= _MAX_STEPS:
            break
    return count


def depth(value: Any, most: int) -> int:
    """Return the depth of a value, or `most` if it is deeper."""
    return sum(1 for _ in islice(_levels(value), most))


def canonical(value: Any, work: WorkBudget) -> str:
    """Return a text that is equal for two values exactly if JSON Schema calls them equal: 1 is 1.0, true is not 1.

    It is text because numbers can be chosen so that their hashes collide, and texts cannot.
    """
    out: list[str] = []
    _write(value, out, work)
    return "".join(out)


def _write(value: Any, out: list[str], work: WorkBudget) -> None:
    """Append the canonical text of a value."""
    work.spend(1)
    if value is None or value is True or value is False:
        out.append(f"{value}")
    elif isinstance(value, str):
        work.spend(len(value) // 64)
        out.append(f"{len(value)}:{value}")
    elif isinstance(value, int):
        out.append(hex(value))
    elif isinstance(value, float):
        out.append(hex(int(value)) if value.is_integer() else value.hex())
    elif isinstance(value, Mapping):
        out.append("{")
        for name in sorted(value):
            _write(name, out, work)
            _write(value[name], out, work)
        out.append("}")
    elif isinstance(value, Sequence):
        out.append("[")
        for item in value:
            _write(item, out, work)
        out.append("]")
    else:  # no JSON
        out.append(f"{type(value).__name__} {value!r}")
