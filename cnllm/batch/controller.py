"""Decide when an endpoint gets the next request: answers and refusals come in, permissions go out.

Pure: nothing here reads a clock or waits. Three things bound what is sent.

Concurrency grows while the endpoint answers: first it doubles twice a second, then it grows by one for each round of
answers. It is cut by a third when the endpoint is overloaded, or refuses more than it took before.

Paces hold known limits: so many requests and tokens a minute, by the registry, by the user, or by the endpoint's own
headers. Where no limit is known and the endpoint refuses, the limit is learned: what it took between two refusals,
by the time until it took one again. From slightly below, the pace then grows slowly, and faster the longer nothing is
refused (the cube of CUBIC, RFC 9438, over requests instead of time). That costs a refusal in several hundred requests.

A pause after a refusal is as long as the endpoint asks for, else it doubles. When it is over, one request tries.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cnllm.batch.pace import Pace

__all__ = ["Controller", "Ticket"]

Kind = Literal["rate", "overloaded"]

_FIRST = 4.0
_DOUBLING = 0.5  # seconds in which concurrency may double
_CUT = 0.67
_PERIOD = 300  # requests until the learned pace is back at what was refused
_BELOW = 0.02  # the share by which a learned pace begins below that
_SAME = 0.1  # a pace that was learned and an estimate that differ by less are the same
_SLOWER = 2.0  # times the least mean latency at which concurrency no longer grows by itself
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Ticket(Struct, frozen=True):
    """A request on its way: when it was sent, with how many others, and the tokens that it counts for."""

    sent: float
    together: int
    tokens: float


class Controller:
    """The bounds of one endpoint and key.

    `concurrency` is a fixed number, or None for one that adapts, up to `most`. `requests` and `tokens` are known limits
    a minute. `growth` is the greatest factor by which the rate may grow in a minute, where the endpoint has such a
    limit.
    """

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        most: int = 1000,
        requests: float | None = None,
        tokens: float | None = None,
        growth: float | None = None,
    ) -> None:
        self.limit = float(concurrency or min(_FIRST, most))
        self.in_flight = 0
        self.accepted = self.refused = 0
        self._fixed = concurrency is not None
        self._most = float(most)
        self._requests = Pace(requests)
        self._tokens = Pace(tokens)
        self._known = requests is not None
        self._growth = growth
        self._starting = True
        self._doubled: float | None = None
        self._cut_at = -1.0
        self._paused_until = 0.0
        self._pause = _PAUSE
        self._refused_since: float | None = None
        self._cycle_start: float | None = None
        self._cycle_count = 0
        self._learned = 0.0  # requests a second that were refused, or 0
        self._since = 0  # answers since it was learned
        self._latency = _Latency()

    # ── may a request be sent? ───────────────────────────────────────────────

    def wait(self, now: float) -> float | None:
        """Return the seconds until a request may be sent; None where an answer must come first."""
        if self.in_flight >= int(self.limit) or (self._refused_since is not None and self.in_flight):
            return None
        paused = self._paused_until - now
        return max(0.0, paused, self._requests.wait(now), self._tokens.wait(now))

    def send(self, now: float, tokens: float = 0.0) -> Ticket:
        """Count a request that is sent now."""
        self.in_flight += 1
        self._requests.use(now)
        self._tokens.use(now, tokens)
        if self._cycle_start is None:
            self._cycle_start = now
        return Ticket(now, self.in_flight, tokens)

    # ── what became of it ────────────────────────────────────────────────────

    def accept(self, now: float, ticket: Ticket, tokens: float | None = None) -> None:
        """Take in an answer. `tokens` are those that it really counted for."""
        self.in_flight -= 1
        self.accepted += 1
        self._pause = _PAUSE
        if tokens is not None:
            self._tokens.give_back(ticket.tokens - tokens)
        if self._refused_since is not None and ticket.sent > self._refused_since:
            self._learn(ticket.sent)
        self._cycle_count += 1
        self._since += 1
        if self._learned:
            self._requests.rate = self._learned * _cubic(self._since)
        self._latency.add(now - ticket.sent)
        if not self._fixed:
            self._grow(now, ticket)

    def refuse(self, now: float, ticket: Ticket, kind: Kind = "rate", retry_after: float | None = None) -> None:
        """Take in a refusal."""
        self.in_flight -= 1
        self.refused += 1
        self._tokens.give_back(ticket.tokens)
        first = ticket.sent > self._cut_at  # others that were sent before the cut say nothing new
        if first:
            if kind == "rate" and self._refused_since is None:
                self._refused_since = now
            paced = self._requests.rate is not None and ticket.together < 0.9 * self.limit
            if not self._fixed and not (kind == "rate" and paced):
                self.limit = max(1.0, self.limit * _CUT)
                self._starting = False
            self._cut_at = now
        pause = self._pause if retry_after is None else retry_after
        if first and retry_after is None:
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        if first or retry_after is not None:
            self._paused_until = max(self._paused_until, now + pause)

    def fail(self, now: float, ticket: Ticket) -> None:
        """Take in a failure that says nothing about load: the request was wrong, or it was cancelled."""
        self.in_flight -= 1
        self._tokens.give_back(ticket.tokens)

    def observe(
        self,
        now: float,
        *,
        requests: float | None = None,
        tokens: float | None = None,
        left: float | None = None,
        reset: float | None = None,
    ) -> None:
        """Take in what an endpoint's headers say: limits a minute, and how many are left for so many seconds."""
        if requests is not None and requests > 0 and not self._learned:
            self._set(self._requests, requests)
            self._known = True
        if tokens is not None and tokens > 0:
            self._set(self._tokens, tokens)
        if left is not None and left <= 0 and reset is not None:
            self._paused_until = max(self._paused_until, now + reset)

    @property
    def requests_per_minute(self) -> float | None:
        """Return the rate that requests are held to; None where none is known or learned."""
        return None if self._requests.rate is None else self._requests.rate * 60

    @property
    def waiting_since(self) -> float | None:
        """Return since when the endpoint refuses everything; None where it does not."""
        return self._refused_since

    # ── growth ───────────────────────────────────────────────────────────────

    @staticmethod
    def _set(pace: Pace, per_minute: float) -> None:
        pace.rate = Pace(per_minute).rate

    def _learn(self, now: float) -> None:
        """Learn the limit at the end of a time of refusals."""
        assert self._cycle_start is not None
        assert self._refused_since is not None
        span = max(now - self._cycle_start, 1e-3)
        estimate = max(self._cycle_count, 1) / span
        paced = self._requests.rate
        if paced is not None and estimate > paced * (1 - _SAME):
            estimate = paced * 0.995  # the pace itself was slightly too fast
        elif paced is not None and span < 10 and self._cycle_count < 50:
            estimate = max(estimate, paced * 0.7)  # too little to judge by
        self._learned = estimate
        self._since = 0
        self._requests.rate = estimate * _cubic(0)
        self._requests.hold(now + 1 / self._requests.rate)
        self._refused_since = None
        self._cycle_start, self._cycle_count = now, 0

    def _grow(self, now: float, ticket: Ticket) -> None:
        """Let concurrency grow where it was used."""
        if self._doubled is None:
            self._doubled = ticket.sent
        if ticket.together < self.limit - 1 or self._refused_since is not None:
            return
        slow = self._latency.is_slow()
        if not self._starting:
            if not slow:
                self.limit = min(self._most, self.limit + 1 / self.limit)
        elif now - self._doubled >= self._doubling_time():
            self._doubled = now
            if slow:
                self._starting = False
            else:
                self.limit = min(self._most, self.limit * 2)

    def _doubling_time(self) -> float:
        """Return the seconds in which concurrency may double."""
        if self._growth is None:
            return _DOUBLING
        from math import log

        return max(_DOUBLING, 60 * log(2) / log(max(self._growth, 1.01)))


class _Latency:
    """Whether answers take much longer than they did: the endpoint keeps requests waiting."""

    def __init__(self) -> None:
        self._mean = 0.0
        self._least = float("inf")
        self._count = 0

    def add(self, seconds: float) -> None:
        """Count an answer."""
        self._count += 1
        weight = max(1 / self._count, 0.05)
        self._mean += (seconds - self._mean) * weight
        if self._count >= 20:
            self._least = min(self._least, self._mean)

    def is_slow(self) -> bool:
        """Whether the mean is far above the least mean."""
        return self._mean > _SLOWER * self._least


def _cubic(count: int) -> float:
    """Return the factor of a learned pace after so many answers: from below, flat in the middle, then steep."""
    return 1 + _BELOW * ((count - _PERIOD) / _PERIOD) ** 3
