"""Edit a text in a plain form, and give it back in its own: with its byte order mark and the ends of its lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

__all__ = ["edit_plain", "line_changes"]

_MARK = "\ufeff"


def edit_plain(text: str, change: Callable[[str], str]) -> str:
    """Return a text changed by `change`, which gets it without a byte order mark and with lines that end with "\\n".

    A line that stays keeps its end, also where the file has ends of both kinds.
    """
    mark = text[: text.startswith(_MARK)]
    own = text.removeprefix(_MARK)
    plain = own.replace("\r\n", "\n")
    new = change(plain)
    if plain == own:
        return mark + new
    if own.count("\r\n") == own.count("\n"):
        return mark + new.replace("\n", "\r\n")
    own_lines, new_lines = own.split("\n"), new.split("\n")
    lines = [
        line
        for kind, start, end, first, last in line_changes(plain.split("\n"), new_lines)
        for line in (own_lines[start:end] if kind == "equal" else new_lines[first:last])
    ]
    return mark + "\n".join(lines)


def line_changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield how lines become others, in the form of `SequenceMatcher.get_opcodes`.

    Its time grows with the square of the lines. So only what stands between two heads of tables is compared at once.
    """
    for (start, first), (end, last) in pairwise([(0, 0), *_common_heads(old, new), (len(old), len(new))]):
        matcher = SequenceMatcher(None, old[start:end], new[first:last], autojunk=False)
        for kind, a, b, c, d in matcher.get_opcodes():
            yield kind, start + a, start + b, first + c, first + d


def _common_heads(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of the heads that stand once in both texts, as far as they have the same order."""
    places = _heads(new)
    last = -1
    for head, place in _heads(old).items():
        if (other := places.get(head, -1)) > last:
            yield place, other
            last = other


def _heads(lines: Sequence[str]) -> dict[str, int]:
    """Return the places of the lines that begin with a bracket and stand once."""
    heads = [(line.strip(), place) for place, line in enumerate(lines) if line.startswith("[")]
    counts = Counter(head for head, _ in heads)
    return {head: place for head, place in heads if counts[head] == 1}
