"""Define `cnllm models list`: the models that pass the filters."""

from __future__ import annotations

import codecs
import itertools
import operator
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import completion, option_types, options
from cnllm.cli.language.messages import localize, localize_word
from cnllm.cli.option_types import flag, repeated
from cnllm.cli.output import errors, stdio, stdout, terminal
from cnllm.cli.output.format import UNKNOWN, format_count, format_price, state_word
from cnllm.cli.output.table import line_width, table

if TYPE_CHECKING:
    from cnllm.model_facts.summary import Listing

__all__ = ["list_"]

_WORDS = re.compile(r"[a-z]{3,}")
_GAP = "  "
_LEAST_ID = 22  # columns; a longer id than the column has a line of its own, because an id that is cut helps nobody
_MEDIA = 4  # image, audio, video and file
HEADS = ("MODEL", "SHORT", "CONTEXT", "OUTPUT", "INPUT", "REASONING", "PRICE/M (IN / OUT)")


class ListCommand(options.Command):
    """A command whose help explains each capability."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a table of the capabilities before the epilog."""
        from cnllm.model_facts.capabilities import KINDS

        with formatter.section("Capabilities"):
            formatter.write_dl([(kind.name, kind.says) for kind in KINDS.values()])
        super().format_epilog(ctx, formatter)


