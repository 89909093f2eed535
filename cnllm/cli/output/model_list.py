"""Format models for a terminal: grouped by provider, one line each, no wider than the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from cnllm.cli.language.messages import localize, localize_word
from cnllm.cli.output import terminal
from cnllm.cli.output.format import UNKNOWN, format_price, state_word
from cnllm.cli.output.table import table

__all__ = ["model_lines"]

_GAP = "  "
_LEAST_ID = 22  # columns; a longer id than the column has a line of its own, because an id that is cut helps nobody


def model_lines(rows: Sequence[dict[str, Any]], capabilities: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines of a listing: a head, and for each provider its name and its models."""
    heads = ("CONTEXT", "READS", "REASONS", *(word.upper() for word in capabilities), "PRICE/M IN/OUT")
    longest = max(terminal.display_width(_id(row)) for row in rows)
    for borders in (True, False):  # a narrow terminal has no room for where a price ends; `models show` has it
        head, *lines = table(heads, [_cells(row, capabilities, borders=borders) for row in rows]).split("\n")
        room = width - max(map(terminal.display_width, [head, *lines])) - 2 * len(_GAP)
        if room >= min(longest, _LEAST_ID):
            break
    id_width = min(longest, max(_LEAST_ID, room))
    yield f"{_padded(localize_word('MODEL'), len(_GAP) + id_width)}{_GAP}{head}"
    for provider, group in groupby(zip(rows, lines, strict=True), key=lambda pair: str(pair[0]["provider"])):
        yield ""
        yield provider
        for row, line in group:
            id = terminal.escape(_id(row))
            if terminal.display_width(id) > id_width:
                yield f"{_GAP}{id}"
                id = ""
            yield f"{_GAP}{_padded(id, id_width)}{_GAP}{line}"


def _padded(text: str, width: int) -> str:
    return text + " " * (width - terminal.display_width(text))


_MEDIA = 4  # image, audio, video and file


def _id(row: dict[str, Any]) -> str:
    return f"{row['id']} ({localize_word('retired')})" if row["status"] == "retired" else str(row["id"])


def _cells(row: dict[str, Any], capabilities: Sequence[str], *, borders: bool) -> tuple[str, ...]:
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
