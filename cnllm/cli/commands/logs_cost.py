"""Define `cnllm logs cost`: what the logged calls used."""

from __future__ import annotations

import datetime
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from cnllm.cli import completion, options
from cnllm.cli.language.messages import localize, localize_word
from cnllm.cli.output import answer, errors, stdio
from cnllm.cli.output.table import table
from cnllm.system.files import write_file

if TYPE_CHECKING:
    from cnllm.store.costs import CostReport, CostRow, Grouping

__all__ = ["cost", "utc_time"]

_HEADS = {"model": "MODEL", "provider": "PROVIDER", "key": "KEY", "day": "DAY", "tag": "TAG"}
_HEADS["conversation"] = "CONVERSATION"
_CSV = ("turns", "input", "cached", "output", "currency", "amount", "at_most", "missing", "unknown")


@click.command(
    cls=options.Command,
    epilog=options.examples(
        "cnllm logs cost",
        "cnllm logs cost --by day --since 30 --plot days.svg",
        "cnllm logs cost --by conversation --json",
        "cnllm logs cost --against usage_data_2026_8.zip",
    ),
)
@click.argument("ident", metavar="[ID]", required=False, shell_complete=completion.complete_conversations)
@click.option(
    "--by", type=click.Choice(list(_HEADS)), default="model", show_default=True, help="What a line stands for."
)
@click.option("--since", metavar="DATE|DAYS", help="Only turns since 2026-01-31, or of the last DAYS days.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: a line for each currency, without a sum.")
@click.option(
    "--against", "bill", metavar="BILL", help="Compare with a vendor's bill: a CSV file, a folder or a ZIP archive."
)
@click.option("--columns", metavar="FILE", help="A TOML file that describes the columns of another bill.")
@click.option("--plot", metavar="FILE.svg", type=click.Path(), help="Draw the lines into an SVG file, too.")
@options.as_json("the lines and their sum")
@click.pass_context
def cost(
    ctx: click.Context,
    ident: str | None,
    by: str,
    since: str | None,
    bill: str | None,
    columns: str | None,
    plot: str | None,
    *,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Sum the tokens and the cost of logged calls.

    All calls, or those of one conversation.

    Calls of batches and of a gateway's clients count too, and those of the library with log_calls. A call has the tag
    that it was given; one of a gateway's client without a tag has the name of the client's key.

    Where the cost of a turn is unknown, the sum is a lower bound: it has a ≥, and the turns without a cost are counted.
    Calls that were not logged or were taken back are in no sum. Simulated calls cost nothing.

    --against sums the log as the bill does, in its time zone, and names likely causes of a difference. The exit status
    is 0 if all of it agrees, else 3.
    """
    from cnllm.store import Store

    begin = None if since is None else utc_time(since, "--since")
    if bill is not None:
        if plot is not None:
            raise errors.UsageError("--plot draws no comparison", "leave out --plot or --against")
        if ident is not None or ctx.get_parameter_source("by") is not click.core.ParameterSource.DEFAULT:
            raise errors.UsageError("--against compares all calls, in the groups of the bill", "leave out ID and --by")
        from cnllm.cli.bill_report import print_comparison

        ctx.exit(print_comparison(bill, columns, begin, as_csv=as_csv, as_json=as_json))
    if columns is not None:
        raise errors.UsageError("--columns describes the bill of --against", "add --against BILL")
    with Store.open() as store:
        id_ = None if ident is None else store.conversation(ident, with_calls=True).id
        report = store.costs(cast("Grouping", by), since=begin, conversation=id_)
    if plot is not None and report.total.turns:
        _draw(plot, report)
    if as_json:
        answer.print_json(report)
        return
    if as_csv:
        _print_csv(by, report.rows)
        return
    if not report.total.turns:
        stdio.print_line("no call of an endpoint is logged" + (" in that time" if since else ""))
    else:
        heads = (_HEADS[by], "TURNS", "IN", "CACHED", "OUT", "COST")
        rows = [_cells(row, localize(row.label) if row.label == "(no key)" else row.label) for row in report.rows]
        if len(rows) > 1:
            rows.append(_cells(report.total, localize_word("all")))
        answer.print_line(table(heads, rows, right=range(1, 5)))
    if report.free:
        stdio.print_line(f"simulated and replayed turns, for which nothing was paid: {report.free}")


def _draw(plot: str, report: CostReport) -> None:
    """Write the plot. Raise `UsageError` where it cannot be written."""
    from cnllm.cli.output.cost_plot import draw_costs

    try:
        write_file(Path(plot), draw_costs(report).encode(), durable=False)
    except OSError as error:
        raise errors.UsageError(f"--plot {plot} cannot be written: {error.strerror}", "name another file") from error


def _print_csv(by: str, rows: Sequence[CostRow]) -> None:
    """Print the rows, one line for each currency; `at_most` is empty where nothing bounds the cost."""
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((by, *_CSV))
    for row in rows:
        counts = (row.label, row.turns, row.input, row.cached, row.output)
        for cost in row.cost or (None,):
            if cost is None:
                writer.writerow((*counts, "", "", "", "", row.unknown))
                continue
            most = "" if cost.at_most is None else f"{cost.at_most:f}"
            writer.writerow((*counts, cost.currency, f"{cost.amount:f}", most, " ".join(cost.missing), row.unknown))
    answer.print_line(text.getvalue().rstrip("\n"))


def _cells(row: CostRow, label: str) -> tuple[str, ...]:
    mark = "≥" if row.uncounted else ""
    cached = f"{'≥' if row.uncounted_cached else ''}{row.cached:,}"
    if row.uncounted_cached == row.turns:
        cached = localize_word("unknown")
    return label, f"{row.turns:,}", f"{mark}{row.input:,}", cached, f"{mark}{row.output:,}", _cost(row)


def _cost(row: CostRow) -> str:
    amounts = " + ".join(f"{cost.amount.normalize():f} {cost.currency}" for cost in row.cost)
    if row.exact:
        return amounts or "0"
    turns = f"{row.unknown:,} turn{'' if row.unknown == 1 else 's'}"
    return localize(f"≥ {amounts} (unknown for {turns})" if amounts else f"unknown for {turns}")


def utc_time(text: str, option: str) -> str:
    """Return the beginning of a local day as ISO 8601 in UTC: a date, or a number of days before now."""
    try:
        if text.isascii() and text.isdigit():
            time = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=int(text))
        else:
            time = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise errors.UsageError(
            f"{option} {text}: this is not a date", "it is like 2026-01-31, or a number of days"
        ) from None
    return time.isoformat(timespec="milliseconds")
