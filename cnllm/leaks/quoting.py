"""Where in a text one is: whether what stands there is quoted, by a reading of the text as Markdown.

A marker that is quoted is talked about: in code, in a block quote, in quotation marks, in a table, in HTML that shows
text as it is. The text is read when somebody asks first, and each character once. What has been said before a block
may need what is said after it: see `InlineBlock.quoted`.
"""

from __future__ import annotations

from cnllm.leaks.inline import ATOM, FAR, SUSPECT, InlineBlock, InlineLine, ParagraphTracker
from cnllm.leaks.structure import MarkdownStructure

__all__ = ["InlineBlock", "QuoteTracker"]

_ENDS = ".!?…。！？"
_TAIL = 32  # characters in which the end of raw HTML may begin


class QuoteTracker:
    """Follows a text that grows: `said`, to which others append pieces, and what is fed beside it."""

    __slots__ = (
        "_atoms",
        "_behind",
        "_end",
        "_inline",
        "_last",
        "_line",
        "_offset",
        "_paragraph",
        "_piece",
        "_quoted",
        "_raw",
        "_said",
        "_shelf",
        "_shown",
        "_structure",
        "_suspect",
        "_tail",
        "line",
        "prose",
    )

    def __init__(self, said: list[str]) -> None:
        self._said = said
        self._piece = self._offset = 0
        self._structure = MarkdownStructure()
        self._inline = ParagraphTracker()
        self._line: list[str] = []  # the line so far, until its place among the blocks is known
        self._tail: str | None = None  # the last that came of it since, None before
        self._quoted = False  # the line is code or in a block quote
        self._shelf: list[str] = []  # a line that may be no fence
        self._shown = False  # because of this line alone
        self._raw = False
        self._paragraph: list[str] = []
        self._suspect = False  # something in the paragraph may quote
        self._atoms: list[InlineBlock] = []
        self._behind = 0  # characters since the last atom of the paragraph
        self._end = ""  # the last character
        self._last = ""  # character of the line that is no white space
        self.line = InlineLine()
        self.prose = 0  # how often something else than white space and atoms came

    def before_pack(self, start: int) -> None:
        """The pieces from `start` on are about to become one."""
        if self._piece > start:
            self._offset += sum(len(piece) for piece in self._said[start : self._piece])
            self._piece = start

    def read(self) -> None:
        """Read what was said past this."""
        if self._said:
            new = "".join(self._said[self._piece :])[self._offset :]
            self.skip()
            if new:
                self.feed(new)

    def skip(self) -> None:
        """What was said so far has been fed."""
        if self._said:
            self._piece, self._offset = len(self._said) - 1, len(self._said[-1])

    @property
    def is_quoted(self) -> bool:
        """Whether what comes next is quoted by the block that it stands in. It must not be white space."""
        if self._tail is None:
            self._begin("".join(self._line) + ATOM, atom=True)
            self._tail = ""
        return self._quoted or (self._raw and self._structure.in_raw)

    @property
    def is_quoted_by_line(self) -> bool:
        """Whether what comes next is quoted because of this line alone, so that a block goes past its end."""
        return self._quoted and self._shown

    @property
    def follows_tick(self) -> bool:
        """Whether a tick stands right before what comes next."""
        return self._end == "`"

    def add_block(self) -> InlineBlock:
        """A block stands here, where nothing quotes it so far."""
        line = self.line
        line.blocks = True
        line.middle = line.middle or (line.prose and self._last not in _ENDS)
        atom = InlineBlock(line)
        self._end = ATOM
        if self._quoted:
            atom.quoted = True
            return atom
        held = self._suspect or self._inline.is_open
        self._write(ATOM if held else "x")
        self._behind = 0
        if held:
            self._atoms.append(atom)
        else:
            atom.quoted = False
        return atom

    def feed(self, text: str) -> None:
        """More of the text."""
        if not text:
            return
        text = text.replace(ATOM, "x")
        self._end = text[-1]
        at = 0
        while (end := text.find("\n", at)) >= 0:
            self._part(text[at:end])
            self._newline()
            at = end + 1
        self._part(text[at:])

    def close(self) -> None:
        """The text is over."""
        self.line.over = True
        if self._tail is None and self._line:
            self._begin("".join(self._line), atom=False)
        self._end_paragraph()
        self._inline.expire()

    # ── lines ────────────────────────────────────────────────────────────────

    def _part(self, text: str) -> None:
        """A part of a line."""
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
            self._shelf.append(text)
            if "`" in text:  # what looked like the beginning of a fence is a span of code
                self._structure.cancel_fence()
                self._quoted = False
                self._write("".join(self._shelf))
                return
        self._pass(len(text))

    def _newline(self) -> None:
        if self._tail is None:
            self._begin("".join(self._line), atom=False)
        if not self._quoted:
            self._write("\n")
        self._line, self._tail = [], None
        self.line.over = True
        self.line = InlineLine()

    def _begin(self, line: str, *, atom: bool) -> None:
        """Find the place of a line among the blocks. With `atom` it ends with one that is about to come."""
        was_raw = self._raw
        kind, content, begins = self._structure.read(line)
        self._raw = kind == "raw"
        if begins or kind in ("blank", "code") or was_raw != self._raw:
            self._end_paragraph()
        prefix = content.removesuffix(ATOM) if atom else content
        # A block that is indented like code is shown, although a paragraph before it makes it none by the letter.
        indented = atom and not prefix.strip() and len(prefix) > 3
        cell = prefix.lstrip().startswith("|")
        within = kind == "code" or (kind != "blank" and self._structure.in_quote)
        self._shown = atom and not self._structure.in_fence and not self._structure.in_quote
        self._quoted = within or indented or cell
        self._shelf = [prefix]
        if self._quoted:
            self._pass(len(line))
        elif kind != "blank":
            self._write(prefix)

    def _write(self, text: str) -> None:
        """More of the paragraph. What is too far behind a block that waits cannot quote it."""
        if self._atoms or self._inline.is_waiting:
            room = FAR - self._behind
            self._behind += len(text)
            if len(text) > room:
                self._add(text[:room])
                self._end_paragraph()
                self._inline.expire()
                text = text[room:]
        self._add(text)

    def _pass(self, length: int) -> None:
        """So many characters that quote nothing outside of them."""
        if self._inline.is_waiting:
            self._behind += length
            if self._behind > FAR:
                self._inline.expire()

    def _add(self, text: str) -> None:
        self._paragraph.append(text)
        if not self._suspect and SUSPECT.search(text):
            self._suspect = True

    def _end_paragraph(self) -> None:
        if self._paragraph or self._atoms:
            self._inline.paragraph("".join(self._paragraph), self._atoms, self._raw)
        self._paragraph, self._atoms, self._suspect = [], [], False
