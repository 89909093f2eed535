"""Read the blocks of Markdown line by line: which line is code, which stands in a block quote, which is prose.

It follows CommonMark for containers (block quotes and list items) and leaves (fences, indented code, raw HTML,
paragraphs), as far as quoting needs it. Each line is read once, and the state is small.
"""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["Kind", "MarkdownStructure"]

Kind = Literal["blank", "code", "raw", "prose"]

_DEEPEST = 64  # containers
_QUOTE = re.compile(r" {0,3}> ?")
_ITEM = re.compile(r" {0,3}(?:[-+*]|(\d{1,9})[.)])(?= |$)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")
_FENCE = re.compile(r" {0,3}(?:(`{3,})[^`]*|(~{3,}).*)$")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RAW = re.compile(r" {0,3}<(?:(pre|script|style|textarea|xmp)(?=[\s>]|$)|(!--)|(\?)|(!\[CDATA\[)|(![A-Za-z]))", re.I)
_RAW_ENDS = tuple(
    re.compile(end, re.IGNORECASE) for end in (r"</(?:pre|script|style|textarea|xmp)>", r"-->", r"\?>", r"\]\]>", r">")
)


class MarkdownStructure:
    """The open blocks of a document before its next line.

    A container is 0 for a block quote, or the columns by which the content of a list item is indented.
    """

    def __init__(self) -> None:
        self._containers: list[int] = []
        self._fence = ""
        self._opens_fence = False  # the last line opened the fence
        self._raw: re.Pattern[str] | None = None
        self._paragraph = False

    @property
    def in_quote(self) -> bool:
        """Whether the last line stands in a block quote."""
        return 0 in self._containers

    @property
    def in_fence(self) -> bool:
        """Whether a code fence continues behind the last line."""
        return bool(self._fence)

    @property
    def in_raw(self) -> bool:
        """Whether raw HTML continues behind the last line."""
        return self._raw is not None

    def end_raw(self, text: str) -> None:
        """End raw HTML if its end stands in this text, the rest of the last line."""
        if self._raw is not None and self._raw.search(text):
            self._raw = None

    @property
    def begins_fence(self) -> bool:
        """Whether the last line begins a fence of backticks, unless another backtick follows on it."""
        return self._opens_fence and self._fence[:1] == "`"

    def cancel_fence(self) -> None:
        """Turn the fence into a paragraph, because another backtick follows on its line."""
        self._fence, self._opens_fence, self._paragraph = "", False, True

    def read(self, line: str) -> tuple[Kind, str, bool]:
        """Return (kind, content, begins a paragraph) of the next line, which has no line break."""
        self._opens_fence = False
        if "\t" in line:
            line = line.expandtabs(4)
        rest, matched = self._match_containers(line)
        all_continue = matched == len(self._containers)
        if self._raw is not None:
            if all_continue:
                self.end_raw(rest)
                return "raw", rest, False
            self._raw = None
        if self._fence:
            if all_continue:
                self._close_fence(rest)
                return "code", rest, False
            self._fence = ""
        return self._open(rest, matched)

    def _match_containers(self, line: str) -> tuple[str, int]:
        """Return (the rest of a line, the number of open containers that continue in it)."""
        for number, container in enumerate(self._containers):
            if container == 0:
                match = _QUOTE.match(line)
                if match is None:
                    return line, number
                line = line[match.end() :]
            elif not line.strip():
                line = ""
            elif line.startswith(" " * container):
                line = line[container:]
            else:
                return line, number
        return line, len(self._containers)

    def _close_fence(self, line: str) -> None:
        """Close the fence if a line ends it."""
        bare = line.strip()
        if len(line) - len(line.lstrip()) < 4 and bare.startswith(self._fence) and not bare.strip(self._fence[0]):
            self._fence = ""

    def _open(self, rest: str, matched: int) -> tuple[Kind, str, bool]:
        """Read a line that may begin new blocks."""
        continues = self._paragraph
        continued = self._containers[:matched]
        if not rest.strip():
            return self._blank(continued)
        new_containers: list[int] = []
        while len(continued) + len(new_containers) < _DEEPEST:
            is_same = continues and not new_containers and matched == len(self._containers)
            if (match := _QUOTE.match(rest)) is not None:
                new_containers.append(0)
                rest = rest[match.end() :]
            elif (item := self._item_indent(rest, continues=is_same)) is not None:
                new_containers.append(item)
                rest = rest[item:]
            else:
                break
        if not rest.strip():
            return self._blank(continued + new_containers)
        fence = _FENCE.match(rest)
        raw = _RAW.match(rest)
        is_own_block = fence is not None or raw is not None or _HEADING.match(rest) or _RULE.match(rest)
        deep = rest.startswith("    ")
        if new_containers or is_own_block or not continues:
            self._containers = continued + new_containers
            continues = False
        # else the line continues the paragraph, perhaps lazily: its containers stay open
        if fence is not None:
            self._paragraph, self._fence, self._opens_fence = False, fence[1] or fence[2], True
            return "code", rest, False
        if raw is not None:
            self._paragraph, self._raw = False, _RAW_ENDS[(raw.lastindex or 1) - 1]
            self.end_raw(rest[raw.end() :])
            return "raw", rest, True
        if deep and not continues:
            self._paragraph = False
            return "code", rest, False
        self._paragraph = not is_own_block
        return "prose", rest, not continues

    def _blank(self, containers: list[int]) -> tuple[Kind, str, bool]:
        """Read a line that is blank in these containers."""
        self._containers, self._paragraph = containers, False
        return "blank", "", False

    def _item_indent(self, line: str, *, continues: bool) -> int | None:
        """Return the columns by which the content of a list item is indented; None where none begins."""
        match = _ITEM.match(line)
        if match is None or _RULE.match(line):
            return None
        content = line[match.end() :]
        if continues and (not content.strip() or match[1] not in (None, "1")):
            return None
        spaces = len(content) - len(content.lstrip(" "))
        return match.end() + (spaces if 0 < spaces < 5 and content.strip() else 1)
