"""Find why a bill and the log differ: by the price that was in force for each call, and by the rows of the bill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.bills.exports import Kind
from cnllm.bills.sums import BillSum, LogSum
from cnllm.bills.times import seconds_of
from cnllm.engine.decode.cost import RATES, base_rates, cost_of, exact_rate, tier_rates
from cnllm.registry.flags import Price
from cnllm.store.costs import BilledCall
from cnllm.types.checks import plural
from cnllm.types.totals import UNKNOWN_REQUEST

__all__ = ["BillCause", "CauseCode", "PriceBook", "Variants", "find_causes"]

CauseCode = Literal[
    "calls", "cache", "tier", "hour", "price", "discount", "fee", "incomplete", "currency", "day", "name", "unknown"
]
"""Why two sums differ: calls that one side does not have; tokens of the cache; the tier of a length or of a service;
the hour; a price that has changed; a discount, a package or a gift; a fee without tokens; a cost of the log that leaves
something out; another currency; a call that the bill counts on another day; another name of a model."""

_RATE_OF: Mapping[Kind, str] = {
    "input": "input",
    "prompt": "input",
    "cached": "cached",
    "cache_write": "cache_write",
    "cache_write_5m": "cache_write",
    "cache_write_1h": "cache_write_1h",
    "output": "output",
}


class BillCause(Struct, frozen=True):
    """A likely cause, and what speaks for it. `certain`: it explains the whole difference."""

    code: CauseCode
    detail: str
    certain: bool = False


class PriceBook:
    """The prices that were in force for calls, by number, and today's prices by model."""

    def __init__(self, stored: Mapping[int, str], now: Callable[[str], Price | None]) -> None:
        self._stored = stored
        self._now = now
        self.price = lru_cache(maxsize=256)(self._price)
        self.variants = lru_cache(maxsize=256)(self._variants)

    def _price(self, number: int | None) -> Price | None:
        if number is None or number not in self._stored:
            return None
        try:
            return msgspec.json.decode(self._stored[number], type=Price)
        except msgspec.DecodeError:  # a price of another version
            return None

    def _variants(self, number: int | None, model: str) -> dict[tuple[CauseCode, str], Price]:
        """Return other prices that the endpoint may have charged, by the cause and its words."""
        price = self.price(number)
        found: dict[tuple[CauseCode, str], Price] = {}
        if price is not None:
            found.update(_other_prices(price))
        now = self._now(model)
        if now is not None and price is not None and now != price:
            found["price", "today's price"] = now
        return found


def _other_prices(price: Price) -> Iterator[tuple[tuple[CauseCode, str], Price]]:
    base = base_rates(price)
    if price.off_peak is not None:
        yield ("hour", "the price of peak hours"), _flat(price, base)
        yield ("hour", "the price outside of peak hours"), _flat(price, {"tiers": price.tiers, **price.off_peak})
    if price.promotion is not None:
        yield ("price", "the price without the promotion"), _flat(price, base)
        yield ("price", "the price of the promotion"), _flat(price, {"tiers": price.tiers, **price.promotion})
    if price.tiers:
        lowest = {name: rate for name, rate in base.items() if name != "tiers"}
        yield ("tier", "the price of a short input"), _flat(price, lowest)
        for tier in price.tiers:
            yield ("tier", _tier_words(tier)), _flat(price, tier_rates(tier, base, None))
    for word, table in (price.service or {}).items():
        yield ("tier", f"the price of the service tier {word}"), _flat(price, {**table})
    if price.service:
        yield ("tier", "the price of the usual service tier"), _flat(price, base)
    if price.cached is not None:
        yield ("cache", "the price of input for tokens of the cache"), _flat(price, _read_at(base, price.input))
    if price.cached_by_mark is not None:
        yield ("cache", "the price of a cache that was marked"), _flat(price, _read_at(base, price.cached_by_mark))
        yield ("cache", "the price of a cache that was not marked"), _flat(price, _read_at(base, price.cached))
    if price.cache_write is not None:
        plain = {**base, "cache_write": price.input, "cache_write_1h": price.input}
        yield ("cache", "the price of input for tokens that were written to the cache"), _flat(price, plain)
    if price.cache_write_1h is not None:
        hour = {**base, "cache_write": price.cache_write_1h}
        yield ("cache", "the price of an hour for all that was written to the cache"), _flat(price, hour)


