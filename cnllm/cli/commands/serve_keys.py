"""Define `cnllm serve keys`: keys of a gateway's clients, with limits. A key is shown once."""

from __future__ import annotations

import time
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import options
from cnllm.cli.output import answer, errors, stdio
from cnllm.cli.output.table import table

if TYPE_CHECKING:
    from cnllm.cli.output.json_types import ClientKey
    from cnllm.gateway.limits.book import KeyBook, KeyUse

__all__ = ["keys"]

_store = click.option(
    "--store",
    metavar="URL",
    default="sqlite:",
    help="The store of the gateway: sqlite:PATH, redis://HOST. Default: a file.",
)


@click.group(
    cls=options.Group, epilog=options.examples("cnllm serve keys add team-a --rpm 100", "cnllm serve keys list")
)
def keys() -> None:
    """Keys of clients, each with its limits.

    A gateway that runs on the same store knows a new key at once, and refuses a revoked one within a second.
    """


@keys.command(
    epilog=options.examples(
        "cnllm serve keys add team-a --models 'zai/*' --rpm 100 --tpm 200000 --budget 20 --currency CNY",
        "cnllm serve keys add ci --store redis://127.0.0.1:6379/0",
    )
)
@click.argument("name")
@click.option(
    "--models",
    metavar="PATTERN",
    multiple=True,
    help="A model that the key may use: PROVIDER/ID, an alias, or a pattern. Repeatable. Default: every model.",
)
@click.option("--rpm", metavar="N", type=click.IntRange(min=1), help="The requests in any minute.")
@click.option("--tpm", metavar="N", type=click.IntRange(min=1), help="The tokens in a minute, input and output.")
@click.option("--budget", "budgets", metavar="AMOUNT", multiple=True, help="The money that the key may spend in all.")
@click.option("--currency", "currencies", metavar="C", multiple=True, help="The currency of the budget, such as CNY.")
@_store
@options.as_json("the key and its limits")
def add(
    name: str,
    models: tuple[str, ...],
    rpm: int | None,
    tpm: int | None,
    budgets: tuple[str, ...],
    currencies: tuple[str, ...],
    store: str,
    as_json: bool,
) -> None:
    """Make a key and print it. It is stored as a hash: it cannot be shown again.

    A budget in a second currency needs a second pair of --budget and --currency; no currency is converted.
    """
    from cnllm.gateway.access import digest
    from cnllm.gateway.limits.keys import NAME, KeyRecord, new_key

    if not NAME.fullmatch(name):
        raise errors.UsageError(
            f"{name!a} is no name for a key", "use up to 64 letters, digits and . _ @ -, a letter or digit first"
        )
    record = KeyRecord(name, time.time(), _models(models), rpm, tpm, _budgets(budgets, currencies))
    key = new_key()
    book = _book(store)
    try:
        book.add(digest(key), record)
    finally:
        book.close()
    if as_json:
        answer.print_json({"key": key, **_limits(record)})
    else:
        answer.print_line(key)
        stdio.print_line(f"the key of {name}: {_described(record)}. It is not shown again")


@keys.command("list", epilog=options.examples("cnllm serve keys list", "cnllm serve keys list --json"))
@_store
@options.as_json("an array")
def list_(store: str, as_json: bool) -> None:
    """List the keys with their limits and their use. No key is shown."""
    book = _book(store)
    try:
        uses = book.uses()
    finally:
        book.close()
    if as_json:
        answer.print_json([_row(use) for use in uses])
    elif uses:
        heads = ("NAME", "STATE", "CREATED", "LAST USE", "CALLS", "TOKENS", "SPENT", "LIMITS")
        answer.print_line(table(heads, [_cells(use) for use in uses], right=frozenset([4, 5])))
    else:
        stdio.print_line("there are no keys; cnllm serve keys add NAME makes one")


@keys.command(epilog=options.examples("cnllm serve keys revoke team-a"))
@click.argument("name")
@_store
def revoke(name: str, store: str) -> None:
    """Revoke a key. Every gateway on the store refuses it within a second; replies that run come to their end."""
    book = _book(store)
    try:
        book.revoke(name)
    finally:
        book.close()
    stdio.print_line(f"the key of {name} is revoked")


