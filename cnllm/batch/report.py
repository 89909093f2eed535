"""Count a run in memory that does not grow (rows, tokens, latencies, a series over time), and say how it went."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from math import e, log
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.batch.budget import RunBudget
from cnllm.batch.output import FAULT, INVALID, LineError
from cnllm.estimates.money import amount_of
from cnllm.types import Note, Reply
from cnllm.types.totals import is_counted

__all__ = [
    "BatchReport",
    "Interval",
    "Progress",
    "Tally",
    "VendorProgress",
    "make_report",
]


_STEP = log(1.02)  # two percent from one class of latencies to the next
_MOST_INTERVALS = 240
_LATELY = 10.0  # seconds


class BatchReport(Struct, frozen=True, kw_only=True):
    """The results of a run, and the content of the output.

    `done` and `failed` count the rows of the whole output, `asked` the rows that this run finished. `stopped` is why
    the run ended before its input did; None where it did not. `cost` is that of the whole output, earlier runs
    included, with the worst case of requests whose cost is unknown; `unpriced` counts those whose worst case is unknown
    as well, so that `cost` is a lower bound. Where the answers are `simulated` it is what they would have cost at the
    price of the model. `other_costs` are those of earlier runs in other currencies. `failures` are counts by class,
    `notes` by code. `uncounted` counts the answers whose input or output tokens are unknown: with them the sums of
    tokens are lower bounds.
    `latency` has the seconds below which 50, 90, 95 and 99 percent of the answers lie. `cache_hits` is the share of the
    input tokens that came from the endpoint's cache, None where it does not say. `by_vendor` counts the rows that the
    vendor's batch interface finished in this run, `waiting` those that are still there. `unsure` counts the rows that
    earlier runs sent and that had no answer when this run began, `unanswered` all that were sent and have none now.
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
    unanswered: int = 0
    broken: int = 0
    corrected: int = 0
    invalid: int = 0
    stopped: str | None = None
    stop_kind: str | None = None
    plot: str | None = None
    messages: tuple[str, ...] = ()
    simulated: bool = False
    unpriced: int = 0
    uncounted: int = 0
    other_costs: dict[str, Decimal] = {}

    @property
    def complete(self) -> bool:
        """Whether every row has an answer."""
        return self.failed == self.unanswered == 0 and self.stopped is None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON can hold it."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


def make_report(out: str, tally: Tally, budget: RunBudget, now: float, **fields: Any) -> BatchReport:
    """Return the report of a run from its counts."""
    values = tally.percentiles(0.5, 0.9, 0.95, 0.99)
    priced = budget.currency is not None
    return BatchReport(
        out=out,
        asked=tally.done + tally.failed,
        seconds=round(now - tally.start, 3),
        requests=tally.requests,
        refused=tally.refused,
        cost=amount_of(budget.spent_units) if priced else None,
        run_cost=amount_of(budget.run_spent) if priced else None,
        currency=budget.currency,
        unpriced=budget.unpriced if priced else 0,
        uncounted=tally.uncounted,
        other_costs={currency: amount_of(units) for currency, units in budget.other_units.items()},
        input_tokens=tally.input,
        output_tokens=tally.output,
        cache_hits=round(tally.cached / tally.known_cache, 4) if tally.known_cache else None,
        latency=dict(zip(("p50", "p90", "p95", "p99"), values, strict=True)),
        failures=dict(tally.failures),
        examples=tally.examples,
        notes=dict(tally.notes.most_common()),
        finishes=dict(tally.finishes),
        from_cache=tally.cached_rows,
        corrected=tally.notes["answer-corrected"],
        broken=tally.failures[FAULT],
        invalid=tally.failures[INVALID],
        **fields,
    )


# ── the tally ────────────────────────────────────────────────────────────────


