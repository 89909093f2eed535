"""Words of messages that depend on a number."""

from __future__ import annotations

__all__ = ["plural"]


def plural(number: int) -> str:
    """Return the ending of a noun behind a number."""
    return "" if number == 1 else "s"
