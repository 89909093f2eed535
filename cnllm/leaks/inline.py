"""What quotes within and around paragraphs: spans of code, quotation marks, elements of HTML, tables.

A block of markup stands in the text as one character, an atom, so that nothing in it counts. Whether an atom is quoted
may be known only later, with the mark that closes; each paragraph is read once, when it is complete.
"""

from __future__ import annotations

import html
import re

__all__ = ["ATOM", "FAR", "SUSPECT", "InlineBlock", "InlineLine", "ParagraphTracker"]

ATOM = "\ufffc"  # the object replacement character
_DEEPEST = 64  # elements
FAR = 2048  # characters over which a quotation may reach

_FIRM = frozenset(
    {"pre", "script", "style", "textarea", "xmp", "listing", "blockquote", "table", "code", "samp", "div"}
    | {"figure", "details"}
)
"""Elements that quote without being closed, where their tag begins a line."""
_WITHIN = frozenset(
    {"q", "kbd", "tt", "var", "cite", "td", "th", "caption", "section", "article", "aside", "summary", "example"}
    | {"quote", "quotation", "document", "tool_result", "tool_response"}
)
_NAMES = "|".join(sorted(_FIRM | _WITHIN, key=len, reverse=True))
# The mark that opens → those that close it.
_PAIRS = {
    "“": "”",
    "‘": "’",
    "„": "“”",
    "‚": "‘’",
    "«": "»",
    "‹": "›",
    "「": "」",
    "『": "』",
    "《": "》",
    "〈": "〉",
    "｢": "｣",
    "〝": "〞〟",
}
# Marks that open only where their place says so: these may close a quotation as well.
_EITHER = {'"': '"', "'": "'", "＂": "＂", "”": "”", "»": "«", "›": "‹"}
_CLOSERS = {closer for closers in (*_PAIRS.values(), *_EITHER.values()) for closer in closers}
_MARKS = re.escape("".join({*_PAIRS, *_EITHER, *_CLOSERS}))
_TOKEN = re.compile(
    rf"\\[`<\\]|(?P<ticks>`+)|(?P<comment><!--)|<(?P<close>/?)(?P<name>{_NAMES})(?:\s[^<>]{{0,256}})?(?<!/)>"
    rf"|(?P<mark>\"+|'+|[{_MARKS}])|(?P<atom>{ATOM})",
    re.IGNORECASE,
)
SUSPECT = re.compile(rf"[`<|&\\{_MARKS}]")
_ENTITY = re.compile(
    r"&(?:quot|apos|[lr][sd]quo|[sb]d?quo|[lr]s?aquo|#0*(?:34|39|8216|8217|8220|8221)|#[xX]0*(?:22|27|201[89cdCD]));"
)
_CLIPPED = re.compile(r"(?:\d0s|tis|twas|em|til|cause)\b", re.IGNORECASE)  # words that an apostrophe begins
_DELIMITER = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?")


class InlineLine:
    """One line of the text: whether it is over, whether anything but blocks and white space stands on it (`prose`).

    In the `middle` of a sentence stands a block that has prose behind it, or an open sentence before it.
    """

    __slots__ = ("blocks", "middle", "over", "prose")

    def __init__(self) -> None:
        self.prose = self.over = self.middle = self.blocks = False


class InlineBlock:
    """A block in the text. `quoted` is None while that is not known."""

    __slots__ = ("line", "quoted")

    def __init__(self, line: InlineLine) -> None:
        self.line = line
        self.quoted: bool | None = None


