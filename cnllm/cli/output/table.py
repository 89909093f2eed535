"""Format tables and lists of fields for people."""

from __future__ import annotations

from collections.abc import Sequence

from cnllm.cli.output import terminal

__all__ = ["fields", "table"]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """Return rows under their heads, as wide as necessary. The columns in `right` are right-aligned."""
    cells = [[terminal.escape(cell.replace("\n", " ")) for cell in row] for row in [heads, *rows]]
    widths = [max(terminal.display_width(row[column]) for row in cells) for column in range(len(heads))]
    lines = []
    for row in cells:
        padded = [
            f"{_padding(cell, width)}{cell}" if column in right else f"{cell}{_padding(cell, width)}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _padding(cell: str, width: int) -> str:
    return " " * (width - terminal.display_width(cell))


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Return names and values, one per line, without empty values."""
    filled = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in filled), default=0)
    return "\n".join(f"  {name.ljust(width)}  {terminal.escape(value)}" for name, value in filled)
