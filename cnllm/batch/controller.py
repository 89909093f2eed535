"""Decide when an endpoint gets the next request: answers and refusals come in, permissions go out.

Pure: nothing here reads a clock or waits. Three things bound what is sent.

Concurrency grows while the endpoint answers: first it doubles, at most twice a second and once in each round of
answers; then it grows by one for each round. It is cut when the endpoint is overloaded, or refuses what no pace held
back.

Paces hold known limits: so many requests and tokens a minute, by the registry, by the user, or by the endpoint's own
headers. Where the endpoint refuses and no limit is known, the limit is learned: what it took in the minute before, by
that minute and the time until it takes one again. From slightly below, the pace then grows along the cube of CUBIC
(RFC 9438): slowly near what was refused, and faster the longer nothing is refused. That costs a refusal a minute or
less. Where little or nothing was taken before, the refusals may have been a storm that says nothing of a limit: then
requests start slowly again and double, until a refusal teaches a limit.

Some endpoints refuse requests that become more too quickly. Such a refusal cuts concurrency to a half, and makes its
growth slower; no limit is learned from it.

A pause after a refusal is as long as the endpoint asks for, else it doubles; after several refusals of the rate in a
row it is not shorter than that. After a refusal without such a time, one request tries whether the endpoint takes any.

A pace sends evenly: at most so many requests a minute, whatever kind of window the endpoint counts in.
Requests that are spread evenly stay below a limit whether the endpoint counts by the clock's minute, by the last sixty
seconds, or with a bucket that is refilled. A burst at the start of a minute would only pass the first of these.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from msgspec import Struct

__all__ = ["MOST", "SHARE", "Controller", "Kind", "RequestPace", "Ticket", "Trail"]


Kind = Literal["accepted", "rate", "burst", "overloaded", "failed"]
"""The outcomes of a request that concern the bounds."""

MINUTE = 60.0
MOST = 1000
"""The most requests at a time of a concurrency that adapts."""
_SLOT = 0.25  # seconds of a trail that are counted together
_FIRST = 4.0
_DOUBLING = 0.5  # seconds in which concurrency may double
_CUT = {"rate": 0.8, "burst": 0.5, "overloaded": 0.67}
_NEAR, _SLOWLY = 0.1, 0.15  # near the concurrency that was refused, growth is slower
_PERIOD = 300  # requests, and at least those of a minute, until a learned pace is back at what was refused
_BELOW = 0.02  # the share by which a learned pace begins below that
_SLOWER = 2.0  # times the least mean latency at which concurrency no longer grows by itself
_PAUSE, _LONG_PAUSE, _LONGEST_PAUSE = 0.1, 8.0, 60.0
_GENTLE = 5.0  # seconds for a doubling after a refusal of a burst, at least
_COARSE = 8  # a concurrency below which steps of one are too large to find a limit
_RECOVERY = 15.0  # seconds in which a pace far below what the endpoint took before grows by a factor of e
_SLOW_START = 0.7  # requests a second that each answer adds to a pace that is in doubt: it doubles in a second
_NO_MINUTE = 90.0  # seconds of refusals, after which they have another reason than a limit of a minute
_FEW = 30  # requests before a refusal that say little
_IN_A_ROW = 3  # refusals after which a learned pace is learned anew

SHARE = 0.985
"""The share of a known limit that is used. The rest is for clocks that differ and for requests on their way."""
_CREDIT = 0.25  # seconds of the limit that may be made up for, where a request could not be sent in time


class Ticket(Struct, frozen=True):
    """A request on its way: when it was sent, and the tokens that it counts for.

    `paced`: a pace held it back. `probe`: it tries whether the endpoint takes requests again.
    """

    sent: float
    tokens: float
    paced: bool = False
    probe: bool = False


class Controller:
    """The bounds of one endpoint and key.

    `concurrency` is a fixed number, or None for one that adapts. Neither exceeds `most`. `requests` and `tokens` are
    known limits a minute.
    """

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        most: int = MOST,
        requests: float | None = None,
        tokens: float | None = None,
    ) -> None:
        self.limit = float(min(concurrency or _FIRST, most))
        self.in_flight = 0
        self.refused = 0
        self.waiting_since: float | None = None  # since when the endpoint refuses everything
        self._fixed = concurrency is not None
        self._most = float(most)
        self._requests = RequestPace(requests)
        self._tokens = RequestPace(tokens)
        self._doubling = _DOUBLING  # longer after each refusal of a burst
        self._ceiling: tuple[float, float] | None = None  # a concurrency at a time, from which growth is bounded
        self._starting = True
        self._refused_limit = 0.0  # the concurrency at the last cut
        self._cut_at = -1.0
        self._paused_until = 0.0
        self._pause = _PAUSE
        self._in_a_row = 0
        self._probing = False
        self._start: float | None = None  # since when the trail is that of a time without pauses
        self._trail = Trail()
        self._taken = (0, 0.0)  # requests that were taken before the refusal, and in how many seconds
        self._learned = 0.0  # requests a second that were refused, or 0
        self._learned_at = 0.0
        self._first_refusal = -1.0  # of those in a row
        self._has_answers = False  # to what was sent since then
        self._doubts = False  # whether what was refused was no limit, for all that is known
        self._most_taken = 0.0  # requests in the best minute
        self._since = 0  # answers to requests that the learned pace held back
        self._latency = _Latency()

    # ── may a request be sent? ───────────────────────────────────────────────

    def wait(self, now: float) -> float | None:
        """Return the seconds until a request may be sent; None where an answer must come first."""
        if self.in_flight >= int(self.limit) or self._probing:
            return None
        return max(self.pause(now), self._requests.wait(now), self._tokens.wait(now))

    def pause(self, now: float) -> float:
        """Return the seconds until the end of the pause after a refusal, or that a header asks for; 0 without one."""
        return max(0.0, self._paused_until - now)

    def send(self, now: float, tokens: float = 0.0) -> Ticket:
        """Count a request that is sent now."""
        self.in_flight += 1
        self._probing = self.waiting_since is not None
        paced = self._requests.is_binding(now) or self._tokens.is_binding(now)
        self._requests.use(now)
        self._tokens.use(now, tokens)
        self._trail.add(now)
        if self._start is None:
            self._start = now
        return Ticket(now, tokens, paced, self._probing)

    # ── what became of it ────────────────────────────────────────────────────

    def end(
        self, now: float, ticket: Ticket, kind: Kind, tokens: float | None = None, retry_after: float | None = None
    ) -> None:
        """Take in what became of a request."""
        if kind == "accepted":
            self.accept(now, ticket, tokens)
        elif kind == "failed":
            self.fail(now, ticket)
        else:
            self.refuse(now, ticket, kind, retry_after)

    def accept(self, now: float, ticket: Ticket, tokens: float | None = None) -> None:
        """Take in an answer. `tokens` are those that it really counted for."""
        self._leave(ticket, tokens)
        if ticket.sent > self._cut_at:
            self._pause = _PAUSE
            self._in_a_row = 0
        self._has_answers |= ticket.sent > self._first_refusal
        if ticket.probe and self.waiting_since is not None:
            self._learn(ticket.sent, ticket.sent - self.waiting_since)
        if self._learned and ticket.paced:
            self._raise_pace()
        self._latency.add(now - ticket.sent)
        if not self._fixed:
            self._grow(now, ticket)

    def refuse(self, now: float, ticket: Ticket, kind: Kind = "rate", retry_after: float | None = None) -> None:
        """Take in a refusal."""
        self._leave(ticket, 0.0)
        self.refused += 1
        self._trail.add(ticket.sent, -1)
        if ticket.sent <= self._cut_at:  # it was sent before the last cut, and says nothing new
            if retry_after is not None:
                self._paused_until = max(self._paused_until, now + retry_after)
            return
        self._cut_at = now
        self._in_a_row += 1
        if self._in_a_row == 1:
            self._first_refusal = now
        if not ticket.paced or kind != "rate":
            self._cut(kind)
        if kind == "burst":
            self._doubling = min(max(self._doubling * 2, _GENTLE), MINUTE)
            self._ceiling = (self.limit, now)
        if kind == "rate" and self.waiting_since is None:
            self._judge(now, ticket, retry_after)
        is_endless = kind != "overloaded" and self._in_a_row > _IN_A_ROW  # no number of tries ends such refusals
        if retry_after is None or is_endless:
            storm = 0.0 if self.waiting_since is None else now - self.waiting_since
            retry_after = max(retry_after or 0.0, self._pause)
            self._pause = min(self._pause * 2, max(_LONG_PAUSE, storm / 6), _LONGEST_PAUSE)
        self._paused_until = max(self._paused_until, now + retry_after)

    def fail(self, now: float, ticket: Ticket) -> None:
        """Take in a failure that says nothing about load: the request was wrong, or it was cancelled."""
        self._leave(ticket, 0.0)

    def _leave(self, ticket: Ticket, tokens: float | None) -> None:
        """Count a request no longer. `tokens` are those that it really counted for; None: those of the ticket."""
        self.in_flight -= 1
        self._probing = self._probing and not ticket.probe
        if tokens is not None:
            self._tokens.give_back(ticket.tokens - tokens)

    def observe(
        self, now: float, *, requests: float | None = None, tokens: float | None = None, pause: float | None = None
    ) -> None:
        """Take in limits a minute that the endpoint tells, and seconds in which it takes nothing."""
        if requests and not self._learned:
            self._requests.rate = RequestPace(requests).rate
        if tokens:
            self._tokens.rate = RequestPace(tokens).rate
        if pause:
            self._paused_until = max(self._paused_until, now + pause)

    @property
    def requests_per_minute(self) -> float | None:
        """Return the rate that requests are held to; None where none is known or learned."""
        return None if self._requests.rate is None else self._requests.rate * 60

    @property
    def tokens_per_minute(self) -> float | None:
        """Return the rate that tokens are held to; None where none is known."""
        return None if self._tokens.rate is None else self._tokens.rate * 60

    # ── growth ───────────────────────────────────────────────────────────────

    def _cut(self, kind: Kind) -> None:
        """Lower the concurrency."""
        if not self._fixed:
            self._refused_limit = self.limit
            self.limit = max(1.0, self.limit * _CUT[kind])
        self._starting = False

    def _judge(self, now: float, ticket: Ticket, retry_after: float | None) -> None:
        """Decide what a refusal means: too many at once, a learned pace that is too fast, or a limit to be learned."""
        few_in_a_row = self._in_a_row <= _IN_A_ROW
        is_too_fast = ticket.paced and bool(self._learned) and few_in_a_row
        may_be_concurrency = not ticket.paced and not self._fixed and self.limit >= _COARSE and few_in_a_row
        if retry_after is None and not is_too_fast and may_be_concurrency:
            return
        span = min(MINUTE, now - (now if self._start is None else self._start))
        is_first = not self._learned or self._doubts
        is_uninformative = is_first and not self._has_answers  # the endpoint may refuse every open request
        self._taken = (0 if is_uninformative else self._trail.total(now, span), span)
        self._has_answers = False
        if retry_after is not None or is_too_fast:
            self._learn(now, retry_after or 0.0)
        else:
            self.waiting_since = now

    def _learn(self, now: float, pause: float) -> None:
        """Learn the limit from what was taken before a refusal, and the pause after it."""
        count, span = self._taken
        if self._doubts and count:  # the pace grew far beyond the estimate: this one is better
            self._learned, self._doubts = 0.0, False
        elif not self._learned and count < _FEW:
            self._doubts = True
            self._starting, self._ceiling = True, None
        if count == 0 or pause > _NO_MINUTE:  # this was no limit of a minute
            self._start = self.waiting_since = None
            return
        estimate = max(count, 1) / max(span + pause, 1e-3)
        if self._learned:
            since = max(self._since, 1)
            recent = since / max(now - self._learned_at, 1e-3)
            estimate = min(estimate, recent * 1.02 if since >= _FEW else self._learned * 0.8)
            estimate = max(estimate, self._learned * 0.5)
        self._most_taken = max(self._most_taken * 0.9, self._trail.total(now))
        self._learned, self._learned_at, self._since = estimate, now + pause, 0
        self._requests.rate = estimate * _cubic(0)
        self._requests.hold(now + 1 / self._requests.rate)
        if pause > 1.0 or self.waiting_since is not None:
            self._start = None
        self.waiting_since = None

    def _raise_pace(self) -> None:
        """Let the learned pace grow: quickly up to what the endpoint took in a minute before, then along the cube."""
        self._since += 1
        assert self._requests.rate is not None
        if self._doubts:
            self._requests.rate += _SLOW_START
            return
        rate = self._learned * _cubic(self._since / max(_PERIOD, self._learned * MINUTE))
        if rate < 0.95 * self._most_taken / MINUTE:
            rate = self._learned * (1 + 1 / (_RECOVERY * self._learned))
            self._learned = rate
        self._requests.rate = rate

    def _grow(self, now: float, ticket: Ticket) -> None:
        """Let concurrency grow where it was used."""
        if self._ceiling is None:
            self._ceiling = (self.limit, ticket.sent)
        if self.in_flight + 1 < self.limit - 1 or self.waiting_since is not None or ticket.sent <= self._cut_at:
            return
        slow = self._latency.is_slow()
        limit, since = self._ceiling
        if self.limit >= limit * 2 ** min(30, (now - since) / self._doubling):
            return
        if not self._starting:
            if not slow:
                near = abs(self.limit / self._refused_limit - 1) < _NEAR if self._refused_limit else False
                self.limit = min(self._most, self.limit + (_SLOWLY if near else 1) / self.limit)
        elif slow:
            self._starting = False
        else:
            self.limit = min(self._most, self.limit + 1)


class Trail:
    """The requests of the last minute, in slots. Those on their way count: nothing has refused them."""

    def __init__(self) -> None:
        self._slots: deque[list[float]] = deque(maxlen=int(MINUTE / _SLOT) + 1)

    def add(self, now: float, count: int = 1) -> None:
        """Count a request at the time when it is sent; with -1, take it back at that same time."""
        slot = now // _SLOT
        for entry in reversed(self._slots):
            if entry[0] == slot:
                entry[1] += count
                return
            if entry[0] < slot:
                break
        if count > 0:
            self._slots.append([slot, count])

    def total(self, now: float, seconds: float = MINUTE) -> int:
        """Return the number of the last seconds, a minute at most."""
        start = (now - min(seconds, MINUTE)) // _SLOT
        return sum(int(count) for slot, count in self._slots if slot >= start)


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


def _cubic(share: float) -> float:
    """Return the factor of a learned pace after a share of its period: from below, flat at 1, then steep."""
    return 1 + _BELOW * (share - 1) ** 3


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
        self._next = max(self._next, until)
