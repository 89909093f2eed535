"""Estimate tokens, cost and time of what a run would ask. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from cnllm.batch.budget import RunBudget
from cnllm.batch.controller import SHARE
from cnllm.batch.jobs import Job
from cnllm.batch.lanes import Lane
from cnllm.batch.pricing import TYPICAL_OUTPUT, RequestPrice
from cnllm.estimates.money import amount_of, units_of
from cnllm.estimates.tokens import estimate_tokens
from cnllm.types import Usage

__all__ = ["SAMPLE", "Estimate", "estimate_run"]

SAMPLE = 5000
"""The rows that an estimate builds; the others are taken to be like them."""


class Estimate(Struct, frozen=True, kw_only=True):
    """The requests and the cost of a run before it starts. `rows` are those to ask, `faults` those that cannot be sent.

    `output_tokens` is a guess: `typical_output` for each row, or its `max_tokens` where that is lower. `cost` is by
    these tokens and in the tier of the service that a request asks for, `worst_cost` by the longest possible replies;
    None where no price is known. `seconds` is by known limits a minute; None without any. `window` are the hours that a
    vendor takes for a batch at most.
    """

    rows: int
    faults: int
    input_tokens: int
    output_tokens: int
    typical_output: int
    cost: str | None
    worst_cost: str | None
    currency: str | None
    spent: str | None
    seconds: float | None
    window: float | None = None
    faults_shown: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()


def estimate_run(
    jobs: Iterable[Job | None], lanes: list[Lane], price: RequestPrice, budget: RunBudget, window: float | None = None
) -> Estimate:
    """Return the estimate. `jobs` yields the first rows as jobs, and None for each further row."""
    rows = faults = sample = tokens_in = tokens_out = 0
    cost: int | None = 0
    worst: int | None = 0
    unpriced = price.currency is None
    messages: list[str] = []
    for job in jobs:
        rows += 1
        if job is None:
            continue
        if job.outcome is not None:
            faults += 1
            if len(messages) < 3 and job.outcome.error is not None:
                messages.append(job.outcome.error.message)
            continue
        sample += 1
        plan = job.prepared.plan
        read = estimate_tokens(plan.messages, job.options.get("tools"))
        written = min(plan.max_output or TYPICAL_OUTPUT, TYPICAL_OUTPUT)
        tokens_in, tokens_out = tokens_in + read, tokens_out + written
        if not unpriced:
            expected = price.expected_cost(plan, Usage(input=read, output=written))
            cost = None if cost is None or expected is None else cost + units_of(expected)
            worst = None if worst is None or job.reserved is None else worst + job.reserved
    scale = (rows - faults) / sample if sample else 0
    tokens_in, tokens_out = round(tokens_in * scale), round(tokens_out * scale)
    return Estimate(
        rows=rows,
        faults=faults,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        typical_output=TYPICAL_OUTPUT,
        cost=None if unpriced or cost is None else f"{amount_of(round(cost * scale)):f}",
        worst_cost=None if unpriced or worst is None else f"{amount_of(round(worst * scale)):f}",
        currency=price.currency,
        spent=None if unpriced else f"{amount_of(budget.spent_units):f}",
        seconds=_seconds(lanes, rows - faults, tokens_in + tokens_out),
        window=window,
        faults_shown=tuple(messages),
    )


def _seconds(lanes: list[Lane], rows: int, tokens: int) -> float | None:
    """Return the time by the known limits of all keys together."""
    requests = [lane.controller.requests_per_minute for lane in lanes]
    limits = [lane.controller.tokens_per_minute for lane in lanes]
    times = []
    if None not in requests:
        times.append(rows / sum(filter(None, requests)) * 60)
    if None not in limits:
        times.append(tokens / sum(filter(None, limits)) * 60 * SHARE)
    return max(times, default=None)
