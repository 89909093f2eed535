"""Define `cnllm serve keys` and `cnllm serve teams`: keys of a gateway's clients, with limits. A key is shown once."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from cnllm.cli import options
from cnllm.cli.commands.key_limits import limits_of, report_limits
from cnllm.cli.language.messages import localize, localize_word
from cnllm.cli.option_types import assume_price, flag, prices, repeated
from cnllm.cli.output import errors, stdio, stdout
from cnllm.cli.output.table import table
from cnllm.estimates.money import format_units
from cnllm.gateway.access import digest
from cnllm.types.checks import plural

if TYPE_CHECKING:
    from cnllm.gateway.limits.book import KeyBook
    from cnllm.gateway.limits.key_use import KeyUse
    from cnllm.gateway.limits.keys import KeyRecord

__all__ = ["file_key", "keys", "teams"]

F = TypeVar("F", bound=Callable[..., Any])

_COUNT = options.count_or(options.NONE)
_store = click.option(
    "--store",
    metavar="URL",
    default="sqlite:",
    help="The store of the gateway: sqlite:PATH, redis://HOST. Default: a file.",
)


_COMMON = (
    repeated(
        "--models",
        metavar="PATTERN",
        help="A model that may be used: PROVIDER/ID, an alias, or a pattern. Repeatable. Default: every model.",
    ),
    click.option("--rpm", metavar="N", type=_COUNT, help="The requests in any minute."),
    click.option("--tpm", metavar="N", type=_COUNT, help="The tokens in a minute, input and output."),
    click.option("--concurrency", metavar="N", type=_COUNT, help="The requests in flight."),
    repeated(
        "--budget",
        "budgets",
        metavar="X[/PERIOD]",
        help="The money to spend in all, or in each day, week or month: 20, 20/month.",
    ),
    repeated(
        "--soft-budget",
        "soft_budgets",
        metavar="X",
        help="The part of the budget after which log, metric and header warn.",
    ),
    repeated("--currency", "currencies", metavar="C", help="The currency of the budget: CNY, USD."),
    click.option("--time-zone", metavar="ZONE", help="Where days begin: Asia/Shanghai. Default: UTC."),
)
_OF_KEYS = (
    click.option("--expires", metavar="DAY", help="When the key expires: 2099-01-01, or 2099-01-01T12:00."),
    click.option("--team", metavar="T", help="The team of the key, whose limits hold as well."),
    assume_price(
        type=prices(options.NONE),
        help="The price of a million tokens where a model has no known one, in the budget's currency.",
    ),
)


def _limits(*more: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds the options of limits, and more."""

    def decorate(function: F) -> F:
        for option in reversed((*_COMMON, *more, _store)):
            function = option(function)
        return function

    return decorate


# ── keys ─────────────────────────────────────────────────────────────────────
@click.group(cls=options.Group)
def keys() -> None:
    """Keys of clients, each with its limits.

    A gateway that runs on the same store knows a new key at once, and refuses a revoked one within a second.

    Examples:
      cnllm serve keys add team-a --rpm 100
      cnllm serve keys list
    """


@keys.command()
@click.argument("name")
@_limits(*_OF_KEYS)
@options.as_json("the key and its limits")
def add(name: str, store: str, *, as_json: bool, **params: Any) -> None:
    """Make a key and print it. It is stored as a hash: it cannot be shown again.

    A budget in a second currency needs a second pair of --budget and --currency; no currency is converted.

    Examples:
      cnllm serve keys add team-a --models 'zhipuai/*' --rpm 100 --tpm 200000 --budget 20/month --currency CNY
      cnllm serve keys add ci --expires 2099-01-01 --team research
      cnllm serve keys add bot --store redis://127.0.0.1:6379/0
    """
    from cnllm.gateway.limits.key_use import record_data
    from cnllm.gateway.limits.keys import new_key

    record = limits_of(_new(name), params)
    key = new_key()
    with _book(store) as book:
        _check_team(book, record.team)
        book.add(digest(key), record)
    if as_json:
        stdout.print_json({"key": key, **record_data(record)})
    else:
        stdout.print_line(key)
        stdio.print_line(f"the key of {name}: {_describe_limits(record)}. It is not shown again")
    report_limits(record, params)


@keys.command("set")
@click.argument("name")
@_limits(*_OF_KEYS)
@options.as_json("the key's limits")
def set_(name: str, store: str, *, as_json: bool, **params: Any) -> None:
    """Change the limits of a key. What is not named stays as it is; `none` removes a limit.

    Every gateway on the store follows within a second. What was used stays used.

    Examples:
      cnllm serve keys set team-a --budget 50/month --currency CNY
      cnllm serve keys set team-a --rpm none --expires none
    """
    _change(name, name, store, params, as_json=as_json)


