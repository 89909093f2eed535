"""The most that a request can cost and the tokens that it counts for, before it is sent; and what it did cost.

Bounds are bounds: a token is at least one byte of text, each picture counts for the most that a picture takes, and of
several prices the highest counts. What is not known makes the whole unknown, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.decode.cost import MILLION, RATES, Facts, cost_of, exact_rate, service_rates
from cnllm.engine.decode.meter import WEB_SEARCH, may_mark_cache, paid_calls
from cnllm.engine.encode.plan import Plan
from cnllm.estimates.money import amount_of, units_of
from cnllm.estimates.tokens import Start, estimate_input, estimate_sent, estimate_text, text_bytes, token_family
from cnllm.jsonpath import get_first
from cnllm.protocols import wire
from cnllm.registry.flags import Price
from cnllm.types import Cost, Media, Message, Opaque, Quote, Reply, ToolResult, Usage, checks
from cnllm.types.documents import file_text
from cnllm.types.media import media_kind
from cnllm.types.totals import exact

__all__ = [
    "WorstCase",
    "added_input",
    "assume_price",
    "check_price",
    "counted_cost",
    "expected_cost",
    "input_bound",
    "output_bound",
    "quote",
    "quote_route",
    "settled_cost",
    "worst_case",
    "worst_cost",
]


_TEMPLATE = 1024  # tokens that an endpoint itself puts around a conversation and its tools
_PER_MESSAGE = 16
_PER_PICTURE = 16_384  # the most that an endpoint of the registry counts for a picture
_MARGIN = 1.25  # for the highest addition that was seen
_SURE = 0.7  # the share of an estimate that is not too high
_AGAIN = "again-whole"
_HOURLY = "cache_write_1h"
_ONE = Decimal(1)
MOST_CALLS = 10
"""The calls of one kind that a budget reserves for a request that sets no limit: no wire has a limit of its own."""


class WorstCase(Struct, frozen=True):
    """The bounds of a request: tokens of input and output, and its cost in units of money.

    `attempt` is the cost of one attempt, `cost` that of all that may become necessary. Both are None where the cost is
    not known; `unknown` names what is missing then.
    """

    model: str
    input: int | None
    output: int | None
    currency: str | None = None
    attempt: int | None = None
    cost: int | None = None
    unknown: tuple[str, ...] = ()


@exact
def worst_case(plan: Plan, added: int | None = None) -> WorstCase:
    """Return the bounds of a request that is built. `added`: see `input_bound`."""
    model, price = plan.model.name, plan.flags.price
    most_input, most_output = input_bound(plan, added), output_bound(plan)
    service, (fees, unknown) = requested_service(plan), _highest_fees(plan)
    currency = price.currency if price is not None else None
    if most_output is None:
        unknown.insert(0, f"the greatest length of a reply of {model}")
    if most_input is None:
        unknown.insert(0, f"the length of a file for {model}")
    if price is None or currency is None or price.input is None or price.output is None:
        unknown.insert(0, f"the price of {model}")
    elif service is not None and service not in (price.service or {}):
        unknown.append(f"the price of {model} in the service tier {service!a}")
    if unknown or price is None or most_input is None or most_output is None:
        return WorstCase(model, most_input, most_output, currency, unknown=tuple(unknown))
    services = (None,) if service is None else (None, service)
    mark = wire(plan.model.protocol).hour_mark
    attempt = worst_cost(
        price,
        most_input,
        most_output * plan.reply_count,
        services=services,
        factor=requested_factor(price, plan, max),
        hourly=mark is None or mark in plan.content,
    )
    attempt += units_of(fees)
    corrections = plan.corrections if plan.answer is not None else 0
    attempts = 1 + corrections + (plan.if_cut == _AGAIN)
    return WorstCase(model, most_input, most_output, currency, attempt, attempt * attempts)


def assume_price(plan: Plan, price: Price) -> Plan:
    """Return a plan with an assumed price: it stands for all that the endpoint charges, unknown fees too."""
    flags = replace(plan.flags, price=price)
    if (search := flags.web_search) is not None and search.fee is None:
        flags = replace(flags, web_search=replace(search, fee=0.0))
    return replace(plan, flags=flags)


def check_price(name: str, price: Price) -> None:
    """Raise `TypeError` or `ValueError` for an amount that is negative or no number: no cap would hold with it."""
    for field in price.__struct_fields__:
        value = getattr(price, field)
        if value is not None and field != "currency" and not isinstance(value, dict | list):
            checks.amount(f"{name}.{field}", value)


def settled_cost(worst: WorstCase, reply: Reply | None) -> int | None:
    """Return what a reply counts for in units, None where the worst case of its request does; see `counted_cost`."""
    return None if reply is None else counted_cost(reply.cost, worst.currency, worst.cost)


def counted_cost(cost: Cost | None, currency: str | None, reserved: int | None) -> int | None:
    """Return the most that a request can have cost in units, None where nothing bounds it in this currency.

    What is certain counts where it is more than was `reserved`: several attempts may have been charged.
    """
    if cost is None or cost.currency != currency:
        return None
    if cost.at_most is not None:
        return units_of(cost.at_most)
    certain = units_of(cost.amount)
    return certain if reserved is not None and certain > reserved else None


def worst_cost(
    price: Price,
    input: int,
    output: int,
    *,
    services: Sequence[str | None] = (None,),
    factor: Decimal = _ONE,
    hourly: bool = True,
) -> int:
    """Return the highest cost of so many tokens in units. The prices of input and output must be known.

    `services` are the tiers of the service that may be charged, None is the usual one; `factor` multiplies the prices.
    `hourly`: the request may write to a cache that lasts an hour.
    """
    reads, writes = [price.input or 0.0], [price.output or 0.0]
    for service in services:
        for table in service_rates(price, service):
            for rates in (table, *(tier for tier in table.get("tiers") or () if input > tier.get("above", 0))):
                known = [(name, rate) for name in RATES if (rate := _number(rates.get(name))) is not None]
                writes += [rate for name, rate in known if name.startswith("output")]
                reads += [rate for name, rate in known if not name.startswith("output") and (hourly or name != _HOURLY)]
    return units_of((input * exact_rate(max(reads)) + output * exact_rate(max(writes))) * factor / MILLION)


def requested_service(plan: Plan) -> str | None:
    """Return the tier of the service that a request asks for; None for the usual one."""
    usage = plan.flags.usage
    word = get_first(plan.body, usage.service)
    if type(word) is not str or not word or word.lower() in (usage.standard or ()):
        return None
    return word.lower()


def requested_factor(price: Price, plan: Plan, choose: Callable[[Iterable[float]], float]) -> Decimal:
    """Return the product of the factors that a request asks for. `choose` takes one for a word without a factor.

    Where a request names none, the usual factor counts.
    """
    product = _ONE
    for key, factors in (price.factors or {}).items():
        word = plan.body.get(key)
        if type(word) is str and factors:
            product *= exact_rate(factors[word.lower()] if word.lower() in factors else choose(factors.values()))
    return product


def _highest_fees(plan: Plan) -> tuple[Decimal, list[str]]:
    """Return the highest fees of the calls that a request lets the endpoint make, and the names of unknown ones."""
    total, missing = Decimal(0), []
    for name, rule in paid_calls(plan.flags).items():
        number = most_calls(name, plan)
        if number and rule.fee is None:
            missing.append(f"the fee of {name} at {plan.model.provider}")
        elif number and rule.fee:
            total += exact_rate(rule.fee) * (1 if rule.per == "request" else number)
    return total, missing


def most_calls(name: str, plan: Plan) -> int:
    """Return the most calls of a kind: what the request allows, else `MOST_CALLS`; 0 where it offers no such tool."""
    client, rules = wire(plan.model.protocol), plan.flags.web_search
    has_tool = name == WEB_SEARCH and (plan.search is not None or (rules is not None and rules.always is True))
    bounds = [] if client.most_calls is None else [plan.body.get(client.most_calls)]
    tools = plan.body.get("tools")
    for tool in tools if type(tools) is list else ():
        words = [str(tool.get("type", "")), *tool] if type(tool) is dict else []
        if any(word.replace("_", "").lower().startswith(name.replace("_", "")) for word in words):
            has_tool = True
            if client.most_uses is not None:
                bounds.append(tool.get(client.most_uses))
    if not has_tool:
        return 0
    return min([bound for bound in bounds if type(bound) is int and bound >= 0], default=MOST_CALLS)


def input_bound(plan: Plan, added: int | None = None) -> int | None:
    """Return the most tokens that a request may count for; None where nothing bounds them.

    `added` is the most input that its endpoint has added to such requests (`added_input`), None where that is unknown.
    """
    window = plan.flags.limits.context
    if _names_more(plan):
        return window
    media = [medium for medium in _media(plan.messages) if file_text(medium) is None]
    if any(media_kind(medium) != "image" for medium in media):
        return window
    marks = _PER_MESSAGE * len(plan.messages)
    text = len(plan.content) - sum(len(medium.data or "") for medium in media)  # pictures are no text
    tokens = text + _TEMPLATE + marks
    if added is not None:
        tokens = min(tokens, text_bytes(plan) + math.ceil(added * _MARGIN) + marks)
    tokens += _PER_PICTURE * len(media)
    return tokens if window is None else min(tokens, window)


def added_input(plan: Plan, counted: int) -> int:
    """Return the tokens that an endpoint has added to a request, by the tokens that it has counted.

    The estimate of the text may be too high. The smaller share of it is surely text.
    """
    return max(0, counted - math.floor(estimate_text(plan) * _SURE))


def output_bound(plan: Plan) -> int | None:
    """Return the most tokens of one reply: those that the request allows, else the model's limit, else its window."""
    limits = plan.flags.limits
    bounds = (plan.most_output, limits.output, limits.context)
    return next((max(0, bound) for bound in bounds if bound is not None), None)


