"""Order the hosts of a route by what was seen of them: failures, price, and the time to the first token. Pure.

Each host has a loss, in turns of the cheapest host: what a turn costs there, two for each failed turn, half a turn for
each error, and a little for each second up to the first token. Another host comes first only where its loss is lower
by more than the uncertainty of both, so that a few turns decide nothing, and two hosts that are alike do not take
turns.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from msgspec import Struct

from cnllm.estimates.statistics import wilson

__all__ = ["MOST_TURNS", "Failure", "HostOrder", "HostRecord", "HostTurn", "ReportedTurns", "RouteState", "order_hosts"]

MOST_TURNS = 512
"""The turns of a host that are kept."""

_HOUR = 3600.0  # seconds after which a turn no longer counts
_RETESTS = 0.03  # share of a route's turns that go to other hosts than the best one
_MOST_FAILING = 0.2  # more of them where the best one fails, as much as it does
_FAILURE = 2.0  # turns that a failed one is worth, beside its own price: it is made again, and somebody waits
_ERROR = 0.5  # turns that an error is worth: it costs nothing, and another host takes over
_SELDOM = 900.0  # seconds between re-tests of a host that would not be the best one even if it failed less
_SECOND = 0.05  # turns that a second of waiting for the first token is worth
_MARGIN = 0.03  # a lower loss does not count
_CHEAPER = 0.02  # a lower price does not count
_TURNS_AFTER = 3.0  # turns that a conversation still has
_ENOUGH = 30  # turns after which a cheaper host need only be no worse
_ALIKE = 0.005  # share of failed turns by which it may seem worse
_Z = 0.7  # standard errors: a wrong change costs little and is undone, a late one costs every turn until it comes
_BREAK, _RECOVERY = 2.576, 1.96  # of the intervals by which a host's last turns are worse or better than those before
_LEAST_TURNS = 4  # of a host that is left for another one
_LEAST_TIMES = 5  # seconds to the first token that make a median
_MOST_TIMES = 64  # the last ones of which it is made
_LEAST_CHANGED = 8  # turns that show a change
_MOST_REPORTED = 200  # turns of a report that count
_FIRST_PAUSE, _MOST_DOUBLINGS = 30.0, 5  # seconds without a re-test after a failure; each failure in a row doubles it
_MOST_CREDIT = 2.0  # re-tests that are saved up

Failure = Literal["", "error", "tool"]


class HostTurn(NamedTuple):
    """One turn of a host: when it ended, what failed, and the seconds to its first token where they are known."""

    at: float
    failure: Failure = ""
    first: float | None = None


class ReportedTurns(Struct, frozen=True):
    """The tool turns of a host in a report of a comparison."""

    turns: int
    failed: int
    first: float | None = None


class HostRecord(Struct, frozen=True):
    """A host as far as it is known. `cost` is that of a usual turn.

    `warm_cost` is that of one whose prompt the host has in its cache, `cold_cost` of one that is new to it.
    """

    name: str
    turns: Sequence[HostTurn] = ()
    reported: ReportedTurns | None = None
    cost: float | None = None
    warm_cost: float | None = None
    cold_cost: float | None = None


class HostScore(Struct, frozen=True):
    """The facts that decide on a host: its turns that count, and those that failed, a share between `low` and `high`.

    `loss` is what it is compared by; it may be lower by `below`, or higher by `above`.
    """

    name: str
    turns: int
    failed: int
    low: float
    high: float
    first: float | None
    cost: float
    loss: float
    below: float
    above: float

    def __str__(self) -> str:
        if not self.turns:
            return f"{self.name}: no turns yet"
        share = f"{100 * self.low:.0f} to {100 * self.high:.0f} %"
        wait = "" if self.first is None else f", first token {self.first:.2f} s"
        return f"{self.name}: {self.failed} of {self.turns} turns failed ({share}){wait}, loss {self.loss:.2f}"


class RouteState(Struct, frozen=True):
    """The memory of a route: its best host, and the re-tests that are due."""

    best: int = 0
    credit: float = 0.0


class HostOrder(Struct, frozen=True):
    """The hosts in the order in which they are asked, why the first one is first, and the score of each."""

    numbers: tuple[int, ...]
    reason: str
    scores: tuple[HostScore, ...]
    state: RouteState


def order_hosts(
    hosts: Sequence[HostRecord], state: RouteState, now: float, *, warm: Sequence[int] = (), is_begun: bool = False
) -> HostOrder:
    """Return the order for one request.

    `warm` are the hosts whose caches have the beginning of the conversation, the last one first. `is_begun` says that
    the request is not the first one of its conversation: re-tests are made with those that are, as long as there are
    enough of them.
    """
    counts = [_count(host, now) for host in hosts]
    scores = _scores(hosts, counts)
    best = _best(scores, state.best if state.best < len(hosts) else 0)
    credit = min(state.credit + _RETESTS + min(scores[best].low, _MOST_FAILING), _MOST_CREDIT)
    first, reason = best, _why(scores, best)
    # a conversation does not leave a host for its errors: that would cost as much as when one comes
    own = _scores(hosts, counts, warm, error=0.0) if warm else scores
    if warm and best not in warm and not _is_better(own[best], own[warm[0]]):
        first, reason = warm[0], "it has the beginning of the conversation in its cache"
    elif credit >= (_MOST_CREDIT if is_begun else 1.0) and (retest := _retest(hosts, scores, best, now)) is not None:
        first, reason = retest, "it is tested again"
    if first != best:
        credit -= 1.0
    others = [number for number in range(len(hosts)) if number != first]
    rest = sorted(others, key=lambda n: _rank(own[n], n, is_best=n == best and not warm))
    return HostOrder((first, *rest), reason, scores, RouteState(best, max(credit, -_MOST_CREDIT)))


def _best(scores: Sequence[HostScore], best: int) -> int:
    """Return the number of the best host; another one than before only where it is shown to be better."""
    for number, score in enumerate(scores):
        if number != best and (_is_better(score, scores[best]) or _is_cheaper(score, scores[best])):
            best = number
    return best


def _is_better(score: HostScore, other: HostScore) -> bool:
    """Whether a host loses less than another one, by more than the uncertainty of the two (Newcombe's interval)."""
    noise = math.hypot(other.below, score.above)
    return other.turns >= _LEAST_TURNS and other.loss - score.loss > max(_MARGIN, noise)


def _is_cheaper(score: HostScore, other: HostScore) -> bool:
    """Whether a host costs less than another one, and fails no more often, as far as enough turns tell."""
    fails_more = score.failed * other.turns > other.failed * score.turns + _ALIKE * score.turns * other.turns
    is_cheaper = score.cost <= other.cost - _CHEAPER and score.loss < other.loss
    return min(score.turns, other.turns) >= _ENOUGH and is_cheaper and not fails_more


def _rank(score: HostScore, number: int, *, is_best: bool) -> tuple[bool, float, int]:
    """Return what the hosts behind the first are sorted by: the best, then those that are known to lose least."""
    return not is_best, score.loss + score.above if score.turns else math.inf, number


def _why(scores: Sequence[HostScore], best: int) -> str:
    others = [score for number, score in enumerate(scores) if number != best]
    if any(_is_better(scores[best], other) for other in others):
        return "it is shown to be better"
    return "no other host is shown to be better"


def _retest(hosts: Sequence[HostRecord], scores: Sequence[HostScore], best: int, now: float) -> int | None:
    """Return the host that was not asked for the longest time.

    One that failed then is left alone for a while, and one that cannot be better than the best for a longer one.
    """
    due = []
    for number, host in enumerate(hosts):
        if number == best:
            continue
        last = host.turns[-1].at if host.turns else -math.inf
        failures = 0
        for turn in reversed(host.turns):
            if not turn.failure or failures > _MOST_DOUBLINGS:
                break
            failures += 1
        pause = _FIRST_PAUSE * 2 ** min(failures - 1, _MOST_DOUBLINGS) if failures else 0.0
        if scores[number].loss - scores[number].below > scores[best].loss:
            pause = max(pause, _SELDOM)
        if now - last >= pause:
            due.append((last, number))
    return min(due)[1] if due else None


class _Count(NamedTuple):
    """The turns of a host that count, those that failed, the errors among these, and the seconds to the first token."""

    turns: int
    failed: int
    errors: int
    first: float | None


def _scores(
    hosts: Sequence[HostRecord], counts: Sequence[_Count], warm: Sequence[int] = (), *, error: float = _ERROR
) -> tuple[HostScore, ...]:
    """Return the scores for a request whose beginning is in the cache of some hosts. `error` is what an error loses."""
    costs = [_cost(host, is_warm=number in warm) if warm else host.cost for number, host in enumerate(hosts)]
    least = min([host.cost or 0.0 for host in hosts])
    is_priced = least > 0 and None not in costs  # an unknown price is no reason for or against a host
    waits = [count.first for count in counts if count.first is not None]
    usual = statistics.median(waits) if waits else 0.0
    scores = []
    for host, cost, (turns, failed, errors, first) in zip(hosts, costs, counts, strict=True):
        low, high = wilson(failed, turns, _Z) or (0.0, 1.0)
        share = failed / turns if turns else 0.5
        price = cost / least if is_priced and cost is not None else 1.0
        weight = _FAILURE - (_FAILURE - error) * errors / failed if failed else _FAILURE
        loss = price + weight * share + _SECOND * (usual if first is None else first)
        below, above = weight * (share - low), weight * (high - share)
        scores.append(HostScore(host.name, turns, failed, low, high, first, price, loss, below, above))
    return tuple(scores)


def _cost(host: HostRecord, *, is_warm: bool) -> float | None:
    """Return the cost of a turn of a conversation that has begun: a move is paid once, for the turns that follow."""
    if is_warm or host.cold_cost is None or host.warm_cost is None:
        return host.warm_cost
    return host.warm_cost + (host.cold_cost - host.warm_cost) / _TURNS_AFTER


def _count(host: HostRecord, now: float) -> _Count:
    """Count the turns of a host. What is seen takes the place of a report, turn by turn."""
    turns = [turn for turn in host.turns if turn.at > now - _HOUR]
    number, failed = _like_now([bool(turn.failure) for turn in turns])
    errors = sum(turn.failure == "error" for turn in turns[len(turns) - number :])
    times = [turn.first for turn in turns[-_MOST_TIMES:] if turn.first is not None]
    first = statistics.median(times) if len(times) >= _LEAST_TIMES else None
    reported = host.reported
    if reported is not None and reported.turns and (rest := min(reported.turns, _MOST_REPORTED) - number) > 0:
        failed += round(reported.failed * rest / reported.turns)
        number += rest
        first = reported.first if first is None else first
    return _Count(number, failed, errors, first)


def _like_now(failures: list[bool]) -> tuple[int, int]:
    """Return the number of the last turns, and of those that failed.

    They are those since the host changed, if it did, so that it is judged by what it does now.
    """
    sums = [0, *accumulate(failures)]
    begin, end = 0, len(failures)
    length = MOST_TURNS // 2
    while length >= _LEAST_CHANGED:
        if (middle := end - length) > begin:
            older, newer = (sums[middle] - sums[begin], middle - begin), (sums[end] - sums[middle], length)
            if _is_higher(newer, older, _BREAK) or _is_higher(older, newer, _RECOVERY):
                begin = middle
        length //= 2
    return end - begin, sums[end] - sums[begin]


def _is_higher(one: tuple[int, int], other: tuple[int, int], z: float) -> bool:
    """Whether a share of failed turns is higher than another one: their intervals have nothing in common."""
    high, low = wilson(*one, z), wilson(*other, z)
    return high is not None and low is not None and high[0] > low[1]
