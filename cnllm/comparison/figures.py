"""Sum results up: a figure with its interval for each host, and verdicts that are paired, corrected, and few.

What a reader sees of them is in English and Chinese, for the page and the terminal.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from cnllm.comparison.run import ComparisonResult, HostEntry, TaskChoice
from cnllm.estimates.statistics import adjust_sign_tests, detectable_share, median_interval, wilson
from cnllm.types.totals import exact

__all__ = [
    "FIGURES",
    "ComparisonData",
    "FigureRow",
    "HostFigures",
    "Median",
    "Share",
    "Verdict",
    "Words",
    "figure_rows",
    "find_verdicts",
    "lost_share_shown",
    "sum_up",
    "verdict_lines",
]

Words = tuple[str, str]
"""A text in English and in Chinese."""

FIGURES: dict[str, Words] = {
    "answered": ("requests answered without an error", "没有出错的请求"),
    "called": ("a tool was called where one is needed", "需要工具时调用了工具"),
    "kept": (
        "all calls came as calls: none is missing or left in the text",
        "调用都以调用的形式到达：没有缺失，也没有留在文字里",
    ),
    "valid": ("arguments fit their schema, as they arrived", "参数到达时就符合 schema"),
    "restraint": ("no call where none is needed", "不需要工具时没有调用"),
    "call": ("the right call", "调用正确"),
    "parallel": ("all of several calls at once", "多个调用一次发全"),
    "nested": ("objects, lists and dates as arguments", "参数里的对象、列表和日期正确"),
    "pick": ("the right tool among 50", "从 50 个工具里选对"),
    "chain": ("calls that build on results", "依赖前面结果的连续调用"),
    "reasoning": ("a number that stands only in the reasoning of the turn before", "只写在上一轮思考里的数字"),
    "chinese": ("tasks in Chinese", "中文任务"),
    "schema": ("answers fit the schema", "回答符合 schema"),
    "structured": ("answers to a schema are right", "按 schema 的回答内容正确"),
    "cut": ("a cut reply says so", "被截断的回复会如实说明"),
    "exact": ("long lists are exact", "长列表准确无误"),
    "needle-8k": ("the line in a text of 8,000 tokens", "在 8,000 个 token 的文字里找到那一行"),
    "needle-32k": ("the line in a text of 32,000 tokens", "在 32,000 个 token 的文字里找到那一行"),
    "needle-128k": ("the line in a text of 128,000 tokens", "在 128,000 个 token 的文字里找到那一行"),
}
"""The shares, each with what a good task shows."""

_FIRST: Words = ("first piece comes later", "第一段到得更晚")
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
    `recovered` those of them that stood in the text, `empty` turns that held nothing. `cost` is that of one right task;
    null where a part of it is unknown.
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


@exact
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
    currencies = list(dict.fromkeys(result.currency for result in results if result.currency is not None))
    whole = len(costs) == len(measured) and bool(right) and len(currencies) == 1
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
        currency=next(iter(currencies), None),
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
            if both:
                pairs[host, figure] = (len(both), both.count((False, True)), both.count((True, False)))
        times = [(one.first, other.first) for one, other in same if one.first is not None and other.first is not None]
        if times:
            pairs[host, "first"] = (len(times), sum(a > b for a, b in times), sum(a < b for a, b in times))
            own, theirs = (statistics.median(side) for side in zip(*times, strict=True))
            if own < _SLOWER * theirs:
                alike.add((host, "first"))
    tested = {
        name: (0, worse + better) if name in alike else (worse, better) for name, (_, worse, better) in pairs.items()
    }
    adjusted = adjust_sign_tests(tested)
    verdicts = []
    for (host, figure), (number, worse, better) in pairs.items():
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


# ── a report in words ────────────────────────────────────────────────────────
class FigureRow(Struct, frozen=True):
    """A figure of all hosts, in their order. A value is measured, a text, or None where there is nothing to show.

    A median is shown with so many `digits`, and a unit.
    """

    about: Words
    values: tuple[Share | Median | Words | str | None, ...]
    digits: int = 0
    unit: str = ""


def figure_rows(report: ComparisonData) -> Iterator[FigureRow]:
    """Yield the figures that were measured at one of the hosts."""
    columns = report.figures
    for figure, about in FIGURES.items():
        if any(figure in column.shares for column in columns):
            yield FigureRow(about, tuple(column.shares.get(figure) for column in columns))
    f1 = tuple(None if column.f1 is None else f"{column.f1:.3f}" for column in columns)
    yield FigureRow(("F1 of calls where they belong", "该调用时才调用（F1）"), f1)
    yield FigureRow(("calls that the host lost", "托管方丢失的调用"), tuple(str(column.lost) for column in columns))
    recovered = tuple(str(column.recovered) for column in columns)
    yield FigureRow(("of them, read from the text", "其中从文字里读出的"), recovered)
    yield FigureRow(("turns that came back empty", "空回复"), tuple(str(column.empty) for column in columns))
    yield FigureRow(("first piece, median", "首段，中位数"), tuple(column.first for column in columns), 3, " s")
    yield FigureRow(("tokens a second, median", "每秒 token 数，中位数"), tuple(column.rate for column in columns), 1)
    costs = tuple(None if c.cost is None else f"{Decimal(c.cost):.6f} {c.currency}" for c in columns)
    yield FigureRow(("cost of a right task", "每个正确任务的费用"), costs)
    own: Words = ("its own", "自己的")
    places = tuple(("a mixture", "混合") if host.mixture else host.upstream or own for host in report.hosts)
    yield FigureRow(("endpoint", "接口"), places)


def verdict_lines(report: ComparisonData) -> Iterator[tuple[Words, bool]]:
    """Yield a line for each verdict that names a fault or for a host that shows none; True for a fault."""
    reference = report.hosts[0].name
    for host in report.hosts[1:]:
        own = [verdict for verdict in report.verdicts if verdict.host == host.name]
        worse = [verdict for verdict in own if verdict.verdict == "worse"]
        for verdict in worse:
            about, about_zh = FIGURES.get(verdict.figure, _FIRST)
            bad, good, pairs, p = verdict.worse, verdict.better, verdict.pairs, f"p = {verdict.p:.2g}"
            counts = f"worse in {bad} of {pairs} tasks, better in {good}; {p}"
            counts_zh = f"{pairs} 个任务里 {bad} 个更差，{good} 个更好；{p}"
            english = f"{host.name} is worse than {reference}: {about} ({counts})"
            yield (english, f"{host.name} 不如 {reference}：{about_zh}（{counts_zh}）"), True
        if not worse:
            unclear = sum(verdict.verdict == "not enough data" for verdict in own)
            more = f"; {unclear} of {len(own)} tests have not enough data" if unclear else ""
            more_zh = f"；{len(own)} 项检验中有 {unclear} 项数据不足" if unclear else ""
            english = f"{host.name}: no difference from {reference} is shown{more}"
            yield (english, f"{host.name}：没有发现与 {reference} 的差别{more_zh}"), False
