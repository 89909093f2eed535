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
from itertools import pairwise

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
_LONG = 4096  # characters: in longer texts a search for whole markers is worth its compilation
_SPAN = 65536  # characters that are searched for one first character of markers after the other
_HINT = 7  # elements of a marker that a hint looks at: a tag with four letters
_PAD = "\0" * _HINT
_AHEAD = 4  # characters that are looked at before more than a few words are tried
_FEW = 4  # words
_TOGETHER = 6  # words with a common look ahead
_ODD = {"i": "ıİ", "k": "\u212a", "s": "ſ"}  # `re.IGNORECASE` takes them for these letters, too

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


def _all_spellings(markers: Iterable[str]) -> list[list[_Element]]:
    """Return the elements of all forms of some markers."""
    return [spelling for marker in markers for spelling in _spellings(marker)]


def spelling_pattern(marker: str) -> str:
    """Return the pattern of a marker in all its spellings without attributes, for `re.IGNORECASE`."""
    return "".join(pattern for pattern, _ in _elements(marker))


def _any_beginning(markers: list[list[_Element]]) -> str:
    """Return a pattern for every incomplete beginning, at the end of a text, of some markers, given as their elements.

    Common beginnings are tried once.
    """
    rests: dict[_Element, list[list[_Element]]] = {}
    for head, *rest in markers:
        rests.setdefault(head, []).extend([rest] if rest else [])  # without a rest the marker is complete
    branches = [branch for head, rest in rests.items() if (branch := _beginning(head, rest))]
    return f"(?:{'|'.join(branches)})" if branches else "(?!)"


def _beginning(head: _Element, rests: list[list[_Element]]) -> str:
    """Return a pattern for the beginnings of markers with the same first element; "" where none is incomplete."""
    pattern, so_far = head
    longer = f"{pattern}(?:\\Z|{_any_beginning(rests)})" if rests else ""
    if pattern == so_far:
        return longer
    return f"(?:{so_far}\\Z|{longer})" if longer else f"{so_far}\\Z"


def _steps(elements: list[str]) -> list[str]:
    """Return the patterns of some elements for a search: letters in both cases, and bars apart from their spaces.

    Optional spaces are not given back where what follows is no space, so that a search fails quickly.
    """
    out: list[str] = []
    for element in elements:
        if element == BAR:
            out += [r"\s{0,2}", _ONE_BAR, BAR.removeprefix(r"\s{0,2}" + _ONE_BAR)]
        elif len(element) == 1 and element.lower() != element.upper():
            char = element.lower()
            out.append(f"[{char}{char.upper()}{_ODD.get(char, '')}]" if char.isascii() else f"(?i:{element})")
        else:
            out.append(element)
    solid = [
        step == r"\s{0,2}" and (after == step or after[:2] not in ("", r"\s", _JOINT[:2]))
        for step, after in pairwise([*out, ""])
    ]
    return [f"{step}+" if is_solid else step for step, is_solid in zip(out, solid, strict=True)]


def _is_char(step: str) -> bool:
    """Whether a step is always one character."""
    return len(step) == 1 or (len(step) == 2 and step[0] == "\\") or (step[0] == "[" and step[-1] == "]")


def _first_chars(step: str) -> str:
    """Return the characters with which a step begins, as a class has them; "" where that cannot be said."""
    if _is_char(step):
        return step[1:-1] if len(step) > 2 else step
    if step.startswith(_SPACES):
        return r"\s" + _first_chars(step.removeprefix(_SPACES))
    return r"\s" if step == _ATTRIBUTES or step.startswith(r"\s{1") else ""


def _or_pad(step: str) -> str:
    """Return the pattern of a step, or of what stands for it behind a text that may go on."""
    if step.startswith(_SPACES):
        return _SPACES + _or_pad(step.removeprefix(_SPACES))
    chars = _first_chars(step)
    if _is_char(step) or step == _ATTRIBUTES:
        return rf"[{chars}\0]"
    return rf"(?:{step}|\0)" if chars or step[0] == "(" else step  # other steps may be empty


def _look_ahead(markers: list[list[str]]) -> str:
    """Return classes for the first characters of some markers, as far as all of them have as many."""
    classes: list[str] = []
    for steps in zip(*markers, strict=False):
        chars = list(map(_first_chars, steps))
        if not all(chars):
            break
        classes.append(f"[{''.join(dict.fromkeys(chars))}]")
        if len(classes) == _AHEAD or not all(map(_is_char, steps)):
            break
    return "".join(classes)


def _any_of(markers: list[list[str]]) -> str:
    """Return a pattern for any of some markers, each given as its steps. Common beginnings are tried once.

    Of many words in one place the next characters are looked at before the words are tried one by one.
    """
    heads: dict[str, list[list[str]]] = {}
    for marker in markers:
        if not marker:
            return ""  # it is complete, whatever follows
        heads.setdefault(marker[0], []).append(marker[1:])
    if "_" in heads and _JOINT in heads:  # the same character is tried once
        rests = heads.pop(_JOINT)
        heads["_"] += rests
        heads[_JOINT.replace("_", "")] = rests
    branches = {head: head + _any_of(rests) for head, rests in heads.items()}
    words = [head for head in branches if head[0] == "[" and head[1].isalpha() and _is_char(head)]
    words.sort(key=lambda word: (-len(heads[word]), word))
    parts = list(branches.values())
    if len(words) > _FEW:
        groups = [words[at : at + _TOGETHER] for at in range(0, len(words), _TOGETHER)]
        ahead = "|".join(_look_ahead([[head, *rest] for head in group for rest in heads[head]]) for group in groups)
        parts = [branch for head, branch in branches.items() if head not in words]
        parts.append(f"(?={ahead})(?:{'|'.join(branches[word] for word in words)})")
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