def _book(store: str) -> KeyBook:
    """Return the book of a store. Raise `UsageError` for one that other processes cannot see."""
    from cnllm.gateway.limits.book import open_book

    book = open_book(store)
    if book is None:
        raise errors.UsageError("the memory of a process holds no keys for others", "--store sqlite:PATH or redis://…")
    return book


def _models(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns; a name without a wildcard as the model's full name. Raise `UnknownModel`."""
    words = [word.strip() for pattern in patterns for word in pattern.split(",")]
    if not words:
        return ()
    if "" in words:
        raise errors.UsageError("--models is empty", "leave it out to allow every model")
    from cnllm.registry import Registry

    registry = Registry.load()
    return tuple(word if any(sign in word for sign in "*?[") else registry.resolve(word).name for word in words)


def _budgets(amounts: tuple[str, ...], currencies: tuple[str, ...]) -> dict[str, int]:
    """Return budgets in units by currency. Raise `UsageError`."""
    from cnllm.estimates.money import CURRENCY, LARGEST, units_of

    if len(amounts) != len(currencies):
        raise errors.UsageError("a budget needs an amount and a currency", "--budget 20 --currency CNY")
    budgets: dict[str, int] = {}
    for text, currency in zip(amounts, currencies, strict=True):
        try:
            amount = Decimal(text)
        except InvalidOperation:
            amount = Decimal("NaN")
        if not amount.is_finite() or not 0 <= amount <= LARGEST:
            raise errors.UsageError(f"--budget {text}: an amount from 0 to {LARGEST:,} is expected")
        if not CURRENCY.fullmatch(currency):
            raise errors.UsageError(f"--currency {currency!a}: a code such as CNY or USD is expected")
        if currency in budgets:
            raise errors.UsageError(f"two budgets in {currency}", "give one for each currency")
        budgets[currency] = units_of(amount)
    return budgets


def _limits(record: Any) -> dict[str, Any]:
    """Return a key's limits as JSON."""
    from cnllm.estimates.money import format_units

    return {
        "name": record.name,
        "created": record.created,
        "revoked": record.revoked,
        "models": list(record.models),
        "rpm": record.rpm,
        "tpm": record.tpm,
        "budgets": {currency: format_units(units) for currency, units in record.budgets.items()},
    }


def _row(use: KeyUse) -> ClientKey:
    """Return a key with its use as JSON."""
    from cnllm.estimates.money import format_units

    def amounts(units: dict[str, int]) -> dict[str, str]:
        return {currency: format_units(count) for currency, count in sorted(units.items()) if count}

    return {
        **_limits(use.record),  # type: ignore[typeddict-item]
        "last_use": use.last,
        "calls": use.calls,
        "tokens": use.tokens,
        "spent": amounts(use.spent),
        "reserved": amounts(use.open),
        "unpriced_calls": use.unpriced,
    }


def _cells(use: KeyUse) -> tuple[str, ...]:
    """Return a key as a row of the table."""
    row = _row(use)
    spent = ", ".join(f"{amount} {currency}" for currency, amount in row["spent"].items())
    if use.unpriced:
        spent = ", ".join(filter(None, [spent, f"{use.unpriced} of unknown cost"]))
    state = "in use" if use.record.revoked is None else f"revoked {_time(use.record.revoked)}"
    last = "-" if use.last is None else _time(use.last)
    return (
        use.record.name,
        state,
        _time(use.record.created),
        last,
        str(use.calls),
        str(use.tokens),
        spent or "-",
        _described(use.record),
    )


def _described(record: Any) -> str:
    """Return a key's limits in words."""
    from cnllm.estimates.money import format_units

    parts = [", ".join(record.models) or "every model"]
    parts += [f"{record.rpm:,} requests a minute"] if record.rpm is not None else []
    parts += [f"{record.tpm:,} tokens a minute"] if record.tpm is not None else []
    parts += [f"{format_units(units)} {currency}" for currency, units in record.budgets.items()]
    return "; ".join(parts)


def _time(seconds: float) -> str:
    """Return a time on this machine's clock."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
