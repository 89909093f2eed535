"""Turn what a program writes to a terminal into the lines that its window shows."""

from __future__ import annotations

import re
from itertools import groupby

import msgspec

from cnllm.cli.output.terminal import display_width

__all__ = ["PLAIN", "Run", "Style", "lines"]

_PIECE = re.compile(
    r"(?P<mode>\x1b\[[?<=>][0-9;]*[a-z]|\x1b\(B|\x0f|\x1b7\x1b\[r\x1b8|\x1b\]0;[^\x07]*\x07)"  # changes no character
    r"|\x1b\[(?P<numbers>[0-9;]*)(?P<letter>[A-Za-z])|(?P<char>.)",
    re.DOTALL,
)


class Style(msgspec.Struct, frozen=True):
    """The look of a character. `color` is the number of ANSI's 16 colors, or None for the color of text."""

    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    color: int | None = None


class Run(msgspec.Struct, frozen=True):
    """Characters of one line that look the same. `width` counts columns: a Chinese character takes two."""

    column: int
    width: int
    text: str
    style: Style


PLAIN = Style()


def lines(output: str, width: int) -> list[list[Run]]:
    """Return the lines of a window of this width after the output. Raises `ValueError` for an unknown sequence."""
    rows: list[dict[int, tuple[str, Style]]] = [{}]
    row, column, style = 0, 0, PLAIN
    for piece in _PIECE.finditer(output):
        char, letter, numbers = piece["char"], piece["letter"], piece["numbers"] or ""
        if piece["mode"]:
            continue
        if letter == "m":
            style = _styled(style, [int(number or 0) for number in numbers.split(";")])
        elif letter == "F":
            row, column = max(0, row - int(numbers or 1)), 0
        elif letter == "A":
            row = max(0, row - int(numbers or 1))
        elif letter == "K" and numbers == "2":
            rows[row] = {}
        elif letter == "J" and not int(numbers or 0):
            del rows[row + 1 :]
            rows[row] = {place: cell for place, cell in rows[row].items() if place < column}
        elif letter or char == "\x1b":
            raise ValueError(f"no window is drawn for {piece[0]!r}: add it to docs/generate/terminal_screen.py")
        elif char == "\r":
            column = 0
        else:
            size = display_width(char)
            if char == "\n" or column + size > width:
                row, column = row + 1, 0
                if row == len(rows):
                    rows.append({})
            if char != "\n":
                rows[row][column] = (char, style)
                column += size
    return [_runs(cells) for cells in rows]


def _runs(cells: dict[int, tuple[str, Style]]) -> list[Run]:
    """Join the characters of a line that look the same."""
    runs = []
    for style, group in groupby(sorted(cells.items()), key=lambda item: item[1][1]):
        members = list(group)
        text = "".join(char for _, (char, _) in members)
        runs.append(Run(members[0][0], display_width(text), text, style))
    return runs


def _styled(style: Style, numbers: list[int]) -> Style:
    """Return the style after a sequence of SGR (ECMA-48, 8.3.117; the bright colors are xterm's)."""
    for number in numbers:
        match number:
            case 0:
                style = PLAIN
            case 1:
                style = msgspec.structs.replace(style, bold=True)
            case 2:
                style = msgspec.structs.replace(style, dim=True)
            case 3:
                style = msgspec.structs.replace(style, italic=True)
            case 4:
                style = msgspec.structs.replace(style, underline=True)
            case 22:
                style = msgspec.structs.replace(style, bold=False, dim=False)
            case 39:
                style = msgspec.structs.replace(style, color=None)
            case _ if 30 <= number <= 37:
                style = msgspec.structs.replace(style, color=number - 30)
            case _ if 90 <= number <= 97:
                style = msgspec.structs.replace(style, color=number - 82)
            case _:
                raise ValueError(f"SGR {number} has no picture yet: add it to docs/generate/terminal_screen.py")
    return style
