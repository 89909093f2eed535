"""Meter a reply: by the endpoint's own bill where it sends one, else by the prices of tokens and of paid calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from functools import lru_cache, partial
from math import isfinite
from typing import Any

from msgspec.structs import replace

from cnllm.engine.decode.cost import (
    MILLION,
    UNPRICED,
    CostSum,
    Facts,
    add_tokens,
    exact_rate,
    has_tiers,
    is_off_peak,
    possible_rates,
    reported_counts,
    uncounted_tokens,
)
from cnllm.engine.encode.plan import Plan
from cnllm.jsonpath import get, get_first, leaves
from cnllm.protocols import wire
from cnllm.protocols.reported import InvalidCounts, as_count, counts_reader
from cnllm.registry.flags import Flags, PaidCall, Price, ReportedCost, UsagePaths
from cnllm.types import Cost, Media, Opaque, Part, Reply, Usage
from cnllm.types.parts import CACHE_MARK, seal_data
from cnllm.types.totals import EXACT, exact

__all__ = ["WEB_SEARCH", "Meter", "may_mark_cache", "meter_of", "paid_calls"]

WEB_SEARCH = "web_search"
"""The name of the fee of a web search."""
_MARK_KEY = b'"%b":' % CACHE_MARK.encode()
_LARGEST_AMOUNT = 10**15
_MOST_DIGITS = 50  # of an amount, so that sums stay exact


class Meter:
    """The rules of a model for the bills of its replies, looked up once in its flags."""

    def __init__(self, flags: Flags) -> None:
        price, usage = flags.price, flags.usage
        self._price = price
        self._always = flags.web_search is not None and flags.web_search.always is True
        self._shows_searches = flags.web_search is None or flags.web_search.item is not None
        self._tools = usage.tool_input or ()
        self._calls = paid_calls(flags)
        self.counts_calls = any(rule.at for rule in self._calls.values())
        """Whether bodies and chunks hold numbers of paid calls."""
        self._factors = (price and price.factors) or {}
        self._service = tuple(usage.service or ())
        self._standard = frozenset(usage.standard or ())
        self._marks = leaves(usage.cache_mark or {})
        self._reported = usage.cost if usage.cost is not None and usage.cost.path else None
        self._iterations = usage.iterations
        self._read_counts = counts_reader(flags)
        sounds = _declared_paths(usage, ("input_audio", "cached_audio"))
        self._media = {name: paths for name, paths in sounds.items() if getattr(price, name, None) is not None}
        self._made = _declared_paths(usage, UNPRICED)
        self._is_off_peak = None
        if price is not None and price.off_peak is not None:
            self._is_off_peak = lru_cache(4)(partial(_is_off_peak, price))
        self.depends_on_time = price is not None and bool(price.off_peak or "until" in (price.promotion or {}))
        """Whether the prices are not the same at all times."""
        is_metered = price is None or price.currency is None or self._reported or self._media
        self._plain_rates = None if price is None or is_metered else lru_cache(4)(exact(partial(_plain_rates, price)))

    def knows_time(self, created: float | None) -> bool:
        """Whether it is known by which hours and days a reply of this time, in seconds since 1970, is charged."""
        if not self.depends_on_time:
            return True
        return created is not None and (self._is_off_peak is None or self._is_off_peak(_minute(created)) is not None)

    def count(self, data: dict[str, Any], known: dict[str, int | None]) -> None:
        """Take in the numbers of paid calls that a body or a chunk reports; one that cannot be read is unknown."""
        for name, rule in self._calls.items():
            for path in rule.at or ():
                value = get(data, path)
                if type(value) is list:
                    items = [item for item in value if item not in ("", None)]
                    number = len(set(map(str, items))) if rule.per == "unique" else len(items)
                    known[name] = max(known.get(name) or 0, number)
                elif type(value) is dict and value:
                    known[name] = max(known.get(name) or 0, 1)
                elif (count := as_count(value)) is not None:
                    known[name] = count or known.get(name, 0)
                elif value not in (None, "", False) and type(value) is not dict:
                    known[name] = None

    def cost(
        self,
        reply: Reply,
        plan: Plan,
        created: float | None,
        paid: Mapping[str, int | None],
        *,
        is_cut: bool = False,
        invalid: frozenset[str] = frozenset(),
    ) -> Cost | None:
        """Return the cost of a reply to a request; None where nothing of it is known.

        `paid` are the numbers of paid calls that the endpoint has reported, by name; None is unknown. A count of 0 for
        a reply that has content was not reported. For `is_cut` and `invalid` see `Facts`.
        """
        calls = self._paid_calls(reply, plan, paid, is_cut=is_cut)
        is_plain = not is_cut and not invalid and (not calls or all(number == 0 for number in calls.values()))
        if is_plain and (plain := self._plain_cost(reply.usage, created, reply.extra)) is not None:
            return plain
        with localcontext(EXACT):
            counts = _own_counts(reply.extra)
            price = self._price
            computed: Cost | None = None
            if price is not None and price.currency is not None:
                total = CostSum()
                facts = self._facts(reply, plan, calls, invalid, is_cut=is_cut)
                usage = reported_counts(reply.usage, answered=bool(reply.message.parts))
                for part in [usage] if is_cut or invalid else self._requests(usage, counts):
                    add_tokens(total, part, price, created, facts)
                self._add_iterations(total, counts, created, facts)
                for name, rule in self._calls.items():
                    free = 0 if name in paid else _free_calls(reply, rule, wire(plan.model.protocol).free_actions)
                    _add_calls(total, name, rule, calls.get(name, 0), free, is_cut=is_cut)
                computed = total.cost(price.currency)
            is_partial = is_cut or "output" in invalid
            reported = None if self._reported is None else _reported_cost(counts, self._reported, is_partial=is_partial)
            if reported is None:
                return computed
            figure = None if computed is None or computed.currency != reported.currency else computed.amount
            return replace(reported, computed=figure)

    def _plain_cost(self, usage: Usage, created: float | None, extra: Mapping[str, Any]) -> Cost | None:
        """Return the cost of a reply whose price depends on its minute and its input alone; None for any other."""
        input, output, cached = usage.input, usage.output, usage.cached or 0
        if self._plain_rates is None or not input or not output or uncounted_tokens(usage) > 0:
            return None
        if usage.cache_write or usage.cache_write_1h:
            return None
        counts = _own_counts(extra)
        if self._service_of(counts, extra) is not None:
            return None
        if self._iterations is not None and get(counts, self._iterations.at or "") is not None:
            return None
        if counts and any(_media_count(counts, paths) != 0 for paths in self._made.values()):
            return None
        for rates in self._plain_rates(_minute(created)):
            if input > rates[0]:
                break
        else:
            return None
        _, fresh_rate, cached_rate, output_rate = rates
        amount = EXACT.fma(fresh_rate, input - cached, EXACT.multiply(output_rate, output))
        if cached:
            if cached_rate is None:
                return None
            amount = EXACT.fma(cached_rate, cached, amount)
        assert self._price is not None
        assert self._price.currency is not None
        return Cost(EXACT.divide(amount, MILLION), self._price.currency)

    def _requests(self, usage: Usage, counts: dict[str, Any]) -> list[Usage]:
        """Return the counts of each request that the endpoint made for a reply: its own length decides about its price.

        All counts are those of one request where the endpoint does not tell them apart.
        """
        rules, none = self._iterations, [usage]
        if rules is None or rules.at is None or rules.kind is None or self._price is None or not has_tiers(self._price):
            return none
        items = get(counts, rules.at)
        invalid: InvalidCounts = {}
        found = [
            self._read_counts(item, invalid)
            for item in (items if type(items) is list else ())
            if type(item) is dict and get(item, rules.kind) in (rules.included or ())
        ]
        sums = [sum(numbers) for numbers in zip(*map(_charged_counts, found), strict=True)]
        return found if not invalid and sums == _charged_counts(usage) else none

    def _add_iterations(self, total: CostSum, counts: dict[str, Any], created: float | None, facts: Facts) -> None:
        """Add the price of requests that the endpoint made itself and leaves out of its totals."""
        rules = self._iterations
        if rules is None or rules.at is None or rules.kind is None or self._price is None:
            return
        items = get(counts, rules.at)
        if items is None:
            return
        for item in items if type(items) is list else [items]:
            word = get(item, rules.kind) if type(item) is dict else None
            if word in (rules.included or ()):
                continue
            invalid: InvalidCounts = {}
            usage = self._read_counts(item, invalid) if word in (rules.excluded or ()) else None
            if usage is None or invalid or usage.input is None or usage.output is None:
                total.miss("iterations", None)
            else:
                others = Facts(facts.service, facts.factor, facts.unknown, by_mark=facts.by_mark)
                add_tokens(total, usage, self._price, created, others)

    def _service_of(self, counts: Mapping[str, Any], extra: Mapping[str, Any]) -> str | None:
        """Return the word for the service tier of a reply with these counts; None for the usual one."""
        if not self._service:
            return None
        word = (counts and get_first(counts, self._service)) or get_first(extra, self._service)
        return word.lower() if type(word) is str and word.lower() not in self._standard else None

    def _facts(
        self, reply: Reply, plan: Plan, calls: Mapping[str, int | None], invalid: frozenset[str], *, is_cut: bool
    ) -> Facts:
        """Return what a reply says about its bill."""
        counts, usage = _own_counts(reply.extra), reply.usage
        unknown = None
        factor = Decimal(1)
        for key, factors in self._factors.items():
            word = get(counts, key)
            if type(word) is str and word:
                if word.lower() not in factors:
                    unknown = f"{key} {word}"
                else:
                    factor *= exact_rate(factors[word.lower()])
        free = 0
        for name, rule in self._calls.items():
            if rule.replaces is not None and calls.get(name, 0) != 0:
                free = as_count(get_first(counts, self._tools)) or 0
        media = {name: _media_count(counts, paths) for name, paths in self._media.items()}
        media |= {name: count for name, paths in self._made.items() if (count := _media_count(counts, paths)) != 0}
        if usage.cached and media.get("input_audio") and not _has_place(counts, self._media.get("cached_audio", ())):
            media["cached_audio"] = None
        if usage.cache_write and usage.cache_write_1h is None and self._may_last_an_hour(plan):
            invalid |= {"cache_write_1h"}
        thought = bool(usage.reasoning or reply.reasoning)
        most = most_output(plan, is_partial=is_cut or usage.output is None or bool(invalid))
        service, by_mark = self._service_of(counts, reply.extra), self._by_mark(usage, counts, plan)
        return Facts(service, factor, unknown, media, free, thought, by_mark, is_cut, invalid, most)

    def _may_last_an_hour(self, plan: Plan) -> bool:
        """Whether a request may write to a cache that lasts an hour, and costs more than another one."""
        mark, price = wire(plan.model.protocol).hour_mark, self._price
        return price is not None and price.cache_write_1h is not None and mark is not None and mark in plan.content

    def _by_mark(self, usage: Usage, counts: dict[str, Any], plan: Plan) -> bool | None:
        """Whether tokens come from a cache that the request marked; None is unknown. A reply has one kind of cache."""
        if self._price is None or self._price.cached_by_mark is None:
            return None
        if usage.cache_write or any(get(counts, path) == word for path, word in self._marks.items()):
            return True
        return None if may_mark_cache(plan) else False

    def _paid_calls(
        self, reply: Reply, plan: Plan, reported: Mapping[str, int | None], *, is_cut: bool
    ) -> dict[str, int | None]:
        """Return the number of paid calls of a reply by name; None is unknown.

        A number of 0 that came before a reply broke off (`is_cut`) says nothing of calls that were requested or shown.
        """
        found: dict[str, int | None] = {}
        for name, rule in self._calls.items():
            is_requested = name == WEB_SEARCH and plan.search is not None
            shown = 0 if rule.item is None else sum(_is_item(part, rule.item) for part in reply.message.parts)
            if name in reported:
                may_follow = is_cut and reported[name] == 0 and bool(is_requested or shown)
                found[name] = None if may_follow else reported[name]
            elif is_requested and plan.echo is not None:
                found[name] = sum(call.name == plan.echo for call in reply.tool_calls)
            elif shown or (rule.item is not None and (name != WEB_SEARCH or self._shows_searches)):
                found[name] = shown
            elif name == WEB_SEARCH and self._always:
                found[name] = 1
            elif is_requested:
                found[name] = None
        return found


def _declared_paths(usage: UsagePaths, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the paths of counts, by the name of each that has any."""
    return {name: tuple(paths) for name in names if (paths := getattr(usage, name))}