class ParagraphTracker:
    """Follows the paragraphs of a text."""

    __slots__ = ("_count", "_elements", "_marks", "_waiting")

    def __init__(self) -> None:
        self._count = 0  # characters so far
        self._marks: dict[str, tuple[int, int]] = {}  # open mark → (where, number of atoms that wait before it)
        self._elements: list[tuple[str, int, bool]] = []  # (name, number of atoms before it, does it quote unclosed?)
        self._waiting: list[InlineBlock] = []  # atoms that an open mark may quote still

    @property
    def is_open(self) -> bool:
        """Whether something is open that reaches over paragraphs."""
        return bool(self._marks or self._elements)

    @property
    def is_waiting(self) -> bool:
        """Whether an atom waits for a mark."""
        return bool(self._waiting)

    def paragraph(self, text: str, atoms: list[InlineBlock], raw: bool) -> None:
        """Read a paragraph that is complete, with the atoms in it. `raw`: it is HTML, in which no tick counts."""
        if "&" in text:
            text = _ENTITY.sub(lambda found: html.unescape(found[0]), text)
        row = _table(text) if "|" in text and "-" in text else -1
        spans = {} if raw else _spans(text)
        at = len(self._waiting)  # the next atom
        self._waiting += atoms
        start, last = 0, text.rfind("-->")
        while (found := _TOKEN.search(text, start)) is not None:
            place, start = found.span()
            end = start
            if found["atom"]:
                if at < len(self._waiting):
                    if self._quotes(place) or 0 <= row <= place or (text[place - 1 : place] == "`" and not raw):
                        self._waiting[at].quoted = True
                    at += 1
            elif found["ticks"]:
                end = spans.get(place, start)
            elif found["comment"]:
                end = max(text.find("-->", start), start) if start < last else start
            elif found["name"]:
                self._element(found, text, at)
            elif found["mark"]:
                self._mark(text, place, start, at)
            if end > start and (inside := text.count(ATOM, start, end)):
                self._quote(at, at + inside)
                at = min(at + inside, len(self._waiting))
            start = end
        self._count += len(text)
        self._elements = [said for said in self._elements if said[2]]
        self._marks.pop("'", None)
        self._marks = {mark: said for mark, said in self._marks.items() if self._count - said[0] < FAR}
        self._settle()

    def _quotes(self, place: int) -> bool:
        """Whether an atom is quoted whatever follows: in an element that quotes, or right behind a mark that opens."""
        if any(firm for _, _, firm in self._elements):
            return True
        return any(where == self._count + place - 1 for where, _ in self._marks.values())

    def _element(self, found: re.Match[str], text: str, at: int) -> None:
        name = found["name"].lower()
        if not found["close"]:
            if len(self._elements) < _DEEPEST:
                before = "\n" + text[max(0, found.start() - 8) : found.start()]
                firm = name in _FIRM and not before[before.rindex("\n") :].strip()
                self._elements.append((name, at, firm and (len(before) < 9 or before.count("\n") > 1)))
            return
        for number in range(len(self._elements) - 1, -1, -1):
            if self._elements[number][0] == name:
                if not self._elements[number][2]:
                    self._quote(self._elements[number][1], at)
                del self._elements[number:]
                return

    def _quote(self, first: int, end: int) -> None:
        for atom in self._waiting[first:end]:
            atom.quoted = True

    def _mark(self, text: str, place: int, end: int, at: int) -> None:
        """Read a quotation mark, or several that stand for one."""
        mark = text[place]
        before = text[place - 1] if place else "\n"
        behind = text[end] if end < len(text) else "\n"
        tight = not before.isspace() or before == "\n"
        for opening in self._marks:
            if opening in _PAIRS:
                closes = mark in _PAIRS[opening] and (tight or mark not in _PAIRS) and not _western(behind)
            else:
                closes = mark in _EITHER[opening] and tight and not _western(behind)
            if closes:
                self._quote(self._marks.pop(opening)[1], at)
                return
        if mark == "'" and _CLIPPED.match(text, end):
            return
        if mark in _PAIRS or (mark in _EITHER and _opens(before, behind)):
            self._marks[mark] = (self._count + end - 1, at)

    def _settle(self) -> None:
        """Settle the atoms that no open mark may quote any more."""
        earliest = min((first for _, first in self._marks.values()), default=len(self._waiting))
        for atom in self._waiting[:earliest]:
            if atom.quoted is None:
                atom.quoted = False
        del self._waiting[:earliest]
        self._marks = {mark: (where, first - earliest) for mark, (where, first) in self._marks.items()}

    def expire(self) -> None:
        """Settle all: nothing that is open will be closed."""
        self._marks.clear()
        self._settle()


def _western(char: str) -> bool:
    """Whether this is a letter or digit of a script that has spaces between words."""
    return char.isalnum() and char < "\u2e80"


def _opens(before: str, behind: str) -> bool:
    """Whether a mark that may open or close stands where one opens."""
    if _western(before) or (before in "%)]}.!?" and behind != ATOM):
        return False
    return behind == "\n" or not (behind.isspace() or behind in ".,;:!?)]}，。；：！？）")


def _spans(text: str) -> dict[int, int]:
    """Spans of code: where the ticks that open stand → where the span ends."""
    if "`" not in text:
        return {}
    runs = [(found.start(), found.end()) for found in re.finditer(r"`+", text)]
    later: dict[int, int] = {}  # length of a run → the next run of this length
    behind: dict[int, int] = {}  # number of a run → the next run of the same length
    for number in range(len(runs) - 1, -1, -1):
        length = runs[number][1] - runs[number][0]
        if length in later:
            behind[number] = later[length]
        later[length] = number
    out: dict[int, int] = {}
    number = 0
    while number < len(runs):
        start = runs[number][0]
        slashes = 0
        while slashes < start and text[start - slashes - 1] == "\\":
            slashes += 1
        if slashes % 2 == 0 and number in behind:
            out[start] = runs[behind[number]][1]
            number = behind[number]
        number += 1
    return out


def _table(text: str) -> int:
    """Where the first line of a table in a paragraph begins, or -1."""
    start = before = 0
    for line in text.split("\n"):
        if start and "-" in line and "|" in line and _DELIMITER.fullmatch(line.strip()):
            return before
        before, start = start, start + len(line) + 1
    return -1
