"""The plot: CPU time as bars on a logarithmic axis, four panels, plain SVG that reads in light and in dark."""

import math
from collections.abc import Callable
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.cases import EACH, ONE_CALL, REQUEST, STREAMS
from benchmarks.peers import ANY_LLM, CNLLM, FAST, HAND, LITELLM, OPENAI, PYDANTIC_AI, RAW, SECOND, STDLIB
from benchmarks.results import Results, Row
from benchmarks.stats import ratio, spread

_ORDER = (RAW, STDLIB, FAST, CNLLM, SECOND, HAND, OPENAI, PYDANTIC_AI, ANY_LLM, LITELLM)
_SHORT = {RAW: "raw socket + orjson", STDLIB: "http.client + json", HAND: "httpx + orjson"}


class Panel(NamedTuple):
    """One set of bars."""

    title: str
    suite: str
    case: str
    limit: str  # the peer that the others are compared with
    peers: tuple[str, ...]


_ALL = tuple(peer for peer in _ORDER if peer != STDLIB)
PANELS = (
    Panel("Per chunk of a stream, an HTTP chunk each", "stream", EACH, RAW, _ALL),
    Panel("Per request, not streamed", "request", REQUEST, RAW, _ALL),
    Panel(
        "Per first call: a process from start to exit", "cold", ONE_CALL, STDLIB, tuple(p for p in _ORDER if p != RAW)
    ),
    Panel("Per chunk, 256 streams at once", "concurrent", STREAMS[256], RAW, _ALL),
)

# Sizes in pixels.
_WIDTH, _MARGIN, _TOP = 980, 24, 74
_NAME, _BARS, _VALUE = 134, 214, 104  # of a panel: its names, its bars, its figures
_STEP, _THICK, _TITLE, _FOOT = 23, 15, 34, 40

_STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .page { fill: #ffffff; stroke: #d0d7de; }
  .head { font-size: 18px; font-weight: 600; }
  .title { font-size: 14px; font-weight: 600; }
  .quiet { fill: #59636e; }
  .tick { fill: #59636e; font-size: 11px; }
  .grid { stroke: #d8dee4; }
  .ours { font-weight: 600; }
  .bar { fill: #afb8c1; }
  .bar.limit { fill: #d4a72c; }
  .bar.fast { fill: #0969da; }
  .bar.over { fill: #54aeff; }
  .range { stroke: #1f2328; opacity: 0.55; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; stroke: #30363d; }
    .quiet, .tick { fill: #9198a1; }
    .grid { stroke: #262c36; }
    .bar { fill: #57606a; }
    .bar.limit { fill: #bb8009; }
    .bar.fast { fill: #388bfd; }
    .bar.over { fill: #1f5fae; }
    .range { stroke: #e6edf3; }
  }
"""


def svg(results: Results) -> str:
    """Return the picture of the four panels. A peer without figures is named, with no bar."""
    heights = [_TITLE + _STEP * len(panel.peers) + _FOOT for panel in PANELS]
    rows = [max(heights[i : i + 2]) for i in range(0, len(heights), 2)]
    height = _TOP + sum(rows) + 18
    title = "CPU time of the client: less is better"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="t">',
        f'<title id="t">{title}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text(_MARGIN, 34, title, "head"),
        _text(
            _MARGIN,
            55,
            "User and system time: median, and the span of all rounds. ×: against the limit (gold). Logarithmic axes.",
            "quiet",
        ),
        _text(_WIDTH - _MARGIN, 34, f"{results.how.lower()}, {results.machine}", "tick", "end"),
    ]
    y = _TOP
    for i, panel in enumerate(PANELS):
        x = _MARGIN + (i % 2) * (_WIDTH - _MARGIN) // 2
        parts += _panel(results, panel, x, y)
        y += rows[i // 2] if i % 2 else 0
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(results: Results, panel: Panel, x: float, y: float) -> list[str]:
    rows = [results.row(panel.suite, panel.case, peer) for peer in panel.peers]
    known = [cpu for row in rows for cpu in row.cpu()]
    parts = [_text(x, y + 18, panel.title, "title")]
    low, high = (math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))) if known else (0, 1)
    high = max(high, low + 1)
    left, top, bottom = x + _NAME, y + _TITLE, y + _TITLE + _STEP * len(rows)

    def place(cpu: float) -> float:
        return left + _BARS * (math.log10(cpu) - low) / (high - low)

    for power in range(low, high + 1) if known else ():
        at = place(10**power)
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{top - 4}" x2="{at:.1f}" y2="{bottom + 2}"/>')
        parts.append(_text(at, bottom + 16, _time(10**power), "tick", "middle"))
    limit = results.row(panel.suite, panel.case, panel.limit)
    for i, row in enumerate(rows):
        parts += _bar(row, left, top + _STEP * i, place, limit)
    return parts


def _bar(row: Row, left: float, y: float, place: Callable[[float], float], limit: Row) -> list[str]:
    is_limit = row.peer == limit.peer
    kind = {FAST: "fast", CNLLM: "over", SECOND: "over"}.get(row.peer, "limit" if is_limit else "")
    weight, middle = ("ours" if row.peer in (FAST, CNLLM, SECOND) else ""), y + _THICK - 3
    parts = [_text(left - 8, middle, _SHORT.get(row.peer, row.peer), weight, "end")]
    cpu = spread(row.cpu())
    if cpu is None:
        return [*parts, _text(left + 4, middle, "not measured", "quiet")]
    end, half = place(cpu.median), y + _THICK / 2
    name = escape(f"{row.peer}: {_time(cpu.median)} ({_time(cpu.low)} to {_time(cpu.high)})")
    size = f'x="{left}" y="{y}" width="{max(end - left, 1):.1f}" height="{_THICK}" rx="2"'
    parts.append(f'<rect class="bar {kind}" {size}><title>{name}</title></rect>')
    spans = f'x1="{place(cpu.low):.1f}" y1="{half}" x2="{place(cpu.high):.1f}" y2="{half}"'
    parts.append(f'<line class="range" {spans}/>')
    times = None if is_limit else ratio(row.cpu(), limit.cpu())
    said = _time(cpu.median) + (f" · {_times(times.median)}" if times else "")
    return [*parts, _text(max(end, place(cpu.high)) + 6, middle, said, weight)]


def _time(microseconds: float) -> str:
    """Return three figures, in the unit that suits."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def _text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'
