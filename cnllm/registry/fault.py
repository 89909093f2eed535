"""A fault in the data of a registry file, before its line is known."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Fault"]


class Fault(NamedTuple):
    """The path of a value, what is wrong with it, and, where that is known, the value or the line that was meant."""

    path: list[str]
    message: str
    meant: Any = None
    corrected: str = ""