def _charged_counts(usage: Usage) -> list[int]:
    """Return the counts that have prices; an unknown one is 0."""
    counts = (usage.input, usage.output, usage.cached, usage.cache_write, usage.cache_write_1h)
    return [count or 0 for count in counts]


def _minute(created: float | None) -> float | None:
    """Return the minute of a time, counted since 1970; None where it is unknown."""
    return None if created is None or not isfinite(created) else created // 60


def _is_off_peak(price: Price, minute: float | None) -> bool | None:
    """Whether a minute, counted since 1970, has the off-peak price; None is unknown."""
    return is_off_peak(price, None if minute is None else minute * 60)


def _plain_rates(price: Price, minute: float | None) -> list[tuple[float, Decimal, Decimal | None, Decimal]]:
    """Return the prices of fresh input, cached input and output in a minute, counted since 1970; None is unknown.

    Each stands with the length of the input above which it holds, the longest first. Empty where anything else decides
    about the price: hours and days of the registry begin with a minute.
    """
    if price.factors or price.output_thinking is not None:
        return []
    tables = (price.tiers, (price.off_peak or {}).get("tiers"), (price.promotion or {}).get("tiers"))
    if any("output_below" in tier for tiers in tables for tier in tiers or ()):
        return []
    borders = {-1.0, *(tier.get("above", 0) for tiers in tables for tier in tiers or ())}
    out = []
    for above in sorted(borders, reverse=True):
        found = possible_rates(price, None, int(above) + 1, None if minute is None else minute * 60)
        fresh, cached, output = (found[0].get(name) for name in ("input", "cached", "output"))
        if len(found) > 1 or fresh is None or output is None:
            return []
        if price.cached_by_mark is not None:  # the request decides
            cached = None
        out.append((above, exact_rate(fresh), None if cached is None else exact_rate(cached), exact_rate(output)))
    return out