class _Group:
    """Markers that begin with the same character, in lower or in upper case."""

    def __init__(self, markers: list[str]) -> None:
        self._markers = markers

    @cached_property
    def whole(self) -> re.Pattern[str]:
        """The pattern of any of the markers."""
        spellings = _all_spellings(self._markers)
        return re.compile(_any_of([_steps([pattern for pattern, _ in spelling]) for spelling in spellings]))

    @cached_property
    def beginning(self) -> re.Pattern[str]:
        """The pattern of a beginning of any of them at the end of a text."""
        return re.compile(_any_beginning(_all_spellings(self._markers)), re.IGNORECASE)


class Markers:
    """Several markers as one search. Immutable; equal tuples of markers share one object (`Markers.copy`).

    Compilation takes as long as a short call, and most replies contain no character that begins a marker. So the
    patterns of whole markers and of their beginnings are compiled at the first text that needs them. HTML and code need
    the first characters of the markers alone.
    """

    def __init__(self, markers: tuple[str, ...]) -> None:
        self.markers = markers
        heads: dict[str, list[str]] = {}
        for marker in markers:
            heads.setdefault(_steps([_elements(marker)[0][0]])[0], []).append(marker)
        self._starts: list[tuple[str, _Group]] = []
        for head, same in sorted(heads.items()):
            chars, group = _first_chars(head), _Group(same)
            known = "" if r"\s" in chars else re.sub(r"\\(.)", r"\1", chars, flags=re.DOTALL)
            self._starts += [(char, group) for char in known or [""]]
        self.has_start: Callable[[str], object] = re.compile("|".join(sorted(heads))).search
        """A quicker test: whether a text contains a character with which a marker begins."""
        self.longest = 14 + max(len(marker) + 14 * sum(char in BARS for char in marker) for marker in markers)
        self.longest += _MAX_ATTRIBUTES if any(map(_WORD_TAG.fullmatch, markers)) else 0
        self._reach = 12 * max(map(len, markers)) + _MAX_ATTRIBUTES  # characters of any spelling, and more

    @staticmethod
    @lru_cache(maxsize=256)
    def copy(markers: tuple[str, ...]) -> Markers:
        """Return the shared object for these markers."""
        return Markers(markers)

    @cached_property
    def _hint(self) -> re.Pattern[str]:
        """The pattern of the first elements of any marker, of which `_PAD` behind a text stands for those to come."""
        heads: dict[str, list[list[str]]] = {}
        for spelling in _all_spellings(self.markers):
            head, *rest = _steps([pattern for pattern, _ in spelling[:_HINT]])
            heads.setdefault(head, []).append(list(map(_or_pad, rest)))
        return re.compile("|".join(head + _any_of(rests) for head, rests in sorted(heads.items())))

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

    def may_begin(self, text: str) -> bool:
        """Whether a marker may begin in a text. It is only a hint, quick beside HTML and code, too."""
        return self.may_begin_at(text) >= 0

    def may_begin_at(self, text: str) -> int:
        """Return a position before which no marker begins, or -1 if none may begin in all of a text."""
        if len(text) <= _LONG:
            hint = self._hint.search(text + _PAD)
            return -1 if hint is None else hint.start()
        end = max(0, len(text) - self.longest)
        if (found := self.find(text)) is not None:
            return min(found[0], end)  # a longer one may begin before it
        pending = self._hint.search(text[end:] + _PAD) and self.pending_length(text)
        return len(text) - pending if pending else -1

    def find(self, text: str, start: int = 0) -> tuple[int, int, int] | None:
        """Return (start, end, index) of the first marker at or after `start`.

        Of several there it is the longest without attributes, or else the first with attributes.
        """
        for before in range(start, len(text), _SPAN):
            window = text[before : before + _SPAN + self._reach]
            first = _SPAN
            for char, group in self._starts:  # without such a character, nothing is compiled
                if char in window and (hit := group.whole.search(window, 0, first + self._reach)) is not None:
                    first = min(first, hit.start())
            if first < _SPAN:
                return self.match(text, before + first)
        return None

    def match(self, text: str, start: int = 0) -> tuple[int, int, int] | None:
        """Return (start, end, index) of the marker at `start`; None where none begins there."""
        for char, group in self._starts:
            if text.startswith(char, start) and group.whole.match(text, start) is not None:
                break
        else:
            return None
        pattern, indexes = self._which
        match = pattern.match(text, start)
        assert match is not None
        assert match.lastindex is not None
        return start, match.end(), indexes[match.lastindex - 1]

    def pending_length(self, text: str) -> int:
        """Return how many characters at the end of `text` may begin a marker and must be held back."""
        tail = text[-self.longest :]
        length = 0
        for char, group in self._starts:
            if char in tail and (hit := group.beginning.search(tail)) is not None:
                length = max(length, len(tail) - hit.start())
        return length

    def is_beginning(self, text: str, start: int = 0) -> bool:
        """Whether all of a text from `start` on may begin a marker."""
        if len(text) - start > self.longest:
            return False
        return any(text.startswith(char, start) and group.beginning.match(text, start) for char, group in self._starts)

    def occurs(self, text: str) -> bool:
        """Whether a marker stands in a whole text; quick where none does, also beside HTML and code."""
        for char, _ in self._starts:  # a few searches for one character each are faster than one for a class
            if char in text:
                break
        else:
            return False
        return (len(text) > _LONG or self.may_begin(text)) and self.find(text) is not None

    def last_start(self, text: str) -> int:
        """Return the start of the last marker of a text, or -1."""
        last, position = -1, 0
        while (match := self.find(text, position)) is not None:
            last, position = match[:2]
        return last
