"""Define `cnllm compare`: how faithfully hosts serve one model, measured."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import completion, options
from cnllm.cli.language.messages import localize, pick_localized
from cnllm.cli.option_types import assume_price, flag, output, repeated
from cnllm.cli.output import errors, stdio, stdout
from cnllm.cli.output.table import table
from cnllm.cli.prices import assumed_price
from cnllm.config.signatures import read_signing_key
from cnllm.system.files import REPORT_BYTES, replace_file

if TYPE_CHECKING:
    from cnllm.comparison import Comparison, Host, Share, TaskChoice
    from cnllm.comparison.figures import FigureRow, Median, Words
    from cnllm.registry import Registry

__all__ = ["compare"]

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Z]{3})?")


@click.command(cls=options.Command)
@click.argument("model", required=False, shell_complete=completion.complete_models)
@click.option(
    "--hosts",
    metavar="A,B",
    help="The hosts, the reference first: PROVIDER or PROVIDER/ID, for a router with @UPSTREAM. Else all with a key.",
)
@click.option(
    "-n",
    "turns",
    metavar="N",
    type=click.IntRange(1, 5000),
    default=200,
    show_default=True,
    help="Tool-calling turns per host; the other kinds of tasks have numbers of their own.",
)
@repeated(
    "--max-cost",
    "caps",
    metavar="X",
    help="The most to spend, with its currency: 5USD. One for each currency. Without it only the plan is shown.",
)
@assume_price(help="The price of a million tokens of hosts without a known one.")
@click.option("--currency", metavar="C", help="The currency of --assume-price, and of --max-cost without one.")
@click.option("--seed", metavar="S", type=int, default=0, show_default=True, help="The seed of the tasks.")
@flag("--stop-early", help="Stop asking a host that proves worse after a quarter or half of its tasks.")
@flag("--simulate", help="Ask the simulator, which answers rightly: no key, no network.")
@click.option("--replay", metavar="REPORT.json", help="Compute a report again from its records, without keys.")
@output(metavar="REPORT", help="Write the report: .json, .html to read, .svg.")
@click.option("--sign", "key", metavar="KEY.pem", help="Sign the report with this Ed25519 key.")
@options.as_json("figures and verdicts")
@click.pass_context
def compare(ctx: click.Context, /, model: str | None, **params: Any) -> None:
    """Ask several hosts of one model the same tasks, and count the faults of each.

    The hosts are those with the same open weights. The tasks come from a seed, and each has one right result: tool
    calls, structured answers, long lists, long texts. Each reply is judged as it arrived, before cnllm repairs it. The
    first host is the reference; a verdict needs paired tasks and holds against all tests that were made.

    Without --max-cost cnllm shows the plan and its price, and asks nothing. The exit status is 0 if all was asked, and
    3 if a host did not get all tasks, or if a replay computes another figure than the report has.

    Examples:
      cnllm compare kimi-k3
      cnllm compare kimi-k3 --hosts moonshotai,deepinfra,openrouter@novita --max-cost 20USD -o kimi-k3.json
      cnllm compare --replay kimi-k3.json -o kimi-k3.html
      cnllm compare kimi-k3 --hosts moonshotai,deepinfra -n 20 --simulate
    """
    from cnllm.registry import Registry

    registry = Registry.load()
    if (output := params["output"]) is not None:
        if Path(output).suffix not in (".json", ".html", ".svg"):
            raise errors.UsageError(f"-o {output}: a report is .json, .html or .svg", "choose one of these")
        errors.require_place(output)
    pem = None if params["key"] is None else _signing_key(params["key"], output)
    if params["replay"] is not None:
        _refuse_settings(ctx)
        ctx.exit(_replay(registry, pem, params))
    if model is None:
        raise errors.UsageError("no model is named", "cnllm compare MODEL")
    ctx.exit(_run(registry, model, pem, params))


def _refuse_settings(ctx: click.Context) -> None:
    """Raise `UsageError` for a model, or an option of a run, beside `--replay`: the report has them."""
    own = {"output", "key", "as_json", "replay"}
    for param in ctx.command.get_params(ctx):
        source = ctx.get_parameter_source(param.name or "")
        if param.name not in own and source is click.core.ParameterSource.COMMANDLINE:
            word = param.opts[-1] if isinstance(param, click.Option) else str(ctx.params["model"])
            raise errors.UsageError(
                f"{word} beside --replay, which takes the model and its settings from the report", f"leave {word} out"
            )


def _signing_key(name: str, output: str | None) -> bytes:
    """Return the content of a key, before anything is asked. Raise where it is none, or nothing could be signed."""
    if output is None or Path(output).suffix != ".json":
        raise errors.UsageError("--sign needs the report as JSON", "-o REPORT.json")
    pem = errors.read_file(name, f"cannot read {name}", "name a file that is there", REPORT_BYTES)
    read_signing_key(pem, name)
    return pem


def _replay(registry: Registry, pem: bytes | None, params: dict[str, Any]) -> int:
    """Compute a report again, and say whether every figure is the same."""
    from cnllm.comparison import compare, read_report

    label, hint = f"cannot read {params['replay']}", "name a file that is there"
    report = read_report(errors.read_file(params["replay"], label, hint, REPORT_BYTES))
    again = compare(replay=report, registry=registry)
    _show(again, pem, params)
    if report.signature is not None:
        stdio.print_line(f"signed with the key {report.signature.key}")
    if again == report:
        stdio.print_line("replayed: every figure is as in the report")
        return errors.WHOLE
    stdio.print_line("replayed: the figures differ from those of the report")
    return errors.PARTIAL


def _run(registry: Registry, name: str, pem: bytes | None, params: dict[str, Any]) -> int:
    """Show the plan or run it."""
    from cnllm.comparison import choose_hosts, settings_for
    from cnllm.comparison import compare as compare_hosts
    from cnllm.comparison.report import INTERRUPTED

    model = registry.resolve(name)
    names = [host for host in (params["hosts"] or "").split(",") if host] or None
    price = assumed_price(params["assume_price"], params["currency"])
    hosts, left_out = choose_hosts(registry, model, names, need_keys=not params["simulate"], assume_price=price)
    for host in left_out:
        stdio.print_line(f"left out: {host.host}: {host.reason}")
    is_plan = not params["caps"] and not params["simulate"]
    if len(hosts) < (1 if is_plan else 2):
        hint = "set the keys of others: cnllm keys set PROVIDER" if left_out else "name them: --hosts A,B"
        raise errors.UsageError("there is nothing to compare: a comparison needs two hosts", hint)
    if is_plan:
        _print_plan(hosts, settings_for(hosts, params["seed"], params["turns"]))
        return errors.WHOLE
    number = 0

    def count(host: str, result: object) -> None:
        nonlocal number
        number += 1
        if number % 50 == 0:
            stdio.print_line(f"{number} tasks are done")

    report = compare_hosts(
        model,
        [host.name for host in hosts],
        tasks=params["turns"],
        max_cost=_caps(params["caps"], params["currency"]),
        seed=params["seed"],
        stop_early=params["stop_early"],
        assume_price=price,
        simulate=params["simulate"],
        registry=registry,
        on_result=count,
    )
    _show(report, pem, params)
    stopped = {host.stopped for host in report.hosts}
    if INTERRUPTED in stopped:
        return errors.INTERRUPTED
    return errors.WHOLE if stopped == {None} else errors.PARTIAL


def _caps(texts: Sequence[str], currency: str | None) -> dict[str, Decimal]:
    """Return the caps by currency."""
    caps: dict[str, Decimal] = {}
    for text in texts:
        match = _AMOUNT.fullmatch(text.strip())
        code = None if match is None else match[2] or currency
        if match is None or code is None:
            raise errors.UsageError(f"--max-cost {text}: an amount and a currency", "--max-cost 5USD")
        if code in caps:
            raise errors.UsageError(f"--max-cost is there twice for {code}", "give one for each currency")
        caps[code] = Decimal(match[1])
    return caps


def _print_plan(hosts: Sequence[Host], settings: TaskChoice) -> None:
    """Print what would be asked, the most that it can cost, and the fault that so many turns show."""
    from cnllm.comparison import lost_share_shown, plan_costs

    tasks = settings.tasks
    rows, sums = [], dict[str, Decimal]()
    for plan in plan_costs(hosts, tasks):
        if plan.at_most is not None and plan.currency is not None:
            sums[plan.currency] = sums.get(plan.currency, Decimal(0)) + plan.at_most
        cost = "unknown: --assume-price" if plan.at_most is None else f"{plan.at_most:.2f} {plan.currency}"
        rows.append((plan.host, str(plan.requests), cost))
    stdout.print_line(table(("HOST", "REQUESTS", "AT MOST"), rows, right=[1]))
    share = f"{100 * lost_share_shown(settings.turns):.0f}"
    stdio.print_line(
        f"{settings.turns} tool turns show a host that loses {share} % of its calls, in nine runs of ten; -n sets them"
    )
    caps = " --max-cost ".join(f"{math.ceil(amount)}{code}" for code, amount in sums.items())
    then = f"--max-cost {caps} asks them" if len(hosts) > 1 else "a comparison needs two hosts"
    stdio.print_line(f"{len(hosts)} hosts, {len(tasks)} tasks each; nothing was asked: {then}")


# ── what is printed ──────────────────────────────────────────────────────────
def _show(report: Comparison, pem: bytes | None, params: dict[str, Any]) -> None:
    """Write the report, and print its figures, also where it cannot be written: they were paid for."""
    try:
        if params["output"] is not None:
            _write(report, pem, params["output"])
    finally:
        _print_figures(report, as_json=params["as_json"])


def _write(report: Comparison, pem: bytes | None, output: str) -> None:
    """Write the report to a file that the user named. An earlier one, which was paid for, stays where that fails."""
    write = {".html": report.to_html, ".svg": report.to_svg}.get(Path(output).suffix)
    signed = report if pem is None else report.sign(pem)
    content = signed.to_json() if write is None else write().encode()
    path = Path(output).resolve()
    with errors.writing(output):
        path.touch()  # a new one with the mode of the user's files
        if not path.is_file() or not os.access(path.parent, os.R_OK | os.W_OK):
            path.write_bytes(content)  # asked for
            return
        replace_file(path, content)


def _print_figures(report: Comparison, *, as_json: bool) -> None:
    """Print the figures and the verdicts."""
    from cnllm.comparison.figures import figure_rows, verdict_lines

    if as_json:
        stdout.print_json({"figures": report.figures, "verdicts": report.verdicts, "spent": report.spent})
        return
    hosts = [figures.host for figures in report.figures]
    rows = [(pick_localized(*row.about), *(_cell(value, row) for value in row.values)) for row in figure_rows(report)]
    stdout.print_line(table(("", *hosts), rows))
    for words, _ in verdict_lines(report):
        stdout.print_line(pick_localized(*words))
    for host in report.hosts:
        if host.stopped is not None:
            stdout.print_message(f"{host.name} was left before the end: {host.stopped}")
    if report.simulated:
        stdio.print_line("cnllm: simulated; the simulator answers every task rightly")


def _cell(value: Share | Median | Words | str | None, row: FigureRow) -> str:
    from cnllm.comparison import Share

    if isinstance(value, Share):
        return localize(f"{value.good} of {value.tasks}")
    if isinstance(value, tuple):
        return pick_localized(*value)
    if value is None or isinstance(value, str):
        return value or "–"
    return localize(f"{value.value:.{row.digits}f}{row.unit}")
