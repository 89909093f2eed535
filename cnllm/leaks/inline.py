"""Find quotations within and around paragraphs: code spans, quotation marks, HTML elements, tables.

A block of markup stands in the text as one character, the placeholder, so that nothing in it counts. Whether a block
is quoted may be known only at the closing mark. Each paragraph is read once, when it is complete.
"""

from __future__ import annotations

import html
import re

__all__ = ["ATOM", "FAR", "SUSPECT", "InlineBlock", "InlineLine", "ParagraphTracker", "open_end", "quotes_next"]

ATOM = "\ufffc"  # the object replacement character
_DEEPEST = 64  # elements
FAR = 2048  # characters over which a quotation may reach

_QUOTES_UNCLOSED = frozenset(
    {"pre", "script", "style", "textarea", "xmp", "listing", "blockquote", "table", "code", "samp", "div"}
    | {"figure", "details"}
)
"""Elements that quote even if they are not closed, where their tag begins a line."""
_QUOTES_CLOSED = frozenset(
    {"q", "kbd", "tt", "var", "cite", "td", "th", "caption", "section", "article", "aside", "summary", "example"}
    | {"quote", "quotation", "document", "tool_result", "tool_response"}
)
_NAMES = "|".join(sorted(_QUOTES_UNCLOSED | _QUOTES_CLOSED, key=len, reverse=True))
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
# Marks that open a quotation only in some places: they may close one as well.
_AMBIGUOUS = {'"': '"', "'": "'", "＂": "＂", "”": "”", "»": "«", "›": "‹"}
_CLOSERS = {closer for closers in (*_PAIRS.values(), *_AMBIGUOUS.values()) for closer in closers}
_MARKS = re.escape("".join({*_PAIRS, *_AMBIGUOUS, *_CLOSERS}))
_TOKEN = re.compile(
    rf"\\[`<\\\"]|(?P<ticks>`+)|(?P<comment><!--)|<(?P<close>/?)(?P<name>{_NAMES})(?:\s[^<>]{{0,256}})?(?<!/)>"
    rf"|(?P<mark>\"+|'+|[{_MARKS}])|(?P<atom>{ATOM})",
    re.IGNORECASE,
)
SUSPECT = re.compile(rf"[`<|&\\{_MARKS}]")
_ENTITY = re.compile(
    r"&(?:quot|apos|[lr][sd]quo|[sb]d?quo|[lr]s?aquo|#0*(?:34|39|8216|8217|8220|8221)|#[xX]0*(?:22|27|201[89cdCD]));"
)
_APOSTROPHE_WORD = re.compile(r"(?:\d0s|tis|twas|em|til|cause)\b", re.IGNORECASE)  # words that an apostrophe begins
_DELIMITER = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?")


class InlineLine:
    """One line of the text. `is_complete`: it has ended. `prose`: it holds something besides blocks and white space.

    `middle`: a block stands in the middle of a sentence, with prose behind it or an open sentence before it.
    """

    def __init__(self) -> None:
        self.prose = self.is_complete = self.middle = self.blocks = False


class InlineBlock:
    """A block in the text. `is_quoted` is None while it is not known."""

    def __init__(self, line: InlineLine) -> None:
        self.line = line
        self.is_quoted: bool | None = None


