"""Read the limits of a gateway's key or team from the options of a command, and check that they can work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cnllm.cli import options
from cnllm.cli.output import errors, stdio
from cnllm.cli.output.suggestion import nearest, provider_hint
from cnllm.cli.prices import read_amount
from cnllm.estimates.money import CURRENCY, LARGEST, units_of
from cnllm.types.checks import matches_pattern

if TYPE_CHECKING:
    from cnllm.gateway.limits.keys import KeyRecord
    from cnllm.registry import Registry

__all__ = ["limits_of", "report_limits"]

_OTHER_CODES = {"RMB": "CNY", "CNH": "CNY"}  # other codes of a currency that prices have


def limits_of(record: KeyRecord, params: Mapping[str, Any], *, allows_past: bool = False) -> KeyRecord:
    """Return a record with the limits that options give. Raise `UsageError` for values that mean nothing.

    An expiry that has passed is one, unless it `allows_past`: a gateway starts with a key that has expired in its file.
    """
    from cnllm.gateway.limits.keys import zone_of

    new: dict[str, Any] = {}
    for name in ("rpm", "tpm", "concurrency", "team"):
        if (value := params.get(name)) is not None:
            new[name] = None if value == options.NONE else value
    if words := params.get("models"):
        new["models"] = () if words == (options.NONE,) else _models(words)
    if (zone := params.get("time_zone")) is not None:
        zone_of(zone)
        new["time_zone"] = zone
    if (day := params.get("expires")) is not None:
        new["expires"] = None if day == options.NONE else _moment(day, new.get("time_zone", record.time_zone))
    new |= _money(record, params)
    if (price := params.get("assume_price")) is not None:
        currencies = params.get("currencies") or tuple(new.get("budgets", record.budgets))
        new["assumed_price"] = None if price == options.NONE else (_only(currencies), *price)
    changed = replace(record, **new)
    if day is not None and not allows_past and changed.is_expired(time.time()):
        raise errors.UsageError(f"--expires {day} is in the past", "give a later day, or none")
    return changed


def report_limits(record: KeyRecord, params: Mapping[str, Any]) -> None:
    """Say on stderr what the registry of this machine does not know, and which budgets are idle.

    It is no error: the gateway may run elsewhere, with a registry of its own.
    """
    from cnllm.registry import Registry

    if not (params.get("models") or params.get("budgets")):
        return
    registry = Registry.load()
    for pattern in record.models if params.get("models") else ():
        _report_provider(pattern, registry)
    assumed = record.assumed_price  # models without a known price are billed in its currency
    if idle := {*record.budgets} - ({assumed[0]} if assumed is not None else set()):
        _report_idle(record, idle, registry)


def _report_idle(record: KeyRecord, budgets: set[str], registry: Registry) -> None:
    """Say which budgets are in a currency that no model of a key or a team is billed in."""
    billed = _list_currencies(filter(record.allows, registry.names()), registry)
    if budgets <= billed:
        return
    known = sorted(_list_currencies(registry.names(), registry))
    unknown = sorted(budgets.difference(known))
    for code in unknown:
        close = _OTHER_CODES.get(code) or nearest(code, known)
        hint = f"did you mean {close}?" if close in known else f"prices are in {', '.join(known)}"
        stdio.print_line(f"no model is billed in {code}; {hint}")
    if not billed:
        return
    others = " and ".join(sorted(billed))
    for currency in sorted(budgets.difference(billed, unknown)):
        stdio.print_line(f"no model of {record.name} is billed in {currency}; they are billed in {others}")
    if not billed & {*record.budgets}:
        stdio.print_line(f"every request of {record.name} is refused without a budget in {others}")


def _list_currencies(names: Iterable[str], registry: Registry) -> set[str]:
    """Return the currencies that models are billed in, as far as they are known."""
    prices = (registry.resolve(name).flags.price for name in names)
    return {price.currency for price in prices if price is not None and price.currency is not None}


def _report_provider(pattern: str, registry: Registry) -> None:
    """Say that a pattern has a provider that the registry of this machine does not have."""
    provider, slash, _ = pattern.partition("/")
    providers = [*registry.providers, *registry.catalogue_providers()]
    if slash and not any(matches_pattern(name, provider) for name in providers):
        hint = provider_hint(provider, registry)
        stdio.print_line(f"--models {pattern}: no provider is called {provider}; {hint}")


def _money(record: KeyRecord, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the budgets, their periods and the soft budgets. Raise `UsageError`."""
    from cnllm.gateway.limits.keys import PERIODS

    amounts, softs, currencies = (params.get(name) or () for name in ("budgets", "soft_budgets", "currencies"))
    new: dict[str, Any] = {"budgets": dict(record.budgets), "periods": dict(record.periods)}
    new["soft_budgets"] = dict(record.soft_budgets)
    if amounts == (options.NONE,):
        return {name: {} for name in new}
    if len(amounts) not in (0, len(currencies)):
        raise errors.UsageError("a budget needs an amount and a currency", "--budget 20 --currency CNY")
    if not amounts and not softs and currencies and params.get("assume_price") is None:
        raise errors.UsageError("--currency without --budget", "--budget 20 --currency CNY")
    for currency in currencies:
        if not CURRENCY.fullmatch(currency):
            raise errors.UsageError(f"--currency {currency!r}: a code such as CNY or USD is expected")
        if currencies.count(currency) > 1:
            raise errors.UsageError(f"two budgets in {currency}", "give one for each currency")
    if amounts:
        new["budgets"], new["periods"] = {}, {}
    for text, currency in zip(amounts, currencies, strict=False):
        amount, slash, period = text.partition("/")
        if slash and period not in PERIODS:
            raise errors.UsageError(f"--budget {text}: a period is day, week or month", "--budget 20/month")
        new["budgets"][currency] = _units(f"--budget {text}", amount)
        if slash:
            new["periods"][currency] = period
    if softs == (options.NONE,):
        new["soft_budgets"] = {}
    elif softs:
        names = currencies or tuple(new["budgets"])
        if len(softs) != len(names):
            raise errors.UsageError("a soft budget needs a budget in its currency", "name one for each --currency")
        new["soft_budgets"] = {
            currency: _units(f"--soft-budget {text}", text) for text, currency in zip(softs, names, strict=True)
        }
    elif amounts:
        new["soft_budgets"] = {code: soft for code, soft in record.soft_budgets.items() if code in new["budgets"]}
    for currency, soft in new["soft_budgets"].items():
        if currency not in new["budgets"]:
            raise errors.UsageError(f"a soft budget in {currency} without a budget", "--budget 20 --soft-budget 15")
        if soft > new["budgets"][currency]:
            raise errors.UsageError(f"the soft budget in {currency} is above the budget", "it warns before the budget")
    return new


