"""Add up the usage and the cost of several replies, exactly whatever decimal context the program has set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import astuple, replace

from cnllm.types import Cost, Reply, Usage

__all__ = ["EXACT", "UNKNOWN_REQUEST", "exact", "is_counted", "sum_costs", "total_usage", "with_costs", "with_totals"]

UNKNOWN_REQUEST = "request"
"""The word in `Cost.missing` for a request of unknown cost."""


P = ParamSpec("P")
T = TypeVar("T")

EXACT = Context(  # in which sums are counted
    prec=200,  # digits: no sum of amounts has so many
    rounding=ROUND_HALF_EVEN,
    Emin=-999_999,
    Emax=999_999,
    capitals=1,
    clamp=0,
    traps=[DivisionByZero, InvalidOperation, Overflow],
)


def exact(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that counts in a context of its own: the caller's may round, or trap what is not exact."""

    @wraps(function)
    def count(*args: P.args, **kwargs: P.kwargs) -> T:
        with localcontext(EXACT):
            return function(*args, **kwargs)

    return count


def is_counted(usage: Usage) -> bool:
    """Whether an endpoint has counted the tokens of a call. A prompt of 0 tokens was not counted."""
    return bool(usage.input) and usage.output is not None


def total_usage(replies: Sequence[Reply]) -> Usage:
    """Return the sum of the replies' usage; a count that one of them lacks is None."""
    counts: list[tuple[Any, ...]] = [astuple(reply.usage) for reply in replies]
    return Usage(*[None if None in column else sum(column) for column in zip(*counts, strict=True)])


def with_totals(reply: Reply, replies: Sequence[Reply]) -> Reply:
    """Return a reply with the usage and the cost of several: all were paid for."""
    return replace(reply, usage=total_usage(replies), cost=sum_costs([other.cost for other in replies]))


def with_costs(reply: Reply, others: Sequence[Cost | None]) -> Reply:
    """Return a reply whose cost has those of other requests, too; None is unknown.

    The sum is in the currency of the reply: the cost of a request in another one is unknown in it.
    """
    if not others:
        return reply
    currency = None if reply.cost is None else reply.cost.currency
    same = [cost if cost is None or currency in (None, cost.currency) else None for cost in others]
    return replace(reply, cost=sum_costs([*same, reply.cost]))


@exact
def sum_costs(costs: Sequence[Cost | None]) -> Cost | None:
    """Return a sum of costs. One that is unknown stands in `missing`, and nothing bounds the sum then."""
    known = [cost for cost in costs if cost is not None]
    if not known or len({cost.currency for cost in known}) > 1:
        return None
    if len(costs) == 1:
        return known[0]
    names = dict.fromkeys(name for cost in known for name in cost.missing)
    mosts = [cost.at_most for cost in known]
    if len(known) < len(costs):
        names[UNKNOWN_REQUEST] = None
        mosts.append(None)
    computed = [cost.amount if cost.computed is None else cost.computed for cost in known]
    by_endpoint = all(cost.by == "endpoint" for cost in known)
    has_figures = all(cost.by == "registry" or cost.computed is not None for cost in known)
    return Cost(
        sum((cost.amount for cost in known), Decimal(0)),
        known[0].currency,
        missing=tuple(names),
        at_most=None if None in mosts else sum((most for most in mosts if most is not None), Decimal(0)),
        by="endpoint" if by_endpoint else "registry",
        computed=sum(computed, Decimal(0)) if has_figures and any(c.by == "endpoint" for c in known) else None,
    )