@lru_cache(maxsize=256)
def meter_of(flags: Flags) -> Meter:
    """Return the meter for these flags."""
    return Meter(flags)


def may_mark_cache(plan: Plan) -> bool:
    """Whether a request may mark what a cache keeps: in its body, or with a header about a cache."""
    return plan.content.find(_MARK_KEY) >= 0 or any("cache" in name.lower() for name in plan.headers)


def most_output(plan: Plan, *, is_partial: bool) -> int | None:
    """Return the tokens of output that a reply has at most; None where no limit is known.

    `is_partial`: not all of them are counted, so that each of several replies may have had as many.
    """
    limit = plan.most_output or plan.flags.limits.output
    return limit * plan.reply_count if limit is not None and is_partial else limit


def limited_output(usage: Usage, flags: Flags, *, thought: bool) -> int | None:
    """Return the tokens that the limit of a request counts; None where that is unknown. `thought`: it reasoned."""
    if usage.output is None or not thought or flags.reasoning.is_in_limit:
        return usage.output
    return None if usage.reasoning is None else usage.output - usage.reasoning


def paid_calls(flags: Flags) -> dict[str, PaidCall]:
    """Return the fees by name; that of a web search stands with its rules where the price does not name it."""
    calls = dict((flags.price and flags.price.per_call) or {})
    search, rule = flags.web_search, calls.get(WEB_SEARCH, PaidCall())
    if search is None or rule.fee is not None:
        return calls
    per = "request" if search.fee_per == "request" else rule.per
    calls[WEB_SEARCH] = replace(rule, fee=search.fee, at=search.uses or rule.at, item=search.item or rule.item, per=per)
    return calls


