"""Draw the plot that `cnllm batch` writes, from the figures of a real run in `batch_run.json`.

The run: 1,500 rows, a simulated glm-4.7 over a socket, and a limit of 3,000 requests a minute in the registry. The file
has the width of an interval in seconds, and for each interval the answers, the refusals and the sum of the seconds.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cnllm.batch.plot import draw_plot
from cnllm.batch.report import Interval
from docs.generate.shades import dark_only, light_only

__all__ = ["dark", "light"]

_RUN = Path(__file__).with_name("batch_run.json")


class _Run(msgspec.Struct, frozen=True):
    width: float
    intervals: list[tuple[int, int, float]]


def light() -> str:
    """Return the plot with its light colors alone."""
    return light_only(_plot())


def dark() -> str:
    """Return the plot with its dark colors alone."""
    return dark_only(_plot())


def _plot() -> str:
    run = msgspec.json.decode(_RUN.read_bytes(), type=_Run)
    intervals = [
        Interval(answers=answers, refused=refused, latency=latency) for answers, refused, latency in run.intervals
    ]
    return draw_plot(intervals, run.width)
