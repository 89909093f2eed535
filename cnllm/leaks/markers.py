"""Find markers in a text, and tell whether the end of a text could still become one.

A marker is a literal of the registry. Models write markers loosely, so each stands for several spellings: in upper or
lower case; with spaces beside the brackets, the slash and the equals sign of a tag; with attributes, where the tag is a
plain word; and a bar stands for all kinds of bars (`｜`, `｜｜`, `‖`, `|`, with spaces or a line break beside them, `▁`
or `_` between words). The pattern is an alternation of escaped literals: nothing in the registry is a pattern, every
repetition is bounded, and matching takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from msgspec import Struct

from cnllm.system.processes import cached_property

__all__ = ["BAR", "BARS", "Markers", "spelling_pattern"]

BARS = "｜|‖"
BAR = rf"\s{{0,2}}[{re.escape(BARS)}][{re.escape(BARS)}\s]{{0,8}}"
_BAR_SO_FAR = rf"\s{{0,2}}(?:[{re.escape(BARS)}][{re.escape(BARS)}\s]{{0,8}})?"
_ONE_BAR = f"[{re.escape(BARS)}]"
_JOINT = "[▁_ ]"
_SPACES = r"\s{0,4}"
_MAX_ATTRIBUTES = 256  # characters
_NAME = r"\s{1,4}[\w:.-]{1,64}"
_VALUE = r"\s{0,2}=\s{0,2}(?:\"[^\"<>]{0,256}\"|'[^'<>]{0,256}'|[^\s<>\"'=`]{1,128})"
_ATTRIBUTES = rf"(?=\s[^<>]{{0,{_MAX_ATTRIBUTES}}}>)(?:{_NAME}{_VALUE}){{1,4}}{_SPACES}>"
_ATTRIBUTES_SO_FAR = (
    rf"(?=\s[^<>]{{0,{_MAX_ATTRIBUTES}}}\Z)(?:{_NAME}{_VALUE}){{0,4}}(?:{_SPACES}|{_NAME}\s{{0,2}}"
    r"(?:=\s{0,2}(?:\"[^\"<>]{0,256}|'[^'<>]{0,256})?)?)"
)
_WORD_TAG = re.compile(r"</?[\w:.-]+>")
_LONG = 256  # characters: in longer texts a search for the words of the markers first is quicker
_TRY = 1200  # characters: a search for a word reads as many while a marker is tried at one place
_HINT = 7  # elements of a marker that a hint looks at: a tag with four letters
_ODD = "ſıİ"  # `re.IGNORECASE` takes them for letters that `str.lower` does not

_Element = tuple[str, str]


def _elements(marker: str) -> list[_Element]:
    """Return (pattern, pattern of any beginning of it) for each piece of a marker."""
    barred = any(char in BARS for char in marker)
    out: list[_Element] = []
    for position, char in enumerate(marker):
        before, after = marker[:position][-1:], marker[position + 1 :][:1]
        literal = re.escape(char)
        if char in BARS:
            if not before or not after:  # at an end of a marker more bars and spaces would be text
                out.append((_ONE_BAR, _ONE_BAR))
            elif before not in BARS:  # a run of bars is one
                out.append((BAR, _BAR_SO_FAR))
        elif char == " " and after:
            if before not in BARS:
                out.append((r"\s{1,4}", r"\s{0,4}"))
        elif char == " ":
            out.append((r"\s", r"\s"))
        elif barred and char in "▁_":
            out.append((_JOINT, _JOINT))
        elif (char == "<" and (after == "/" or after.isalpha())) or (char == "/" and before == "<"):
            out += [(literal, literal), (r"\s{0,2}", r"\s{0,2}")]
        elif char in ">=" and (before.isalnum() or before == "_"):
            out.append((_SPACES + literal, _SPACES))
        else:
            out.append((literal, literal))
    return out


def _spellings(marker: str) -> list[list[_Element]]:
    """Return the elements of a marker, and of its form with attributes where it may have them."""
    elements = _elements(marker)
    if not _WORD_TAG.fullmatch(marker):
        return [elements]
    return [elements, [*elements[:-1], (_ATTRIBUTES, _ATTRIBUTES_SO_FAR)]]


def spelling_pattern(marker: str) -> str:
    """Return the pattern of a marker in all its spellings without attributes, for `re.IGNORECASE`."""
    return "".join(pattern for pattern, _ in _elements(marker))


def _any_beginning(markers: list[list[_Element]]) -> str:
    """Return a pattern for every incomplete beginning, at the end of a text, of some markers, given as their elements.

    Common beginnings are tried once. A class of the characters that may follow comes first, so that it fails quickly.
    """
    rests: dict[_Element, list[list[_Element]]] = {}
    for head, *rest in markers:
        rests.setdefault(head, []).extend([rest] if rest else [])  # without a rest the marker is complete
    branches = {head: _beginning(head, rest) for head, rest in rests.items()}
    chars = [head for head in branches if head[0] == head[1] and re.fullmatch(r"\\?[^\s\\\w]|\w", head[0])]
    others = [branch for head, branch in branches.items() if branch and head not in chars]
    simple = {head[0]: branches[head] for head in chars if branches[head]}
    if simple:
        others.append(f"(?=[{''.join(simple)}])(?:{'|'.join(simple.values())})")
    return f"(?:{'|'.join(others)})" if others else "(?!)"


def _beginning(head: _Element, rests: list[list[_Element]]) -> str:
    """Return a pattern for the beginnings of markers with the same first element; "" where none is incomplete."""
    pattern, so_far = head
    longer = f"{pattern}(?:\\Z|{_any_beginning(rests)})" if rests else ""
    if pattern == so_far:
        return longer
    return f"(?:{so_far}\\Z|{longer})" if longer else f"{so_far}\\Z"


def _words(marker: str) -> tuple[str, ...]:
    """Return the words that every spelling of a marker contains, in lower case, the longest first."""
    is_barred = any(char in BARS for char in marker)
    words = re.findall(r"[^\W_]+" if is_barred else r"\w+", marker.lower())
    return tuple(sorted(dict.fromkeys(words), key=len, reverse=True))


class _Needle(Struct, frozen=True):
    """A word to look for: markers that contain it begin with one of `starts`, and have all of some other words, too.

    `parts` are the other words to look for that stand inside the word.
    """

    word: str
    starts: frozenset[str]
    others: frozenset[tuple[str, ...]]
    parts: frozenset[str]


def _needles(markers: tuple[str, ...]) -> tuple[_Needle, ...]:
    """Return the longest word of each marker, each word once, short ones first; nothing if a marker has no word."""
    starts: dict[str, set[str]] = {}
    others: dict[str, set[tuple[str, ...]]] = {}
    for marker in markers:
        words = _words(marker)
        if not words:
            return ()
        starts.setdefault(words[0], set()).update(start[-1] for start in _both_cases(_elements(marker)[0][0]))
        others.setdefault(words[0], set()).add(words[1:])
    return tuple(
        _Needle(
            word,
            frozenset(starts[word]),
            frozenset([()] if () in others[word] else others[word]),
            frozenset([part for part in starts if part in word and part != word]),
        )
        for word in sorted(starts, key=lambda word: (len(word), word))
    )


def _any_of(markers: list[list[str]]) -> str:
    """Return a pattern for any of some markers, each given as its elements. Common beginnings are tried once.

    Where several characters may follow, a class of them comes first: it fails more quickly than they do one by one.
    """
    heads: dict[str, list[list[str]]] = {}
    for marker in markers:
        heads.setdefault(marker[0] if marker else "", []).append(marker[1:])
    branches = {head: head + (_any_of(rests) if head else "") for head, rests in heads.items()}
    if len(branches) == 1:
        return next(iter(branches.values()))
    chars = [head for head in branches if len(head) == 1 or (len(head) == 2 and head[0] == "\\" and head[1] != "s")]
    others = [branch for head, branch in branches.items() if head not in chars]
    if len(chars) > 1:
        others.append(f"(?=[{''.join(chars)}])(?:{'|'.join(branches[char] for char in chars)})")
    else:
        others += [branches[char] for char in chars]
    return f"(?:{'|'.join(sorted(others, key=len, reverse=True))})"


def _both_cases(char: str) -> set[str]:
    """Return a character in lower and in upper case; a pattern of several characters stays as it is."""
    return {char.lower(), char.upper()} if len(char) == 1 and len(char.lower()) == len(char.upper()) == 1 else {char}


class Markers:
    """Several markers as one search. Immutable; equal tuples of markers share one object (`Markers.copy`).

    Compilation takes as long as a short call, and most replies contain no character that begins a marker. So the
    patterns of whole markers and of their beginnings are compiled at the first text that needs them. HTML and code need
    the first characters of the markers alone.
    """

    def __init__(self, markers: tuple[str, ...]) -> None:
        self.markers = markers
        starts = {start for marker in markers for start in _both_cases(_elements(marker)[0][0])}
        plain = all(len(start) == 1 or (len(start) == 2 and start[0] == "\\") for start in starts)
        self._chars = tuple(sorted(start[-1] for start in starts)) if plain else ()
        self._first = re.compile(f"[{''.join(sorted(starts))}]" if plain else "|".join(sorted(starts)))
        self.has_start: Callable[[str], object] = self._first.search
        """A quicker test: whether a text contains a character with which a marker begins."""
        self.longest = 14 + max(len(marker) + 14 * sum(char in BARS for char in marker) for marker in markers)
        self.longest += _MAX_ATTRIBUTES if any(map(_WORD_TAG.fullmatch, markers)) else 0

    @staticmethod
    @lru_cache(maxsize=256)
    def copy(markers: tuple[str, ...]) -> Markers:
        """Return the shared object for these markers."""
        return Markers(markers)

    @cached_property
    def _hint(self) -> re.Pattern[str]:
        """Return a pattern of the first elements of any marker, or of a beginning of these at the end of a text."""
        starts = [spelling[:_HINT] for marker in self.markers for spelling in _spellings(marker)]
        whole = _any_of([[pattern for pattern, _ in start] for start in starts])
        return re.compile(f"(?={self._first.pattern})(?:{whole}|{_any_beginning(starts)})", re.IGNORECASE)

    @cached_property
    def _needles(self) -> tuple[_Needle, ...]:
        """Return the words to look for in a long text; empty where a marker may be there without one."""
        return _needles(self.markers) if self._chars else ()

    @cached_property
    def _which(self) -> tuple[re.Pattern[str], list[int]]:
        """Return a pattern with a group for each spelling, the one to prefer first, and the index of each marker.

        A longer marker comes first, one that ends with a space after those of its length, and attributes come last.
        """
        spellings = [
            (form, -len(marker.rstrip()), index, "".join(pattern for pattern, _ in spelling))
            for index, marker in enumerate(self.markers)
            for form, spelling in enumerate(_spellings(marker))
        ]
        spellings.sort(key=lambda each: (each[0], each[1] if each[0] == 0 else 0, each[2]))
        groups = "|".join(f"({pattern})" for *_, pattern in spellings)
        return re.compile(groups, re.IGNORECASE), [index for _, _, index, _ in spellings]

    @cached_property
    def _any(self) -> re.Pattern[str]:
        """Return the pattern of any of the markers."""
        spellings = [spelling for marker in self.markers for spelling in _spellings(marker)]
        return re.compile(_any_of([[pattern for pattern, _ in spelling] for spelling in spellings]), re.IGNORECASE)

    @cached_property
    def _beginning(self) -> re.Pattern[str]:
        """Return the pattern of a beginning of any marker at the end of a text."""
        spellings = [spelling for marker in self.markers for spelling in _spellings(marker)]
        return re.compile(_any_beginning(spellings), re.IGNORECASE)

    def may_begin(self, text: str) -> bool:
        """Whether a marker may begin in a text. It is only a hint, quick beside HTML and code, too."""
        first = self._first.search(text)
        if first is None:
            return False
        start, end = first.start(), len(text) - self.longest
        if end - start > _LONG and self._chars and self.find(text, start) is None:
            start = end
        return self._hint.search(text, start) is not None

    def find(self, text: str, start: int = 0) -> tuple[int, int, int] | None:
        """Return (start, end, index) of the first marker at or after `start`.

        Of several there it is the longest without attributes, or else the first with attributes.
        """
        if len(text) - start > _LONG and self._chars:
            if self._first.match(text, start) and (found := self.match(text, start)) is not None:
                return found
            starts = self._starts(text, start)
        else:
            starts = (first.start() for first in self._first.finditer(text, start))
        for at in starts:  # without one, nothing is compiled
            if (found := self.match(text, at)) is not None:
                return found
        return None

    def _starts(self, text: str, start: int) -> Iterable[int]:
        """Return where a marker may begin in a long text, from the first word of one on where there are many places."""
        count = sum(text.count(char, start) for char in self._chars)
        if self._needles and count * _TRY > len(self._needles) * (len(text) - start):
            start = self._skip(text, start)
            return () if start < 0 else (first.start() for first in self._first.finditer(text, start))
        positions: list[int] = []
        for char in self._chars:
            at = text.find(char, start)
            while at >= 0:
                positions.append(at)
                at = text.find(char, at + 1)
        return sorted(positions)

    def _skip(self, text: str, start: int) -> int:
        """Return a position before the first word of a marker in a long text; -1 if there is none."""
        if any(char in text for char in _ODD):
            return start
        if not (chars := [char for char in self._chars if char in text]):
            return -1
        lower, first = text.lower(), -1
        absent: set[str] = set()
        for needle in self._needles:
            if needle.starts.isdisjoint(chars) or not absent.isdisjoint(needle.parts):
                continue
            word = needle.word
            at = lower.find(word, start, None if first < 0 else first + len(word))
            if at < 0 and first < 0:
                absent.add(word)
            elif at >= 0 and any(
                all(lower.find(other, max(start, at - self.longest)) >= 0 for other in words) for words in needle.others
            ):
                first = at
        return first if first < 0 else max(start, first - self.longest)

    def match(self, text: str, start: int = 0) -> tuple[int, int, int] | None:
        """Return (start, end, index) of the marker at `start`; None where none begins there."""
        if self._any.match(text, start) is None:
            return None
        pattern, indexes = self._which
        match = pattern.match(text, start)
        assert match is not None
        assert match.lastindex is not None
        return start, match.end(), indexes[match.lastindex - 1]

    def pending_length(self, text: str) -> int:
        """Return how many characters at the end of `text` may begin a marker and must be held back."""
        for first in self._first.finditer(text, max(0, len(text) - self.longest)):
            if self._beginning.match(text, first.start()):
                return len(text) - first.start()
        return 0

    def is_beginning(self, text: str, start: int = 0) -> bool:
        """Whether all of a text from `start` on may begin a marker."""
        return len(text) - start <= self.longest and self._beginning.match(text, start) is not None

    def occurs(self, text: str) -> bool:
        """Whether a marker stands in a whole text; quick where none does, also beside HTML and code."""
        if self._chars:  # a few searches for one character each are faster than one for a class
            for char in self._chars:
                if char in text:
                    break
            else:
                return False
        return self.find(text) is not None

    def last_start(self, text: str) -> int:
        """Return the start of the last marker of a text, or -1."""
        last, position = -1, 0
        while (match := self.find(text, position)) is not None:
            last, position = match[:2]
        return last
