"""Add up the usage and the cost of several replies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cnllm.types import Cost, Reply, Usage

__all__ = ["total_cost", "total_usage"]


def total_usage(replies: Sequence[Reply]) -> Usage:
    """Return the sum of the replies' usage; a count that one of them lacks is None."""

    def sums() -> Iterator[tuple[str, int | None]]:
        for name in Usage.__struct_fields__:
            counts: list[Any] = [getattr(reply.usage, name) for reply in replies]
            yield name, sum(counts) if counts and None not in counts else None

    return Usage(**dict(sums()))


def total_cost(replies: Sequence[Reply]) -> Cost | None:
    """Return the sum of the replies' cost; None where one is unknown, or where the currencies differ."""
    costs = [reply.cost for reply in replies if reply.cost is not None]
    if not costs or len(costs) < len(replies) or len({cost.currency for cost in costs}) > 1:
        return None
    return Cost(sum((cost.amount for cost in costs[1:]), costs[0].amount), costs[0].currency)
