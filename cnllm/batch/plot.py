"""Draw the rate and the latency of a run over time, as SVG, and the page of every such plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cnllm.batch.report import Interval

__all__ = ["PAGE_WIDTH", "draw_plot", "heading", "is_plot", "page", "plot_path"]

PAGE_WIDTH = 760
_HEIGHT, _LEFT, _RIGHT, _TOP, _GAP, _PANEL = 452, 64, 24, 52, 72, 140

_TITLE = "Rate and latency of a batch over time"
_START = 1024
_STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .page { fill: #ffffff; stroke: #d0d7de; }
  .title { font-size: 14px; font-weight: 600; }
  .tick { fill: #59636e; font-size: 11px; }
  .grid { stroke: #d8dee4; }
  .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
  .rate { stroke: #0969da; } .latency { stroke: #1a7f37; }
  .refused { fill: #cf222e; }
  .rate-key { fill: #0969da; } .latency-key { fill: #1a7f37; } .most-key { fill: #b6d6f8; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; stroke: #30363d; }
    .tick { fill: #9198a1; }
    .grid { stroke: #262c36; }
    .rate { stroke: #58a6ff; } .latency { stroke: #3fb950; }
    .refused { fill: #f85149; }
    .rate-key { fill: #58a6ff; } .latency-key { fill: #3fb950; } .most-key { fill: #1f3f66; }
  }
"""


def plot_path(out: Path) -> Path:
    """Return the path of the plot beside an output."""
    return out.with_name(f"{out.name}.svg")


def is_plot(path: Path) -> bool:
    """Whether a file is the plot of a batch, or empty."""
    with path.open("rb") as file:
        start = file.read(_START)
    return not start or (start.startswith(b"<svg ") and f">{_TITLE}</title>".encode() in start)


def draw_plot(intervals: Sequence[Interval], width: float) -> str:
    """Return the plot. Each interval is `width` seconds; refusals are drawn as bars in the upper panel."""
    rates = [interval.answers / width for interval in intervals]
    refused = [interval.refused / width for interval in intervals]
    latencies = [interval.latency / interval.answers if interval.answers else None for interval in intervals]
    total = max(len(intervals), 1) * width
    most_rate = max([*rates, *refused, 0.0]) or 1.0
    most_latency = max((value for value in latencies if value is not None), default=0.0) or 1.0
    step = (PAGE_WIDTH - _LEFT - _RIGHT) / max(len(intervals), 1)
    lower = _TOP + _PANEL + _GAP
    parts = [
        *page(_TITLE, _HEIGHT),
        *_panel(_TOP, most_rate, total),
        *heading(_TOP, ("answers a second", "rate-key"), ("refusals a second", "refused")),
        *_bars(refused, most_rate, step),
        _line(rates, most_rate, _TOP, step, "rate"),
        *_panel(lower, most_latency, total),
        *heading(lower, ("seconds for an answer", "latency-key")),
        _line(latencies, most_latency, lower, step, "latency"),
    ]
    return "\n".join([*parts, "</svg>", ""])


def page(title: str, height: int) -> list[str]:
    """Return the beginning of a plot: its size, title, colors and page. It ends with `</svg>`."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE_WIDTH} {height}" width="{PAGE_WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="t">',
        f'<title id="t">{title}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{PAGE_WIDTH - 1}" height="{height - 1}" rx="8"/>',
    ]


def heading(top: float, *keys: tuple[str, str]) -> list[str]:
    """Name what a panel shows, each after a square of its color."""
    out, x = [], float(_LEFT)
    for name, kind in keys:
        out.append(f'<rect class="{kind}" x="{x:.1f}" y="{top - 27}" width="11" height="11" rx="2"/>')
        out.append(f'<text class="title" x="{x + 18:.1f}" y="{top - 17}">{name}</text>')
        x += 56 + 7.5 * len(name)
    return out


def _panel(top: float, most: float, total: float) -> list[str]:
    bottom, right = top + _PANEL, PAGE_WIDTH - _RIGHT
    out = []
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * _PANEL
        out.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        out.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{most * share:.3g}</text>')
    for share in (0.0, 0.5, 1.0):
        x = _LEFT + share * (right - _LEFT)
        anchor = "start" if share == 0 else "middle" if share < 1 else "end"
        time = f"{total * share:.4g} s"
        out.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="{anchor}">{time}</text>')
    return out


def _bars(values: Sequence[float], most: float, step: float) -> list[str]:
    out = []
    for index, value in enumerate(values):
        if value:
            height = value / most * _PANEL
            place = f'x="{_LEFT + index * step:.1f}" y="{_TOP + _PANEL - height:.1f}"'
            out.append(f'<rect class="refused" {place} width="{max(step - 0.5, 0.5):.1f}" height="{height:.1f}"/>')
    return out


def _line(values: Sequence[float | None], most: float, top: float, step: float, kind: str) -> str:
    """Draw a line. One value alone becomes a line across the panel, as a point has no length."""
    half = step / 2 if len(values) < 2 else 0.0
    points = [
        f"{_LEFT + (index + 0.5) * step + shift:.1f},{top + _PANEL * (1 - value / most):.1f}"
        for index, value in enumerate(values)
        if value is not None
        for shift in ((-half, half) if half else (0.0,))
    ]
    return f'<polyline class="line {kind}" points="{" ".join(points)}"/>'
