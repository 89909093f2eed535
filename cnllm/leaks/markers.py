"""Find markers in a text, and tell whether the end of a text could still become one.

A marker is a literal of the registry. Models write the bars in them loosely (`｜`, `｜｜`, `‖`, `|`, with spaces or a
line break beside them, `▁` or `_` between words), so a bar in a marker stands for all of these. The pattern is an
alternation of escaped literals: nothing in the registry is a pattern, every repetition is bounded, and matching
takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from cnllm.config.process import cached_property

__all__ = ["BARS", "Markers", "spelling_pattern"]

BARS = "｜|‖"
_BAR = rf"\s{{0,2}}[{re.escape(BARS)}][{re.escape(BARS)}\s]{{0,8}}"
_BAR_SO_FAR = rf"\s{{0,2}}(?:[{re.escape(BARS)}][{re.escape(BARS)}\s]{{0,8}})?"
_JOINT = "[▁_ ]"
_LONG = 256  # characters: in longer texts a search for plain words first is quicker


def _elements(marker: str) -> list[tuple[str, str]]:
    """Return (pattern, pattern of any beginning of it) for each piece of a marker."""
    barred = any(char in BARS for char in marker)
    out: list[tuple[str, str]] = []
    for position, char in enumerate(marker):
        if char in BARS:
            if position == 0 or marker[position - 1] not in BARS:  # a run of bars is one
                out.append((_BAR, _BAR_SO_FAR))
        elif barred and char == " ":
            if marker[position - 1] not in BARS:
                out.append((r"\s{1,2}", r"\s{0,2}"))
        elif barred and char in "▁_":
            out.append((_JOINT, _JOINT))
        else:
            out.append((re.escape(char), re.escape(char)))
    return out


def spelling_pattern(marker: str) -> str:
    """Return the pattern of a marker in all its spellings."""
    return "".join(pattern for pattern, _ in _elements(marker))


def _beginnings(marker: str) -> str:
    """Return the pattern of every incomplete beginning of a marker at the end of the text."""
    out = ""
    for _, so_far in reversed(_elements(marker)[:-1]):
        out = f"{so_far}(?:{out})?" if out else so_far
    return out + r"\Z"


def _core(marker: str) -> str:
    """Return the longest part that every spelling of a marker contains."""
    barred = any(char in BARS for char in marker)
    return max(re.split(rf"[{re.escape(BARS)}▁_ ]", marker), key=len) if barred else marker


def _needle(marker: str) -> str:
    """Return a character that every spelling of a marker contains: the last that is no letter, if there is one."""
    fixed = [char for char in marker if char not in BARS and char not in "▁_ "]
    return next((char for char in reversed(fixed) if not char.isalnum()), fixed[-1])


def _any_of(markers: list[list[str]]) -> str:
    """Return a pattern for any of some markers, each given as its elements. Common beginnings are tried once."""
    heads: dict[str, list[list[str]]] = {}
    for marker in markers:
        heads.setdefault(marker[0] if marker else "", []).append(marker[1:])
    branches = [head + (_any_of(rests) if head else "") for head, rests in heads.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(sorted(branches, key=len, reverse=True))})"


def _alternation(markers: tuple[str, ...]) -> str:
    """Return a pattern for any of the markers. It begins with their first characters, to skip plain text quickly."""
    elements = [[pattern for pattern, _ in _elements(marker)] for marker in markers]
    first = {marker[0] for marker in elements}
    if len(first) == 1 or not all(len(head) <= 2 for head in first):
        return _any_of(elements)
    return f"(?=[{''.join(sorted(first))}])" + _any_of(elements)


class Markers:
    """Several markers as one search. Immutable; equal tuples of markers share one object (`Markers.copy`).

    Compilation takes as long as a short call, and most replies contain no character that begins a marker. So the
    patterns of whole markers and of their beginnings are compiled at the first text that needs them.
    """

    def __init__(self, markers: tuple[str, ...]) -> None:
        self.markers = markers
        self._cores = tuple(map(_core, markers))
        self._needles: dict[str, list[str]] = {}
        for marker, core in zip(markers, self._cores, strict=True):
            self._needles.setdefault(_needle(marker), []).append(core)
        starts = {pattern for marker in markers for pattern in [_elements(marker)[0][0]]}
        plain = all(len(start) == 1 or (len(start) == 2 and start[0] == "\\") for start in starts)
        self._chars = tuple(sorted(start[-1] for start in starts)) if plain else ()
        self._first = re.compile(f"[{''.join(sorted(starts))}]" if plain else "|".join(sorted(starts)))
        # If no marker repeats its first character, only the last one in a text can begin a marker at its end.
        once = all(marker[0] not in BARS and marker[0] not in marker[1:] for marker in markers)
        self._heads = "".join(sorted({marker[0] for marker in markers})) if once else ""
        self.longest = max(len(marker) + 14 * sum(char in BARS for char in marker) for marker in markers)

    @staticmethod
    @lru_cache(maxsize=256)
    def copy(markers: tuple[str, ...]) -> Markers:
        """Return the shared object for these markers."""
        return Markers(markers)

    @cached_property
    def _spellings(self) -> list[re.Pattern[str]]:
        """Return the pattern of each marker in all its spellings."""
        return [re.compile(spelling_pattern(marker)) for marker in self.markers]

    @cached_property
    def _any(self) -> re.Pattern[str]:
        """Return the pattern of any of the markers."""
        return re.compile(_alternation(self.markers))

    @cached_property
    def _beginning(self) -> re.Pattern[str]:
        """Return the pattern of a beginning of any marker at the end of a text."""
        return re.compile("|".join(_beginnings(marker) for marker in self.markers))

    def find(self, text: str, start: int = 0) -> tuple[int, int, int] | None:
        """Return (start, end, index) of the first marker at or after `start`; of several there, the longest."""
        if len(text) - start > _LONG and not self._may_hold(text, start):
            return None
        if "_any" not in self.__dict__ and self._first.search(text, start) is None:
            return None  # the compilation of the full patterns can wait
        match = self._any.search(text, start)
        if match is None:
            return None
        match_start = match.start()
        ends = [each.match(text, match_start) for each in self._spellings]
        end, index = max(
            (end_match.end(), -position) for position, end_match in enumerate(ends) if end_match is not None
        )
        return match_start, end, -index

    def _may_hold(self, text: str, start: int) -> bool:
        """Whether a text contains every part that one of the markers needs."""
        for needle, cores in self._needles.items():
            if text.find(needle, start) >= 0 and any(text.find(core, start) >= 0 for core in cores):
                return True
        return False

    def pending_length(self, text: str) -> int:
        """Return how many characters at the end of `text` may begin a marker and must be held back."""
        start = max(0, len(text) - self.longest)
        if self._heads:
            candidates = sorted(position for head in self._heads if (position := text.rfind(head, start)) >= 0)
        else:
            candidates = [match.start() for match in self._first.finditer(text, start)]
        for position in candidates:
            if self._beginning.match(text, position):
                return len(text) - position
        return 0

    @property
    def may_begin(self) -> Callable[[str], object]:
        """Return a quick test whether a text contains a character that begins a marker. It is only a hint."""
        return self._first.search

    @property
    def may_begin_long(self) -> Callable[[str], object]:
        """Return `may_begin` for long texts: a few searches for one character each are faster than one for a class."""
        chars = self._chars
        if not chars:
            return self._first.search

        def test(text: str) -> bool:
            for char in chars:  # noqa: SIM110 (a generator costs more than it searches)
                if char in text:
                    return True
            return False

        return test

    def last_start(self, text: str) -> int:
        """Return the start of the last marker of a text, or -1."""
        best = -1
        for core, spelling in zip(self._cores, self._spellings, strict=True):
            core_start = text.rfind(core)
            if core_start >= 0 and (match := spelling.search(text, max(0, core_start - self.longest))):
                best = max(best, match.start())
        return best
