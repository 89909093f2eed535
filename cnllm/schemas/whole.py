"""Match patterns against a whole text, such as those of call ids, in linear time and cheaply for simple ones."""

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
"""Characters and classes. Only the last one may have a range of counts, so that nothing is ever tried twice."""


@lru_cache(maxsize=64)
def whole_matcher(source: str) -> Callable[[str], bool] | None:
    """Return a function that tells whether a text matches a pattern as a whole; None if the pattern is unusable."""
    if _SIMPLE.fullmatch(source):
        try:
            fullmatch = re.compile(source).fullmatch
        except re.error:
            return None
        return lambda text: fullmatch(text) is not None
    pattern = _anchor(source)
    return None if pattern.problem is not None else lambda text: pattern.matches(text) is True


def whole_problem(source: str) -> tuple[str, bool] | None:
    """Return the reason why a pattern cannot be matched, and whether it is invalid; None if it can."""
    if whole_matcher(source) is not None:
        return None
    pattern = _anchor(source)
    return pattern.problem or "it cannot be read", pattern.is_broken or pattern.problem is None


def _anchor(source: str) -> Pattern:
    """Return a pattern with anchors around it."""
    from cnllm.schemas.patterns import Pattern  # a simple pattern needs none of it

    alone = Pattern(source)  # alone, so that a bracket in it cannot close the group around it
    return alone if alone.problem is not None else Pattern(rf"\A(?:{source})\Z")
