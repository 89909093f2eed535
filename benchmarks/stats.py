"""Medians with their spread, and markdown tables."""

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """The median of the rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 0 if abs(self.median) >= 100 else 1 if abs(self.median) >= 20 else 2
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f}–{self.high:,.{digits}f})"


def spread(values: Iterable[float]) -> Spread | None:
    """Return the median; None where nothing could be measured."""
    kept = list(values)
    return Spread(statistics.median(kept), min(kept), max(kept)) if kept else None


def ratio(these: Sequence[float], those: Sequence[float]) -> Spread | None:
    """Round by round, then the median. A round in which the other took no measurable time counts for nothing."""
    return spread(a / b for a, b in zip(these, those, strict=False) if b)


def beyond(these: Sequence[float], those: Sequence[float]) -> Spread | None:
    """Return the difference, round by round, then the median."""
    return spread(a - b for a, b in zip(these, those, strict=False))


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; a cell that is None is a dash."""
    lines = [head, re.sub(r"[^|]+", "---", head)]
    lines += [" | ".join("–" if cell is None else str(cell) for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)
