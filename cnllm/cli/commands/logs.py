"""Define `cnllm logs`: the conversations on disk."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from cnllm.cli import completion, options, questions
from cnllm.cli.commands.logs_cache import cache
from cnllm.cli.language.messages import join_localized, localize, localize_word
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdio, stdout, terminal, transcript
from cnllm.cli.output.format import count
from cnllm.cli.output.table import line_width, table
from cnllm.cli.output.transcript import local_time, short_time
from cnllm.config.settings import LogMode
from cnllm.store.text import as_json
from cnllm.system.files import replace_file

if TYPE_CHECKING:
    from cnllm.store import Store
    from cnllm.store.costs import CostRow, Grouping
    from cnllm.store.records import ConversationSummary, SearchHit

__all__ = ["logs"]

_ALL = -1
_FULL_WIDTH = 100  # columns of a terminal that shows the whole name of a model


@click.group(cls=options.Group)
def logs() -> None:
    """Conversations on disk: list, show, search, export, their cost.

    cnllm logs every call, and marks the simulated ones. It logs no key. CNLLM_LOG=off or --no-log skips a call.
    """


logs.add_command(cache)


def _count(default: int) -> options.Decorator:
    return click.option(
        "-n",
        "count",
        metavar="N",
        type=click.IntRange(min=0),
        default=default,
        show_default=True,
        help="At most N, 0 for all.",
    )


@logs.command("list")
@_count(20)
@options.as_json("an array")
def list_(count: int, *, as_json: bool) -> None:
    """List the conversations, the last one first.

    Examples:
      cnllm logs list -n 5
      cnllm logs list --json | jq -r '.[0].id'
    """
    from cnllm.store import Store

    with Store.open() as store:
        summaries = store.summaries(count or _ALL)
        total = store.count()
        _report_damage(store)

    def text() -> str:
        heads = ("ID", "LAST", "TURNS", "MODEL", "STATE", "PROMPT")
        is_terminal = sys.stdout.isatty()
        is_narrow = is_terminal and line_width() < _FULL_WIDTH
        rows = [_row(summary, is_terminal=is_terminal, is_narrow=is_narrow) for summary in summaries]
        return table(heads, rows, give={3: 10, 4: 10, 5: 16}, middles=[3], right=[2])

    stdout.print_listing(summaries, text, "no conversation is logged yet; cnllm call starts one", as_json=as_json)
    if total > len(summaries) and not as_json:
        stdio.print_line(f"{len(summaries)} of {total}; -n N shows more, -n 0 all")


def _row(summary: ConversationSummary, *, is_terminal: bool, is_narrow: bool) -> tuple[str, ...]:
    """Return a row. On a terminal it has no year and no usual state.

    On a narrow terminal it has no provider either, and one word for the state.
    """
    states: list[str] = [summary.state, *(origin for origin in summary.origins if origin != "endpoint")]
    if is_terminal:
        states = [state for state in states if state != "done"]
    state = join_localized(map(localize_word, states[:1] if is_narrow else states))
    model = summary.models[-1].partition("/")[2] if is_narrow else summary.models[-1]
    last = (short_time if is_terminal else local_time)(summary.last)
    prompt = " ".join(summary.prompt.split()) or localize("(words not stored)")
    return summary.id, last, str(summary.turns), model, state, prompt


@logs.command()
@click.argument("ident", metavar="[ID]", default="last", shell_complete=completion.complete_conversations)
@flag("--reasoning", help="Show the models' reasoning, too.")
@flag("--raw", help="Let control characters through to a terminal.")
@options.as_json("the conversation")
def show(ident: str, *, reasoning: bool, raw: bool, as_json: bool) -> None:
    """Show a conversation.

    The last one, or the one whose ID begins with ID.

    Examples:
      cnllm logs show
      cnllm logs show 3f2a --reasoning
      cnllm logs show 3f2a --json | jq
    """
    from cnllm.store import Store

    with Store.open() as store:
        with store.file.reading():  # another process may delete it
            (record,) = store.records([store.conversation(ident, with_calls=True).id])
        _report_damage(store)
    if as_json:
        stdout.print_json(record)
    else:
        transcript.print_transcript(record, reasoning=reasoning, raw=raw)


@logs.command()
@click.argument("words", nargs=-1, required=True)
@_count(20)
@options.as_json("an array")
def search(words: tuple[str, ...], count: int, *, as_json: bool) -> None:
    """Find messages that hold all WORDS.

    Text and reasoning are searched, and the newest message comes first.
    The search finds parts of words too, and ignores case. Quote several words to search for them as one.

    Examples:
      cnllm logs search sunset
      cnllm logs search 天空 蓝色
    """
    from cnllm.store import Store

    with Store.open() as store:
        hits = store.search(words, count or _ALL)
    stdout.print_listing(hits, lambda: "\n".join(map(_line, hits)), "nothing found", as_json=as_json)


def _line(hit: SearchHit) -> str:
    author = hit.role if hit.role != "assistant" else hit.model
    suffix = f" ({localize_word('reasoning')})" if hit.where == "reasoning" else ""
    return f"{hit.conversation}  {local_time(hit.began)}  {author}{suffix}: {hit.excerpt}"


@logs.command()
@click.argument("ident", metavar="[ID]", required=False, shell_complete=completion.complete_conversations)
def export(ident: str | None) -> None:
    """Print conversations as JSON lines.

    All or one, with their requests and responses.
    `cnllm call --replay` accepts these exchanges.

    Examples:
      cnllm logs export > conversations.jsonl
      cnllm logs export 3f2a | jq -c '.turns[].exchanges[]' > tape.jsonl
    """
    from cnllm.store import Store

    with Store.open() as store:
        ids = None if ident is None else [store.conversation(ident, with_calls=True).id]
        for record in store.records(ids, exchanges=True):
            line = as_json(record)
            stdout.print_line(terminal.escape_json(line) if sys.stdout.isatty() else line)
        _report_damage(store)


@logs.command()
def path() -> None:
    """Print the path of the file, whether or not it exists.

    Example:
      sqlite3 "$(cnllm logs path)" "SELECT model, usage FROM turns"
    """
    from cnllm.store.store import store_path

    stdout.print_path(store_path())


@logs.command()
@flag("--no-exchanges", help="Do not store the requests and responses of the wire.")
def on(*, no_exchanges: bool) -> None:
    """Log every call from now on. This is the default.

    Examples:
      cnllm logs on
      cnllm logs on --no-exchanges
    """
    _set_mode("no-exchanges" if no_exchanges else "on")
    stdio.print_line(f"calls are logged from now on{', without requests and responses' if no_exchanges else ''}")


@logs.command()
def off() -> None:
    """Stop logging calls. Logged calls stay.

    Example:
      cnllm logs off
    """
    _set_mode("off")
    stdio.print_line("calls are not logged from now on; the existing log stays (cnllm logs path)")


def _set_mode(mode: LogMode) -> None:
    from cnllm.config import settings_files

    settings_files.set_log_mode(mode)
    variable = settings_files.variable_log_mode()
    if variable not in (None, mode):
        errors.print_error(f"CNLLM_LOG={variable} wins over this setting", "unset CNLLM_LOG")


def _report_damage(store: Store) -> None:
    """Print which parts of the file cannot be read. The rest is shown."""
    for line in store.damaged:
        stdio.print_line(f"cnllm: {store.path}: damaged: {line}")


@logs.command()
@click.argument("idents", metavar="[ID]...", nargs=-1, shell_complete=completion.complete_conversations)
@click.option("--before", metavar="DATE|DAYS", help="Those without a turn since 2026-01-31, or in DAYS days.")
@flag("--all", "everything", help="All conversations.")
@flag("--yes", help="Do not ask. --before and --all need it where there is no terminal.")
def delete(idents: tuple[str, ...], before: str | None, *, everything: bool, yes: bool) -> None:
    """Delete conversations with their requests and responses. This cannot be undone.

    ID may be the beginning of an id, or last. The file keeps none of the deleted bytes.

    Examples:
      cnllm logs delete 3f2a
      cnllm logs delete --before 90
      cnllm logs delete --all --yes
    """
    from cnllm.store import Store

    ways = bool(idents) + (before is not None) + everything
    if ways > 1:
        raise errors.UsageError("the conversations are chosen twice, by ID, --before or --all", "give one of them")
    if ways == 0:
        raise errors.UsageError("name conversations, or give --before or --all", "cnllm logs list shows their ids")
    time = None if before is None else utc_time(before, "--before")
    with Store.open() as store:
        if idents:
            ids = list(dict.fromkeys(store.conversation(ident, with_calls=True).id for ident in idents))
        else:
            ids = store.ids() if time is None else store.ids_before(time)
        if not ids:
            stdio.print_line("there is no such conversation")
            return
        conversations = count(len(ids), "conversation")
        if not idents and not yes:
            if not sys.stdin.isatty():
                raise errors.UsageError(f"{conversations} would be deleted", "add --yes to delete them")
            if questions.choose(f"Really delete {conversations}?", "ny") == "n":
                stdio.print_line("nothing is deleted")
                return
            if time is not None:  # one may have gone on while nobody answered
                still = set(store.ids_before(time))
                ids = [id_ for id_ in ids if id_ in still]
                conversations = count(len(ids), "conversation")
        turns = store.delete(ids)
    stdio.print_line(f"deleted: {conversations}, {count(turns, 'turn')}")
    if store.holds_deleted:
        errors.print_error(
            f"another process is reading {store.path}: the file still holds the deleted bytes",
            "they are gone once that process has ended and a command has opened the file again: cnllm logs list",
        )
        click.get_current_context().exit(errors.PARTIAL)


# ── what the logged calls used ───────────────────────────────────────────────


_HEADS = {"model": "MODEL", "provider": "PROVIDER", "key": "KEY", "day": "DAY", "tag": "TAG"}
_HEADS["conversation"] = "CONVERSATION"
_COUNTS = ("turns", "input", "cached", "output")
_CSV = (*_COUNTS, "currency", "amount", "at_most", "missing", "unknown", "uncounted", "uncounted_cached")


@logs.command()
@click.argument("ident", metavar="[ID]", required=False, shell_complete=completion.complete_conversations)
@click.option(
    "--by", type=click.Choice(list(_HEADS)), default="model", show_default=True, help="What a line stands for."
)
@click.option("--since", metavar="DATE|DAYS", help="Only turns since 2026-01-31, or of the last DAYS days.")
@flag("--csv", "as_csv", help="Print CSV: a line for each currency, without a sum.")
@click.option(
    "--against",
    "bill",
    metavar="BILL",
    shell_complete=completion.complete_files,
    help="Compare with a vendor's bill: a CSV file, a folder or a ZIP archive.",
)
@click.option(
    "--columns",
    metavar="FILE",
    shell_complete=completion.complete_files,
    help="A TOML file that describes the columns of another bill.",
)
@click.option("--plot", metavar="FILE.svg", type=click.Path(), help="Draw the lines into an SVG file, too.")
@options.as_json("the lines and their sum")
@click.pass_context
def cost(ctx: click.Context, /, ident: str | None, by: str, plot: str | None, **params: Any) -> None:
    """Sum the tokens and the cost of logged calls.

    All calls, or those of one conversation.

    Calls of batches and of a gateway's clients count too, and those of the library with log_calls. A call has the tag
    that it was given; one of a gateway's client without a tag has the name of the client's key.

    Where the cost of a turn is unknown, the sum is a lower bound: it has a ≥, and the turns without a cost are counted.
    Calls that were not logged or were taken back are in no sum. Simulated calls cost nothing.

    --against sums the log as the bill does, in its time zone, and names likely causes of a difference. The exit status
    is 0 if all of it agrees, else 3.

    Examples:
      cnllm logs cost
      cnllm logs cost --by day --since 30 --plot days.svg
      cnllm logs cost --by conversation --json
      cnllm logs cost --against usage_data_2026_8.zip
    """
    from cnllm.store import Store

    bill, since, as_csv, as_json = (params[name] for name in ("bill", "since", "as_csv", "as_json"))
    if as_csv and as_json:
        raise errors.UsageError("--csv and --json print different things", "give one of them")
    begin = None if since is None else utc_time(since, "--since")
    if plot is not None and Path(plot).suffix != ".svg":
        raise errors.UsageError(f"--plot {plot}: the picture is an SVG", "give the file the ending .svg")
    if bill is not None:
        if plot is not None:
            raise errors.UsageError("--plot draws no comparison", "leave out --plot or --against")
        if ident is not None or ctx.get_parameter_source("by") is not click.core.ParameterSource.DEFAULT:
            raise errors.UsageError("--against compares all calls, in the groups of the bill", "leave out ID and --by")
        from cnllm.cli.bill_report import print_comparison

        ctx.exit(print_comparison(bill, params["columns"], begin, as_csv=as_csv, as_json=as_json))
    if params["columns"] is not None:
        raise errors.UsageError("--columns describes the bill of --against", "add --against BILL")
    with Store.open() as store:
        id_ = None if ident is None else store.conversation(ident, with_calls=True).id
        report = store.costs(cast("Grouping", by), since=begin, conversation=id_)
    if plot is not None and report.total.turns:
        from cnllm.cli.output.cost_plot import draw_costs

        with errors.writing(f"--plot {plot}"):
            replace_file(Path(plot), draw_costs(report).encode(), durable=False)
    if as_json:
        stdout.print_json(report)
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
        stdout.print_line(table(heads, rows, right=range(1, 5)))
    if report.free:
        stdio.print_line(f"simulated and replayed turns, for which nothing was paid: {report.free}")


def _print_csv(by: str, rows: Sequence[CostRow]) -> None:
    """Print the rows, one line for each currency.

    `at_most` is empty where nothing bounds the cost, and `cached` where no turn has such a count. Tokens are lower
    bounds where turns are `uncounted`.
    """
    lines: list[Sequence[object]] = [(by, *_CSV)]
    for row in rows:
        cached = row.cached if row.uncounted_cached < row.turns else ""
        counts = (row.label, row.turns, row.input, cached, row.output)
        unknown = (row.unknown, row.uncounted, row.uncounted_cached)
        for cost in row.cost:
            most = "" if cost.at_most is None else f"{cost.at_most:f}"
            lines.append((*counts, cost.currency, f"{cost.amount:f}", most, " ".join(cost.missing), *unknown))
        if not row.cost:
            lines.append((*counts, "", "", "", "", *unknown))
    stdout.print_csv(lines)


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
