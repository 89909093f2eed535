"""The work that one validation may do, counted in steps and not in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["WorkBudget", "WorkLimitExceeded", "canonical", "depth"]

STEPS = 50_000  # of any validation
STEPS_A_VALUE = 40  # of a validation of many values: it may be longer, but not by more than its values
_MOST_STEPS = 400_000
_MESSAGE = 1_000  # characters of an error's message that are kept


class WorkLimitExceeded(Exception):
    """A validation took more steps than it may; whether the value is valid is not known."""


class WorkBudget:
    """The steps of one validation, and how much of it could not be judged.

    jsonschema hands one object on to the validator of every schema below, its `format_checker`; this stands there.
    """

    def __init__(self, value: Any, steps_a_value: int = STEPS_A_VALUE, most: int = _MOST_STEPS) -> None:
        self._value = value
        self._steps_a_value = steps_a_value
        self._limit = STEPS
        self._most = most
        self._is_final = False
        self.steps = 0
        self.unknown = 0
        self.enums: dict[int, frozenset[str]] = {}  # by the identity of what the schema holds: it is not shared

    def spend(self, steps: int) -> None:
        """Count steps. Raises `WorkLimitExceeded`."""
        self.steps += steps
        if self.steps > self._limit:
            self._extend()

    def _extend(self) -> None:
        if not self._is_final:
            self._is_final = True
            self._limit = max(STEPS, min(self._most, self._steps_a_value * _size(self._value)))
        if self.steps > self._limit:
            raise WorkLimitExceeded(f"it takes more than {self._limit} steps")

    def count_error(self, error: Any) -> Any:
        """Count an error of jsonschema by the length of its message, and shorten that."""
        self.spend(2 + len(error.message) // 64)
        if len(error.message) > _MESSAGE:
            error.message = f"{error.message[:_MESSAGE]}…"
        return error


def _size(value: Any) -> int:
    """Return how many values there are in a value, itself and the names among them."""
    count, waiting = 0, [value]
    while waiting and count < _MOST_STEPS:
        one = waiting.pop()
        count += 1
        if isinstance(one, Mapping):
            count += len(one)
            waiting += one.values()
        elif isinstance(one, Sequence) and not isinstance(one, str | bytes):
            waiting += one
    return count


def depth(value: Any, most: int) -> int:
    """Return how deep a value is nested, `most` where it is deeper."""
    level, count = [value], 0
    while level and count < most:
        count += 1
        below: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                below += one.values()
            elif isinstance(one, Sequence) and not isinstance(one, str | bytes):
                below += one
        level = below
    return count


def canonical(value: Any, work: WorkBudget) -> str:
    """Return a text that two values share exactly if JSON Schema calls them equal: 1 is 1.0, and true is not 1.

    It is text because numbers can be chosen so that their hashes collide, and texts cannot.
    """
    out: list[str] = []
    _write(value, out, work)
    return "".join(out)


def _write(value: Any, out: list[str], work: WorkBudget) -> None:
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
