"""Draw the plot of the benchmarks for a light page and for a dark one.

`benchmarks/plot.svg` has both in one file and follows the system; a page of the manual has a switch of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["dark", "light"]

_PLOT = Path(__file__).parents[2] / "benchmarks" / "plot.svg"
_DARK = re.compile(r"\n  @media \(prefers-color-scheme: dark\) \{\n(.*?)\n  \}\n", re.DOTALL)


def light() -> str:
    """Return the plot with its light colors alone."""
    return _DARK.sub("\n", _plot())


def dark() -> str:
    """Return the plot with its dark colors alone. Raises `ValueError` where it has none."""
    plot = _plot()
    if not (rules := _DARK.search(plot)):
        raise ValueError(f"{_PLOT.name} has no colors for a dark page")
    return plot[: rules.start()] + "\n" + rules[1] + "\n" + plot[rules.end() :]


def _plot() -> str:
    return _PLOT.read_text(encoding="utf-8")