def _units(option: str, text: str) -> int:
    """Return an amount in units. Raise `UsageError`."""
    amount = read_amount(text)
    if amount is None or amount > LARGEST:
        raise errors.UsageError(f"{option}: an amount from 0 to {LARGEST:,} is expected")
    return units_of(amount)


def _only(currencies: tuple[str, ...]) -> str:
    """Return the currency of an assumed price. Raise `UsageError`."""
    if len(currencies) != 1:
        raise errors.UsageError("--assume-price needs one currency", "--assume-price 2/8 --currency CNY")
    return currencies[0]


def _moment(text: str, zone: str) -> float:
    """Return a time in seconds since 1970; a day is its first moment in a time zone. Raise `UsageError`."""
    from cnllm.gateway.limits.keys import zone_of

    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone_of(zone))).timestamp()
    except (ValueError, OverflowError) as error:
        raise errors.UsageError(f"--expires {text}: a day is expected", "--expires 2099-01-01") from error


def _models(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns; a name without a wildcard as the model's full name. Raise `UnknownModel`."""
    words = [word.strip() for pattern in patterns for word in pattern.split(",")]
    if "" in words:
        raise errors.UsageError("--models is empty", "leave it out to allow every model")
    from cnllm.registry import Registry

    registry = Registry.load()
    return tuple(word if any(sign in word for sign in "*?[") else registry.resolve(word).name for word in words)
