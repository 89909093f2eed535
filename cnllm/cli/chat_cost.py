"""Sum what the answers of a chat have used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cnllm.types import Reply

__all__ = ["cost_line"]


def cost_line(replies: Sequence[Reply]) -> str:
    """Return the usage of all answers. Those of turns that were taken back cost money too."""
    counts: dict[str, int] = {}
    unknown = 0
    amounts: dict[str, Any] = {}
    for reply in replies:
        usage = reply.usage
        unknown += usage.input is None or usage.output is None
        for name in ("input", "cached", "output", "reasoning"):
            counts[name] = counts.get(name, 0) + (getattr(usage, name) or 0)
        if reply.cost is not None:
            amounts[reply.cost.currency] = amounts.get(reply.cost.currency, 0) + reply.cost.amount
    parts = [f"{len(replies)} answer{'' if len(replies) == 1 else 's'}"]
    for name, label, detail in (("input", "in", "cached"), ("output", "out", "reasoning")):
        extra = f" ({counts[detail]} {detail})" if counts.get(detail) else ""
        parts.append(f"{counts.get(name, 0)} {label}{extra}")
    parts += [f"{amount.normalize():f} {currency}" for currency, amount in amounts.items()]
    unpriced = sum(reply.cost is None for reply in replies)
    if unknown:
        parts.append(f"usage of {unknown} unknown")
    if unpriced:
        parts.append(f"price of {unpriced} unknown")
    return " · ".join(parts)
