"""Draw the lines of `cnllm logs cost` as SVG: a bar for each, and its extension to the most that it can be."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING

from cnllm.batch.plot import PAGE_WIDTH, heading, page
from cnllm.types.checks import plural

if TYPE_CHECKING:
    from cnllm.store.costs import CostReport, CostRow
    from cnllm.types import Cost

__all__ = ["draw_costs"]

_LEFT, _RIGHT, _TOP, _ROW, _GAP = 240, 150, 52, 22, 56
_MOST_ROWS = 60  # of a currency
_LONGEST = 32  # characters of a label


def draw_costs(report: CostReport) -> str:
    """Return the plot of a report: a panel for each currency. An amount that leaves something out has a ≥."""
    currencies = sorted({cost.currency for row in report.rows for cost in row.cost})
    panels = [(currency, _bars(report.rows, currency)) for currency in currencies]
    lines = [min(len(bars), _MOST_ROWS) + (len(bars) > _MOST_ROWS) for _, bars in panels]
    unknown = [row for row in report.rows if not row.cost and not row.exact]
    height = _TOP + sum(lines) * _ROW + max(len(panels) - 1, 0) * _GAP + (_ROW if unknown or not panels else 0) + 16
    parts, top = page(f"Cost of logged calls by {report.by}", height), float(_TOP)
    for (currency, bars), count in zip(panels, lines, strict=True):
        parts += heading(top, (f"{currency} by {report.by}", "rate-key"), ("the most that it can be", "most-key"))
        parts += _panel(top, bars)
        top += count * _ROW + _GAP
    if unknown or not panels:
        turns = sum(row.unknown for row in unknown)
        parts.append(
            f'<text class="tick" x="24" y="{height - 18}">turns of unknown cost in other lines: {turns}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _bars(rows: Sequence[CostRow], currency: str) -> list[tuple[str, Cost, bool]]:
    """Return the label and the cost of each line in a currency, and whether it is exact."""
    return [(row.label, cost, row.exact) for row in rows for cost in row.cost if cost.currency == currency]


def _panel(top: float, bars: Sequence[tuple[str, Cost, bool]]) -> list[str]:
    """Draw the bars of a currency. Those behind the first ones are one line of text."""
    first, rest = bars[:_MOST_ROWS], bars[_MOST_ROWS:]
    most = max((max(cost.amount, cost.at_most or cost.amount) for _, cost, _ in bars), default=Decimal(0)) or Decimal(1)
    width = PAGE_WIDTH - _LEFT - _RIGHT
    parts = []
    for number, (label, cost, is_exact) in enumerate(first):
        y = top + number * _ROW
        length, bound = (float(amount / most) * width for amount in (cost.amount, cost.at_most or cost.amount))
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 13:.1f}" text-anchor="end">{_text(label)}</text>')
        if bound > length:
            parts.append(_rect("most-key", y, bound))
        parts.append(_rect("rate-key", y, length))
        mark = "" if is_exact else "≥ "
        x = _LEFT + max(length, bound) + 8
        parts.append(f'<text class="tick" x="{x:.1f}" y="{y + 13:.1f}">{mark}{cost.amount.normalize():f}</text>')
    if rest:
        total = sum((cost.amount for _, cost, _ in rest), Decimal(0)).normalize()
        mark = "" if all(is_exact for *_, is_exact in rest) else "≥ "
        y = top + len(first) * _ROW + 13
        parts.append(
            f'<text class="tick" x="{_LEFT}" y="{y:.1f}">{len(rest)} more line{plural(len(rest))}: '
            f"{mark}{total:f}</text>"
        )
    return parts


def _rect(kind: str, y: float, width: float) -> str:
    return (
        f'<rect class="{kind}" x="{_LEFT}" y="{y + 2:.1f}" width="{max(width, 0.5):.1f}" height="{_ROW - 8}" rx="2"/>'
    )


def _text(label: str) -> str:
    """Return a label that XML can hold; of a long one the beginning."""
    short = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
    return escape("".join(letter if letter.isprintable() else "\ufffd" for letter in short))
