"""Draw the plot of the benchmarks for a light page and for a dark one, from `benchmarks/plot.svg`."""

from __future__ import annotations

from pathlib import Path

from docs.generate.shades import dark_only, light_only

__all__ = ["dark", "light"]

_PLOT = Path(__file__).parents[2] / "benchmarks" / "plot.svg"


def light() -> str:
    """Return the plot with its light colors alone."""
    return light_only(_PLOT.read_text(encoding="utf-8"))


def dark() -> str:
    """Return the plot with its dark colors alone."""
    return dark_only(_PLOT.read_text(encoding="utf-8"))
