"""Show where a batch is: one line that is rewritten on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cnllm.cli.language.messages import translate
from cnllm.cli.output import stdio, terminal

if TYPE_CHECKING:
    from cnllm.batch.progress import Progress

__all__ = ["BatchView", "duration", "progress_line"]

_EVERY = 15.0  # seconds between two lines in a pipe


class BatchView:
    """The line of a run, on stderr. On a terminal rich writes it, where rich is installed."""

    def __init__(self) -> None:
        self._live: Any = None
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not terminal.is_dumb():
            try:
                from rich.console import Console
                from rich.live import Live
            except ImportError:
                return self
            console = Console(stderr=True, highlight=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show a moment of the run."""
        if self._live is not None:
            from rich.text import Text

            width = self._live.console.width
            self._live.update(
                Text(translate(progress_line(progress, width)), no_wrap=True, overflow="crop"), refresh=True
            )
        elif time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            stdio.print_line(f"cnllm: {progress_line(progress, 200)}")


def progress_line(progress: Progress, width: int = 80) -> str:
    """Return the line. What has no room is left out, the least important first."""
    parts = [f"{progress.done + progress.before:,} done"]
    if progress.total is not None:
        share = (progress.done + progress.before + progress.failed) / max(progress.total, 1)
        parts[0] = f"{progress.done + progress.before:,}/{progress.total:,} done {share:.0%}"
    optional: list[str] = []
    if (vendor := progress.vendor) is not None:
        jobs = f"{vendor.jobs} job{'s' if vendor.jobs > 1 else ''}"
        parts.append(
            f"{jobs} at the vendor: {vendor.served:,}/{vendor.rows:,}" + (f" {vendor.word}" if vendor.word else "")
        )
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    if vendor is not None:
        pass  # nothing of this run is on its way
    elif progress.waiting is not None and progress.waiting > 1:
        parts.append(f"refused for {duration(progress.waiting)}, waiting")
    else:
        parts.append(f"{_rate(progress.rate)}/s")
    if progress.cost is not None:
        cost = f"{progress.cost:.2f}"
        if progress.projected is not None:
            cost += f" of ~{progress.projected:.2f}"
        parts.append(f"{cost} {progress.currency}")
    if progress.left is not None:
        parts.append(f"{duration(progress.left)} left")
    optional.append(f"{_rate(progress.tokens)} tok/s")
    optional.append(f"{progress.in_flight} at once")
    line = " · ".join(parts)
    for part in optional:
        if len(line) + len(part) + 3 <= width:
            line += f" · {part}"
    return line[:width]


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
