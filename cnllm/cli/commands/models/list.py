"""`cnllm models list`: the models that have what is asked for."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import options
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.cli.output import format as rows

if TYPE_CHECKING:
    from cnllm.registry.summary import Listing

__all__ = ["list_"]

EXAMPLES = options.examples(
    "cnllm models list glm",
    "cnllm models list --can tools,reasoning-off --max-price 3 --currency USD",
    "cnllm models list --provider zai --provider deepseek --context 200000 --maybe",
    "cnllm models list --can images --json | jq -r '.[].name'",
)
HEADS = ("MODEL", "SHORT", "CONTEXT", "OUTPUT", "INPUT", "REASONING", "PRICE/M (IN / OUT)")


class ListCommand(options.Command):
    """A command whose help says what each capability means."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from cnllm.registry.capabilities import KINDS

        with formatter.section("Capabilities"):
            formatter.write_dl([(kind.name, kind.says) for kind in KINDS.values()])
        super().format_epilog(ctx, formatter)


def _words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Capabilities that go on from what is typed, after those before the last comma."""
    from cnllm.registry.capabilities import KINDS

    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in KINDS if name.startswith(begun)]


def _providers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from cnllm.errors import CnllmError
    from cnllm.registry import summary

    try:
        return [name for name in summary.names().providers if name.startswith(incomplete)]
    except CnllmError:
        return []


@click.command("list", cls=ListCommand, epilog=EXAMPLES)
@click.argument("part", required=False)
@click.option(
    "--provider", "providers", metavar="P", multiple=True, shell_complete=_providers, help="Of P. Repeatable."
)
@click.option("--can", "wanted", metavar="C,…", multiple=True, shell_complete=_words, help="What all of them can do.")
@click.option(
    "--max-price", metavar="N", type=click.FloatRange(min=0), help="At most N per million output tokens, its currency."
)
@click.option("--currency", metavar="CODE", help="Priced in CODE: USD, CNY, …")
@click.option("--context", metavar="N", type=click.IntRange(min=0), help="A window of at least N tokens.")
@click.option("--maybe", is_flag=True, help="Where it is unknown, too.")
@options.as_json("an array")
def list_(part: str | None, as_json: bool, **filters: Any) -> None:
    """List the models that the registry describes, or those whose name holds PART.

    A filter takes what is known to fit. What is unknown is neither yes nor no: --maybe takes it too.
    """
    with _uncollected():
        _list(part, as_json, filters)


def _list(part: str | None, as_json: bool, filters: dict[str, Any]) -> None:
    from cnllm.registry import summary

    known = summary.listing()
    short = summary.short_names(known.aliases)
    asked = _Filters(known, **filters)
    part_ = (part or "").casefold()
    names = [n for n in known.models if any(part_ in x.casefold() for x in (n, *short.get(n, ())))]
    judged = [(row, asked.fits(row)) for row in map(known.row, names) if asked.is_of(row)]
    chosen = [row for row, fits in judged if fits or (fits is None and asked.maybe)]
    unknown = 0 if asked.maybe else sum(fits is None for _, fits in judged)
    if as_json:
        stdout.print_json(chosen)
    elif chosen:
        from cnllm.cli.output.table import table

        heads = (*HEADS, *(word.upper() for word in asked.wanted))
        stdout.print_line(table(heads, [_cells(row, asked.wanted) for row in chosen], frozenset({2, 3})))
    elif not asked.filters:
        stdio.print_line(f"no model is called anything like {terminal.escape(part or '')}")
    if asked.filters:
        more = f"; of {unknown} more it is not known: --maybe" if unknown else ""
        stdio.print_line(f"{len(chosen)} of {len(names)} models{more}")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing here is garbage before the end, and looking for it takes a fifth of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


class _Filters:
    """The filters of one call. Raises `errors.Wrong` for a word that means nothing."""

    def __init__(
        self,
        known: Listing,
        *,
        providers: tuple[str, ...],
        wanted: tuple[str, ...],
        max_price: float | None,
        currency: str | None,
        context: int | None,
        maybe: bool,
    ) -> None:
        listed = "cnllm models list lists them"
        self.providers = {_one_of(p.casefold(), known.providers, "provider", listed) for p in providers}
        words = [word for word in ",".join(wanted).split(",") if word.strip()]
        self.wanted = tuple(dict.fromkeys(_capability(word, known.kinds) for word in words))
        self.max_price, self.currency, self.context, self.maybe = max_price, (currency or "").upper(), context, maybe
        self.filters = bool(providers or self.wanted or currency) or max_price is not None or context is not None

    def is_of(self, row: dict[str, Any]) -> bool:
        """Is it of one of the providers?"""
        return not self.providers or row["provider"] in self.providers

    def fits(self, row: dict[str, Any]) -> bool | None:
        """Does a model have all that is asked for? None where that is not known."""
        if not self.filters:
            return True
        states = [self._context(row), self._price(row), self._currency(row), *_states(row, self.wanted)]
        return False if False in states else None if None in states else True

    def _context(self, row: dict[str, Any]) -> bool | None:
        if self.context is None:
            return True
        return None if row["context"] is None else row["context"] >= self.context

    def _price(self, row: dict[str, Any]) -> bool | None:
        if self.max_price is None:
            return True
        price = (row["price"] or {}).get("output")
        return None if price is None else price <= self.max_price

    def _currency(self, row: dict[str, Any]) -> bool | None:
        if not self.currency:
            return True
        currency = (row["price"] or {}).get("currency")
        return None if currency is None else currency == self.currency


def _capability(word: str, kinds: list[str]) -> str:
    return _one_of(word.strip().casefold(), kinds, "capability", f"--can takes {', '.join(kinds)}")


def _one_of(word: str, known: list[str], what: str, hint: str) -> str:
    found = next((name for name in known if name.casefold() == word), None)
    if found is None:
        from difflib import get_close_matches

        close = get_close_matches(word, known, n=1)
        raise errors.UsageError(f"there is no {what} {word}", f"did you mean {close[0]}?" if close else hint)
    return found


def _states(row: dict[str, Any], wanted: tuple[str, ...]) -> list[bool | None]:
    return [row["capabilities"][word] for word in wanted]


def _cells(row: dict[str, Any], wanted: tuple[str, ...]) -> tuple[str, ...]:
    return (
        row["name"] + (" (retired)" if row["status"] == "retired" else ""),
        ", ".join(row["short"]),
        rows.format_count(row["context"]),
        rows.format_count(row["output"]),
        ", ".join(row["input"] or [rows.UNKNOWN]),
        row["reasoning"] or rows.UNKNOWN,
        rows.format_price(row["price"]),
        *(rows.state_word(value) for value in _states(row, wanted)),
    )
