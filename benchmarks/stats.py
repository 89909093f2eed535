"""Medians with their spread, goals, and the markdown they are printed as."""

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
    """None where nothing could be measured."""
    kept = list(values)
    return Spread(statistics.median(kept), min(kept), max(kept)) if kept else None


def ratio(these: Sequence[float], those: Sequence[float]) -> Spread | None:
    """Round by round, then the median."""
    return spread(a / b for a, b in zip(these, those, strict=False))


def beyond(these: Sequence[float], those: Sequence[float]) -> Spread | None:
    """The difference, round by round, then the median."""
    return spread(a - b for a, b in zip(these, those, strict=False))


@dataclass(frozen=True)
class Goal:
    """One target: what was measured beside what it should be."""

    what: str
    measured: Spread | None
    limit: float
    unit: str = "x"
    at_most: bool = True

    def row(self) -> tuple[object, ...]:
        goal = f"{'≤' if self.at_most else '≥'} {self.limit:g} {self.unit}"
        if self.measured is None:
            return self.what, "not measured", goal, None
        met = (self.measured.median <= self.limit) == self.at_most or self.measured.median == self.limit
        return self.what, f"{self.measured} {self.unit}", goal, "yes" if met else "**no**"


@dataclass
class Section:
    """One suite's goals, and the figures behind them."""

    title: str
    head: str
    goals: list[Goal] = field(default_factory=list)
    rows: list[Sequence[object]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        return "\n".join([f"## {self.title}\n", table(self.head, self.rows), "", *(f"- {r}" for r in self.remarks)])


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    lines = [head, re.sub(r"[^|]+", "---", head)]
    lines += [" | ".join("–" if cell is None else str(cell) for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)