class Interval(Struct):
    """Counts of the events in a part of the run."""

    answers: int = 0
    refused: int = 0
    latency: float = 0.0
    tokens: int = 0

    def add(self, other: Interval) -> None:
        """Add the counts of another one."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Tally:
    """The counts of a run. `done` and `failed` count rows whose lines are on the disk."""

    def __init__(self, now: float) -> None:
        self.start = now
        self.done = self.failed = self.answers = self.refused = self.requests = 0
        self.cached_rows = 0
        self.input = self.output = self.cached = self.known_cache = self.uncounted = 0
        self.failures, self.notes, self.finishes = Counter[str](), Counter[str](), Counter[str]()
        self.examples: dict[str, str] = {}
        self.width = 0.5
        self.intervals: list[Interval] = []
        self._latencies = Counter[int]()

    def interval(self, now: float) -> Interval:
        """Return the interval of a time. Intervals double in width rather than in number."""
        while (index := int((now - self.start) / self.width)) >= _MOST_INTERVALS:
            for first, second in zip(self.intervals[::2], self.intervals[1::2], strict=False):  # the last may be alone
                first.add(second)
            self.intervals = self.intervals[::2]
            self.width *= 2
        while len(self.intervals) <= index:
            self.intervals.append(Interval())
        return self.intervals[index]

    def answer(self, now: float, seconds: float | None, reply: Reply) -> None:
        """Count an answer. `seconds` is None where nobody waited for this one alone."""
        self.answers += 1
        if seconds is not None:
            self._latencies[round(log(max(seconds, 1e-6)) / _STEP)] += 1
        usage = reply.usage
        tokens = usage.output or 0
        self.input += usage.input or 0
        self.output += tokens
        self.uncounted += not is_counted(usage)
        if usage.cached is not None and usage.input:
            self.cached += usage.cached
            self.known_cache += usage.input
        interval = self.interval(now)
        interval.answers += 1
        interval.latency += seconds or 0.0
        interval.tokens += tokens
        self.notes.update(note.code for note in reply.notes)
        if reply.finish != "stop":
            self.finishes[reply.finish] += 1

    def refusal(self, now: float) -> None:
        """Count a refusal."""
        self.refused += 1
        self.interval(now).refused += 1

    def finish(self, now: float, error: LineError | None, notes: Sequence[Note] = ()) -> None:
        """Count a row whose line is on the disk, with its error if it failed, and the notes that its reply has not."""
        self.notes.update(note.code for note in notes)
        if error is None:
            self.done += 1
            return
        self.failed += 1
        self.failures[error.type] += 1
        self.examples.setdefault(error.type, error.message)
        self.interval(now)  # the plot reaches to here

    def percentiles(self, *shares: float) -> list[float | None]:
        """Return the latencies below which these shares of the answers lie, in seconds."""
        steps = sorted(self._latencies)
        if not steps:
            return [None for _ in shares]
        passed = list(accumulate(self._latencies[step] for step in steps))
        return [round(e ** (steps[bisect_left(passed, share * passed[-1])] * _STEP), 4) for share in shares]

    def rate(self, now: float) -> tuple[float, float]:
        """Return answers and output tokens a second in the last seconds."""
        count = max(1, round(_LATELY / self.width))
        last = self.intervals[-count:]
        span = min(now - self.start, count * self.width) or 1e-9
        return sum(i.answers for i in last) / span, sum(i.tokens for i in last) / span


# ── the progress ─────────────────────────────────────────────────────────────


class VendorProgress(Struct, frozen=True):
    """Jobs that are not finished, their rows, and how many are served. `word` is the vendor's for their state.

    `waiting` is why nothing is sent for `pause` seconds; empty between two questions about the jobs.
    """

    jobs: int
    rows: int
    served: int
    word: str = ""
    waiting: str = ""
    pause: float = 0.0


class Progress(Struct, frozen=True, kw_only=True):
    """A moment of a run. `done` and `failed` are those of this run, `before` was done by earlier ones.

    `rate` and `tokens` are answers and output tokens a second, lately. `waiting` are the seconds for which the endpoint
    has refused everything; None where it does not. `pause` are the seconds until anything is sent again after a
    refusal. `left` are seconds, `projected` is the cost in the end. `vendor` is where the jobs of a batch interface
    are; None without one.
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
    pause: float = 0.0
    total: int | None = None
    left: float | None = None
    projected: Decimal | None = None
    vendor: VendorProgress | None = None
