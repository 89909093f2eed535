"""Columns that fit: what is long is shortened, so that a line stays a line."""

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
    """How wide a line may be: the terminal's width, or 100 columns where there is none."""
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
    """A table no wider than `width`, as far as the columns in `give` can be narrowed, each no further than it says.

    The widest gives first. A cell that is too long loses its end, in the columns of `middles` its middle, and in those
    of `addresses` what stands between the host and the end.
    """
    widths = [max(display_width(line[place]) for line in [heads, *rows]) for place in range(len(heads))]
    over = sum(widths) + _GAP * (len(heads) - 1) - (width or line_width())
    while over > 0 and (open_ := [place for place, least in give.items() if widths[place] > least]):
        widest = max(open_, key=lambda place: widths[place])
        widths[widest] -= 1
        over -= 1
    ways = [
        truncate_url if p in addresses else truncate_middle if p in middles else truncate_end for p in range(len(heads))
    ]
    shown = [[way(cell, width) for way, cell, width in zip(ways, line, widths, strict=True)] for line in rows]
    return table([truncate_middle(head, width) for head, width in zip(heads, widths, strict=True)], shown, right)


def truncate_end(text: str, width: int) -> str:
    """The text, without its end where it is too long."""
    return text if display_width(text) <= width else _begin(text, width - 1) + "…"


def truncate_middle(text: str, width: int) -> str:
    """The text, without its middle where it is too long: the end of a path says most."""
    if display_width(text) <= width:
        return text
    tail = (width - 1) * 3 // 5
    return f"{_begin(text, width - 1 - tail)}…{_begin(text[::-1], tail)[::-1]}"


def _begin(text: str, width: int) -> str:
    """As much of a text as fits into so many columns."""
    for end, taken in enumerate(accumulate(map(display_width, text)), 1):
        if taken > width:
            return text[: end - 1]
    return text


def truncate_url(text: str, width: int) -> str:
    """A URL without its scheme, or a repository with a path: if too long, its host (owner) and its end."""
    host = re.split(r"[/:@#]", text, maxsplit=1)[0]
    room_left = width - len(host) - 2
    if len(text) <= width or room_left < 4:
        return truncate_middle(text, width)
    return f"{host}{text[len(host)]}…{text[len(text) - room_left :]}"
