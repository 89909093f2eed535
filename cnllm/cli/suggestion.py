"""Suggest a word in place of a wrong one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["suggest"]


def suggest(word: str, words: Iterable[str], otherwise: str) -> str:
    """Return a question with at most three similar words, or `otherwise`. Words that contain the wrong one come first.

    Case does not matter.
    """
    from difflib import get_close_matches

    names = {name.casefold(): name for name in words}
    folded = word.casefold()
    inside = [name for name in names if folded and len(folded) > 2 and (folded in name or name in folded)]
    close = get_close_matches(folded, names, n=3, cutoff=0.65)
    matches = list(dict.fromkeys([*sorted(inside, key=len), *close]))[:3]
    return f"did you mean {' or '.join(names[match] for match in matches)}?" if matches else otherwise
