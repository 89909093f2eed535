"""Quote a call before it is made: the tokens, estimated, and the least and the most that it can cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from msgspec.structs import replace

from cnllm.engine.decode.cost import Facts, cost_of, exact_rate
from cnllm.engine.decode.meter import WEB_SEARCH, paid_calls
from cnllm.engine.encode.plan import Plan
from cnllm.estimates.money import amount_of
from cnllm.estimates.tokens import Start, estimate_input, estimate_sent, token_family
from cnllm.estimates.worst_case import most_calls, reply_count, requested_factor, requested_service, worst_case
from cnllm.types import Quote, Usage

__all__ = ["quote", "quote_route"]


def quote(plan: Plan, begun: Iterable[Start] = ()) -> Quote:
    """Return the tokens and the bounds of the cost of a request that is built.

    `high` is what the budget of a key reserves for it. `low` has the start that was sent before from the cache, one
    token of output, and no call that the model may leave out. `begun` are the starts of earlier requests to the model.
    """
    worst = worst_case(plan)
    input, sent = estimate_input(plan), estimate_sent(plan, begun)
    cached = None if sent is None else min(sent, input)
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
    usage = Usage(input=input, output=reply_count(plan), cached=cached)
    factor = requested_factor(price, plan, min)
    costs = [cost_of(usage, price, None, Facts(word, factor)) for word in {None, service}]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs) or "input" in known[0].missing:
        return None, []
    least = min(known, key=lambda cost: cost.amount)
    missing = [f"the price of cached input of {plan.model.name}"] if "cached" in least.missing else []
    rules = plan.flags.web_search
    fee = paid_calls(plan.flags).get(WEB_SEARCH)
    is_certain = rules is not None and rules.always is True and fee is not None and not fee.allowance
    return least.amount + (exact_rate(fee.fee) if is_certain and fee is not None and fee.fee else 0), missing


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