@keys.command("list")
@_store
@options.as_json("an array")
def list_(store: str, *, as_json: bool) -> None:
    """List the keys with their limits and what is used of them. No key is shown.

    Examples:
      cnllm serve keys list
      cnllm serve keys list --json
    """
    _list(store, as_json=as_json, teams=False)


@keys.command()
@click.argument("name")
@_store
def revoke(name: str, store: str) -> None:
    """Revoke a key. Every gateway on the store refuses it within a second; replies that run come to their end.

    Example:
      cnllm serve keys revoke team-a
    """
    with _book(store) as book:
        book.revoke(name)
    stdio.print_line(f"the key of {name} is revoked")


# ── teams ────────────────────────────────────────────────────────────────────
@click.group(cls=options.Group)
def teams() -> None:
    """Teams of keys, each with limits that all its keys share.

    A request must pass the limits of its key and those of its team.

    Examples:
      cnllm serve teams add research --budget 100/month --currency CNY
      cnllm serve keys add ann --team research
    """


@teams.command("add")
@click.argument("name")
@_limits()
@options.as_json("the team's limits")
def add_team(name: str, store: str, *, as_json: bool, **params: Any) -> None:
    """Make a team. `cnllm serve keys add NAME --team TEAM` makes its keys.

    Example:
      cnllm serve teams add research --models 'zhipuai/*' --rpm 500 --budget 100/month --currency CNY
    """
    from cnllm.gateway.limits.keys import team_digest

    record = limits_of(replace(_new(name), kind="team"), params)
    with _book(store) as book:
        book.add(team_digest(name), record)
    _show(record, params, as_json=as_json)


@teams.command("set")
@click.argument("name")
@_limits()
@options.as_json("the team's limits")
def set_team(name: str, store: str, *, as_json: bool, **params: Any) -> None:
    """Change the limits of a team. What is not named stays as it is; `none` removes a limit.

    Example:
      cnllm serve teams set research --rpm 1000
    """
    from cnllm.gateway.limits.keys import team_digest

    _change(name, team_digest(name), store, params, as_json=as_json)


@teams.command("list")
@_store
@options.as_json("an array")
def list_teams(store: str, *, as_json: bool) -> None:
    """List the teams with their limits and what is used of them.

    Examples:
      cnllm serve teams list
      cnllm serve teams list --json
    """
    _list(store, as_json=as_json, teams=True)


@teams.command("remove")
@click.argument("name")
@flag("--revoke-keys", help="Revoke the keys of the team, too.")
@_store
def remove_team(name: str, store: str, *, revoke_keys: bool) -> None:
    """Remove a team, its limits and what it used.

    A team with keys in use stays unless --revoke-keys revokes them. `cnllm serve keys set NAME --team none` moves one.

    Example:
      cnllm serve teams remove research --revoke-keys
    """
    from cnllm.gateway.limits.keys import team_digest

    with _book(store) as book:
        _check_team(book, name)
        members = [use.record.name for use in book.uses() if use.record.team == name and use.record.revoked is None]
        if members and not revoke_keys:
            raise errors.UsageError(
                f"the team {name} has keys in use: {', '.join(members)}",
                f"--revoke-keys revokes them; cnllm serve keys set {members[0]} --team none moves one",
            )
        for member in members:
            book.revoke(member)
        book.remove(team_digest(name))
    for member in members:
        stdio.print_line(f"the key of {member} is revoked")
    stdio.print_line(f"the team {name} is removed")


def file_key(book: KeyBook, key: str, text: str) -> KeyRecord:
    """Return the limits of a key that stands in a file. `text` has the options of `keys add`, and `--name`.

    Raise `CnllmError` or `click.UsageError` for options that mean nothing.
    """
    command = click.Command("key", params=[*add.params, click.Option(["--name", "file_name"])], add_help_option=False)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise errors.UsageError(f"the options of a key cannot be read: {error}") from error
    params = command.make_context("key", ["-", *words]).params
    name = params["file_name"] or f"file-{digest(key)[:12]}"
    old = book.get(name)
    record = limits_of(replace(_new(name), is_in_file=True), params, allows_past=True)
    record = record if old is None else replace(record, created=old.created)
    _check_team(book, record.team)
    return record


# ── books ────────────────────────────────────────────────────────────────────
def _book(store: str) -> contextlib.closing[KeyBook]:
    """Open the book of a store for a block. Raise `UsageError` for one that other processes cannot see."""
    from cnllm.gateway.limits.book import open_book

    book = open_book(store)
    if book is None:
        raise errors.UsageError("the memory of a process holds no keys for others", "--store sqlite:PATH or redis://…")
    return contextlib.closing(book)


def _new(name: str) -> KeyRecord:
    """Return a record without limits. Raise `UsageError` for a text that is no name."""
    from cnllm.gateway.limits.keys import NAME, KeyRecord

    if not NAME.fullmatch(name):
        raise errors.UsageError(
            f"{name!r} is not a name", "use up to 64 letters from a to z, digits and . _ @ -, a letter or digit first"
        )
    return KeyRecord(name, time.time())


