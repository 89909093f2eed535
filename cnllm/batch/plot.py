"""Draw the rate and the latency of a run over time, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cnllm.batch.tally import Interval

__all__ = ["draw_plot", "plot_path"]

_WIDTH, _HEIGHT, _LEFT, _GAP, _PANEL = 720, 400, 56, 44, 140


def plot_path(out: Path) -> Path:
    """Return the path of the plot beside an output."""
    return out.with_name(f"{out.name}.svg")


def draw_plot(intervals: Sequence[Interval], width: float) -> str:
    """Return the plot. Each interval is `width` seconds; refusals are drawn as bars in the upper panel."""
    rates = [interval.answers / width for interval in intervals]
    refused = [interval.refused / width for interval in intervals]
    latencies = [interval.latency / interval.answers if interval.answers else None for interval in intervals]
    total = max(len(intervals), 1) * width
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    top = 28
    most = max([*rates, *refused, 1e-9])
    parts += _panel(top, "answers a second (blue) and refusals a second (red)", most, total)
    step = (_WIDTH - _LEFT - 16) / max(len(intervals), 1)
    for index, value in enumerate(refused):
        if value:
            height = value / most * _PANEL
            parts.append(
                f'<rect x="{_LEFT + index * step:.1f}" y="{top + _PANEL - height:.1f}" '
                f'width="{max(step - 0.5, 0.5):.1f}" height="{height:.1f}" fill="#d33"/>'
            )
    parts.append(_line(rates, most, top, step, "#25c"))
    top += _PANEL + _GAP
    known = [value for value in latencies if value is not None]
    most = max([*known, 1e-9])
    parts += _panel(top, "seconds for an answer", most, total)
    parts.append(_line(latencies, most, top, step, "#283"))
    return "\n".join([*parts, "</svg>", ""])


def _panel(top: float, title: str, most: float, total: float) -> list[str]:
    bottom, right = top + _PANEL, _WIDTH - 16
    out = [f'<text x="{_LEFT}" y="{top - 8}">{title}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * _PANEL
        out.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * share:.3g}</text>')
    for share in (0.0, 0.5, 1.0):
        x = _LEFT + share * (right - _LEFT)
        anchor = "start" if share == 0 else "middle" if share < 1 else "end"
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="{anchor}">{total * share:.4g} s</text>')
    return out


def _line(values: Sequence[float | None], most: float, top: float, step: float, color: str) -> str:
    points = [
        f"{_LEFT + (index + 0.5) * step:.1f},{top + _PANEL * (1 - value / most):.1f}"
        for index, value in enumerate(values)
        if value is not None
    ]
    return f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="1.5"/>'
