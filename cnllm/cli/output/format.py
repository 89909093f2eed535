"""What the listings say of a model, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnllm.registry.flags import Flags

__all__ = ["UNKNOWN", "format_amount", "format_count", "format_price", "plain_flags", "state_word", "to_plain"]

UNKNOWN = "?"


def to_plain(value: object) -> Any:
    """A value as plain data, for JSON."""
    import msgspec

    return msgspec.to_builtins(value)


def plain_flags(said: Flags) -> Any:
    """Flags as plain data, without the passwords that may stand in an address or a header."""
    from cnllm.config import redact

    plain = to_plain(said)
    if plain.get("base_url"):
        plain["base_url"] = redact.redact_url(plain["base_url"])
    if plain.get("headers"):
        plain["headers"] = redact.redact_request_headers(plain["headers"])
    if (auth := plain.get("auth")) and "{key}" not in auth.get("value", "{key}"):
        auth["value"] = redact.MARK
    return plain


def state_word(value: bool | None) -> str:
    """yes, no or ?."""
    return UNKNOWN if value is None else "yes" if value else "no"


def format_count(tokens: int | None) -> str:
    """A number of tokens."""
    return UNKNOWN if tokens is None else f"{tokens:,}"


def format_amount(value: float | None) -> str:
    """An amount of money, in full: 1234567 is not 1.23457e+06."""
    return UNKNOWN if value is None else f"{value:.10g}"


def format_price(said: dict[str, Any] | None) -> str:
    """ "0.6 / 2.2 USD": a million tokens in and out."""
    said = said or {}
    given, taken = said.get("input"), said.get("output")
    if given is None and taken is None:
        return UNKNOWN
    return f"{format_amount(given)} / {format_amount(taken)} {said.get('currency') or ''}".rstrip()
