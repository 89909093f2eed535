"""Tell whether a position in a text is quoted, by reading the text as Markdown.

A quoted marker is only mentioned: in code, in a block quote, in quotation marks, in a table, in HTML that shows text
as it is, in a string of an answer that is JSON. The text is read at the first question, and each character once.
Whether a block is quoted may depend on the text behind it: see `InlineBlock.is_quoted`.
"""

from __future__ import annotations

import re

from cnllm.leaks.grammars.json_calls import JsonScan
from cnllm.leaks.inline import ATOM, FAR, SUSPECT, InlineBlock, InlineLine, ParagraphTracker
from cnllm.leaks.structure import MarkdownStructure

__all__ = ["InlineBlock", "QuoteTracker"]

_ENDS = ".!?…。！？"
_TICKS = re.compile("`+")
_MAX_UNREAD = 1024  # texts
_NEAR = 256  # characters of a paragraph that show whether a tag behind them is only mentioned
_TAIL = 32  # characters in which the end of raw HTML may begin


class QuoteTracker:
    """A reader of a growing text. What `add` gives waits for `read`, which comes before a question or `feed`."""

    def __init__(self, before: str = "") -> None:
        self._unread = [before]
        self._json: JsonScan | None = None  # while the text may be JSON
        self._has_begun = False  # a character came that is no white space
        self._structure = MarkdownStructure()
        self._inline = ParagraphTracker()
        self._line: list[str] = []  # the line so far, until its kind is known
        self._tail: str | None = None  # the last piece of the line after that, None before
        self._quoted = False  # the line is code or in a block quote
        self._fence_line: list[str] = []  # pieces of a line that may be no fence
        self._quoted_by_line = False  # quoted because of this line alone
        self._raw = False
        self._paragraph: list[str] = []
        self._ticks = self._ticks_read = 0  # the open run of backticks, and the pieces of the paragraph before it
        self._suspect = False  # something in the paragraph may quote
        self._blocks: list[InlineBlock] = []
        self._distance = 0  # characters since the last block of the paragraph
        self._end = ""  # the last character
        self._last = ""  # character of the line that is no white space
        self.line = InlineLine()
        self.prose = 0  # pieces that are neither white space nor blocks

    def add(self, text: str) -> None:
        """Add text that need not be read so far."""
        self._unread.append(text)
        if len(self._unread) > _MAX_UNREAD:  # many short strings need much memory
            self._unread = ["".join(self._unread)]

    def read(self) -> None:
        """Read the text that was added."""
        text, self._unread = "".join(self._unread), []
        self.feed(text)

    @property
    def is_quoted(self) -> bool:
        """Whether the next text is quoted by what it stands in. It must not be white space."""
        if self._is_in_json:
            return True
        if self._tail is None:
            self._begin_line("".join(self._line) + ATOM, before_block=True)
            self._tail = ""
        return self._quoted or self._structure.in_raw

    @property
    def is_quoted_by_line(self) -> bool:
        """Whether the next text is quoted by this line alone, so that a block of markup may go beyond its end."""
        return self._quoted and self._quoted_by_line and not self._is_in_json

    @property
    def _is_in_json(self) -> bool:
        """Whether the next text stands in a string of JSON."""
        return self._json is not None and self._json.in_string

    @property
    def follows_tick(self) -> bool:
        """Whether a backtick stands right before the next text."""
        return self._end == "`"

    @property
    def open_ticks(self) -> int:
        """The number of backticks that may have begun a code span before the next text; 0 if there are none."""
        text = "".join(self._paragraph[self._ticks_read :])
        self._ticks_read = len(self._paragraph)
        if "`" in text:
            for match in _TICKS.finditer(text):
                run = match.end() - match.start()
                self._ticks = run if self._ticks == 0 else 0 if run == self._ticks else self._ticks
        return self._ticks

    @property
    def is_in_element(self) -> bool:
        """Whether the next text stands in an HTML element of an earlier paragraph that quotes."""
        return self._inline.is_in_element

    @property
    def near(self) -> str:
        """The end of the paragraph before the next text."""
        pieces: list[str] = []
        left = _NEAR
        for piece in reversed(self._paragraph):
            if left <= 0:
                break
            pieces.append(piece[-left:])
            left -= len(piece)
        return "".join(reversed(pieces))

    def add_block(self, *, is_word: bool) -> InlineBlock:
        """Add a block of markup at this position, which nothing quotes so far.

        `is_word`: an open sentence may go on with it. One that spans lines, or says that it has no arguments, only ends
        a sentence.
        """
        line = self.line
        line.blocks = True
        line.middle = line.middle or (line.prose and self._last not in _ENDS and is_word)
        block = InlineBlock(line)
        self._end = ATOM
        if self._quoted:
            block.is_quoted = True
            return block
        is_undecided = self._suspect or self._inline.is_open
        self._write(ATOM if is_undecided else "x")
        self._distance = 0
        if is_undecided:
            self._blocks.append(block)
        else:
            block.is_quoted = False
        return block

    def feed(self, text: str) -> None:
        """Read more of the text."""
        if not text:
            return
        if self._json is not None or not self._has_begun:
            self._read_json(text)
        text = text.replace(ATOM, "x")
        self._end = text[-1]
        position = 0
        while (end := text.find("\n", position)) >= 0:
            self._read_part(text[position:end])
            self._end_line()
            position = end + 1
        self._read_part(text[position:])

    def _read_json(self, text: str) -> None:
        """Read text that may be JSON: all of it is one object or list."""
        if not self._has_begun:
            text = text.lstrip()
            self._has_begun = text != ""
            self._json = JsonScan(is_document=True) if text[:1] in ("{", "[") else None
        if self._json is not None and not self._json.fits(text):
            self._json = None

    def close(self) -> None:
        """End the text."""
        self.line.is_complete = True
        if self._tail is None and self._line:
            self._begin_line("".join(self._line), before_block=False)
        self._end_paragraph()
        self._inline.decide_all()

    # ── lines ─────────────────────────────────────────────────────────────────

    def _read_part(self, text: str) -> None:
        """Read a part of a line."""
        if not text:
            return
        if not text.isspace():
            self.line.prose = True
            self.line.middle = self.line.blocks
            self.prose += 1
            self._last = text.rstrip()[-1]
        if self._tail is None:
            self._line.append(text)
            return
        if self._structure.in_raw:
            self._structure.end_raw(self._tail + text)
            self._tail = text[-_TAIL:]
        if not self._quoted:
            self._write(text)
            return
        if self._structure.begins_fence:
            self._fence_line.append(text)
            if "`" in text:  # not the beginning of a fence, but a code span
                self._structure.cancel_fence()
                self._quoted = False
                self._write("".join(self._fence_line))
                return
        self._skip_characters(len(text))

    def _end_line(self) -> None:
        """End the line."""
        if self._tail is None:
            self._begin_line("".join(self._line), before_block=False)
        if not self._quoted:
            self._write("\n")
        self._line, self._tail = [], None
        self.line.is_complete = True
        self.line = InlineLine()

    def _begin_line(self, line: str, *, before_block: bool) -> None:
        """Find the kind of a line. With `before_block` it ends with a block of markup that follows."""
        was_raw = self._raw
        kind, content, begins = self._structure.read(line)
        self._raw = kind == "raw"
        if begins or kind in ("blank", "code") or was_raw != self._raw:
            self._end_paragraph()
        prefix = content.removesuffix(ATOM) if before_block else content
        # A block that is indented like code counts as code, even behind a paragraph, where CommonMark says it is none.
        indented = before_block and not prefix.strip() and len(prefix) > 3
        cell = prefix.lstrip().startswith("|")
        is_code_or_quote = kind == "code" or (kind != "blank" and self._structure.in_quote)
        self._quoted_by_line = before_block and not self._structure.in_fence and not self._structure.in_quote
        self._quoted = is_code_or_quote or indented or cell
        self._fence_line = [prefix]
        if self._quoted:
            self._skip_characters(len(line))
        elif kind != "blank":
            self._write(prefix)

    def _write(self, text: str) -> None:
        """Add text to the paragraph. Text too far behind an undecided block cannot quote it."""
        if self._blocks or self._inline.has_undecided:
            limit = FAR - self._distance
            self._distance += len(text)
            if len(text) > limit:
                self._add(text[:limit])
                self._end_paragraph()
                self._inline.decide_all()
                text = text[limit:]
        self._add(text)

    def _skip_characters(self, length: int) -> None:
        """Skip characters that quote nothing outside of themselves."""
        if self._inline.has_undecided:
            self._distance += length
            if self._distance > FAR:
                self._inline.decide_all()

    def _add(self, text: str) -> None:
        """Append text to the paragraph."""
        self._paragraph.append(text)
        if not self._suspect and SUSPECT.search(text):
            self._suspect = True

    def _end_paragraph(self) -> None:
        """Read the paragraph, unless nothing in it can quote and no quotation is open, and begin a new one."""
        if self._blocks or self._suspect or self._inline.is_open or self._inline.has_undecided:
            self._inline.read_paragraph("".join(self._paragraph), self._blocks, raw=self._raw)
        self._paragraph, self._blocks, self._suspect = [], [], False
        self._ticks = self._ticks_read = 0
