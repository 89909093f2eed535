"""Fit columns into a line: shorten long cells, so that a row stays one line."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate

from cnllm.cli.output.table import table
from cnllm.cli.output.terminal import display_width

__all__ = ["fit_columns", "line_width", "truncate_end", "truncate_middle", "truncate_url"]

WIDTH = 100
_GAP = 2


def line_width() -> int:
    """Return the width of a line: the terminal's width, or 100 columns without a terminal."""
    return max(60, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stdout.isatty() else WIDTH


def fit_columns(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    give: Mapping[int, int],
    middles: frozenset[int] = frozenset(),
    addresses: frozenset[int] = frozenset(),
    width: int | None = None,
    right: frozenset[int] = frozenset(),
) -> str:
    """Return a table no wider than `width`, if the columns in `give` can be narrowed so far.

    `give` holds the least width of each column that may be narrowed; the widest is narrowed first. A long cell loses
    its end, in the columns of `middles` its middle, and in those of `addresses` the text between host and end.
    """
    widths = [max(display_width(line[column]) for line in [heads, *rows]) for column in range(len(heads))]
    excess = sum(widths) + _GAP * (len(heads) - 1) - (width or line_width())
    while excess > 0 and (wide := [column for column, least in give.items() if widths[column] > least]):
        widest = max(wide, key=lambda column: widths[column])
        widths[widest] -= 1
        excess -= 1
    truncations = [
        truncate_url if p in addresses else truncate_middle if p in middles else truncate_end for p in range(len(heads))
    ]
    cells = [
        [truncate(cell, width) for truncate, cell, width in zip(truncations, line, widths, strict=True)]
        for line in rows
    ]
    return table([truncate_middle(head, width) for head, width in zip(heads, widths, strict=True)], cells, right)


def truncate_end(text: str, width: int) -> str:
    """Cut the end of a text that is too long."""
    return text if display_width(text) <= width else _begin(text, width - 1) + "…"


def truncate_middle(text: str, width: int) -> str:
    """Cut the middle of a text that is too long: the end of a path says most."""
    if display_width(text) <= width:
        return text
    tail = (width - 1) * 3 // 5
    return f"{_begin(text, width - 1 - tail)}…{_begin(text[::-1], tail)[::-1]}"


def _begin(text: str, width: int) -> str:
    """Return the beginning of a text that fits into the width."""
    for end, used in enumerate(accumulate(map(display_width, text)), 1):
        if used > width:
            return text[: end - 1]
    return text


def truncate_url(text: str, width: int) -> str:
    """Shorten a URL without scheme, or a repository with a path, to its host (owner) and its end."""
    host = re.split(r"[/:@#]", text, maxsplit=1)[0]
    tail_width = width - len(host) - 2
    if len(text) <= width or tail_width < 4:
        return truncate_middle(text, width)
    return f"{host}{text[len(host)]}…{text[len(text) - tail_width :]}"
