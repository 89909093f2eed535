"""Print what a trial of tools found: a table of each model, and the tasks that did not end right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cnllm.cli.output.table import table, truncate_end

if TYPE_CHECKING:
    from cnllm.tool_trial import Measures, ModeReport, TrialReport

__all__ = ["as_json", "as_text"]

_WIDTH = 80
_HEADS = {"native": "native tools", "prompt": "tools in the prompt"}


def as_text(report: TrialReport) -> str:
    """Return the table of one model, at most 80 columns wide."""
    from cnllm.tool_trial import measure

    measured = [measure(mode.results) for mode in report.modes]
    rows = [[label, *cells] for label, cells in _rows(measured)]
    heads = [f"{report.model} over {report.protocol}", *(_HEADS[mode.mode] for mode in report.modes)]
    lines = [truncate_end(line, _WIDTH) for line in table(["", *heads[1:]], rows).splitlines()]
    lines = [heads[0], *lines, *_problems(report.modes)]
    lines.append(f"{report.requests} requests" + (f"; {report.stopped}" if report.stopped else ""))
    return "\n".join(lines)


def _rows(measured: Sequence[Measures]) -> Iterator[tuple[str, list[str]]]:
    yield "tasks that end right", [_of(m.right, m.tasks) for m in measured]
    yield "calls where they belong (F1)", [_share(m.f1) for m in measured]
    yield "  precision, recall", [f"{_share(m.precision)}, {_share(m.recall)}" for m in measured]
    yield "calls valid by their schema", [_of(m.valid, m.called) for m in measured]
    for label, times in (
        ("first text or call", [m.first for m in measured]),
        ("whole task", [m.task for m in measured]),
    ):
        yield f"{label}, median", [_time(seconds.median if seconds else None) for seconds in times]
        yield "  95 of 100 within", [_time(seconds.p95 if seconds else None) for seconds in times]


def _problems(modes: Sequence[ModeReport]) -> Iterator[str]:
    """Yield a line for each task that did not end right."""
    for mode in modes:
        for result in mode.results:
            if result.problem is not None:
                yield truncate_end(f"  {_HEADS[mode.mode]}, {result.task}: {result.problem}", _WIDTH)


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "–"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _time(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"


def as_json(report: TrialReport) -> dict[str, Any]:
    """Return a report as `--json` prints it."""
    import msgspec

    from cnllm.tool_trial import measure

    modes = []
    for mode in report.modes:
        measures = measure(mode.results)
        shares = {name: getattr(measures, name) for name in ("success", "precision", "recall", "f1", "schema_accuracy")}
        modes.append({"tools": mode.mode, **msgspec.to_builtins(measures), **shares, "results": mode.results})
    out: dict[str, Any] = msgspec.to_builtins(
        {
            "model": report.model,
            "protocol": report.protocol,
            "modes": modes,
            "requests": report.requests,
            "stopped": report.stopped,
            "failed": report.failed,
        }
    )
    return out
