"""Write the report of a batch for a reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cnllm.cli.output.batch_view import duration

if TYPE_CHECKING:
    from cnllm.batch.dry_run import Estimate
    from cnllm.batch.report import Report

__all__ = ["estimate_lines", "report_lines"]

_EXAMPLE = 160


def report_lines(report: Report) -> Iterator[str]:
    """Yield the lines of the report."""
    head = f"{report.done:,} done, {report.failed:,} failed in {report.out}"
    if report.asked != report.done + report.failed:
        head += f" ({report.asked:,} of them in this run)"
    yield f"{head}; {duration(report.seconds)}"
    if report.stopped is not None:
        yield f"stopped: {report.stopped}; run the same command again to go on"
    if report.by_vendor:
        yield f"in batches of the vendor: {report.by_vendor:,} rows"
    if report.waiting:
        yield f"still at the vendor: {report.waiting:,} rows"
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


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    """Yield the lines of an estimate."""
    yield f"{estimate.rows - estimate.faults:,} rows to ask; nothing was sent"
    if estimate.faults:
        yield f"rows that are no requests: {estimate.faults:,}; the first: {estimate.faults_shown[0][:_EXAMPLE]}"
    yield (
        f"tokens: about {estimate.input_tokens:,} in, and {estimate.output_tokens:,} out if an answer has "
        f"{estimate.typical_output} tokens or its max_tokens"
    )
    if estimate.cost is None:
        yield "cost: unknown, there is no price for this model; --assume-price IN/OUT --currency C"
    else:
        if estimate.worst_cost is None:
            yield f"cost: about {estimate.cost} {estimate.currency}; the most is not known"
        else:
            yield f"cost: about {estimate.cost} {estimate.currency}, {estimate.worst_cost} at most"
        if estimate.spent is not None and float(estimate.spent):
            yield f"spent so far: {estimate.spent} {estimate.currency}"
    if estimate.window is not None:
        yield f"time: up to {estimate.window:g} h, the window of the vendor's batches"
    elif estimate.seconds is None:
        yield "time: unknown, the limits of the endpoint are; --rpm and --tpm tell them"
    else:
        yield f"time: {duration(estimate.seconds)} or more, by the limits a minute"