class ParagraphTracker:
    """A reader of paragraphs that decides which blocks in them are quoted."""

    def __init__(self) -> None:
        self._count = 0  # characters so far
        self._marks: dict[str, tuple[int, int]] = {}  # open mark → (position, number of undecided blocks before it)
        self._elements: list[tuple[str, int, bool]] = []  # (name, undecided blocks before it, quotes unclosed)
        self._undecided: list[InlineBlock] = []  # blocks that an open mark may still quote

    @property
    def is_open(self) -> bool:
        """Whether a quotation is open that reaches over paragraphs."""
        return bool(self._marks or self._elements)

    @property
    def is_in_element(self) -> bool:
        """Whether an HTML element is open that quotes whatever follows."""
        return any(quotes_unclosed for _, _, quotes_unclosed in self._elements)

    @property
    def has_undecided(self) -> bool:
        """Whether a block waits for a closing mark."""
        return bool(self._undecided)

    def read_paragraph(self, text: str, blocks: list[InlineBlock], *, raw: bool) -> None:
        """Read a complete paragraph with the blocks in it. `raw`: it is HTML, in which no backtick counts."""
        if "&" in text:
            text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
        row = _table_start(text) if "|" in text and "-" in text else -1
        spans = {} if raw else _code_spans(text)
        next_block = len(self._undecided)  # the next block
        self._undecided += blocks
        start, last = 0, text.rfind("-->")
        while (match := _TOKEN.search(text, start)) is not None:
            position, start = match.span()
            end = start
            if match["atom"]:
                follows_tick = text[position - 1 : position] == "`" and not raw
                if follows_tick or 0 <= row <= position or self._is_quoted_now(position):
                    self._undecided[next_block].is_quoted = True
                next_block += 1
            elif match["ticks"]:
                end = spans.get(position, start)
            elif match["comment"]:
                end = max(text.find("-->", start), start) if start < last else start
            elif match["name"]:
                self._read_tag(match, text, next_block)
            elif match["mark"]:
                self._read_mark(text, position, start, next_block)
            if inner_count := text.count(ATOM, position + 1, end):  # in a code span, a comment or a tag
                self._set_quoted(next_block, next_block + inner_count)
                next_block += inner_count
            start = end
        self._count += len(text)
        self._elements = [element for element in self._elements if element[2]]
        self._marks.pop("'", None)
        self._marks = {mark: entry for mark, entry in self._marks.items() if self._count - entry[0] < FAR}
        self._decide_blocks()

    def _is_quoted_now(self, position: int) -> bool:
        """Whether a block is quoted whatever follows: in a quoting element, or right behind an opening mark."""
        return self.is_in_element or any(opening == self._count + position - 1 for opening, _ in self._marks.values())

    def _read_tag(self, match: re.Match[str], text: str, next_block: int) -> None:
        """Open or close an HTML element."""
        name = match["name"].lower()
        if not match["close"]:
            if len(self._elements) < _DEEPEST:
                line_start = "\n" + text[max(0, match.start() - 8) : match.start()]
                quotes_unclosed = name in _QUOTES_UNCLOSED and not line_start[line_start.rindex("\n") :].strip()
                self._elements.append(
                    (name, next_block, quotes_unclosed and (len(line_start) < 9 or line_start.count("\n") > 1))
                )
            return
        for number in range(len(self._elements) - 1, -1, -1):
            if self._elements[number][0] == name:
                if not self._elements[number][2]:
                    self._set_quoted(self._elements[number][1], next_block)
                del self._elements[number:]
                return

    def _set_quoted(self, first: int, end: int) -> None:
        """Mark undecided blocks as quoted."""
        for block in self._undecided[first:end]:
            block.is_quoted = True

    def _read_mark(self, text: str, position: int, end: int, next_block: int) -> None:
        """Read a quotation mark, or several that count as one."""
        mark = text[position]
        before = text[position - 1] if position else "\n"
        following = text[end] if end < len(text) else "\n"
        is_attached = not before.isspace() or before == "\n"
        for opening in self._marks:
            if opening in _PAIRS:
                closes = (
                    mark in _PAIRS[opening] and (is_attached or mark not in _PAIRS) and not _has_word_spaces(following)
                )
            else:
                closes = mark in _AMBIGUOUS[opening] and is_attached and not _has_word_spaces(following)
            if closes:
                self._set_quoted(self._marks.pop(opening)[1], next_block)
                return
        if mark == "'" and _APOSTROPHE_WORD.match(text, end):
            return
        if mark in _PAIRS or (mark in _AMBIGUOUS and _is_opening(before, following)):
            self._marks[mark] = (self._count + end - 1, next_block)

    def _decide_blocks(self) -> None:
        """Mark the blocks that no open mark can quote any more as not quoted."""
        earliest = min((first for _, first in self._marks.values()), default=len(self._undecided))
        for block in self._undecided[:earliest]:
            if block.is_quoted is None:
                block.is_quoted = False
        del self._undecided[:earliest]
        self._marks = {mark: (position, first - earliest) for mark, (position, first) in self._marks.items()}

    def decide_all(self) -> None:
        """Decide all blocks: no open mark will be closed."""
        self._marks.clear()
        self._decide_blocks()


def quotes_next(text: str) -> bool:
    """Whether a paragraph that begins so quotes what stands next, whatever follows."""
    block = InlineBlock(InlineLine())
    ParagraphTracker().read_paragraph(text.replace(ATOM, "x") + ATOM, [block], raw=False)
    return block.is_quoted is True


def open_end(text: str) -> str:
    """Return the end of the last HTML element or comment that a paragraph leaves open; "" where none is open."""
    spans, names = _code_spans(text), list[str]()
    start = 0
    while (match := _TOKEN.search(text, start)) is not None:
        start = match.end()
        name = (match["name"] or "").lower()
        if match["ticks"]:
            start = spans.get(match.start(), start)
        elif match["comment"]:
            start = text.find("-->", start) + 1
            if not start:
                return "-->"
        elif name and not match["close"]:
            names.append(name)
        elif name in names:
            del names[len(names) - 1 - names[::-1].index(name) :]
    return f"</{names[-1]}" if names else ""


def _has_word_spaces(char: str) -> bool:
    """Whether a character is a letter or digit of a script that puts spaces between words."""
    return char.isalnum() and char < "\u2e80"


def _is_opening(before: str, following: str) -> bool:
    """Whether a mark that may open or close stands in a place where a mark opens."""
    if _has_word_spaces(before) or (before in "%)]}.!?" and following != ATOM):
        return False
    return following == "\n" or not (following.isspace() or following in ".,;:!?)]}，。；：！？）")


def _code_spans(text: str) -> dict[int, int]:
    """Return the code spans: position of the opening backticks → end of the span."""
    if "`" not in text:
        return {}
    runs = list(re.finditer(r"(?<!\\)(\\*)(`+)", text))
    next_by_length: dict[int, int] = {}  # length of a run → the next run of this length
    next_run: dict[int, int] = {}  # number of a run → the next run of the same length
    for number in range(len(runs) - 1, -1, -1):
        length = len(runs[number][2])
        if length in next_by_length:
            next_run[number] = next_by_length[length]
        next_by_length[length] = number
    out: dict[int, int] = {}
    number = 0
    while number < len(runs):
        run = runs[number]
        if len(run[1]) % 2 == 0 and number in next_run:
            number = next_run[number]
            out[run.start(2)] = runs[number].end()
        number += 1
    return out


def _table_start(text: str) -> int:
    """Return the start of the first table in a paragraph, or -1."""
    start = before = 0
    for line in text.split("\n"):
        if start and "-" in line and "|" in line and _DELIMITER.fullmatch(line.strip()):
            return before
        before, start = start, start + len(line) + 1
    return -1