def _read_at(base: Mapping[str, Any], rate: float | None) -> dict[str, Any]:
    """Return prices with one for tokens from each kind of cache."""
    return {**base, "cached": rate, "cached_by_mark": rate}


def _tier_words(tier: Mapping[str, float]) -> str:
    """Return which lengths a tier is for."""
    if (most := tier.get("output_below")) is not None:
        return f"the price of a reply below {most:,} tokens"
    return f"the price of an input above {tier.get('above', 0):,} tokens"


def _flat(price: Price, table: Mapping[str, Any]) -> Price:
    """Return a price with the rates of one table, at any hour."""
    rates: dict[str, Any] = {name: table.get(name) for name in RATES}
    bare = replace(price, off_peak=None, promotion=None, service=None, tiers=table.get("tiers"))
    return replace(bare, **rates)


class Variants:
    """Sums what calls would have cost by other prices."""

    def __init__(self, book: PriceBook) -> None:
        self._book = book
        self._sums: dict[tuple[CauseCode, str], dict[str, Decimal] | None] = {}
        self._actual: dict[str, Decimal] = {}

    def add(self, call: BilledCall) -> None:
        """Add a call. A call that a price does not change costs what the log has."""
        variants = self._book.variants(call.price, call.model)
        created = seconds_of(call.began)
        for key in {*self._sums, *variants}:
            sums = self._sums.setdefault(key, dict(self._actual))
            cost = cost_of(call.usage, variants[key], created) if key in variants else call.cost
            if sums is None:
                continue
            if cost is None or not cost.complete:
                self._sums[key] = None
            else:
                sums[cost.currency] = sums.get(cost.currency, Decimal(0)) + cost.amount
        if call.cost is not None:
            self._actual[call.cost.currency] = self._actual.get(call.cost.currency, Decimal(0)) + call.cost.amount

    def causes(self, currency: str, bill: Decimal, log: Decimal, slack: Decimal) -> list[BillCause]:
        """Return the prices by which the calls cost what the bill has; else those that lie behind it."""
        equal: list[BillCause] = []
        near: list[BillCause] = []
        for (code, words), sums in sorted(self._sums.items()):
            amount = None if sums is None else sums.get(currency)
            if amount is None or amount == log:
                continue
            if abs(bill - amount) <= slack:
                equal.append(BillCause(code, f"the bill has {words}", certain=True))
            elif min(log, amount) < bill < max(log, amount):
                near.append(BillCause(code, f"some calls may have {words}"))
        return equal or near


def find_causes(
    bill: BillSum | None, log: LogSum | None, currency: str | None, book: PriceBook, variants: Variants | None
) -> list[BillCause]:
    """Return likely causes of a difference, the most likely ones first."""
    if bill is None:
        if log is not None and log.calls == log.unpriced:
            return [
                BillCause("incomplete", "the cost of these calls is unknown; they may have failed without a charge")
            ]
        return [
            BillCause("calls", "the bill has no row for these calls: they are not billed yet, or another account paid")
        ]
    if log is None:
        if bill.is_fee:
            return [BillCause("fee", "the row counts no tokens: a fee, or another product")]
        return [BillCause("calls", "the log has no such calls: another program made them, or they were not logged")]
    found = [*_currency_causes(bill, log), *_token_causes(bill, log), *_log_causes(bill, log, currency)]
    amount = None if currency is None else bill.money.get(currency)
    own = None if currency is None else log.money.get(currency)
    if amount is not None and own is not None and currency is not None and abs(amount - own) > bill.slack:
        found += _rate_causes(bill, log, currency, book)
        listed = bill.list_money.get(currency)
        if listed is not None and listed > amount and abs(listed - own) <= bill.slack:
            found.append(
                BillCause(
                    "discount", "before a discount, a package or a gift the bill has the same amount", certain=True
                )
            )
        if bill.tiers:
            found.append(BillCause("tier", f"rows of the bill say {', '.join(sorted(bill.tiers))}"))
        if variants is not None:
            other = variants.causes(currency, amount, own, bill.slack)
            found += [cause for cause in other if cause.certain or not found]
    if not found:
        return [BillCause("unknown", "nothing in the log explains it")]
    return sorted(found, key=lambda cause: not cause.certain)


