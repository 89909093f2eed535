"""The progress of a run, for the line that the user sees."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from cnllm.batch.budget import RunBudget
from cnllm.batch.lane import Lane
from cnllm.batch.report import Tally
from cnllm.estimates.money import amount_of

__all__ = ["Progress", "VendorProgress", "snapshot"]


class VendorProgress(Struct, frozen=True):
    """Jobs that are not finished, their rows, and how many are served. `word` is the vendor's for their state."""

    jobs: int
    rows: int
    served: int
    word: str = ""


class Progress(Struct, frozen=True, kw_only=True):
    """A moment of a run. `done` and `failed` are those of this run, `before` was done by earlier ones.

    `rate` and `tokens` are answers and output tokens a second, lately. `waiting` are the seconds for which the endpoint
    has refused everything; None where it does not. `left` are seconds, `projected` is the cost in the end. `vendor` is
    where the jobs of a batch interface are; None without one.
    """

    done: int
    failed: int
    before: int
    seconds: float
    rate: float
    tokens: float
    in_flight: int
    refused: int
    cost: Decimal | None
    currency: str | None
    waiting: float | None
    total: int | None = None
    left: float | None = None
    projected: Decimal | None = None
    vendor: VendorProgress | None = None


def snapshot(
    tally: Tally,
    budget: RunBudget,
    lanes: Sequence[Lane],
    before: int,
    total: int | None,
    now: float,
    *,
    vendor: VendorProgress | None = None,
) -> Progress:
    """Return where a run is. `total` is the number of rows of the input; None while it is not known."""
    rate, tokens = tally.rate(now)
    finished = tally.done + tally.failed
    remaining = None if total is None else max(0, total - before - finished)
    projected = None
    if remaining is not None and finished and budget.currency is not None:
        projected = amount_of(budget.spent_units + budget.run_spent * remaining // finished)
    open_lanes = [lane for lane in lanes if lane.closed is None]
    since = [lane.controller.waiting_since for lane in open_lanes]
    times = [now - start for start in since if start is not None]
    return Progress(
        done=tally.done,
        failed=tally.failed,
        before=before,
        seconds=now - tally.start,
        rate=rate,
        tokens=tokens,
        in_flight=sum(lane.controller.in_flight for lane in lanes),
        refused=tally.refused,
        cost=amount_of(budget.spent_units) if budget.currency is not None else None,
        currency=budget.currency,
        waiting=min(times) if times and len(times) == len(open_lanes) else None,
        total=total,
        left=remaining / rate if remaining is not None and rate > 0 else None,
        projected=projected,
        vendor=vendor if vendor is not None and vendor.jobs else None,
    )
