"""Compute what a reply costs: by the endpoint's own bill where it sends one, else by the registry's prices.

A cost is exact, or it names what it leaves out and says how much that can be at most. What was not reported is never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.decode.hours import is_within, local_day
from cnllm.jsonpath import get, get_first
from cnllm.protocols.reported import as_count
from cnllm.registry.flags import Flags, PaidCall, Price, ReportedCost, WebSearch, once_per_flags
from cnllm.types import Cost, Opaque, Part, ToolCall, Usage

__all__ = [
    "RATES",
    "WEB_SEARCH",
    "Facts",
    "Meter",
    "cost_of",
    "is_off_peak",
    "meter_of",
    "paid_calls",
    "promotion_of",
    "service_rates",
]

RATES = (
    *("input", "output", "cached", "cache_write", "cache_write_1h", "output_thinking"),
    *("input_audio", "cached_audio"),
)
"""The names of the prices of tokens, in a price, a tier, off-peak hours, a promotion and a service tier."""

_ZERO = Decimal(0)
_UTC = "+00:00"
_MILLION = 1_000_000
WEB_SEARCH = "web_search"
"""The name of the fee of a web search."""

_Rates = Mapping[str, Any]


class Facts(Struct, frozen=True):
    """Facts of a reply about its bill, beside the counts of tokens.

    `service` is the word for its service tier; None for the usual one. `factor` multiplies the prices of tokens; None
    is unknown. `unknown` names a word whose price is not known. `media` are counts of sound by the name of
    their price, `free` the tokens of input that cost nothing. `thought`: the model has reasoned. `is_cut`: the endpoint
    may have counted more tokens than it has reported, `most_output` at most; None is unknown.
    """

    service: str | None = None
    factor: Decimal | None = Decimal(1)
    unknown: str | None = None
    media: Mapping[str, int] = {}
    free: int = 0
    thought: bool = False
    is_cut: bool = False
    most_output: int | None = None


_NO_FACTS = Facts()


# ── prices ────────────────────────────────────────────────────────────────────


def is_off_peak(price: Price | None, created: float | None) -> bool | None:
    """Whether a reply of this time, in seconds since 1970, is charged at the off-peak price.

    None where the endpoint has such a price and the answer is unknown.
    """
    if price is None or price.off_peak is None:
        return False
    hours, zone = price.off_peak.get("peak"), price.off_peak.get("zone")
    if created is None or type(hours) is not list or type(zone) is not str:
        return None
    holidays = price.off_peak.get("holidays")
    if type(holidays) is list and local_day(zone, created) in holidays:
        return True
    within = is_within(tuple(str(text) for text in hours), zone, created)
    return None if within is None else not within


def promotion_of(price: Price, created: float | None) -> Mapping[str, Any]:
    """Return the prices of a promotion that holds at a time; nothing where none does, or where it is unknown."""
    promotion = price.promotion or {}
    if "until" not in promotion:
        return promotion
    zone = promotion.get("zone", _UTC)
    day = None if created is None or type(zone) is not str else local_day(zone, created)
    return promotion if day is not None and day <= str(promotion["until"]) else {}


def service_rates(price: Price, service: str | None) -> list[_Rates]:
    """Return the tables of prices that may hold for a service tier at any time; none where it has no known price."""
    if service is not None:
        table = (price.service or {}).get(service)
        return [] if table is None else [table]
    return [_base_rates(price), *filter(None, (price.off_peak, price.promotion))]


def _base_rates(price: Price) -> dict[str, Any]:
    """Return the prices outside of all conditions, as a table."""
    rates: dict[str, Any] = {name: rate for name in RATES if (rate := getattr(price, name)) is not None}
    if price.tiers:
        rates["tiers"] = price.tiers
    return rates


def _possible_rates(price: Price, service: str | None, input: int | None, created: float | None) -> list[_Rates]:
    """Return the prices of a reply: one table, or several where it is not known which one holds; the cheapest first."""
    if service is not None:
        return [_tier(table, table, input) for table in service_rates(price, service)]
    base = _base_rates(price)
    off_peak, promotion = is_off_peak(price, created), promotion_of(price, created)
    tables: list[_Rates] = []
    if off_peak is not False and price.off_peak is not None:
        tables.append({"tiers": price.tiers, **price.off_peak})
    if promotion or (price.promotion and created is None):
        tables = [{"tiers": price.tiers, **(price.promotion or {})}]
    if (not tables) or off_peak is None or (not promotion and price.promotion and created is None):
        tables.append(base)
    return [_tier(table, base, input) for table in tables]


def _tier(rates: _Rates, base: _Rates, input: int | None) -> _Rates:
    """Return the prices of the length of the input.

    A table has all its prices: one of the cache, say, that it does not name is unknown. Where it names only the price
    of input or only that of output, the other one is the usual one.
    """
    found = rates
    for tier in sorted(rates.get("tiers") or (), key=lambda tier: float(tier.get("above", 0))):
        if input is None or input > tier.get("above", 0):
            found = tier
    if "input" in found and "output" in found:
        return found
    usual = {name: table[name] for table in (base, rates) for name in ("input", "output") if name in table}
    return {**usual, **found}


# ── the sum ───────────────────────────────────────────────────────────────────


class _Sum:
    """A sum with what it leaves out. `rest` is the most that the missing parts can cost; None is unbounded."""

    __slots__ = ("amount", "missing", "rest")

    def __init__(self) -> None:
        self.amount = _ZERO
        self.rest: Decimal | None = _ZERO
        self.missing: list[str] = []

    def miss(self, name: str, most: Decimal | None) -> None:
        """Leave out a part that costs so much at most."""
        if name not in self.missing:
            self.missing.append(name)
        self.rest = None if most is None or self.rest is None else self.rest + most

    def cost(self, currency: str) -> Cost | None:
        """Return the cost; None where nothing of it is known."""
        if self.missing and self.rest is None and not self.amount:
            return None
        most = None if self.rest is None else self.amount + self.rest
        return Cost(self.amount, currency, missing=tuple(self.missing), at_most=most)


def cost_of(usage: Usage, price: Price | None, created: float | None = None, facts: Facts = _NO_FACTS) -> Cost | None:
    """Return the cost of the tokens of a reply; None where nothing of it is known.

    `created` is the time of the reply: outside the peak hours, or while a promotion lasts, it may cost less.
    """
    if price is None or price.currency is None:
        return None
    total = _Sum()
    _add_tokens(total, usage, price, created, facts)
    return total.cost(price.currency)


def _add_tokens(total: _Sum, usage: Usage, price: Price, created: float | None, facts: Facts) -> None:
    """Add the price of the tokens."""
    charged = None if usage.input is None else max(usage.input - facts.free, 0)
    if facts.unknown is not None or facts.factor is None or (charged is None and price.tiers):
        total.miss(facts.unknown or "input", None)
        return
    tables = _possible_rates(price, facts.service, charged, created)
    if not tables:
        total.miss(f"service {facts.service}", None)
        return
    sums = [_token_sum(usage, rates, price, facts) for rates in tables]
    low = min(sums, key=lambda found: found.amount)
    total.amount += low.amount * facts.factor
    mosts = [None if found.rest is None else found.amount + found.rest for found in sums]
    known = [most for most in mosts if most is not None]
    for found in sums:
        for name in found.missing:
            total.miss(name, _ZERO)
    if any(found.amount != low.amount for found in sums):
        total.miss("hours" if price.off_peak else "promotion", _ZERO)
    if len(known) < len(mosts) or total.rest is None:
        total.rest = None
    else:
        total.rest += (max(known) - low.amount) * facts.factor


def _token_sum(usage: Usage, rates: _Rates, price: Price, facts: Facts) -> _Sum:
    """Return the price of the tokens by one table of prices."""
    total = _Sum()
    for name, tokens, bound in _parts(usage, rates, price, facts):
        rate = rates.get(name)
        if tokens is None:
            total.miss(name, None)
        elif tokens and type(rate) not in (int, float):
            highest = rates.get(bound) if bound is not None else None
            if highest != 0:  # what is never dearer than a free price is free
                total.miss(name, None if type(highest) not in (int, float) else tokens * _exact(highest) / _MILLION)
        elif tokens:
            assert isinstance(rate, int | float)
            total.amount += tokens * _exact(rate)
    total.amount /= _MILLION
    if facts.is_cut or usage.output is None:
        rates_of_output = [rate for name in ("output", "output_thinking") if (rate := rates.get(name)) is not None]
        rest = None if facts.most_output is None else max(facts.most_output - (usage.output or 0), 0)
        highest = None if rest is None or not rates_of_output else rest * _exact(max(rates_of_output)) / _MILLION
        total.miss("output", highest)
    return total


def _parts(usage: Usage, rates: _Rates, price: Price, facts: Facts) -> Iterator[tuple[str, int | None, str | None]]:
    """Yield the tokens of a reply by the name of their price, with that of a price that is never lower."""
    if usage.input is None:
        yield "input", None, None
    else:
        written = usage.cache_write or 0
        hourly = min(usage.cache_write_1h or 0, written)
        cached = min(usage.cached or 0, usage.input)
        plain = max(usage.input - cached - written - facts.free, 0)
        media = facts.media
        if media:
            sound, heard = media.get("input_audio", 0), media.get("cached_audio", 0)
            if sound and price.input_audio is not None:
                fresh = min(max(sound - heard, 0), plain)
                plain -= fresh
                yield "input_audio", fresh, None
            if heard and price.cached_audio is not None:
                heard = min(heard, cached)
                cached -= heard
                yield "cached_audio", heard, "input_audio"
        yield "input", plain, None
        yield "cached", cached, "input"
        yield "cache_write", written - hourly, None
        yield "cache_write_1h", hourly, None
    rest = usage.output or 0
    is_dearer = facts.thought and price.output_thinking is not None
    yield "output_thinking" if is_dearer else "output", rest, None


@lru_cache(maxsize=512)
def _exact(rate: float) -> Decimal:
    """Return a rate as the registry writes it."""
    return Decimal(repr(rate))


# ── the bill of a reply ───────────────────────────────────────────────────────


class Meter:
    """The rules of a model for the bills of its replies, looked up once in its flags."""

    __slots__ = (
        "_always",
        "_calls",
        "_factors",
        "_media",
        "_plain_rates",
        "_price",
        "_reported",
        "_service",
        "_standard",
        "_tools",
    )

    def __init__(self, flags: Flags) -> None:
        price, usage = flags.price, flags.usage
        self._price = price
        self._always = flags.web_search is not None and flags.web_search.always is True
        self._tools = (usage and usage.tool_input) or ()
        self._calls = paid_calls(flags)
        self._factors = (price and price.factors) or {}
        self._service = tuple((usage and usage.service) or ())
        self._standard = frozenset((usage and usage.standard) or ())
        self._reported = usage.cost if usage is not None and usage.cost is not None and usage.cost.path else None
        self._media = {
            name: tuple(paths)
            for name in ("input_audio", "cached_audio")
            if price is not None
            and getattr(price, name) is not None
            and (paths := getattr(usage, name, None) if usage is not None else None)
        }

        self._plain_rates = [] if self._reported or self._media else _plain_rates(price)

    @property
    def counts_calls(self) -> bool:
        """Whether bodies and chunks hold numbers of paid calls."""
        return any(rule.at for rule in self._calls.values())

    def count(self, data: dict[str, Any], known: dict[str, int]) -> None:
        """Take in the numbers of paid calls that a body or a chunk reports."""
        for name, rule in self._calls.items():
            for path in rule.at or ():
                value = get(data, path)
                if type(value) is list:
                    items = [item for item in value if item not in ("", None)]
                    number = len(set(map(str, items))) if rule.per == "unique" else len(items)
                    known[name] = max(known.get(name, 0), number)
                elif type(value) is dict and value:
                    known[name] = max(known.get(name, 0), 1)
                elif (count := as_count(value)) is not None and (count or name not in known):
                    known[name] = count

    def cost(
        self,
        usage: Usage,
        created: float | None,
        extra: Mapping[str, Any],
        *,
        calls: Mapping[str, int | None],
        answered: bool,
        thought: bool,
        is_cut: bool,
        most_output: int | None = None,
    ) -> Cost | None:
        """Return the cost of a reply; None where nothing of it is known.

        `extra` is what the reply holds beside its text, `calls` the number of paid calls by name; None is unknown. A
        count of 0 for a reply that has content (`answered`) was not reported. `is_cut` and `most_output`: see `Facts`.
        """
        is_plain = self._plain_rates and not is_cut and all(number == 0 for number in calls.values())
        if is_plain and (plain := self._plain_cost(usage, extra)) is not None:
            return plain
        if answered and (usage.input == 0 or usage.output == 0):
            usage = replace(usage, input=usage.input or None, output=usage.output or None)
        counts = extra.get("usage")
        if type(counts) is not dict:
            counts = {}
        price = self._price
        computed: Cost | None = None
        if price is not None and price.currency is not None:
            total = _Sum()
            _add_tokens(total, usage, price, created, self._facts(counts, extra, calls, thought, is_cut, most_output))
            for name, rule in self._calls.items():
                _add_calls(total, name, rule, calls.get(name, 0))
            computed = total.cost(price.currency)
        reported = None if self._reported is None else _reported_cost(counts, self._reported)
        if reported is None:
            return computed
        figure = None if computed is None or computed.currency != reported.currency else computed.amount
        return replace(reported, computed=figure)

    def _plain_cost(self, usage: Usage, extra: Mapping[str, Any]) -> Cost | None:
        """Return the cost of a reply whose price depends on the length of its input alone; None for any other."""
        input, output, cached = usage.input, usage.output, usage.cached or 0
        if not input or not output or usage.cache_write or cached > input:
            return None
        counts = extra.get("usage")
        for path in self._service:
            word = extra.get(path) or (get(counts, path) if counts else None)
            if word is not None and word not in self._standard:
                return None
        _, fresh_rate, cached_rate, output_rate = next(rates for rates in self._plain_rates if input > rates[0])
        amount = (input - cached) * fresh_rate + output * output_rate
        if cached:
            if cached_rate is None:
                return None
            amount += cached * cached_rate
        assert self._price is not None
        assert self._price.currency is not None
        return Cost(amount / _MILLION, self._price.currency)

    def _facts(
        self,
        counts: dict[str, Any],
        extra: Mapping[str, Any],
        calls: Mapping[str, int | None],
        thought: bool,
        is_cut: bool,
        most_output: int | None,
    ) -> Facts:
        """Return what a reply says about its bill."""
        service = unknown = None
        if self._service:
            word = get_first(counts, self._service) or get_first(extra, self._service)
            if type(word) is str and word.lower() not in self._standard:
                service = word.lower()
        factor = Decimal(1)
        for key, factors in self._factors.items():
            word = get(counts, key)
            if type(word) is str and word:
                if word.lower() not in factors:
                    unknown = f"{key} {word}"
                else:
                    factor *= _exact(factors[word.lower()])
        free = 0
        for name, rule in self._calls.items():
            if rule.replaces is not None and calls.get(name, 0) != 0:
                free = as_count(get_first(counts, self._tools)) or 0
        media = {name: _media_count(counts, paths) for name, paths in self._media.items()}
        return Facts(service, factor, unknown, media, free, thought, is_cut, most_output)

    def calls(
        self,
        search: WebSearch | None,
        reported: Mapping[str, int],
        calls: Sequence[ToolCall],
        parts: Sequence[Part],
        echo: str | None,
    ) -> dict[str, int | None]:
        """Return the number of paid calls of a reply by name; None is unknown.

        `search` are the rules of a search that was requested, `reported` the numbers that the endpoint sent, and `echo`
        the function that stands for one search.
        """
        found: dict[str, int | None] = {}
        for name, rule in self._calls.items():
            is_requested = name == WEB_SEARCH and search is not None
            if name in reported:
                found[name] = reported[name]
            elif is_requested and echo is not None:
                found[name] = sum(call.name == echo for call in calls)
            elif rule.item is not None:
                found[name] = sum(type(part) is Opaque and _is_item(part.data, rule.item) for part in parts)
            elif name == WEB_SEARCH and self._always:
                found[name] = 1
            elif is_requested:
                found[name] = None
        return found


def _plain_rates(price: Price | None) -> list[tuple[float, Decimal, Decimal | None, Decimal]]:
    """Return the prices of fresh input, cached input and output by the length from which they hold, the longest first.

    Empty where anything else decides about the price.
    """
    if price is None or price.currency is None or price.off_peak or price.promotion or price.factors:
        return []
    if price.output_thinking is not None:
        return []
    base = _base_rates(price)
    out = []
    for above in sorted([-1.0, *(tier.get("above", 0) for tier in price.tiers or ())], reverse=True):
        rates = _tier(base, base, int(above) + 1)
        fresh, cached, output = rates.get("input"), rates.get("cached"), rates.get("output")
        if fresh is None or output is None:
            return []
        out.append((above, _exact(fresh), None if cached is None else _exact(cached), _exact(output)))
    return out


@once_per_flags
def meter_of(flags: Flags) -> Meter:
    """Return the meter for these flags."""
    return Meter(flags)


def paid_calls(flags: Flags) -> dict[str, PaidCall]:
    """Return the fees by name; that of a web search stands with its rules where the price does not name it."""
    calls = dict((flags.price and flags.price.per_call) or {})
    search = flags.web_search
    if search is not None and WEB_SEARCH not in calls and search.fee != 0:
        calls[WEB_SEARCH] = PaidCall(
            fee=search.fee, at=search.uses, item=search.item, per="request" if search.fee_per == "request" else None
        )
    return calls


def _add_calls(total: _Sum, name: str, rule: PaidCall, number: int | None) -> None:
    """Add the fees of calls."""
    if number == 0 or rule.fee == 0:
        return
    if rule.fee is None or number is None:
        total.miss(name, None)
        return
    fees = (1 if rule.per == "request" else number) * _exact(rule.fee)
    if rule.allowance:
        total.miss(name, fees)
    else:
        total.amount += fees


def _reported_cost(counts: dict[str, Any], rules: ReportedCost) -> Cost | None:
    """Return the endpoint's own bill; None where it sent none."""
    assert rules.path is not None
    amount = _amount(get(counts, rules.path))
    if amount is None or rules.currency is None:
        return None
    factor = Decimal(1) if rules.factor is None else _exact(rules.factor)
    missing: tuple[str, ...] = ()
    if rules.add is not None and all(get(counts, path) == value for path, value in (rules.when or {}).items()):
        addition = _amount(get(counts, rules.add))
        if addition is None:
            missing = (rules.add,)
        else:
            amount += addition
    return Cost(amount * factor, rules.currency, missing=missing, by="endpoint")


def _amount(value: Any) -> Decimal | None:
    """Return an amount that an endpoint wrote, exactly; None for anything else."""
    if type(value) not in (int, float, str):
        return None
    try:
        amount = Decimal(value if type(value) is str else repr(value))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def _media_count(counts: dict[str, Any], paths: Sequence[str]) -> int:
    """Return the tokens at the first path that has them; in a list the last key is a word of the item that counts."""
    for path in paths:
        value = get(counts, path)
        place, _, word = path.rpartition(".")
        if value is None and type(items := get(counts, place)) is list:
            found = [item for item in items if type(item) is dict and word in item.values()]
            value = sum(count for item in found for count in item.values() if type(count) is int)
        if (count := as_count(value)) is not None:
            return count
    return 0


def _is_item(data: Any, kind: str) -> bool:
    """Whether the data of a part are an item of this type."""
    return type(data) is dict and data.get("type") == kind


# ── hours and days ────────────────────────────────────────────────────────────
