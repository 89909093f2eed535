"""Sum results up: a figure with its interval for each host, and verdicts that are paired, corrected, and few."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from cnllm.comparison.run import ComparisonResult, HostEntry, TaskChoice
from cnllm.estimates.statistics import adjust_sign_tests, detectable_share, median_interval, wilson

__all__ = [
    "FIGURES",
    "ComparisonData",
    "HostFigures",
    "Median",
    "Share",
    "Verdict",
    "find_verdicts",
    "lost_share_shown",
    "sum_up",
]

FIGURES: dict[str, str] = {
    "answered": "requests answered without an error",
    "called": "a tool was called where one is needed",
    "kept": "all calls came as calls: none is missing or left in the text",
    "valid": "arguments fit their schema, as they arrived",
    "restraint": "no call where none is needed",
    "call": "the right call",
    "parallel": "all of several calls at once",
    "nested": "objects, lists and dates as arguments",
    "pick": "the right tool among 50",
    "chain": "calls that build on results",
    "reasoning": "a number that stands only in the reasoning of the turn before",
    "chinese": "tasks in Chinese",
    "schema": "answers fit the schema",
    "structured": "answers to a schema are right",
    "cut": "a cut reply says so",
    "exact": "long lists are exact",
    "needle-8k": "the line in a text of 8,000 tokens",
    "needle-32k": "the line in a text of 32,000 tokens",
    "needle-128k": "the line in a text of 128,000 tokens",
}
"""The shares, each with what a good task shows."""

_SLOWER = 1.5
"""The median of a slow host is so many times that of the reference."""


class Share(Struct, frozen=True):
    """A share of tasks, with the interval in which it lies with 95 %."""

    good: int
    tasks: int
    low: float | None
    high: float | None


class Median(Struct, frozen=True):
    """A median, with the interval in which it lies with 95 %."""

    value: float
    low: float
    high: float


class HostFigures(Struct, frozen=True):
    """The figures of one host; null where nothing was measured.

    `precision`, `recall` and `f1` are of calls where they belong. `lost` counts calls that did not come as calls,
    `recovered` those of them that stood in the text, `empty` turns that held nothing. `cost` is that of one right task.
    """

    host: str
    shares: dict[str, Share]
    precision: float | None
    recall: float | None
    f1: float | None
    lost: int
    recovered: int
    empty: int
    first: Median | None
    rate: Median | None
    cost: str | None
    currency: str | None
    changed: dict[str, int]


class Verdict(Struct, frozen=True):
    """The outcome of the paired test of a figure, for a host against the reference.

    `verdict`: worse, no difference shown, or not enough data. `p` is corrected for the number of tests. `detectable` is
    the share of tasks that a host has to spoil before so many pairs show it; null where no such share is enough.
    """

    host: str
    figure: str
    verdict: str
    pairs: int
    worse: int
    better: int
    p: float | None
    detectable: float | None


class ComparisonData(Struct, frozen=True):
    """The values of a report (`Comparison`), which a page shows."""

    form: str
    cnllm: str
    registry: str
    started: str
    simulated: bool
    model: str
    weights: str | None
    settings: TaskChoice
    alpha: float
    figures: tuple[HostFigures, ...]
    verdicts: tuple[Verdict, ...]
    problems: dict[str, dict[str, str]]
    spent: dict[str, str]
    hosts: tuple[HostEntry, ...]


def sum_up(host: str, results: Sequence[ComparisonResult]) -> HostFigures:
    """Return the figures of a host."""
    shares = {}
    for figure in FIGURES:
        marks = [result.marks[figure] for result in results if figure in result.marks]
        if marks:
            low, high = wilson(sum(marks), len(marks)) or (None, None)
            shares[figure] = Share(sum(marks), len(marks), low, high)
    needed = [result.marks["called"] for result in results if "called" in result.marks]
    idle = [result.marks["restraint"] for result in results if "restraint" in result.marks]
    hits, misplaced = sum(needed), len(idle) - sum(idle)
    precision = round(hits / (hits + misplaced), 6) if hits + misplaced else None
    recall = round(hits / len(needed), 6) if needed else None
    missed = len(needed) - hits
    measured = [result for result in results if result.marks]  # the others were not asked
    right = sum(result.problem is None for result in measured)
    costs = [Decimal(result.cost) for result in measured if result.cost is not None]
    whole = len(costs) == len(measured) and bool(right)
    return HostFigures(
        host=host,
        shares=shares,
        precision=precision,
        recall=recall,
        f1=round(2 * hits / (2 * hits + misplaced + missed), 6) if hits + misplaced + missed else None,
        lost=sum(result.lost for result in results),
        recovered=sum(result.recovered for result in results),
        empty=sum(result.empty for result in results),
        first=_median([result.first for result in results if result.first is not None]),
        rate=_median([result.rate for result in results if result.rate is not None]),
        cost=str(round(sum(costs, Decimal(0)) / right, 9)) if whole else None,
        currency=next((result.currency for result in results if result.currency is not None), None),
        changed=dict(Counter(note for result in results for note in result.notes)),
    )


def _median(values: Sequence[float]) -> Median | None:
    interval = median_interval(values)
    if interval is None:
        return None
    return Median(round(statistics.median(values), 4), round(interval[0], 4), round(interval[1], 4))


def find_verdicts(results: Mapping[str, Sequence[ComparisonResult]], alpha: float) -> list[Verdict]:
    """Return the verdicts on all hosts but the first, which is the reference.

    Only tasks count that both hosts were asked in the same way: where cnllm changed the request for one of them alone,
    the host is not to blame.
    """
    reference, *others = results
    pairs: dict[tuple[str, str], tuple[int, int, int]] = {}
    by_task = {result.task: result for result in results[reference]}
    alike = set()  # hosts that are not so much slower that it counts
    for host in others:
        same = [(result, by_task[result.task]) for result in results[host] if result.task in by_task]
        same = [(one, other) for one, other in same if one.notes == other.notes]
        for figure in FIGURES:
            both = [
                (one.marks[figure], other.marks[figure])
                for one, other in same
                if figure in one.marks and figure in other.marks
            ]
            pairs[host, figure] = (len(both), both.count((False, True)), both.count((True, False)))
        times = [(one.first, other.first) for one, other in same if one.first is not None and other.first is not None]
        pairs[host, "first"] = (len(times), sum(a > b for a, b in times), sum(a < b for a, b in times))
        own, theirs = [one for one, _ in times], [other for _, other in times]
        if times and statistics.median(own) < _SLOWER * statistics.median(theirs):
            alike.add((host, "first"))
    tested = {
        name: (0, worse + better) if name in alike else (worse, better)
        for name, (number, worse, better) in pairs.items()
        if number
    }
    adjusted = adjust_sign_tests(tested)
    verdicts = []
    for (host, figure), (number, worse, better) in pairs.items():
        if not number:
            continue
        detectable = detectable_share(number, alpha, len(tested))
        p = adjusted[host, figure]
        verdict = "worse" if p < alpha else "not enough data" if detectable is None else "no difference shown"
        verdicts.append(Verdict(host, figure, verdict, number, worse, better, round(p, 6), detectable))
    return verdicts


def lost_share_shown(turns: int) -> float:
    """Return the share of calls that a host has to lose, so that nine runs of ten with so many tool turns name it.

    `python -m benchmarks verdicts` found it, with a model that errs in 5 % of its replies.
    """
    return min(1.0, math.ceil(1000 / turns) / 100)