def _currency_causes(bill: BillSum, log: LogSum) -> Iterator[BillCause]:
    if bill.money and log.money and {*bill.money} != {*log.money}:
        yield BillCause(
            "currency", f"the bill is in {', '.join(sorted(bill.money))}, the log in {', '.join(sorted(log.money))}"
        )


def _token_causes(bill: BillSum, log: LogSum) -> Iterator[BillCause]:
    counts = {kind: (int(number), log.tokens(kind, number)) for kind, number in bill.tokens.items()}
    for kind, words in (("prompt", "tokens of input"), ("output", "tokens of output")):
        theirs, ours = counts.get(kind, (0, 0))
        if ours is None or theirs == ours:
            continue
        if theirs > ours:
            detail = (
                f"the bill has {theirs - ours:,} more {words}: calls that are not in the log, or of another program"
            )
        else:
            detail = f"the log has {ours - theirs:,} more {words}: they are not billed yet, or were free"
        yield BillCause("calls", detail)
    for kind, words in (("cached", "read from the cache"), ("cache_write", "written to the cache")):
        theirs, ours = counts.get(kind, (0, 0))
        if ours is not None and theirs != ours and counts.get("prompt", (0, 0))[0] == counts.get("prompt", (0, 0))[1]:
            yield BillCause("cache", f"{words}: {theirs:,} tokens in the bill, {ours:,} in the log")
    requests = bill.requests
    if requests is not None and requests > log.calls:
        yield BillCause(
            "calls",
            f"the bill has {int(requests):,} request{plural(int(requests))}, "
            f"the log {log.calls:,} call{plural(log.calls)}",
        )


def _log_causes(bill: BillSum, log: LogSum, currency: str | None) -> Iterator[BillCause]:
    if log.unpriced:
        calls = "1 call" if log.unpriced == 1 else f"{log.unpriced:,} calls"
        yield BillCause("incomplete", f"the log does not know the cost of {calls}")
    elif log.incomplete:
        again = "requests that were made again"
        names = ", ".join(again if name == UNKNOWN_REQUEST else name for name in log.missing) or again
        yield BillCause("incomplete", f"the log leaves out {names}{_within(bill, log, currency)}")


def _within(bill: BillSum, log: LogSum, currency: str | None) -> str:
    amount, own = bill.money.get(currency or ""), log.money.get(currency or "")
    most = log.most.get(currency or "")
    is_within = amount is not None and own is not None and most is not None and own <= amount <= most
    return "; the bill is within what that can be" if is_within else ""


def _rate_causes(bill: BillSum, log: LogSum, currency: str, book: PriceBook) -> Iterator[BillCause]:
    """Yield a cause for each rate of the bill that was not the price in force."""
    stored = [price for number in log.prices if (price := book.price(number)) is not None]
    prices = [price for price in stored if price.currency == currency]
    for kind, rates in bill.rates.items():
        name = _RATE_OF.get(kind)
        if name is None or not prices:
            continue
        names = (name, "cached_by_mark") if name == "cached" else (name,)
        both = [getattr(price, name) for price in prices for name in names]
        in_force = {exact_rate(rate) for rate in both if rate is not None}
        for rate in sorted(rates - in_force):
            code, words = _other_rate(rate, name, prices)
            known = " or ".join(f"{own.normalize():f}" for own in sorted(in_force)) or "unknown"
            theirs = f"{rate.normalize():f} for a million tokens, {words}"
            yield BillCause(code, f"{name}: the bill has {theirs}; the price in force was {known}")


def _other_rate(rate: Decimal, name: str, prices: list[Price]) -> tuple[CauseCode, str]:
    """Return which other price a rate of the bill is."""
    for price in prices:
        for (code, words), other in _other_prices(price):
            own = getattr(other, name)
            if own is not None and exact_rate(own) == rate:
                return code, words
    return "price", "a price that the registry did not have"
