"""Draw how clients handle faults: a row for each fault of `benchmarks/faults/RESULTS.md`, a cell for each client."""

from __future__ import annotations

import re
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from docs.generate.colors import DARK, LIGHT, SANS, Colors

__all__ = ["Table", "dark", "light", "read_table"]

RESULTS = Path(__file__).parents[2] / "benchmarks" / "faults" / "RESULTS.md"

_NAME, _CELL, _ROW, _MARGIN, _HEAD = (
    236,
    112,
    24,
    20,
    118,
)  # pixels: a fault's name, a cell, a row, the margin, the head
_TITLE = "What clients make of answers that go wrong"
_LEGEND = (
    ("good", "whole or error", "whole where all came, else a typed error"),
    ("warn", "told", "cut, and a field says so"),
    ("bad", "untyped", "no exception of its own"),
    ("worst", "lie, call, hang", "passes for whole, hands out half a call, does not end"),
)
_KINDS = {"whole": "good", "error": "good", "told": "warn", "untyped": "bad", "lie": "worst", "hang": "worst"}


class Table(msgspec.Struct, frozen=True):
    """The outcomes: a row for each fault with the words of each client."""

    versions: str
    clients: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def read_table(text: str) -> Table:
    """Return the table of faults of a page of results. Raises `ValueError` for a page without one."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    start = next((number for number, row in enumerate(rows) if row[0] == "fault"), None)
    if start is None:
        raise ValueError("no table of faults: its first head is 'fault'")
    body = rows[start + 2 :]
    end = next((number for number, row in enumerate(body) if row[0].startswith("of ")), len(body))
    versions = re.search(r"^cnllm \d.*$", text, re.MULTILINE)
    return Table(
        versions[0] if versions else "",
        tuple(rows[start][1:]),
        tuple((row[0], tuple(_words(cell) for cell in row[1:])) for row in body[:end]),
    )


def _words(cell: str) -> str:
    """Return the outcome without its marks, and without the name of an exception."""
    return re.sub(r"^(untyped) .*", r"\1", cell.replace("*", ""))


def light() -> str:
    """Return the picture for a light page."""
    return _svg(LIGHT, good="#dafbe1 #116329", warn="#fff8c5 #7d4e00", bad="#ffe2c8 #953800", worst="#ffd8d3 #a40e26")


def dark() -> str:
    """Return the picture for a dark page."""
    return _svg(DARK, good="#12261e #56d364", warn="#2b2411 #e3b341", bad="#3a2416 #ffa657", worst="#3c1618 #ff9492")


def _svg(colors: Colors, **kinds: str) -> str:
    table = read_table(RESULTS.read_text(encoding="utf-8"))
    width = 2 * _MARGIN + _NAME + _CELL * len(table.clients)
    height = _HEAD + _ROW * len(table.rows) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t">',
        f'<title id="t">{_TITLE}</title>',
        "<!-- Written by `python -m docs.generate` from benchmarks/faults/RESULTS.md. -->",
        "<style>",
        f"  text {{ font: 12px {SANS}; fill: {colors.text}; }} .head {{ font-size: 17px; font-weight: 600; }}",
        f"  .client {{ font-weight: 600; }} .quiet {{ fill: {colors.dim}; font-size: 11px; }}",
        *(
            f"  .{kind} {{ fill: {pair.split()[0]}; }} .{kind}-text {{ fill: {pair.split()[1]}; font-weight: 600; }}"
            for kind, pair in kinds.items()
        ),
        "</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{colors.page}" '
        f'stroke="{colors.line}"/>',
        f'<text class="head" x="{_MARGIN}" y="34">{_TITLE}</text>',
    ]
    place = (width - 2 * _MARGIN) / len(_LEGEND)
    for number, (kind, words, meaning) in enumerate(_LEGEND):
        x = _MARGIN + (number * place if number < 3 else 3 * place - 60)
        parts.append(f'<rect class="{kind}" x="{x:.0f}" y="50" width="12" height="12" rx="2"/>')
        parts.append(f'<text class="{kind}-text" x="{x + 18:.0f}" y="60">{words}</text>')
        parts.append(f'<text class="quiet" x="{x:.0f}" y="77">{meaning}</text>')
    for number, client in enumerate(table.clients):
        x = _MARGIN + _NAME + _CELL * (number + 0.5)
        parts.append(f'<text class="client" x="{x:g}" y="{_HEAD - 10}" text-anchor="middle">{escape(client)}</text>')
    for row, (fault, cells) in enumerate(table.rows):
        parts += _row(_HEAD + _ROW * row, fault, cells)
    parts.append(f'<text class="quiet" x="{_MARGIN}" y="{height - 13}">{escape(table.versions)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(y: int, fault: str, cells: tuple[str, ...]) -> list[str]:
    parts = [f'<text x="{_MARGIN}" y="{y + 16}">{escape(fault)}</text>']
    for number, words in enumerate(cells):
        kind = _KINDS[words.split(",")[0]]
        if "call" in words:
            kind = "worst"
        x = _MARGIN + _NAME + _CELL * number
        parts.append(f'<rect class="{kind}" x="{x + 2}" y="{y + 2}" width="{_CELL - 4}" height="{_ROW - 4}" rx="4"/>')
        middle = x + _CELL / 2
        parts.append(f'<text class="{kind}-text" x="{middle:g}" y="{y + 16}" text-anchor="middle">{words}</text>')
    return parts
