"""Where in a text one is: in a fence of code, in quotes, or in prose. A marker that is quoted is talked about."""

from __future__ import annotations

import re

__all__ = ["Place"]

_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[^`\n]*$", re.MULTILINE)
_LINE = 4096  # characters: what is further back on the same line does not count
_NEAR = _LINE // 2
_QUOTES = (("“", "”"), ("「", "」"), ("『", "』"), ("«", "»"), ("《", "》"))
_BEFORE_QUOTE = " \t([{（【:：,，、"


class Place:
    """Follows a text that grows. Reads each character once, and only when somebody asks."""

    __slots__ = ("_fence", "_line", "_long", "_offset", "_piece", "_said")

    def __init__(self, said: list[str]) -> None:
        self._said = said  # pieces, to which others append
        self._piece = self._offset = 0
        self._fence = ""
        self._line = ""
        self._long = False

    def packed(self, start: int) -> None:
        """The pieces from `start` on are about to become one."""
        if self._piece > start:
            self._offset += sum(len(piece) for piece in self._said[start : self._piece])
            self._piece = start

    @property
    def quoted(self) -> bool:
        """Is what comes next part of a fence of code, of code within a line, or of a quotation?"""
        self._read()
        line = self._line[-_NEAR:]
        if self._fence or line.count("`") % 2:
            return True
        if line[-1:] == "'":  # an apostrophe, unless a quotation can begin here
            return len(line) == 1 or line[-2] in _BEFORE_QUOTE
        return line.count('"') % 2 == 1 or any(
            line.count(opening) > line.count(closing) for opening, closing in _QUOTES
        )

    def _read(self) -> None:
        if not self._said:
            return
        new = "".join(self._said[self._piece :])[self._offset :]
        self._piece, self._offset = len(self._said) - 1, len(self._said[-1])
        end = new.rfind("\n")
        if end >= 0:
            lines = self._line + new[:end]
            if self._long:
                lines = lines.partition("\n")[2]
            if "`" in lines or "~" in lines:
                for found in _FENCE.finditer(lines):
                    self._turn(found)
            self._line, self._long = "", False
            new = new[end + 1 :]
        self._line += new
        if len(self._line) > _LINE:
            self._line, self._long = self._line[-_NEAR:], True

    def _turn(self, found: re.Match[str]) -> None:
        mark = found[1]
        if not self._fence:
            self._fence = mark
        elif mark.startswith(self._fence) and found[0].strip() == mark:
            self._fence = ""
