"""Show where a batch is, in one line that is rewritten on a terminal, and write its report for a reader."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cnllm.cli.language.messages import translate
from cnllm.cli.output import stdio, terminal
from cnllm.types.checks import plural

if TYPE_CHECKING:
    from cnllm.batch.dry_run import Estimate
    from cnllm.batch.report import BatchReport, Progress, VendorProgress

__all__ = ["BatchView", "duration", "estimate_lines", "progress_line", "report_lines"]

_EXAMPLE = 160
_GOES_ON = {
    "interrupted": "run the same command again to go on",
    "endpoint": "once that is solved, run the same command again to go on",
    "strict": "once that line is corrected, run the same command again to go on",
}
"""How a run goes on, by the kind of the reason why it stopped. Below a cap the reason says it."""
_EVERY = 15.0  # seconds between two lines in a pipe


class BatchView:
    """The line of a run, on stderr. On a terminal rich's `live` line is it, where rich is installed."""

    def __init__(self) -> None:
        self.live = _live_line()
        self._last = time.monotonic()

    def show(self, progress: Progress) -> None:
        """Show a moment of the run."""
        if self.live is not None:
            from rich.text import Text

            text = translate(progress_line(progress, self.live.console.width))
            self.live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
        elif time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            stdio.print_line(f"cnllm: {progress_line(progress, 200)}")


def _live_line() -> Any:
    """Return the line of rich, which is on the screen while it is open; None where there is none."""
    if not sys.stderr.isatty() or terminal.is_dumb():
        return None
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        return None
    return Live(console=Console(stderr=True, highlight=False), auto_refresh=False, transient=True)


def progress_line(progress: Progress, width: int = 80) -> str:
    """Return the line. What has no room is left out, the least important first."""
    parts = [f"{progress.done + progress.before:,} done"]
    if progress.total is not None:
        share = (progress.done + progress.before + progress.failed) / max(progress.total, 1)
        parts[0] = f"{progress.done + progress.before:,}/{progress.total:,} done {share:.0%}"
    if (vendor := progress.vendor) is not None:
        parts += _vendor_parts(vendor)
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    if vendor is None:  # else nothing of this run is on its way
        waiting = progress.waiting or 0
        waits = [f"refused for {duration(waiting)}, waiting"] if waiting > 1 else []
        waits += [f"next request in {duration(progress.pause)}"] if progress.pause > 1 else []
        parts += waits or [f"{_rate(progress.rate)}/s"]
    if progress.cost is not None:
        cost = f"{progress.cost:.2f}"
        if progress.projected is not None:
            cost += f" of ~{progress.projected:.2f}"
        parts.append(f"{cost} {progress.currency}")
    if progress.left is not None:
        parts.append(f"{duration(progress.left)} left")
    line = " · ".join(parts)
    for part in (f"{_rate(progress.tokens)} tok/s", f"{progress.in_flight} at once"):
        if len(line) + len(part) + 3 <= width:
            line += f" · {part}"
    return line[:width]


def _vendor_parts(vendor: VendorProgress) -> Iterator[str]:
    """Yield where the jobs of a vendor are, and what is waited for beside them."""
    if vendor.jobs:
        jobs = f"{vendor.jobs} job{'s' if vendor.jobs > 1 else ''}"
        yield f"{jobs} at the vendor: {vendor.served:,}/{vendor.rows:,}" + (f" {vendor.word}" if vendor.word else "")
    if vendor.waiting:
        yield vendor.waiting
        if vendor.pause > 1:
            yield f"next request in {duration(vendor.pause)}"


def duration(seconds: float) -> str:
    """Return a time in two units at most."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


# ── when nothing runs ────────────────────────────────────────────────────────
def report_lines(report: BatchReport) -> Iterator[str]:
    """Yield the lines of the report."""
    head = f"{report.done:,} done, {report.failed:,} failed in {report.out}"
    if report.asked != report.done + report.failed:
        head += f" ({report.asked:,} of them in this run)"
    yield f"{head}; {duration(report.seconds)}"
    if report.stopped is not None:
        advice = _GOES_ON.get(report.stop_kind or "")
        yield f"stopped: {report.stopped}; {advice}" if advice is not None else f"stopped: {report.stopped}"
    if report.by_vendor:
        yield f"in batches of the vendor: {report.by_vendor:,} row{plural(report.by_vendor)}"
    if report.waiting:
        yield f"still at the vendor: {report.waiting:,} row{plural(report.waiting)}"
    if report.unsure:
        yield f"unanswered since an earlier run: {report.unsure:,}; they count as paid"
    if report.unanswered:
        yield f"perhaps sent, and not answered: {report.unanswered:,}; they count at the most that they can cost"
    if report.requests:
        share = report.refused / report.requests
        rate = report.asked / report.seconds if report.seconds else 0.0
        yield f"requests: {report.requests:,}, {report.refused:,} refused ({share:.1%}); {rate:,.1f} rows/s"
    latency = [f"{name} {value:.2f} s" for name, value in report.latency.items() if value is not None]
    if latency:
        yield f"latency: {', '.join(latency)}"
    if report.input_tokens or report.output_tokens or report.uncounted:
        cached = "" if report.cache_hits is None else f", {report.cache_hits:.0%} of the input from the cache"
        mark = "≥ " if report.uncounted else ""
        more = f" (answers without all counts: {report.uncounted:,})" if report.uncounted else ""
        yield f"tokens: {mark}{report.input_tokens:,} in, {mark}{report.output_tokens:,} out{cached}{more}"
    if report.cost is not None and report.simulated:
        yield f"cost: {report.cost:f} {report.currency} at the model's price; nothing was paid"
    elif report.cost is not None:
        money = f"{report.cost:f} {report.currency}"
        if report.unpriced:
            money = f"≥ {money} (requests of unknown cost: {report.unpriced:,})"
        yield f"cost: {money}, {report.run_cost:f} of it in this run"
    if report.other_costs and not report.simulated:
        costs = ", ".join(f"{cost:f} {currency}" for currency, cost in report.other_costs.items())
        yield f"cost of earlier runs: {costs}"
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
    rows = estimate.rows - estimate.faults
    yield f"{rows:,} row{plural(rows)} to ask; nothing was sent"
    if estimate.faults:
        yield f"rows that are not requests: {estimate.faults:,}; the first: {estimate.faults_shown[0][:_EXAMPLE]}"
    yield (
        f"tokens: about {estimate.input_tokens:,} in, and {estimate.output_tokens:,} out if an answer has "
        f"{estimate.typical_output} tokens or its max_tokens"
    )
    if estimate.cost is None:
        yield "cost: unknown, there is no price for such requests; --assume-price IN/OUT --currency C"
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
        yield f"time: {duration(estimate.seconds)} or more, under the per-minute limits"
    yield from estimate.messages
