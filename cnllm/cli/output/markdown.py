"""Show Markdown on a terminal while it arrives.

A block is printed as it comes. When it has ended, it is replaced once by its formatted form; nothing before it is ever
redrawn. A block stays as it came where formatting could hide or change something (HTML, pictures, formulas), where it
is higher than the screen, and where terminals disagree on the width of a character. Code keeps every character, so that
it can be copied.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from io import StringIO

from cnllm.cli.output.terminal import display_width

__all__ = ["MarkdownBlocks", "is_available"]

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_HEADING = re.compile(r" {0,3}#{1,6}\s")
_MARKUP = re.compile(r"[*_`~|\\]|^ {0,3}(?:#{1,6}\s|>|[-+]\s|\d{1,9}[.)]\s|-{3,}\s*$|={3,}\s*$)|\]\(", re.MULTILINE)
_INNER_FENCE = re.compile(r"^(\s*(?:`{3,}|~{3,}))\S*", re.MULTILINE)
_QUOTE = re.compile(r"^(?: {0,3}>)+", re.MULTILINE)
_CONTROL = re.compile(r"\x1b\[[0-9;]*m")
_UNCERTAIN = re.compile(
    r"[\t\u0300-\u036f\u0590-\u0fff\u1000-\u109f\u1780-\u17ff\u200b-\u200f\u2600-\u27bf\ufe00-\ufe0f\U0001f000-\U0001faff]"
)
"""Characters whose width depends on the terminal: tabs, accents, scripts with joined letters, emoji."""

_SIGNS = frozenset("<>$\\&")
"""Signs that formatting may drop and that mean something in HTML, formulas and paths."""


def is_available() -> bool:
    """Whether rich is installed. It is not imported."""
    return find_spec("rich") is not None


class MarkdownBlocks:
    """The text of one answer on a terminal. `put` writes to the terminal; `size` returns its columns and lines."""

    def __init__(self, put: Callable[[str], None], size: Callable[[], tuple[int, int]] | None = None) -> None:
        self._put = put
        self._size = size or shutil.get_terminal_size
        self._lines: list[str] = []  # the lines of this block that have ended
        self._open = ""  # the line that has not
        self._fence = ""  # the marks that close a code block
        self._is_code = False  # the block is code alone

    def write(self, text: str) -> None:
        """Print text, and format each block that ends in it."""
        start = 0
        while (end := text.find("\n", start) + 1) > 0:
            self._put(text[start:end])
            self._open += text[start : end - 1]
            self._end_line()
            start = end
        if start < len(text):
            self._put(text[start:])
            self._open += text[start:]

    def end(self) -> None:
        """End the text: end its last line, and format its last block."""
        if self._open:
            self.write("\n")
        self._finish()
        self._fence, self._is_code = "", False

    def _end_line(self) -> None:
        line, self._open = self._open, ""
        fence = _FENCE.match(line)
        if self._fence:
            self._lines.append(line)
            if fence and not fence[3] and fence[2].startswith(self._fence):
                self._fence = ""
                if self._is_code:
                    self._finish()
        elif fence:
            if self._lines and not fence[1]:
                self._finish(line)
            self._is_code = not self._lines
            self._fence = fence[2]
            self._lines.append(line)
        elif not line.strip():
            self._finish(line)
        elif _HEADING.match(line):
            self._finish(line)
            self._lines = [line]
            self._finish()
        else:
            self._lines.append(line)

    def _finish(self, *after: str) -> None:
        """Replace the block by its formatted form. `after` are lines that were printed after it."""
        lines, self._lines = self._lines, []
        is_code, self._is_code = self._is_code, False
        columns, height = self._size()
        if not lines or _UNCERTAIN.search("\n".join(lines)):
            return
        rows = sum(_rows(line, columns) for line in [*lines, *after])
        if rows >= height:
            return
        formatted = _format_code(lines, columns) if is_code else _format_text(lines, columns)
        if formatted is not None:
            self._put(f"\x1b[{rows}F\x1b[J{formatted}\n" + "".join(f"{line}\n" for line in after))


def _rows(line: str, columns: int) -> int:
    """Return the lines of the terminal that a line takes."""
    rows, column = 1, 0
    for char in line:
        width = display_width(char)
        if column + width > columns:
            rows, column = rows + 1, 0
        column += width
    return rows


def _format_text(lines: Sequence[str], columns: int) -> str | None:
    """Return a block formatted, or None where it has no markup, or where something would be lost."""
    text = "\n".join(lines)
    if not _MARKUP.search(text) or lines[0].startswith("    "):
        return None
    from rich.console import Console
    from rich.markdown import Markdown

    out = StringIO()
    console = Console(file=out, force_terminal=True, width=columns, no_color=_no_color(), highlight=False)
    console.print(Markdown(text, hyperlinks=False, code_theme="ansi_dark"))
    formatted = "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")
    if _HEADING.match(text):
        formatted = formatted.lstrip()  # to the left, where the text below it begins
    return (
        formatted
        if _weight(_QUOTE.sub("", _INNER_FENCE.sub(r"\1", text))) == _weight(_CONTROL.sub("", formatted))
        else None
    )


def _format_code(lines: Sequence[str], columns: int) -> str | None:
    """Return a block of code in colours, with all of its characters."""
    fence = _FENCE.match(lines[0])
    if fence is None or _no_color():
        return None
    from rich.console import Console
    from rich.syntax import Syntax

    is_closed = len(lines) > 1 and _FENCE.match(lines[-1]) is not None
    code = "\n".join(lines[1 : -1 if is_closed else None])
    coloured = Syntax("", fence[3] or "text", theme="ansi_dark").highlight(code)
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=columns, highlight=False)
    console.print(coloured, soft_wrap=True, end="")
    body = out.getvalue().rstrip("\n")
    if _CONTROL.sub("", body) != code.rstrip("\n"):
        return None
    dim, reset = "\x1b[2m", "\x1b[0m"
    last = [f"{dim}{lines[-1]}{reset}"] if is_closed else []
    return "\n".join([f"{dim}{lines[0]}{reset}", *([body] if code else []), *last])


def _weight(text: str) -> Counter[str]:
    """Return how often each letter, digit and weighty sign occurs: formatting may move them, and lose none."""
    return Counter(char for char in text if char.isalnum() or char in _SIGNS)


def _no_color() -> bool:
    return bool(os.environ.get("NO_COLOR"))
