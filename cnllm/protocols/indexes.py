"""Read the indexes of choices, blocks and calls: some endpoints write them as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["as_index", "has_index", "reply_index"]

_MAX_DIGITS = 9


def as_index(value: Any) -> Any:
    """Return an index, as a number where it is one in a text; None for a list or an object."""
    if type(value) is str and len(value) <= _MAX_DIGITS and value.isascii() and value.isdigit():
        return int(value)
    return None if type(value) in (list, dict) else value


def has_index(choice: dict[str, Any], position: int, index: Any) -> bool:
    """Whether a choice has this index. One without an index has it as the first of its list."""
    own = as_index(choice.get("index"))
    return position == 0 if own is None else bool(own == index)


def reply_index(choices: Sequence[Any]) -> Any:
    """Return the index of the choice of a whole body that is the reply: 0, or without it that of the first choice."""
    found = [(position, choice) for position, choice in enumerate(choices) if type(choice) is dict]
    if not found or any(has_index(choice, position, 0) for position, choice in found):
        return 0
    return as_index(found[0][1].get("index"))