def _names_more(plan: Plan) -> bool:
    """Whether a request names input that stands elsewhere: a stored conversation, a cache, a file."""
    if not wire(plan.model.protocol).reference_keys.isdisjoint(plan.body):
        return True
    return any(
        type(part) is Opaque for message in plan.messages if message.role != "assistant" for part in message.parts
    )


def _media(messages: Iterable[Message]) -> Iterator[Media]:
    """Yield the media of a conversation, those in results of tools too."""
    for message in messages:
        for part in message.parts:
            if type(part) is Media:
                yield part
            elif type(part) is ToolResult:
                yield from part.media


def _number(value: Any) -> float | None:
    """Return a number; None for anything else."""
    return value if type(value) in (int, float) else None


# ── a quote ──────────────────────────────────────────────────────────────────


@exact
def quote(plan: Plan, begun: Iterable[Start] = ()) -> Quote:
    """Return the tokens and the bounds of the cost of a request that is built.

    `high` is what the budget of a key reserves for it. `low` has the start that was sent before from the cache, one
    token of output, and no call that the model may leave out. `begun` are the starts of earlier requests to the model.
    """
    worst = worst_case(plan)
    input, earlier = estimate_input(plan), estimate_sent(plan, begun)
    cached = None if earlier is None else min(earlier, input)
    low, missing = _lowest_cost(plan, input, cached or 0)
    unknown = [*worst.unknown, *(name for name in missing if name not in worst.unknown), *_conditions(plan)]
    return Quote(
        input=input,
        cached=cached,
        output_max=worst.output,
        low=low,
        high=None if worst.cost is None else amount_of(worst.cost),
        currency=worst.currency,
        unknown=tuple(unknown),
        input_errors=token_family(plan.model).errors,
    )


