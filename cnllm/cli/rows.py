"""What the listings say of a model, as data and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnllm.cli.shapes import Row
    from cnllm.flags import Flags, Price
    from cnllm.model import Model
    from cnllm.registry import Registry

__all__ = ["UNKNOWN", "amount", "builtin", "count", "flags", "price", "row", "short_names", "state"]

UNKNOWN = "?"


def builtin(value: object) -> Any:
    """A value as plain data, for JSON."""
    import msgspec

    return msgspec.to_builtins(value)


def flags(said: Flags) -> Any:
    """Flags as plain data, without the passwords that may stand in an address or a header."""
    from cnllm import redact

    plain = builtin(said)
    if plain.get("base_url"):
        plain["base_url"] = redact.url(plain["base_url"])
    if plain.get("headers"):
        plain["headers"] = redact.sent_headers(plain["headers"])
    if (auth := plain.get("auth")) and "{key}" not in auth.get("value", "{key}"):
        auth["value"] = redact.MARK
    return plain


def short_names(registry: Registry) -> dict[str, list[str]]:
    """The aliases of each model, by its name."""
    short: dict[str, list[str]] = {}
    for alias, name in registry.aliases.items():
        short.setdefault(name, []).append(alias)
    return {name: sorted(aliases) for name, aliases in short.items()}


def row(model: Model, short: list[str]) -> Row:
    """What `--json` says of a model; null is unknown."""
    from cnllm.registry.capabilities import capabilities

    flags = model.flags
    limits, status = flags.limits, flags.status
    return {
        "name": model.name,
        "id": model.id,
        "provider": model.provider,
        "protocol": model.protocol,
        "short": short,
        "title": flags.title,
        "context": limits.context if limits else None,
        "output": limits.output if limits else None,
        "input": flags.input,
        "reasoning": flags.reasoning.mode if flags.reasoning else None,
        "price": builtin(flags.price) if flags.price else None,
        "status": status.is_ if status else None,
        "capabilities": {name: found.value for name, found in capabilities(model).items()},
    }


# ── in words ─────────────────────────────────────────────────────────────────
def state(value: bool | None) -> str:
    """yes, no or ?."""
    return UNKNOWN if value is None else "yes" if value else "no"


def count(tokens: int | None) -> str:
    """A number of tokens."""
    return UNKNOWN if tokens is None else f"{tokens:,}"


def amount(value: float | None) -> str:
    """An amount of money, in full: 1234567 is not 1.23457e+06."""
    return UNKNOWN if value is None else f"{value:.10g}"


def price(said: Price | None) -> str:
    """ "0.6 / 2.2 USD": a million tokens in and out."""
    if said is None or (said.input is None and said.output is None):
        return UNKNOWN
    return f"{amount(said.input)} / {amount(said.output)} {said.currency or ''}".rstrip()
