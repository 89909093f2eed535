"""The order of hosts by measurement, as a function: what decides, what does not, and what it costs in the long run."""

import random
from collections import deque

import pytest

from cnllm.estimates.host_order import (
    MOST_TURNS,
    HostOrder,
    HostRecord,
    HostTurn,
    ReportedTurns,
    RouteState,
    order_hosts,
)


def seen(turns: int, failed: int = 0, until: float = 1000.0, first: float | None = None) -> list[HostTurn]:
    """Turns of a host, one a second, those that failed evenly among them."""
    marks = [(number + 1) * failed // turns > number * failed // turns for number in range(turns)]
    return [HostTurn(until - turns + number, "tool" if mark else "", first) for number, mark in enumerate(marks)]


def first_of(*hosts: HostRecord, now: float = 1001.0, **options: object) -> str:
    order = order_hosts(hosts, RouteState(credit=-1.0), now, **options)  # type: ignore[arg-type]
    return hosts[order.numbers[0]].name


def test_without_turns_the_order_is_that_of_the_list() -> None:
    order = order_hosts([HostRecord("a"), HostRecord("b"), HostRecord("c")], RouteState(), 0.0)
    assert order.numbers == (0, 1, 2)
    assert order.reason == "no other host is shown to be better"
    assert [str(score) for score in order.scores] == [f"{name}: no turns yet" for name in "abc"]


@pytest.mark.parametrize(
    ("a", "b", "first"),
    [
        (seen(1, 1), (), "a"),  # one failure of one turn
        (seen(3, 1), seen(3), "a"),
        (seen(40, 2), seen(40, 1), "a"),
        (seen(40, 20), seen(40, 1), "b"),
        (seen(200, 16), seen(200, 2), "b"),
        (seen(8, 8), seen(8), "b"),
        ([*seen(300, until=900), *seen(8, 8)], seen(40, until=900), "b"),  # a host that was good all the hour breaks
        ([*seen(300, 300, until=900), *seen(60)], seen(40, 8), "a"),  # and one that recovers
        (seen(300, 300, until=-3000), seen(40, 8), "a"),  # more than an hour ago
    ],
)
def test_what_decides_and_what_does_not(a: list[HostTurn], b: list[HostTurn], first: str) -> None:
    assert first_of(HostRecord("a", a), HostRecord("b", b)) == first


def test_a_host_that_costs_less_and_is_no_worse_comes_first() -> None:
    dear, cheap = HostRecord("a", seen(60), None, 2.0), HostRecord("b", seen(60), None, 1.0)
    assert first_of(dear, cheap) == "b"
    assert first_of(dear, HostRecord("b", seen(60, 30), None, 1.0)) == "a"
    assert first_of(dear, HostRecord("b", seen(60))) == "a"  # an unknown price is not a low one
    assert first_of(dear, HostRecord("b", seen(5), None, 1.9)) == "a"  # too few turns for so small a difference


def test_a_slow_host_loses_to_a_quick_one() -> None:
    assert first_of(HostRecord("a", seen(60, first=9.0)), HostRecord("b", seen(60, first=0.4))) == "b"


def test_a_report_decides_until_enough_was_seen() -> None:
    lossy, whole = ReportedTurns(200, 20), ReportedTurns(200, 0)
    assert first_of(HostRecord("a", (), lossy), HostRecord("b", (), whole)) == "b"
    assert first_of(HostRecord("a", seen(250), lossy), HostRecord("b", seen(250, 25), whole)) == "a"


def test_the_host_with_the_warm_cache_is_kept_unless_another_is_better() -> None:
    def host(name: str, turns: list[HostTurn]) -> HostRecord:
        return HostRecord(name, turns, cost=1.0, warm_cost=0.2, cold_cost=1.6)

    best, other = host("a", seen(60)), host("b", seen(60, 3))
    assert first_of(best, other) == "a"
    assert first_of(best, other, warm=[1], is_begun=True) == "b"
    broken = host("b", seen(60, 55))
    assert first_of(best, broken, warm=[1], is_begun=True) == "a"
    assert first_of(best, other, warm=[1, 0], is_begun=True) == "a"  # the best one has the conversation, too


def with_errors(turns: list[HostTurn]) -> list[HostTurn]:
    """The same turns, in which requests failed and not calls."""
    return [turn._replace(failure="error") if turn.failure else turn for turn in turns]


def test_an_error_counts_less_than_a_lost_call() -> None:
    turns, other = seen(80, 24), HostRecord("b", seen(80), None, 1.3)
    assert first_of(HostRecord("a", turns, None, 1.0), other) == "b"
    assert first_of(HostRecord("a", with_errors(turns), None, 1.0), other) == "a"
    assert first_of(HostRecord("a", with_errors(seen(80, 80)), None, 1.0), other) == "b"


def test_a_conversation_leaves_a_host_for_lost_calls_and_not_for_errors() -> None:
    turns = seen(60, 55)
    for broken, first in ((turns, "a"), (with_errors(turns), "b")):
        hosts = [
            HostRecord(name, seen_turns, None, 1.0, 0.2, 1.6) for name, seen_turns in (("a", seen(60)), ("b", broken))
        ]
        assert first_of(*hosts, now=3000.0, warm=[1], is_begun=True) == first


def test_a_host_that_cannot_be_better_is_tested_seldom() -> None:
    best = HostRecord("a", seen(200, until=2000.0), None, 1.0)
    for cost, after, tested in ((1.0, 60.0, True), (2.0, 60.0, False), (2.0, 1000.0, True)):
        other = HostRecord("b", seen(40, until=2000.0 - after), None, cost)
        order = order_hosts([best, other], RouteState(credit=2.0), 2000.0)
        assert (order.numbers[0] == 1) is tested, (cost, after)


def test_the_host_that_takes_over_is_one_that_is_known_to_work() -> None:
    hosts = HostRecord("a", seen(60)), HostRecord("b"), HostRecord("c", seen(60, 40)), HostRecord("d", seen(60, 1))
    assert order_hosts(hosts, RouteState(credit=-1.0), 1001.0).numbers == (0, 3, 2, 1)


# ── a long time ──────────────────────────────────────────────────────────────


class Replay:
    """Some hours of turns over hosts that fail by chance, with the shares of failed turns at each moment."""

    def __init__(self, seed: int, hosts: int = 3) -> None:
        self.rng = random.Random(seed)
        self.turns: list[deque[HostTurn]] = [deque(maxlen=MOST_TURNS) for _ in range(hosts)]
        self.state = RouteState()
        self.now = 0.0
        self.failed = self.count = self.changes = self.others = 0
        self.alone = [0] * hosts

    def go(self, turns: int, *shares: float) -> list[HostOrder]:
        """Let some turns pass, six a minute."""
        orders = []
        for _ in range(turns):
            self.now += self.rng.expovariate(0.1)
            chance = self.rng.random()
            hosts = [HostRecord(str(number), list(seen), None, 1.0) for number, seen in enumerate(self.turns)]
            order = order_hosts(hosts, self.state, self.now)
            assert sorted(order.numbers) == list(range(len(hosts)))
            self.changes += order.state.best != self.state.best
            self.state = order.state
            first = order.numbers[0]
            self.others += first != order.state.best
            self.turns[first].append(HostTurn(self.now, "tool" if chance < shares[first] else ""))
            self.failed += chance < shares[first]
            self.alone = [count + (chance < share) for count, share in zip(self.alone, shares, strict=True)]
            self.count += 1
            orders.append(order)
        return orders


@pytest.mark.parametrize("seed", range(4))
def test_hosts_that_are_alike_do_not_take_turns_and_are_tested_now_and_then(seed: int) -> None:
    replay = Replay(seed)
    replay.go(600, 0.02, 0.02, 0.02)
    assert replay.changes <= 3
    assert 0.03 < replay.others / replay.count < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_a_host_that_breaks_is_left_at_once_and_found_again_when_it_is_the_better_one(seed: int) -> None:
    replay = Replay(seed, hosts=2)
    replay.go(200, 0.0, 0.03)
    broken = replay.go(60, 1.0, 0.03)
    assert [order.numbers[0] for order in broken].index(1) <= 12
    assert replay.state.best == 1
    tests = [order for order in broken[20:] if order.numbers[0] == 0]
    assert len(tests) <= 6  # each failed one makes the pause before the next longer
    recovered = replay.go(300, 0.0, 0.2)
    assert replay.state.best == 0
    assert sum(order.state.best == 0 for order in recovered) > 150


@pytest.mark.parametrize("seed", range(3))
def test_fewer_turns_fail_than_on_the_best_single_host(seed: int) -> None:
    replay = Replay(seed)
    for _ in range(2):
        replay.go(120, 0.01, 0.02, 0.01)
        replay.go(120, 0.3, 0.02, 0.01)
        replay.go(120, 0.01, 0.02, 1.0)
        replay.go(120, 0.01, 0.25, 0.25)
    assert replay.failed < 0.8 * min(replay.alone)
