"""Send evenly: at most so many a minute, whatever kind of window the endpoint counts in. Pure; time is an argument.

Requests that are spread evenly stay below a limit whether the endpoint counts by the clock's minute, by the last sixty
seconds, or with a bucket that is refilled. A burst at the start of a minute would only pass the first of these.
"""

from __future__ import annotations

__all__ = ["SHARE", "RequestPace"]

SHARE = 0.985
"""The share of a known limit that is used. The rest is for clocks that differ and for requests on their way."""
_CREDIT = 0.25  # seconds of the limit that may be made up for, where a request could not be sent in time


class RequestPace:
    """A rate of requests or of tokens. `rate` is for a second; None: no limit is known."""

    def __init__(self, per_minute: float | None = None) -> None:
        self.rate: float | None = None if per_minute is None else per_minute * SHARE / 60
        self._next = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until the next one may be sent."""
        return 0.0 if self.rate is None else max(0.0, self._next - now)

    def is_binding(self, now: float) -> bool:
        """Whether a request that is sent now was held back, or would have been a moment ago."""
        return self.rate is not None and self._next > now - _CREDIT / 2

    def use(self, now: float, amount: float = 1.0) -> None:
        """Count what is sent now."""
        if self.rate is not None:
            self._next = max(self._next, now - _CREDIT) + amount / self.rate

    def give_back(self, amount: float) -> None:
        """Correct what was counted too high, or with a negative amount too low."""
        if self.rate is not None:
            self._next -= amount / self.rate

    def hold(self, until: float) -> None:
        """Send nothing before a time."""
        if self.rate is not None:
            self._next = max(self._next, until)
