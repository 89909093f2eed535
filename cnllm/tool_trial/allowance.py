"""Keep a trial within a number of requests and a sum of money: a transport that counts before it sends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from cnllm.errors import CnllmError
from cnllm.registry.model import Model
from cnllm.types import Cost

__all__ = ["MAX_TOKENS", "AllowanceSpent", "CountingTransport", "TrialAllowance", "currency_of"]

MAX_TOKENS = 4096
"""The most output tokens of a request, so that its highest price is known before it is sent."""

_MILLION = Decimal(1_000_000)


class AllowanceSpent(CnllmError):
    """The next request would go beyond --max-requests or --max-cost."""


class TrialAllowance:
    """The requests and the money that a trial may still use. `requests` and `spent` count what it has."""

    def __init__(self, max_requests: int | None = None, max_cost: float | None = None) -> None:
        self.max_requests = max_requests
        self.max_cost = None if max_cost is None else Decimal(str(max_cost))
        self.requests = 0
        self.spent = Decimal(0)

    def take(self, model: Model, size: int) -> None:
        """Count a request of so many bytes. Raise `AllowanceSpent` if it may not be sent."""
        if self.max_requests is not None and self.requests >= self.max_requests:
            raise AllowanceSpent(f"--max-requests {self.max_requests} is reached", hint="allow more to try the rest")
        if self.max_cost is not None and self.spent + highest_cost(model, size) > self.max_cost:
            raise AllowanceSpent(
                f"the next request might go beyond --max-cost {self.max_cost}", hint="allow more to try the rest"
            )
        self.requests += 1

    def pay(self, cost: Cost | None) -> None:
        """Add the cost of a reply."""
        if cost is not None:
            self.spent += cost.amount


def currency_of(model: Model) -> str | None:
    """Return the currency of a model's price, None where no price for input and output is known."""
    price = model.flags.price
    return price.currency if price is not None and price.input is not None and price.output is not None else None


def highest_cost(model: Model, size: int) -> Decimal:
    """Return the most that a request of so many bytes can cost: a token has at least one byte. 0 without a price."""
    price = model.flags.price
    if price is None or price.input is None or price.output is None:
        return Decimal(0)
    return (size * Decimal(str(price.input)) + MAX_TOKENS * Decimal(str(price.output))) / _MILLION


class CountingTransport:
    """Sends over another transport what the allowance permits. `sent_at` is the time of the last request."""

    def __init__(self, transport: Any, allowance: TrialAllowance) -> None:
        self._transport = transport
        self._allowance = allowance
        self.sent_at = 0.0

    def send(self, plan: Any) -> tuple[int, Mapping[str, str], Iterator[bytes]]:
        """Send a plan. Raise `AllowanceSpent` instead if it may not be sent."""
        self._allowance.take(plan.model, len(plan.content))
        self.sent_at = time.monotonic()
        answer: tuple[int, Mapping[str, str], Iterator[bytes]] = self._transport.send(plan)
        return answer

    def close(self) -> None:
        """Close the other transport."""
        if (close := getattr(self._transport, "close", None)) is not None:
            close()
