"""Write the report of a batch for a reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cnllm.cli.output.batch_view import duration

if TYPE_CHECKING:
    from cnllm.batch.report import Report

__all__ = ["report_lines"]

_EXAMPLE = 160


def report_lines(report: Report) -> Iterator[str]:
    """Yield the lines of the report."""
    head = f"{report.done:,} done, {report.failed:,} failed in {report.out}"
    if report.asked != report.done + report.failed:
        head += f" ({report.asked:,} of them in this run)"
    yield f"{head}; {duration(report.seconds)}"
    if report.stopped is not None:
        yield f"stopped: {report.stopped}; run the same command again to go on"
    if report.unsure:
        yield f"unanswered since an earlier run: {report.unsure:,}; they count as paid"
    if report.requests:
        share = report.refused / report.requests
        rate = report.asked / report.seconds if report.seconds else 0.0
        yield f"requests: {report.requests:,}, {report.refused:,} refused ({share:.1%}); {rate:,.1f} rows/s"
    latency = [f"{name} {value:.2f} s" for name, value in report.latency.items() if value is not None]
    if latency:
        yield f"latency: {', '.join(latency)}"
    if report.input_tokens or report.output_tokens:
        cached = "" if report.cache_hits is None else f", {report.cache_hits:.0%} of the input from the cache"
        yield f"tokens: {report.input_tokens:,} in, {report.output_tokens:,} out{cached}"
    if report.cost is not None:
        yield f"cost: {report.cost:f} {report.currency}, {report.run_cost:f} of it in this run"
    if report.from_cache:
        yield f"answers of other runs: {report.from_cache:,}"
    if report.corrected or report.invalid:
        yield f"schema: {report.corrected:,} corrected, {report.invalid:,} not valid"
    if report.finishes:
        yield f"finish: {', '.join(f'{name} {count:,}' for name, count in report.finishes.items())}"
    for kind, count in report.failures.items():
        example = report.examples.get(kind, "")
        yield f"failed with {kind}: {count:,}; the first: {' '.join(example.split())[:_EXAMPLE]}"
    if report.notes:
        yield f"notes: {', '.join(f'{code} {count:,}' for code, count in list(report.notes.items())[:8])}"
    if report.plot is not None:
        yield f"plot: {report.plot}"
    yield from report.messages