def _add_calls(total: CostSum, name: str, rule: PaidCall, number: int | None, free: int, *, is_cut: bool) -> None:
    """Add the fees of calls, of which some may be free. A reply that broke off may have more of a kind that it has."""
    if number == 0 or rule.fee == 0:
        return
    if rule.fee is None or number is None:
        total.miss(name, None)
        return
    fees, least = (
        (min(count, 1) if rule.per == "request" else count) * exact_rate(rule.fee) for count in (number, number - free)
    )
    if rule.allowance:
        total.miss(name, fees)
    else:
        total.amount += least
        if free:
            total.miss(name, fees - least)
    if is_cut and rule.per != "request":
        total.miss(name, None)


def _reported_cost(counts: dict[str, Any], rules: ReportedCost, *, is_partial: bool) -> Cost | None:
    """Return the endpoint's own bill; None where it sent none. `is_partial`: it may lack the end of the reply."""
    assert rules.path is not None
    amount = _amount(get(counts, rules.path))
    if amount is None or rules.currency is None:
        return None
    factor = Decimal(1) if rules.factor is None else exact_rate(rules.factor)
    missing: tuple[str, ...] = ("output",) if is_partial else ()
    if rules.add is not None and all(get(counts, path) == value for path, value in (rules.when or {}).items()):
        addition = _amount(get(counts, rules.add))
        if addition is None:
            missing = (*missing, rules.add)
        else:
            amount += addition
    return Cost(amount * factor, rules.currency, missing=missing, by="endpoint")


