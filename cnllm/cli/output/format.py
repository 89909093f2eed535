"""Format facts about a model as words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cnllm.cli.language.messages import localize_word

if TYPE_CHECKING:
    from cnllm.registry.flags import Flags
    from cnllm.registry.model import Fact

__all__ = [
    "UNKNOWN",
    "count",
    "fold_command",
    "format_amount",
    "format_count",
    "format_price",
    "plain_fact",
    "plain_flags",
    "state_word",
    "strip_scheme",
    "to_plain",
]

UNKNOWN = "?"


def to_plain(value: object) -> Any:
    """Return a value as plain data, for JSON."""
    import msgspec

    return msgspec.to_builtins(value)


def plain_fact(fact: Fact) -> dict[str, Any]:
    """Return a fact as plain data."""
    plain: dict[str, Any] = to_plain(fact)
    del plain["rounded"]
    return plain


def plain_flags(flags: Flags) -> Any:
    """Return flags as plain data, without passwords in addresses and headers."""
    from cnllm.config import redact

    plain = to_plain(flags)
    if plain.get("base_url"):
        plain["base_url"] = redact.redact_url(plain["base_url"])
    if plain.get("headers"):
        plain["headers"] = redact.redact_request_headers(plain["headers"])
    if (auth := plain.get("auth")) and "{key}" not in auth.get("value", "{key}"):
        auth["value"] = redact.MARK
    return plain


def state_word(value: bool | None) -> str:
    """Return yes, no or ?."""
    return UNKNOWN if value is None else localize_word("yes" if value else "no")


def format_count(tokens: int | None) -> str:
    """Format a number of tokens."""
    return UNKNOWN if tokens is None else f"{tokens:,}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_amount(value: float | None) -> str:
    """Format an amount of money in full: 1234567, not 1.23457e+06."""
    return UNKNOWN if value is None else f"{value:.10g}"


def format_price(price: dict[str, Any] | None) -> str:
    """Format the price of a million input and output tokens, such as "0.6 / 2.2 USD"."""
    price = price or {}
    input_price, output_price = price.get("input"), price.get("output")
    if input_price is None and output_price is None:
        return UNKNOWN
    return f"{format_amount(input_price)} / {format_amount(output_price)} {price.get('currency') or ''}".rstrip()


def strip_scheme(url: str) -> str:
    """Return an address without the scheme."""
    return url.removeprefix("https://").removeprefix("http://")


def fold_command(line: str) -> Iterator[str]:
    """Yield a command in lines of a shell, broken before an option or another command."""
    rest, indent = line, ""
    while len(indent + rest) > _EXAMPLE_WIDTH:
        ends = [match.start(1) for match in re.finditer(_BREAKS, rest) if match[1] is not None]
        fitting = [end for end in ends if len(indent) + end + 2 <= _EXAMPLE_WIDTH]
        if not ends or not (end := max(fitting, default=ends[0])):
            break
        yield f"{indent}{rest[:end]} \\"
        rest, indent = rest[end:].lstrip(), "    "
    yield indent + rest


_EXAMPLE_WIDTH = 76
_BREAKS = r"(?<!\S)-\S+ (?:'[^']*'|\"[^\"]*\")|'[^']*'|\"[^\"]*\"|( )(?=[-|'\"]|cnllm )"
"""An option with quoted text, quoted text, or a space at which a line may break."""
