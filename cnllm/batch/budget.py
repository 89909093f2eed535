"""The money and the retries of a run. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cnllm.errors import CnllmError
from cnllm.estimates.money import format_units

__all__ = ["RetryBudget", "RunBudget"]

_RETRY_SHARE, _RETRY_RESERVE = 0.1, 20.0


class RunBudget:
    """The money spent, and the most that requests on their way may cost, in units by currency.

    With a `cap` no request is sent whose worst case would exceed it together with those. Without one everything is
    counted all the same. `unpriced` counts the requests of which neither the cost nor the worst case is known: they
    are not in what was spent.
    """

    def __init__(self, spent: dict[str, int], currency: str | None, cap: int | None, unpriced: int = 0) -> None:
        self.spent = dict(spent)
        self.currency = currency
        self.cap = cap
        self.reserved = 0
        self.run_spent = 0
        self.unpriced = unpriced
        self.wanted = 0  # by the last request that had no room

    @property
    def spent_units(self) -> int:
        """Return what was spent in the currency of the model's price."""
        return self.spent.get(self.currency, 0) if self.currency is not None else 0

    @property
    def other_units(self) -> dict[str, int]:
        """Return what was spent in other currencies, in earlier runs with other models."""
        return {
            currency: units for currency, units in sorted(self.spent.items()) if units and currency != self.currency
        }

    def facts(self) -> dict[str, Any]:
        """Return what the state of a run keeps of its money."""
        return {"spent": dict(self.spent), "unpriced": self.unpriced}

    def has_room(self, units: int | None) -> bool:
        """Whether a request fits below the cap; one whose worst case is unknown does not."""
        return self.cap is None or (units is not None and self.spent_units + self.reserved + units <= self.cap)

    def refusal(self, units: int | None) -> str:
        """Return why a request has no room, and never will."""
        if units is None:
            return (
                f"the most that a request can cost is not known in {self.currency}, so --max-cost cannot be held: give "
                f"--max-tokens or --assume-output, and name no model without a price in {self.currency}"
            )
        self.wanted = units
        return (
            f"the rest does not fit below the cap: {format_units(self.spent_units)} {self.currency} is spent, and the "
            f"next row may cost {format_units(units)}; the least cap for it is {self.least_cap(units)}"
        )

    def least_cap(self, units: int) -> str:
        """Return the least cap below which one more request fits, after those that are paid."""
        return format_units(self.spent_units + units)

    def reserve(self, units: int | None) -> None:
        """Keep the worst case of a request that is about to be sent."""
        self.reserved += units or 0

    def settle(self, reserved: int | None, cost: int | None) -> None:
        """Replace the worst case of a request by its cost. An unknown cost counts at the worst case."""
        self.reserved -= reserved or 0
        charged = reserved if cost is None else cost
        if cost is None and reserved is None:
            self.unpriced += 1
        if charged and self.currency is not None:
            self.spent[self.currency] = self.spent.get(self.currency, 0) + charged
            self.run_spent += charged

    def require_room_for_one(self, units: int, most_output: Callable[[int], int]) -> None:
        """Raise `CnllmError` where not even one request fits below the cap.

        `most_output(room)` returns the tokens of a reply with which a request costs no more than `room`.
        """
        if self.cap is None or self.spent_units + units <= self.cap:
            return
        tokens = most_output(self.cap - self.spent_units)
        shorter = f", or --max-tokens {tokens} at most" if tokens > 0 else ""
        raise CnllmError(
            f"--max-cost {format_units(self.cap)} {self.currency} leaves no room for a request: "
            f"{format_units(self.spent_units)} is spent, one more may cost {format_units(units)}",
            hint=f"--max-cost {self.least_cap(units)} at least{shorter}",
        )


class RetryBudget:
    """Lets a share of the requests be sent again. A reserve lets a small run try again as well.

    Without it an endpoint that fails for all would get every request several times.
    """

    def __init__(self) -> None:
        self._left = _RETRY_RESERVE

    def answer(self) -> None:
        """Count a request that was answered."""
        self._left = min(self._left + _RETRY_SHARE, _RETRY_RESERVE * 10)

    def take(self) -> bool:
        """Whether a request may be sent again; if so, it is counted."""
        if self._left < 1:
            return False
        self._left -= 1
        return True
