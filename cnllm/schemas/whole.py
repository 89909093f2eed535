"""Patterns that a text must match as a whole, such as those of call ids; linear, and cheap where they are simple."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cnllm.schemas.patterns import Pattern

__all__ = ["whole_matcher", "whole_problem"]

_ATOM = r"(?:\[\^?(?:[^\]\[\\^&~|]|\\[sSdDwW.-])+\]|[A-Za-z0-9_-])"
_SIMPLE = re.compile(rf"(?:{_ATOM}(?:\{{[0-9]{{1,3}}\}})?)*{_ATOM}(?:\{{[0-9]{{1,3}}(?:,[0-9]{{0,3}})?\}}|[+*?])?")
"""Characters and classes of which the last alone may have a range of counts: nothing is ever tried twice."""


@lru_cache(maxsize=64)
def whole_matcher(source: str) -> Callable[[str], bool] | None:
    """Return what tells whether a text matches a pattern as a whole; None where the pattern cannot be matched."""
    if _SIMPLE.fullmatch(source):
        try:
            fullmatch = re.compile(source).fullmatch
        except re.error:
            return None
        return lambda text: fullmatch(text) is not None
    pattern = _around(source)
    return None if pattern.problem is not None else lambda text: pattern.matches(text) is True


def whole_problem(source: str) -> tuple[str, bool] | None:
    """Return why a pattern cannot be matched, and whether it is broken; None where it can."""
    if whole_matcher(source) is not None:
        return None
    pattern = _around(source)
    return pattern.problem or "it cannot be read", pattern.is_broken or pattern.problem is None


def _around(source: str) -> Pattern:
    from cnllm.schemas.patterns import Pattern  # a simple pattern needs none of it

    alone = Pattern(source)  # so that a bracket of its own cannot close the group around it
    return alone if alone.problem is not None else Pattern(rf"\A(?:{source})\Z")
