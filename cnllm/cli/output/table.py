"""Format tables and lists of fields for people."""

from __future__ import annotations

from collections.abc import Sequence

from cnllm.cli.output import terminal

__all__ = ["fields", "table"]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """Return rows under their heads, as wide as necessary. The columns in `right` are right-aligned."""
    columns = [_padded(cells, is_right=column in right) for column, cells in enumerate(zip(heads, *rows, strict=True))]
    return "\n".join([line.rstrip() for line in map("  ".join, zip(*columns, strict=True))])


def _padded(cells: Sequence[str], *, is_right: bool) -> list[str]:
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
    """Return names and values, one per line, without empty values."""
    filled = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in filled), default=0)
    return "\n".join(f"  {name.ljust(width)}  {terminal.escape(value)}" for name, value in filled)