def _words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return capabilities that begin with the text after the last comma."""
    from cnllm.model_facts.capabilities import KINDS

    prefix, comma, start = incomplete.rpartition(",")
    return [f"{prefix}{comma}{name}" for name in KINDS if name.startswith(start)]


@click.command("list", cls=ListCommand)
@click.argument("part", required=False)
@options.providers
@repeated(
    "--can", "capabilities", metavar="C,…", shell_complete=_words, help="Capabilities that every model must have."
)
@option_types.number(
    "--max-price", metavar="N", help="At most N per million output tokens, in the model's own currency."
)
@click.option("--currency", metavar="CODE", help="Price in CODE: USD, CNY, …")
@click.option("--context", metavar="N", type=click.IntRange(min=0), help="A window of at least N tokens.")
@click.option(
    "--hosts",
    metavar="M",
    shell_complete=completion.complete_models,
    help="Models with the same open weights as M, on all their hosts.",
)
@flag("--maybe", help="Include models for which a filtered value is unknown.")
@flag("--all", "with_retired", help="Include retired models.")
@flag("--catalogue", help="Include the models of which only a public list knows.")
@options.as_json("an array")
def list_(
    part: str | None, *, as_json: bool, with_retired: bool, catalogue: bool, hosts: str | None, **filters: Any
) -> None:
    """List the models that the registry describes, or those whose name contains PART.

    With PART or --provider that includes the catalogue, of whose models only a public list knows.

    A filter lists the models that are known to fit. If a value is unknown, only --maybe lists the model. On a terminal
    the list is grouped by provider; in a pipe each line is a model with its full name. Prices are for a million tokens,
    each in its own currency.

    Examples:
      cnllm models list glm
      cnllm models list --can tools,reasoning-off --max-price 3 --currency USD
      cnllm models list --provider zai --provider deepseek --context 200000 --maybe
      cnllm models list --hosts kimi-k3
      cnllm models list --can images --json | jq -r '.[].name'
    """
    from cnllm.model_facts import summary

    with_catalogue = catalogue or part is not None or bool(filters["providers"])
    listing = summary.listing(catalogue=with_catalogue)
    matcher = _Filters(listing, filters)
    text = (part or "").casefold()
    names = listing.models
    if hosts is not None:
        names = _hosts(hosts)
    if text:
        names = [n for n in names if any(text in x.casefold() for x in (n, *listing.short.get(n, ())))]
    rows = [row for row in map(listing.row, names) if not matcher.providers or row["provider"] in matcher.providers]
    current = [row for row in rows if with_retired or row["status"] != "retired"]
    results = [(row, matcher.fits(row)) for row in current]
    matches = [row for row, state in results if state or (state is None and matcher.maybe)]
    unknown = 0 if matcher.maybe else sum(state is None for _, state in results)
    if as_json:
        stdout.print_json(matches)
    elif matches and sys.stdout.isatty():
        _page(matches, matcher)
    elif matches:
        heads = (*HEADS, *(word.upper() for word in matcher.capabilities))
        stdout.print_line(table(heads, [_cells(row, matcher.capabilities) for row in matches], right=[2, 3]))
    retired = len(rows) - len(current)
    left_out = f"; {retired} more are retired: --all" if retired else ""
    left_out += "" if with_catalogue else f"; {listing.left_out} of a public list are left out: --catalogue"
    if matcher.filters:
        suffix = f"; {unknown} more are unknown: --maybe" if unknown else ""
        stdio.print_line(f"{len(matches)} of {len(current)} models{suffix}{left_out}")
    elif not rows:
        stdio.print_line(f"no model name contains {terminal.escape(part or '')}")
        if (model_name := _family_model(text)) is not None:
            provider = model_name.partition("/")[0]
            stdio.print_line(
                f"  it stands for {model_name}; all models of the provider: cnllm models list --provider {provider}"
            )
        elif (close := _similar(text, [*listing.models, *itertools.chain(*listing.short.values())])) is not None:
            stdio.print_line(f"  did you mean {close}?")
    elif not as_json and (retired or not with_catalogue):
        plural = "" if len(current) == 1 else "s"  # the list needs nothing of cnllm.types, which loads msgspec
        stdio.print_line(f"{len(current)} model{plural}{left_out}")


def _family_model(text: str) -> str | None:
    """Return the model that the name of a family stands for, such as that of a vendor in another script."""
    from cnllm.cli.output.suggestion import same_name
    from cnllm.registry import Registry

    registry = Registry.load()
    alias = same_name(text, registry.family_aliases)
    return None if alias is None else registry.resolve(alias).name


def _similar(text: str, names: Iterable[str]) -> str | None:
    """Return the name, or the word of a name, that is most similar to a text."""
    from cnllm.cli.output.suggestion import nearest

    ids = {name.casefold().rpartition("/")[2] for name in names}
    return nearest(text, sorted(ids | {word for name in names for word in _WORDS.findall(name.casefold())}))


def _hosts(model: str) -> list[str]:
    """Return the models with the weights of a model. Raises `UsageError` where its weights are unknown."""
    from cnllm.registry import Registry

    names = Registry.load().hosts(model)
    if not names:
        raise errors.UsageError(
            f"the registry does not know the weights of {model}",
            "cnllm registry set MODEL weights=OWNER/NAME --source URL",
        )
    return names


class _Filters:
    """The filters of one call. Raises `UsageError` for an unknown provider or capability."""

    def __init__(self, listing: Listing, options: Mapping[str, Any]) -> None:
        self.providers = {_provider(p, listing.providers) for p in options["providers"]}
        words = [word for word in ",".join(options["capabilities"]).split(",") if word.strip()]
        self.capabilities = tuple(dict.fromkeys(_capability(word, listing.kinds) for word in words))
        self.maybe: bool = options["maybe"]
        self._bounds: list[tuple[str, Any, Callable[[Any, Any], bool]]] = [
            ("context", options["context"], operator.ge),
            ("output", options["max_price"], operator.le),
            ("currency", (options["currency"] or "").upper() or None, operator.eq),
        ]
        self.filters = bool(self.providers or self.capabilities) or any(b is not None for _, b, _ in self._bounds)

    def fits(self, row: dict[str, Any]) -> bool | None:
        """Whether a model passes all filters. None if that is unknown."""
        if not self.filters:
            return True
        values = {**(row["price"] or {}), "context": row["context"]}
        limits = [(values.get(name), bound, fits) for name, bound, fits in self._bounds if bound is not None]
        states = [None if value is None else fits(value, bound) for value, bound, fits in limits]
        states += [row["capabilities"][word] for word in self.capabilities]
        return False if False in states else None if None in states else True


def _capability(word: str, kinds: list[str]) -> str:
    folded = word.strip().casefold()
    if folded not in kinds:
        from cnllm.cli.output.suggestion import capability_hint

        hint = capability_hint(folded, kinds) or f"--can takes {', '.join(kinds)}"
        raise errors.UsageError(f"there is no capability {folded}", hint)
    return folded


def _provider(word: str, names: list[str]) -> str:
    from cnllm.cli.output.suggestion import provider_hint, same_name

    found = same_name(word, names)
    if found is None:
        from cnllm.registry import Registry

        raise errors.UsageError(f"there is no provider {word}", provider_hint(word, Registry.load()))
    return found


def _cells(row: dict[str, Any], capabilities: tuple[str, ...]) -> tuple[str, ...]:
    return (
        row["name"] + (" (retired)" if row["status"] == "retired" else ""),
        ", ".join(row["short"]),
        format_count(row["context"]),
        format_count(row["output"]),
        ", ".join(row["input"] or [UNKNOWN]),
        row["reasoning"] or UNKNOWN,
        format_price(row["price"]),
        *(state_word(row["capabilities"][word]) for word in capabilities),
    )


# ── on a terminal ────────────────────────────────────────────────────────────


def _page(rows: list[dict[str, Any]], matcher: _Filters) -> None:
    """Print a listing on a terminal, page by page where it is longer than the screen."""
    capabilities = matcher.capabilities if matcher.maybe else ()  # without --maybe each is a yes
    lines = list(_screen_lines(rows, capabilities, line_width()))
    if len(lines) < shutil.get_terminal_size().lines:
        for line in lines:
            stdout.print_line(line)
    else:
        if codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8":
            os.environ.setdefault("LESSCHARSET", "utf-8")  # less shows bytes where the locale is not installed
        click.echo_via_pager("\n".join(lines) + "\n")


def _screen_lines(rows: Sequence[dict[str, Any]], capabilities: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines of a listing on a terminal: a head, and for each provider its name and its models."""
    heads = ("CONTEXT", "READS", "REASONS", *(word.upper() for word in capabilities), "PRICE/M IN/OUT")
    longest = max(terminal.display_width(_id(row)) for row in rows)
    for borders in (True, False):  # a narrow terminal has no room for where a price ends; `models show` has it
        head, *lines = table(heads, [_screen_cells(row, capabilities, borders=borders) for row in rows]).split("\n")
        room = width - max(map(terminal.display_width, [head, *lines])) - 2 * len(_GAP)
        if room >= min(longest, _LEAST_ID):
            break
    id_width = min(longest, max(_LEAST_ID, room))
    yield f"{_pad(localize_word('MODEL'), len(_GAP) + id_width)}{_GAP}{head}"
    for provider, group in itertools.groupby(zip(rows, lines, strict=True), key=lambda pair: str(pair[0]["provider"])):
        yield ""
        yield provider
        for row, line in group:
            id = terminal.escape(_id(row))
            if terminal.display_width(id) > id_width:
                yield f"{_GAP}{id}"
                id = ""
            yield f"{_GAP}{_pad(id, id_width)}{_GAP}{line}"


