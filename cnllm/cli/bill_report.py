"""Compare the log with a bill for `cnllm logs cost --against`, and print the comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from cnllm.bills import BillReport, BillRow, built_in_exports, compare_bill, read_exports
from cnllm.bills.compare import BillState
from cnllm.cli.language.messages import localize, localize_word
from cnllm.cli.output import errors, stdio, stdout
from cnllm.cli.output.table import table
from cnllm.cli.output.terminal import escape
from cnllm.cli.prices import price_lookup

__all__ = ["print_comparison"]

_STATES: dict[BillState, str] = {
    "matched": "matched",
    "different": "different",
    "bill-only": "bill only",
    "ours-only": "ours only",
}
_COLUMNS = ("period", "model", "id", "state", "currency", "bill", "ours", "difference", "calls", "causes")


def print_comparison(path: str, columns: str | None, since: str | None, *, as_csv: bool, as_json: bool) -> int:
    """Print the comparison of the log with a bill. Return the exit status."""
    from cnllm.store import Store

    exports = [built_in_exports()] if columns is None else [read_exports(columns), built_in_exports()]
    with Store.open() as store:
        report = compare_bill(store.file, path, exports, price_lookup(), since)
    if as_json:
        stdout.print_json(report)
    elif as_csv:
        _print_csv(report)
    else:
        _print_text(report)
    return errors.WHOLE if report.agrees else errors.PARTIAL


def _print_text(report: BillReport) -> None:
    """Print the sums of each state, then every row that does not agree."""
    if not report.rows:
        stdout.print_message("the bill has no row with an amount or tokens, and the log no call of its time")
    heads = ("STATE", "ROWS", "BILL", "OURS", "DIFFERENCE")
    sums = [
        (localize_word(_STATES[total.state]), f"{total.rows:,}", *_amounts(total.currency, total.bill, total.ours))
        for total in report.totals
    ]
    if sums:
        stdout.print_line(table(heads, sums, right=range(1, 5)))
    rows = [row for row in report.rows if row.state != "matched"]
    if rows:
        stdout.print_line("")
        lines = [
            (
                row.period,
                escape(_subject(row)),
                localize_word(_STATES[row.state]),
                *_amounts(row.currency, row.bill, row.ours),
            )
            for row in rows
        ]
        text = table(("TIME", "MODEL", "STATE", "BILL", "OURS", "DIFFERENCE"), lines, right=range(3, 6)).splitlines()
        stdout.print_line(text[0])
        for row, line in zip(rows, text[1:], strict=True):
            stdout.print_line(line)
            for cause in row.causes:
                stdout.print_line(f"    {cause.code}: {escape(localize(cause.detail))}")
    for line in _remarks(report):
        stdio.print_line(line)


def _remarks(report: BillReport) -> Iterator[str]:
    if report.periods:
        first, last = report.periods
        span = first if first == last else f"{first} to {last}"
        yield f"read {', '.join(report.exports)}: {span}"
    if report.undated:
        yield f"rows without a time, which are totals: {report.undated:,} left out"
    if report.foreign:
        yield f"rows of other products: {report.foreign:,} left out"
    if report.unknown:
        words = escape(", ".join(report.unknown))
        yield f"kinds of tokens that the export does not describe: {words}; tokens of their sums are not compared"
    for name in report.repeated:
        yield f"{escape(name)} has the bytes of another file, and counts once"
    for name in report.unread:
        yield f"{escape(name)} is not a known export; --columns FILE describes one"
    for one, other in report.overlaps:
        files = f"{escape(one)} and {escape(other)}"
        yield f"{files} have rows for the same time; if one repeats the other, they count twice"


def _subject(row: BillRow) -> str:
    model = row.model or localize("all models")
    return model if row.id is None else f"{model} {row.id}"


def _amounts(currency: str | None, bill: Decimal | None, log: Decimal | None) -> Iterator[str]:
    """Yield the amount of the bill, that of the log, and their difference."""
    for amount in (bill, log, None if bill is None or log is None else bill - log):
        yield "-" if amount is None or currency is None else f"{_plain(amount)} {currency}"


def _plain(amount: Decimal | None) -> str:
    """Return an amount without zeros behind it."""
    return "" if amount is None else f"{amount.normalize():f}" if amount else "0"


def _print_csv(report: BillReport) -> None:
    lines: list[Sequence[object]] = [_COLUMNS]
    for row in report.rows:
        money = (_plain(row.bill), _plain(row.ours), _plain(row.difference))
        causes = "; ".join(f"{cause.code}: {cause.detail}" for cause in row.causes)
        texts = (row.period, _cell(row.model), _cell(row.id or ""), row.state, row.currency or "")
        lines.append((*texts, *money, row.calls, _cell(causes)))
    stdout.print_csv(lines)


def _cell(text: str) -> str:
    """Return a text of a bill as a cell that no spreadsheet takes for a formula."""
    return escape(f"'{text}" if text.startswith(("=", "+", "-", "@")) else text)
