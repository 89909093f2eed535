"""Run `cnllm verify --tools`: scripted tasks with native tools and with tools described in the prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cnllm.cli import client_factory, probe_target
from cnllm.cli.language.messages import localize
from cnllm.cli.output import errors, stdio, stdout
from cnllm.cli.output.table import table, truncate_end
from cnllm.client.sync_client import Client
from cnllm.errors import CnllmError
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.tool_trial import TASKS, Mode, ModeReport, TaskResult, TrialAllowance, TrialReport, try_tools
from cnllm.types.checks import plural

__all__ = ["GOAL", "print_plan", "verify_tools"]

_WIDTH = 80
_HEADS = {"native": "native tools", "prompt": "tools in the prompt"}
GOAL = 0.95
"""More than this share of the tasks has to end right, with native tools, for the exit status 0."""


def verify_tools(registry: Registry, models: Sequence[Model], options: Mapping[str, Any]) -> int:
    """Try the tools of models, print a table of each, and return the exit status.

    0: every model reaches the goal. 3: one does not, or the allowance ended the trial. 1: a model did not answer.
    Raises `UsageError` for models whose price is needed and unknown.
    """
    simulate, as_json = options["simulate"], options["as_json"]
    if options["max_cost"] is not None and not simulate:
        probe_target.require_prices(models)
    allowance = TrialAllowance(options["max_requests"], options["max_cost"])
    if simulate:  # before the table, which would look like a broken product
        stdio.print_line("cnllm: simulated; the simulator makes arguments up, so that its tasks mostly end wrong")
    reports = []
    status = errors.WHOLE
    for model in models:
        try:
            report = _try(registry, model, allowance, simulate=simulate)
        except CnllmError as error:
            errors.print_error(f"{model.name}: {error.message}", error.hint)
            status = errors.worst_status(status, errors.exit_status(error))
            continue
        reports.append(report)
        if report.failed is not None:
            errors.print_error(f"{report.model} did not answer: {report.failed}")
        elif not as_json:
            stdout.print_line(_as_text(report))
        status = errors.worst_status(status, _status(report))
        if report.stopped is not None:
            break
    if as_json:
        stdout.print_json(reports)
    return status


def print_plan() -> int:
    """Print how many requests a trial takes, and ask nothing."""
    requests = 2 * sum(task.requests for task in TASKS)
    stdio.print_line(
        f"{len(TASKS)} tasks, with native tools and with tools in the prompt: about {requests} requests a model"
    )
    return errors.WHOLE


def _try(registry: Registry, model: Model, allowance: TrialAllowance, *, simulate: bool) -> TrialReport:
    """Try one model."""
    api_key = None if simulate else probe_target.of_model(model).api_key

    def open_client(transport: Any) -> Client:
        return Client(registry, transport, simulate=simulate, api_key=api_key)

    def show(mode: Mode, result: TaskResult) -> None:
        kind = _HEADS[mode]
        stdio.print_line(f"{model.name} · {kind} · {result.task}: {result.problem or 'the result is right'}")

    transport = client_factory.base_transport(registry, simulate=simulate)
    return try_tools(open_client, transport, model, allowance, tasks=TASKS, on_result=show)


def _status(report: TrialReport) -> int:
    """Return the exit status of one model."""
    if report.failed is not None:
        return errors.FAILED
    success = next((mode.success for mode in report.modes if mode.tools == "native"), None)
    is_whole = report.stopped is None and success is not None and success > GOAL
    return errors.WHOLE if is_whole else errors.PARTIAL


# ── what is printed ──────────────────────────────────────────────────────────
def _as_text(report: TrialReport) -> str:
    """Return the table of one model, at most 80 columns wide."""
    rows = [[localize(label), *cells] for label, cells in _rows(report.modes)]
    heads = [f"{report.model} over {report.protocol}", *(_HEADS[mode.tools] for mode in report.modes)]
    lines = [truncate_end(line, _WIDTH) for line in table(["", *map(localize, heads[1:])], rows).splitlines()]
    lines = [localize(heads[0]), *lines, *_problems(report.modes)]
    lines.append(
        localize(
            f"{report.requests} request{plural(report.requests)}" + (f"; {report.stopped}" if report.stopped else "")
        )
    )
    return "\n".join(lines)


def _rows(measured: Sequence[ModeReport]) -> Iterator[tuple[str, list[str]]]:
    yield "tasks that end right", [_of(m.right, m.tasks) for m in measured]
    yield "calls where they belong (F1)", [_share(m.f1) for m in measured]
    yield "  precision, recall", [f"{_share(m.precision)}, {_share(m.recall)}" for m in measured]
    yield "calls valid by their schema", [_of(m.valid, m.called) for m in measured]
    for label, times in (
        ("first text or call, median", [m.first for m in measured]),
        ("whole task, median", [m.task for m in measured]),
    ):
        yield label, [_time(seconds.median if seconds else None) for seconds in times]
        yield "  95 of 100 within", [_time(seconds.p95 if seconds else None) for seconds in times]


def _problems(modes: Sequence[ModeReport]) -> Iterator[str]:
    """Yield a line for each task that did not end right."""
    for mode in modes:
        for result in mode.results:
            if result.problem is not None:
                problem = localize(f"{_HEADS[mode.tools]} · {result.task}: {result.problem}")
                yield truncate_end(f"  {problem}", _WIDTH)


def _of(part: int, whole: int) -> str:
    return localize(f"{part} of {whole} ({100 * part / whole:.0f} %)") if whole else "–"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _time(value: float | None) -> str:
    return "–" if value is None else localize(f"{value:.2f} s")