@exact
def quote_route(quotes: Sequence[Quote]) -> Quote:
    """Return the quote of a call that the next model answers where one fails: each of them may be charged.

    The tokens are those of the first model.
    """
    first = quotes[0]
    unknown = list(dict.fromkeys(name for quote in quotes for name in quote.unknown))
    lows, highs = ([getattr(quote, name) for quote in quotes] for name in ("low", "high"))
    if any(quote.currency != first.currency for quote in quotes):
        currencies = sorted({quote.currency for quote in quotes if quote.currency is not None})
        unknown.append(f"which price counts: {' or '.join(currencies)}")
        return replace(first, low=None, high=None, currency=None, unknown=tuple(unknown))
    low = None if None in lows else min(lows)
    high = None if None in highs else sum(highs, Decimal(0))
    return replace(first, low=low, high=high, unknown=tuple(unknown))


def _lowest_cost(plan: Plan, input: int, cached: int) -> tuple[Decimal | None, list[str]]:
    """Return the least that a request can cost, and the names of what has no price; None where that decides."""
    price, service = plan.flags.price, requested_service(plan)
    if price is None or price.currency is None or (service is not None and service not in (price.service or {})):
        return None, []
    usage = Usage(input=input, output=plan.reply_count, cached=cached)
    factor = requested_factor(price, plan, min)
    marks = (False, True) if may_mark_cache(plan) else (False,)
    facts = [Facts(word, factor, by_mark=by_mark) for word in {None, service} for by_mark in marks]
    costs = [cost_of(usage, price, None, fact) for fact in facts]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs) or "input" in known[0].missing:
        return None, []
    least = min(known, key=lambda cost: cost.amount)
    lacks_cached = any(name.startswith("cached") for name in least.missing)
    missing = [f"the price of cached input of {plan.model.name}"] if lacks_cached else []
    return least.amount + _certain_fee(plan), missing


def _certain_fee(plan: Plan) -> Decimal:
    """Return the fee of a search that the endpoint makes for each request."""
    rules, fee = plan.flags.web_search, paid_calls(plan.flags).get(WEB_SEARCH)
    is_certain = rules is not None and rules.always is True and fee is not None and not fee.allowance
    return exact_rate(fee.fee) if is_certain and fee is not None and fee.fee else Decimal(0)


@exact
def expected_cost(plan: Plan, usage: Usage) -> Decimal | None:
    """Return what a request of so many tokens costs by its price, at the dearest hours; None where that is unknown."""
    if (price := plan.flags.price) is None:
        return None
    cost = cost_of(usage, price, None, Facts(requested_service(plan), requested_factor(price, plan, max)))
    if cost is None:
        return None
    return (cost.amount if cost.at_most is None else cost.at_most) + _certain_fee(plan)


def _conditions(plan: Plan) -> list[str]:
    """Return what decides about the bill and is not known before it."""
    found = []
    for name, rule in paid_calls(plan.flags).items():
        if not most_calls(name, plan):
            continue
        if rule.allowance:
            found.append(f"whether {name} is still free")
        found.append(f"the input that {name} adds")
    return found