def _pad(text: str, width: int) -> str:
    return text + " " * (width - terminal.display_width(text))


def _id(row: dict[str, Any]) -> str:
    return f"{row['id']} ({localize_word('retired')})" if row["status"] == "retired" else str(row["id"])


def _screen_cells(row: dict[str, Any], capabilities: Sequence[str], *, borders: bool) -> tuple[str, ...]:
    return (
        _short_count(row["context"]),
        _kinds(row["input"]),
        UNKNOWN if row["reasoning"] in (None, "unknown") else localize_word(row["reasoning"]),
        *(state_word(row["capabilities"][word]) for word in capabilities),
        _short_price(row["price"], borders=borders),
    )


def _kinds(kinds: Sequence[str] | None) -> str:
    """Return what a model reads beside text; "all kinds" fits into the column where it reads everything."""
    media = [kind for kind in kinds or () if kind != "text"]
    if kinds is None:
        return UNKNOWN
    return localize("all kinds") if len(media) == _MEDIA else " ".join(map(localize_word, media or ["text"]))


def _short_price(price: dict[str, Any] | None, *, borders: bool) -> str:
    """Return the price of a million input and output tokens, with `borders` also the longest input for which it holds.

    "free" stands where both cost nothing.
    """
    if price and price.get("input") == price.get("output") == 0:
        return localize_word("free")
    # prices that a host has converted from another currency have many digits; `models show` has them all
    rounded = {name: round(v, 2 if v >= 1 else 4) if type(v) is float else v for name, v in (price or {}).items()}
    tiers = [tier["above"] for tier in (price or {}).get("tiers") or () if borders and tier.get("above")]
    return format_price(rounded).replace(" / ", "/") + (
        f" {localize(f'to {_short_count(int(min(tiers)))}')}" if tiers else ""
    )


def _short_count(tokens: int | None) -> str:
    """Return a number of tokens in thousands or millions, as vendors print it: 200K, 1M."""
    if tokens is None:
        return UNKNOWN
    if tokens < 1000:
        return str(tokens)
    if tokens < 995_000:
        return f"{tokens / 1000:.0f}K"
    return f"{tokens / 1_000_000:.1f}".removesuffix(".0") + "M"
