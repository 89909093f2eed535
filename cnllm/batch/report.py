"""The report of a run."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.batch.budget import RunBudget
from cnllm.batch.tally import Tally
from cnllm.estimates.money import amount_of

__all__ = ["Report", "make_report"]


class Report(Struct, frozen=True, kw_only=True):
    """The results of a run, and the content of the output.

    `done` and `failed` count the rows of the whole output, `asked` the rows that this run finished. `stopped` is why
    the run ended before its input did; None where it did not. `cost` is that of the whole output, earlier runs
    included, with the worst case of requests whose cost is unknown; where the answers are `simulated` it is what they
    would have cost at the price of the model. `failures` are counts by class, `notes` by code.
    `latency` has the seconds below which 50, 90, 95 and 99 percent of the answers lie. `cache_hits` is the share of the
    input tokens that came from the endpoint's cache, None where it does not say. `by_vendor` counts the rows that the
    vendor's batch interface finished in this run, `waiting` those that are still there.
    """

    out: str
    done: int
    failed: int
    asked: int
    skipped: int
    unsure: int
    seconds: float
    requests: int
    refused: int
    cost: Decimal | None
    run_cost: Decimal | None
    currency: str | None
    input_tokens: int
    output_tokens: int
    cache_hits: float | None
    latency: dict[str, float | None]
    failures: dict[str, int]
    examples: dict[str, str]
    notes: dict[str, int]
    finishes: dict[str, int]
    from_cache: int = 0
    by_vendor: int = 0
    waiting: int = 0
    broken: int = 0
    corrected: int = 0
    invalid: int = 0
    stopped: str | None = None
    stop_kind: str | None = None
    plot: str | None = None
    messages: tuple[str, ...] = ()
    simulated: bool = False

    @property
    def complete(self) -> bool:
        """Whether every row has an answer."""
        return self.failed == 0 and self.stopped is None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON can hold it."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


def make_report(out: str, tally: Tally, budget: RunBudget, now: float, **fields: Any) -> Report:
    """Return the report of a run from its counts."""
    values = tally.percentiles(0.5, 0.9, 0.95, 0.99)
    priced = budget.currency is not None
    return Report(
        out=out,
        asked=tally.done + tally.failed,
        seconds=round(now - tally.start, 3),
        requests=tally.requests,
        refused=tally.refused,
        cost=amount_of(budget.spent_units) if priced else None,
        run_cost=amount_of(budget.run_spent) if priced else None,
        currency=budget.currency,
        input_tokens=tally.input,
        output_tokens=tally.output,
        cache_hits=round(tally.cached / tally.known_cache, 4) if tally.known_cache else None,
        latency=dict(zip(("p50", "p90", "p95", "p99"), values, strict=True)),
        failures=tally.failures,
        examples=tally.examples,
        notes=dict(sorted(tally.notes.items(), key=lambda item: -item[1])),
        finishes=tally.finishes,
        from_cache=tally.cached_rows,
        corrected=tally.notes.get("answer-corrected", 0),
        invalid=tally.failures.get("InvalidAnswer", 0),
        **fields,
    )
