"""Run `cnllm verify --tools`: scripted tasks with native tools and with tools described in the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cnllm.cli import client_factory
from cnllm.cli.output import answer, errors, stdio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cnllm.client.sync_client import Client
    from cnllm.registry import Registry
    from cnllm.registry.model import Model
    from cnllm.tool_trial import Allowance, Mode, TaskResult, TrialReport

__all__ = ["GOAL", "print_plan", "verify_tools"]

GOAL = 0.95
"""More than this share of the tasks has to end right, with native tools, for the exit status 0."""


def verify_tools(registry: Registry, models: Sequence[Model], options: Mapping[str, Any]) -> int:
    """Try the tools of models, print a table of each, and return the exit status.

    0: every model reaches the goal. 3: one does not, or the allowance ended the trial. 1: a model did not answer.
    Raises `UsageError` for models whose price is needed and unknown.
    """
    from cnllm.cli.commands import tool_trial_report
    from cnllm.tool_trial import Allowance

    simulate, as_json = options["simulate"], options["as_json"]
    if options["max_cost"] is not None and not simulate:
        _require_prices(models)
    allowance = Allowance(options["max_requests"], options["max_cost"])
    reports = []
    status = errors.WHOLE
    for model in models:
        report = _try(registry, model, allowance, simulate=simulate)
        reports.append(report)
        if report.failed is not None:
            errors.print_error(f"{report.model} did not answer: {report.failed}")
        elif not as_json:
            answer.print_line(tool_trial_report.as_text(report))
        status = errors.worst_status(status, _status(report))
        if report.stopped is not None:
            break
    if as_json:
        answer.print_json([tool_trial_report.as_json(report) for report in reports])
    if simulate:
        stdio.print_line("cnllm: simulated; the simulator makes arguments up, so that its tasks mostly end wrong")
    return status


def print_plan() -> int:
    """Print how many requests a trial takes, and ask nothing."""
    from cnllm.tool_trial import TASKS

    requests = 2 * sum(task.requests for task in TASKS)
    stdio.print_line(
        f"{len(TASKS)} tasks, with native tools and with tools in the prompt: about {requests} requests a model"
    )
    return errors.WHOLE


def _require_prices(models: Sequence[Model]) -> None:
    """Raise `UsageError` where --max-cost cannot be kept: no known price, or several currencies."""
    from cnllm.tool_trial.allowance import currency_of

    currencies = {model.name: currency_of(model) for model in models}
    unknown = [name for name, currency in currencies.items() if currency is None]
    if unknown:
        raise errors.UsageError(f"--max-cost: the price of {', '.join(unknown)} is unknown", "use --max-requests")
    if len(set(currencies.values())) > 1:
        raise errors.UsageError(
            f"--max-cost: the prices are in {' and '.join(sorted(set(filter(None, currencies.values()))))}",
            "verify the models of each currency apart",
        )


def _try(registry: Registry, model: Model, allowance: Allowance, *, simulate: bool) -> TrialReport:
    """Try one model."""
    from cnllm.client.sync_client import Client
    from cnllm.tool_trial import TASKS, try_tools

    api_key = None if simulate else client_factory.read_key(model, None)

    def open_client(transport: Any) -> Client:
        return Client(registry, transport, simulate=simulate, api_key=api_key)

    def show(mode: Mode, result: TaskResult) -> None:
        kind = "native tools" if mode == "native" else "tools in the prompt"
        stdio.print_line(f"{model.name}, {kind}, {result.task}: {result.problem or 'right'}")

    transport = client_factory.base_transport(registry, simulate=simulate)
    return try_tools(open_client, transport, model, allowance, tasks=TASKS, on_result=show)


def _status(report: TrialReport) -> int:
    """Return the exit status of one model."""
    from cnllm.tool_trial import measure

    if report.failed is not None:
        return errors.FAILED
    native = next((measure(mode.results) for mode in report.modes if mode.mode == "native"), None)
    success = native.success if native is not None else None
    done = report.stopped is None and success is not None and success > GOAL
    return errors.WHOLE if done else errors.PARTIAL
