"""The most that a request of a run can cost, and the tokens that it counts for."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from cnllm.batch.settings import BatchSettings
from cnllm.engine.decode.cost import cost_of_reply
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.estimates.worst_case import added_input, assume_price, counted_cost, expected_cost, output_bound, worst_case
from cnllm.registry.flags import Price
from cnllm.registry.model import Model
from cnllm.types import Reply, Usage

__all__ = ["TYPICAL_OUTPUT", "RequestPrice", "request_price"]

_BYTES_PER_TOKEN = 4
TYPICAL_OUTPUT = 512
"""The output tokens of a reply, where nothing says how long it will be."""
_OPTION = 64  # bytes in which a limit of output tokens stands in a request


class RequestPrice(Struct):
    """The prices of a run. `currency` is None where no price is known.

    `assumed` is the price of a model without one. `reserved` is the price of a reservation where a part of the model's
    own is not known, such as a fee.

    `added` is the most input that the endpoint has added to a request of the run, in tokens; None before one was
    answered. It replaces the much larger assumption that a request otherwise needs; a run under a cap `learns` it.
    """

    currency: str | None
    assumed: Price | None
    steps: int = 1
    assumed_output: int | None = None
    reserved: Price | None = None
    learns: bool = False
    added: int | None = None

    def cost_of_all(self, plans: Sequence[Plan]) -> int | None:
        """Return the most that several requests can cost together, in units; None where that is unknown."""
        costs = [self.cost_of(plan) for plan in plans]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def cost_of(self, plan: Plan) -> int | None:
        """Return the most that a request can cost, in units; None where that is unknown, or in another currency."""
        own = _known_price(plan.flags.price)
        if self.currency is None or (own is not None and own.currency != self.currency):
            return None
        if self.assumed is not None and own is None:
            plan = assume_price(plan, self.assumed)
        if self.assumed_output is not None and output_bound(plan) is None:
            plan = replace(plan, most_output=self.assumed_output)
        cost = worst_case(plan, self.added).cost
        if cost is None and self.reserved is not None:
            cost = worst_case(assume_price(plan, self.reserved), self.added).cost
        return None if cost is None else cost * self.steps

    def output_with_room(self, plan: Plan, room: int) -> int:
        """Return the `max_tokens` with which a request costs no more than `room`; 0 where none has this effect."""
        if not plan.flags.reasoning.is_in_limit:
            return 0
        plan = replace(plan, content=plan.content + b" " * _OPTION)
        output, cost, least = output_bound(plan), self.cost_of(plan), self.cost_of(replace(plan, most_output=0))
        if output is None or cost is None or least is None or room < least or cost == least:
            return 0
        return (room - least) * output // (cost - least)

    def learn(self, plan: Plan, reply: Reply) -> None:
        """Take in what the endpoint counted for a request that was sent once."""
        if self.learns and reply.usage.input:
            self.learn_added(added_input(plan, reply.usage.input))

    def learn_added(self, added: int | None) -> None:
        """Take in how much input the endpoint has added to a request. The highest number stays."""
        if added is not None and (self.added is None or added > self.added):
            self.added = added

    def paid(self, reply: Reply, reserved: int | None) -> int | None:
        """Return what a reply cost, in units; None where what was reserved counts."""
        has_bill = reply.cost is not None and reply.cost.currency == self.currency  # of the endpoint itself
        cost = reply.cost if self.assumed is None or has_bill else cost_of_reply(reply, self.assumed)
        return counted_cost(cost, self.currency, reserved)

    def paid_for_failure(self, error: CnllmError, reserved: int | None) -> int | None:
        """Return what a request cost that failed, in units; None where what was reserved counts."""
        if not error.meaning.charged:
            return 0
        return None if self.assumed is not None else counted_cost(error.cost, self.currency, reserved)

    def expected_cost(self, plan: Plan, usage: Usage) -> Decimal | None:
        """Return what a request of so many tokens costs, at the dearest hours; None where that is unknown."""
        return expected_cost(plan if self.assumed is None else assume_price(plan, self.assumed), usage)

    def tokens_of(self, plan: Plan) -> float:
        """Return about how many tokens a request counts for, its reply included."""
        return len(plan.content) / _BYTES_PER_TOKEN + min(plan.max_output or TYPICAL_OUTPUT, TYPICAL_OUTPUT)


def _known_price(price: Price | None) -> Price | None:
    """Return a price by which a request can be counted; None for one that lacks a part."""
    return None if price is None or None in (price.currency, price.input, price.output) else price


def request_price(settings: BatchSettings, model: Model, *, is_estimate: bool = False) -> RequestPrice:
    """Return the prices of a run. Raises `CnllmError` for a cap that nothing can be counted against.

    A simulated run costs nothing; under a cap, and in an estimate, it counts what the model would cost.
    """
    steps = settings.max_steps or 1
    if settings.simulate and settings.max_cost is None and not is_estimate:
        return RequestPrice(None, None)
    known, assumed, reserved = _known_price(model.flags.price), settings.assume_price, None
    if assumed is not None and assumed.currency is None:
        assumed = replace(assumed, currency=settings.currency)
    currency = None if assumed is None else assumed.currency
    if known is not None:
        reserved = assumed if currency == known.currency else None
        assumed, currency = known if settings.simulate else None, known.currency
    learns = settings.max_cost is not None
    price = RequestPrice(currency, assumed, steps, settings.assume_output, reserved, learns=learns)
    if settings.max_cost is None:
        return price
    if currency is None:
        raise CnllmError(
            f"the price of {model.name} is not known, so --max-cost cannot be held",
            hint="--assume-price INPUT/OUTPUT, for a million tokens in the currency of --currency",
        )
    if settings.currency is not None and settings.currency != currency:
        raise CnllmError(
            f"--currency {settings.currency}, but the price of {model.name} is in {currency}",
            hint=f"give the cap in {currency}: --max-cost X --currency {currency}",
        )
    return price