def _amount(value: Any) -> Decimal | None:
    """Return an amount that an endpoint wrote, exactly; None for anything else."""
    if type(value) not in (int, float, str) or (type(value) is str and len(value) > _MOST_DIGITS):
        return None
    try:
        amount = Decimal(repr(value) if type(value) is float else value)
    except InvalidOperation:
        return None
    if not amount:
        return Decimal(0)
    is_believed = amount.is_finite() and 0 < amount <= _LARGEST_AMOUNT and amount.adjusted() > -_MOST_DIGITS
    return amount if is_believed else None


def _own_counts(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts that the endpoint has beside those of tokens."""
    counts = extra.get("usage")
    return counts if type(counts) is dict else {}


def _media_count(counts: dict[str, Any], paths: Sequence[str]) -> int | None:
    """Return the tokens at the first path that has them; in a list the last key is a word of the item that counts.

    None where a count came that cannot be read.
    """
    is_known = True
    for path in paths:
        value = get(counts, path)
        place, _, word = path.rpartition(".")
        if value is None and type(items := get(counts, place)) is list:
            found = [item for item in items if type(item) is dict and word in item.values()]
            numbers = [as_count(number) for item in found for number in item.values() if number != word]
            value = None if not numbers else -1 if None in numbers else sum(number or 0 for number in numbers)
        if (count := as_count(value)) is not None:
            return count
        is_known = is_known and value is None
    return 0 if is_known else None


def _has_place(counts: dict[str, Any], paths: Sequence[str]) -> bool:
    """Whether a count, or the list or object that it stands in, is there."""
    places = [place for path in paths for place in (path, path.rpartition(".")[0]) if place]
    return not paths or any(get(counts, place) is not None for place in places)


def _is_item(part: Part, kind: str) -> bool:
    """Whether a part is, or was made of, an item of this type."""
    data = _item_of(part)
    return type(data) is dict and data.get("type") == kind


def _item_of(part: Part) -> Any:
    """Return the data of the item that a part is, or was made of."""
    if type(part) is Media:
        return seal_data(part.seal).get("item")
    return part.data if type(part) is Opaque else None


def _free_calls(reply: Reply, rule: PaidCall, actions: frozenset[str]) -> int:
    """Return how many items of a paid call have one of these actions."""
    if rule.item is None or not actions:
        return 0
    items = [_item_of(part) for part in reply.message.parts if _is_item(part, rule.item)]
    return sum(type(action := get(item, "action.type")) is str and action in actions for item in items)
