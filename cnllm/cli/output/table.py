"""Format tables and lists of fields for people."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate

from cnllm.cli.language.messages import localize_word
from cnllm.cli.output import terminal
from cnllm.cli.output.terminal import display_width

__all__ = ["fields", "line_width", "table", "truncate_end"]

_WIDTH = 100
_GAP = "  "
_LEAST = 20  # columns of a value


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    give: Mapping[int, int] | None = None,
    middles: Sequence[int] = (),
    addresses: Sequence[int] = (),
) -> str:
    """Return rows under their heads, as wide as necessary. The columns in `right` are right-aligned.

    On a terminal the heads are in the user's language.

    With `give` the table is no wider than a line, if these columns can be narrowed so far: it holds the least width of
    each, and the widest is narrowed first. A long cell loses its end, in the columns of `middles` its middle, and in
    those of `addresses` the text between host and end.
    """
    heads = list(map(localize_word, heads))
    lines = [heads, *rows] if give is None else _fit([heads, *rows], give, middles, addresses)
    columns = [_pad_column(cells, is_right=column in right) for column, cells in enumerate(zip(*lines, strict=True))]
    return "\n".join([line.rstrip() for line in map(_GAP.join, zip(*columns, strict=True))])


def _fit(
    lines: Sequence[Sequence[str]], give: Mapping[int, int], middles: Sequence[int], addresses: Sequence[int]
) -> list[list[str]]:
    """Return the heads and the rows, with the cells of the columns in `give` shortened to fit into a line."""
    widths = [max(map(display_width, cells)) for cells in zip(*lines, strict=True)]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - line_width()
    while excess > 0 and (wide := [column for column, least in give.items() if widths[column] > least]):
        widths[max(wide, key=lambda column: widths[column])] -= 1
        excess -= 1
    cuts = [
        _truncate_url if p in addresses else _truncate_middle if p in middles else truncate_end
        for p in range(len(widths))
    ]
    heads = list(map(_truncate_middle, lines[0], widths))
    return [
        heads,
        *([cut(cell, width) for cut, cell, width in zip(cuts, line, widths, strict=True)] for line in lines[1:]),
    ]


def line_width() -> int:
    """Return the width of a line: the terminal's width, or 100 columns without a terminal."""
    return max(60, shutil.get_terminal_size((_WIDTH, 24)).columns) if sys.stdout.isatty() else _WIDTH


def truncate_end(text: str, width: int) -> str:
    """Cut the end of a text that is too long."""
    return text if display_width(text) <= width else _begin(text, width - 1) + "…"


def _truncate_middle(text: str, width: int) -> str:
    """Cut the middle of a text that is too long: the end of a path says most."""
    if display_width(text) <= width:
        return text
    tail = (width - 1) * 3 // 5
    return f"{_begin(text, width - 1 - tail)}…{_begin(text[::-1], tail)[::-1]}"


def _begin(text: str, width: int) -> str:
    """Return the beginning of a text that fits into the width."""
    for end, columns in enumerate(accumulate(map(display_width, text)), 1):
        if columns > width:
            return text[: end - 1]
    return text


def _truncate_url(text: str, width: int) -> str:
    """Shorten a URL without scheme, or a repository with a path, to its host (owner) and its end."""
    host = re.split(r"[/:@#]", text, maxsplit=1)[0]
    tail_width = width - len(host) - 2
    if len(text) <= width or tail_width < 4:
        return _truncate_middle(text, width)
    return f"{host}{text[len(host)]}…{text[len(text) - tail_width :]}"


def _pad_column(cells: Sequence[str], *, is_right: bool) -> list[str]:
    """Return the cells of a column, all of the same width, without control characters."""
    text = "".join(cells)
    if text.isascii() and text.isprintable():  # most columns: every character takes one place
        size = max(map(len, cells))
        return [cell.rjust(size) for cell in cells] if is_right else [cell.ljust(size) for cell in cells]
    cells = [terminal.escape(cell.replace("\n", " ")) for cell in cells]
    widths = [terminal.display_width(cell) for cell in cells]
    size = max(widths)
    padding = [" " * (size - width) for width in widths]
    pairs = zip(padding, cells, strict=True) if is_right else zip(cells, padding, strict=True)
    return list(map("".join, pairs))


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Return names and values, one per line, without empty values. Names are in the user's language.

    On a terminal a long value goes on in further lines, which break at spaces.
    """
    filled = [(localize_word(name), value) for name, value in pairs if value]
    width = max((display_width(name) for name, _ in filled), default=0)
    columns = terminal.columns(sys.stdout) if sys.stdout.isatty() else None
    lines = list[str]()
    for name, value in filled:
        first, *rest = _value_lines(terminal.escape(value), columns, width + 4)
        lines.append(f"  {name}{' ' * (width - display_width(name))}  {first}")
        lines += [" " * (width + 4) + line for line in rest]
    return "\n".join(lines)


def _value_lines(value: str, columns: int | None, indent: int) -> list[str]:
    """Return a value in lines that fit beside its name."""
    if columns is None or display_width(value) <= columns - indent:
        return [value]
    from cnllm.cli.output.help import wrap

    return wrap(value, max(columns - indent, _LEAST)) or [value]
