"""Find the name that a mistyped name of a parameter or an option stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["similar_name"]

_MIN_LETTERS = 6  # in shorter names a letter makes another word: top_k, top_p
_CUTOFF = 0.6
_SURE = 0.8
_LONGEST_NAME = 128  # characters
_SEPARATORS = re.compile(r"[-_. ]+")


def similar_name(name: str, names: Iterable[str]) -> tuple[str | None, bool]:
    """Return the name that a name may mean, or None, and whether it is surely that one. A very long one means none."""
    if len(name) > _LONGEST_NAME:
        return None, False
    import difflib

    word = _fold(name)
    by_fold = {_fold(candidate): candidate for candidate in sorted(names)}
    if word in by_fold:
        return by_fold[word], True
    matches = difflib.get_close_matches(word, by_fold, n=1, cutoff=_CUTOFF)
    if not matches:
        return None, False
    close = matches[0]
    ratio = difflib.SequenceMatcher(a=word, b=close).ratio()
    return by_fold[close], ratio >= _SURE and len(name) >= _MIN_LETTERS and word[:2] == close[:2]


def _fold(name: str) -> str:
    """Return a name without case and separators: maxTokens and max-tokens are max_tokens."""
    return _SEPARATORS.sub("", name).casefold()