def _check_team(book: KeyBook, team: str | None) -> None:
    """Raise `CnllmError` for a team that does not exist."""
    from cnllm.gateway.limits.key_use import no_such_name
    from cnllm.gateway.limits.keys import team_digest

    if team is not None and book.get(team_digest(team)) is None:
        raise no_such_name(team_digest(team))


def _change(label: str, name: str, store: str, params: Mapping[str, Any], *, as_json: bool) -> None:
    """Change the limits of a key or a team, and show them. `name` is what the store knows it by."""
    if not any(value not in (None, ()) for value in params.values()):
        raise errors.UsageError(f"nothing is to be changed for {label}", "name a limit, such as --rpm 100")
    with _book(store) as book:
        _check_team(book, None if params.get("team") == options.NONE else params.get("team"))
        record = book.change(name, lambda record: limits_of(record, params))
    _show(record, params, as_json=as_json)


# ── output ───────────────────────────────────────────────────────────────────
def _show(record: KeyRecord, params: Mapping[str, Any], *, as_json: bool) -> None:
    """Show the limits of a key or a team, and report those that were given and cannot work."""
    from cnllm.gateway.limits.key_use import record_data

    if as_json:
        stdout.print_json(record_data(record))
    else:
        stdout.print_line(f"{record.name}: {localize(_describe_limits(record))}")
    report_limits(record, params)


def _list(store: str, *, as_json: bool, teams: bool) -> None:
    """List keys or teams."""
    from cnllm.gateway.limits.key_use import use_data

    with _book(store) as book:
        uses = book.uses(teams=teams)
    heads = ("NAME", "STATE", "TEAM", "CREATED", "LAST USE", "CALLS", "TOKENS", "SPENT", "LIMITS")
    stdout.print_listing(
        list(map(use_data, uses)),
        lambda: table(heads, list(map(_cells, uses)), right=[5, 6]),
        "there are no teams; cnllm serve teams add NAME makes one"
        if teams
        else "there are no keys; cnllm serve keys add NAME makes one",
        as_json=as_json,
    )
    if not as_json and any(use.record.is_in_file and use.record.revoked is None for use in uses):
        stdio.print_line("a key of a keys file is valid where --keys-file of a gateway has it")


def _cells(use: KeyUse) -> tuple[str, ...]:
    """Return a key or a team as a row of the table."""
    from cnllm.gateway.limits.key_use import use_data

    row, record = use_data(use), use.record
    spent = ", ".join(f"{amount} {currency}" for currency, amount in row["spent"].items())
    if use.unpriced:
        spent = ", ".join(filter(None, [spent, localize(f"{use.unpriced} of unknown cost")]))
    word = "in a keys file" if record.is_in_file and row["state"] == "in use" else row["state"]
    state = localize_word(word) if record.revoked is None else localize(f"revoked {_time(record.revoked)}")
    return (
        record.name,
        state,
        record.team or "-",
        _time(record.created),
        "-" if use.last is None else _time(use.last),
        str(use.calls),
        str(use.tokens),
        spent or "-",
        localize(_describe_limits(record, use)),
    )


def _describe_limits(record: KeyRecord, use: KeyUse | None = None) -> str:
    """Return limits in words, with what is used of them."""

    from cnllm.gateway.limits.keys import zone_of

    def of(amount: object) -> str:
        return "" if use is None else f"{amount} of "

    parts = [", ".join(record.models) or "every model"]
    if record.rpm is not None:
        parts.append(f"{of(use and use.minute_requests)}{record.rpm:,} request{plural(record.rpm)} a minute")
    if record.tpm is not None:
        parts.append(f"{of(use and use.minute_tokens)}{record.tpm:,} token{plural(record.tpm)} a minute")
    if record.concurrency is not None:
        most = record.concurrency
        parts.append(f"{of(use and use.flights)}{most:,} request{plural(most)} in flight")
    for currency, units in record.budgets.items():
        period = f" a {record.periods[currency]}" if currency in record.periods else ""
        soft = record.soft_budgets.get(currency)
        warns = "" if soft is None else f", warns at {format_units(soft)}"
        spent = format_units(use.spent.get(currency, 0)) if use is not None else ""
        parts.append(f"{of(spent)}{format_units(units)} {currency}{period}{warns}")
    if (record.periods or record.expires is not None) and record.time_zone != "UTC":
        parts.append(f"days of {record.time_zone}")
    if record.assumed_price is not None:
        parts.append("unknown prices count as {1:g} and {2:g} {0}".format(*record.assumed_price))
    if record.expires is not None:
        parts.append(f"until {_time(record.expires, zone_of(record.time_zone))}")
    if record.team is not None and use is None:
        parts.append(f"of the team {record.team}")
    return "; ".join(parts)


def _time(seconds: float, zone: tzinfo | None = None) -> str:
    """Return a time in a zone, by default that of this machine."""
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M")
