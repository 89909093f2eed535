"""Recognise markers that begin and end nothing, and join the white space around a removed block."""

from __future__ import annotations

import re
from collections.abc import Callable

from cnllm.leaks.inline import SUSPECT, open_end, quotes_next
from cnllm.leaks.markers import Markers

__all__ = ["LOOKAHEAD", "LOOKBEHIND", "TagRun", "is_mentioned", "joining_space", "tag_end"]

BeginsBlock = Callable[[str, tuple[int, int, int]], bool | None]
"""Tells whether the marker that was found in a text begins a block; None if more text is needed."""

LOOKBEHIND = 64  # characters of white space before a block that count
LOOKAHEAD = 256  # characters behind a marker that decide whether a block begins, or whether the marker stands alone

_WORD = r"[\w:./@-]"
_ATTRIBUTE = rf"[\w:.-]{{1,64}}\s{{0,2}}=\s{{0,2}}(?:\"[^\"<>]{{0,256}}\"|'[^'<>]{{0,256}}'|{_WORD}{{1,128}})\s{{0,4}}"
_ATTRIBUTE_SO_FAR = rf"[\w:.-]{{1,64}}\s{{0,2}}(?:=\s{{0,2}}(?:\"[^\"<>]{{0,256}}|'[^'<>]{{0,256}}|{_WORD}{{0,128}})?)?"
_TAG_END = re.compile(rf"\s{{0,4}}(?:[\"']?{_WORD}{{1,128}}[\"']?\s{{0,4}}|(?:{_ATTRIBUTE}){{1,8}})/?>")
_TAG_SO_FAR = re.compile(
    rf"\s{{0,4}}(?:[\"']?{_WORD}{{0,128}}[\"']?\s{{0,4}}|(?:{_ATTRIBUTE}){{0,8}}(?:{_ATTRIBUTE_SO_FAR})?)/?\Z"
)
_SPACE = re.compile(r"\s*")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_SPAN = 2048  # characters over which a code span may reach
_AROUND = {"(": ")", "[": "]", "{": "}", "（": "）", "【": "】", "*": "*", "_": "_"}
"""Marks that show, right around a tag, that it is only mentioned."""
_LITERAL = re.compile(r"(?:\\|(?:^|\W)[rbfu]{1,2}[\"'])\Z", re.IGNORECASE)  # an escape, or a string of Python begins


def tag_end(text: str, start: int, end: int, *, final: bool) -> int | None:
    """Return the end of the tag that a marker begins, 0 if it is no tag; None if more text is needed."""
    if text.rfind("<", start, end) <= text.rfind(">", start, end):
        return end
    if (match := _TAG_END.match(text, end)) is not None:
        return match.end()
    return None if not final and _TAG_SO_FAR.match(text, end) else 0


class TagRun:
    """Markers and tags in a row, with only white space between them: they are read once, not again for each of them.

    All positions count from the start of the text that was fed.
    """

    def __init__(self) -> None:
        self.start = self.end = self.line_end = -1  # of the run, and the position behind its last line break

    def stands_alone(
        self, text: str, end: int, offset: int, markers: Markers, begins: BeginsBlock, *, prose: bool, final: bool
    ) -> bool | None:
        """Whether the marker that ends at `end` is alone on its line, or at the end of the text; None if unknown.

        `prose`: text stands before it on its line. `final`: the text ends here. `offset` is the position of the text.
        """
        stop = min(len(text), end + LOOKAHEAD)
        position = end
        if self.start <= end + offset <= self.end:
            position = min(self.end - offset, len(text))
        while True:
            space = _SPACE.match(text, position)
            assert space is not None
            line = text.rfind("\n", position, space.end()) + 1
            position = space.end()
            self.extend(space.start() + offset, position + offset, line and line + offset)
            if self.line_end > end + offset and not prose:
                return True
            if position >= stop:
                break
            if not final and markers.is_beginning(text, position):  # of a marker, or of a longer one than stands there
                return None
            match = markers.match(text, position)
            if match is None:
                return False
            begins_block = begins(text, match)
            if begins_block:
                return not prose
            following = None if begins_block is None else tag_end(text, match[0], match[1], final=final)
            if following is None:
                return None
            if following == 0:
                return False
            self.extend(position + offset, following + offset, 0)
            position = following
        if position >= len(text):
            return True if final else None if position - end < LOOKAHEAD else not prose
        return not prose

    def extend(self, start: int, end: int, line_end: int) -> None:
        """Add what was read from one tag's end to the next: `line_end` is 0 where no line ends between them."""
        if not self.start <= start <= self.end:
            self.start = start
            self.line_end = -1
        self.end = end
        self.line_end = line_end or self.line_end


def is_mentioned(before: str, text: str, ticks: int, *, final: bool) -> bool | None:
    """Whether a tag between two texts is only mentioned; None if more text is needed.

    `before` is the end of its paragraph, `ticks` is the number of backticks that may have begun a code span there. A
    tag is mentioned right behind an opening quotation mark or an escape, in brackets or between stars of its own, and
    in a code span, an HTML element or a comment that ends in the text behind it.
    """
    if (bare := before.rstrip()).endswith(("«", "‹")):  # French puts a space behind them
        before = bare
    if _LITERAL.search(before[-4:]):
        return True
    if ((before and SUSPECT.match(before, len(before) - 1)) or "|" in before) and quotes_next(before):
        return True
    if (closer := _AROUND.get(before[-1:])) is not None:
        if not text and not final:
            return None
        if text.startswith(closer):
            return True
    ends = [rf"(?<!`)`{{{ticks}}}(?!`)"] if ticks else []
    ends += [re.escape(end)] if "<" in before and (end := open_end(before)) else []
    return _ends_behind(text, re.compile("|".join(ends), re.IGNORECASE), final=final) if ends else False


def _ends_behind(text: str, end: re.Pattern[str], *, final: bool) -> bool | None:
    """Whether what is open before a text ends in its first paragraph; None if more text is needed."""
    window = text[:_SPAN]
    found = end.search(window)
    paragraph = _PARAGRAPH_END.search(window)
    if paragraph is not None and (found is None or paragraph.start() < found.start()):
        return False
    if found is not None and (final or found.end() < len(window)):
        return True
    return None if not final and len(text) < _SPAN else found is not None


def joining_space(before: str, gap: str) -> str:
    """Return the white space to write in place of a removed block.

    `before` is the text before the block, `gap` the white space behind it. White space on both sides counts once,
    the end of a paragraph stays one, and a line that follows keeps its indentation.
    """
    if not before:
        return ""
    space = before[len(before.rstrip()) :]
    if not space:
        return gap
    lines = gap.split("\n")
    breaks = space.count("\n")
    if len(lines) > 2 and breaks < 2:  # the end of a paragraph
        return "\n" * (2 - breaks) + lines[-1]
    return lines[-1] if len(lines) > 1 and breaks else ""
