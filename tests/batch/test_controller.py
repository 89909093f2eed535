"""The bounds of an endpoint, in a time of their own: what it allows is used, and seldom exceeded."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnllm.batch.controller import Controller, RequestPace, Trail

Server = Callable[[float], tuple[bool, float | None]]
"""Answers a request at a time: whether it is taken, and the seconds to wait."""


def fixed_window(limit: int) -> Server:
    state = {"window": -1, "count": 0}

    def ask(now: float) -> tuple[bool, float | None]:
        if state["window"] != now // 60:
            state.update(window=int(now // 60), count=0)
        state["count"] += 1
        return state["count"] <= limit, 60 - now % 60

    return ask


def sliding_window(limit: int) -> Server:
    times: deque[float] = deque()

    def ask(now: float) -> tuple[bool, float | None]:
        while times and times[0] <= now - 60:
            times.popleft()
        if len(times) >= limit:
            return False, times[0] + 60 - now
        times.append(now)
        return True, None

    return ask


def bucket(limit: int) -> Server:
    state = {"left": max(1.0, limit / 10), "time": 0.0}

    def ask(now: float) -> tuple[bool, float | None]:
        state["left"] = min(max(1.0, limit / 10), state["left"] + (now - state["time"]) * limit / 60)
        state["time"] = now
        if state["left"] < 1:
            return False, (1 - state["left"]) * 60 / limit
        state["left"] -= 1
        return True, None

    return ask


SERVERS = {"fixed": fixed_window, "sliding": sliding_window, "bucket": bucket}


class Played:
    """A run against a server: `sent` are the times of requests, `taken` and `refused` count them."""

    def __init__(
        self,
        controller: Controller,
        ask: Server | None,
        *,
        seconds: float,
        latency: float,
        start: float = 0.0,
        tells: bool = True,
        together: int | None = None,
        rows: float = float("inf"),
        seed: int = 0,
    ) -> None:
        chance = random.Random(seed)
        now, end = start, start + seconds
        events: list[tuple[float, int, object, bool, float | None]] = []
        self.sent: list[float] = []
        self.taken = self.refused = self.most = 0
        busy = 0
        while now < end and self.taken < rows:
            wait = controller.wait(now)
            if wait is not None and (not events or now + wait <= events[0][0]):
                now += wait
                if now >= end:
                    break
                ticket = controller.send(now)
                assert controller.in_flight <= max(1, controller.limit)
                self.sent.append(now)
                self.most = max(self.most, controller.in_flight)
                if ask is not None:
                    ok, pause = ask(now)
                else:
                    assert together is not None
                    ok, pause = busy < together, None
                    busy += ok
                lasts = latency * chance.uniform(0.8, 1.2) if ok else min(latency, 0.03)
                heapq.heappush(events, (now + lasts, len(self.sent), ticket, ok, pause if tells else None))
                continue
            assert events, "nothing is on its way, and nothing may be sent"
            now, _, ticket, ok, pause = heapq.heappop(events)  # type: ignore[assignment]
            if ok:
                self.taken += 1
                busy -= ask is None
                controller.accept(now, ticket)
            else:
                self.refused += 1
                controller.refuse(now, ticket, "rate", pause)
        self.end = now

    @property
    def refused_share(self) -> float:
        return self.refused / len(self.sent)


@pytest.mark.share(4)
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("limit", [600, 6000])
@pytest.mark.parametrize("latency", [0.05, 1.0])
@pytest.mark.parametrize("start", [0.0, 40.0])
def test_an_unknown_limit_is_used_and_seldom_exceeded(kind: str, limit: int, latency: float, start: float) -> None:
    minutes = 10
    played = Played(Controller(), SERVERS[kind](limit), seconds=60 * minutes, latency=latency, start=start)
    assert played.taken >= (0.95 if latency < 1 else 0.93) * limit * minutes
    assert played.refused_share < 0.01


@settings(max_examples=20)
@given(
    limit=st.integers(3, 2000),
    kind=st.sampled_from(sorted(SERVERS)),
    latency=st.floats(0.01, 20),
    start=st.floats(0, 60),
)
def test_a_known_limit_is_never_exceeded_and_used(limit: int, kind: str, latency: float, start: float) -> None:
    played = Played(Controller(requests=limit), SERVERS[kind](limit), seconds=300, latency=latency, start=start)
    assert played.refused == 0
    needed = limit / 60 * latency  # requests that are on their way at the same time
    if needed < 40:
        assert len(played.sent) >= 0.95 * (limit * 5 - limit / 6) - 3 - 10 * latency * limit / 60


@pytest.mark.share(2)
@pytest.mark.parametrize("latency", [0.05, 2.0])
@pytest.mark.parametrize("together", [10, 100])
def test_a_limit_on_requests_at_a_time_is_found(together: int, latency: float) -> None:
    seconds = max(120, 400 * latency)
    played = Played(Controller(), None, seconds=seconds, latency=latency, together=together)
    assert played.taken >= 0.8 * together * seconds / latency
    assert played.refused_share < 0.015


@settings(max_examples=20)
@given(most=st.integers(1, 50), latency=st.floats(0.001, 5))
def test_concurrency_has_an_upper_bound(most: int, latency: float) -> None:
    played = Played(Controller(most=most), lambda now: (True, None), seconds=200 * latency, latency=latency)
    assert played.most <= most
    fixed = Played(Controller(concurrency=most), lambda now: (True, None), seconds=20 * latency, latency=latency)
    assert fixed.most == most


def test_an_endpoint_that_answers_is_used_more_and_more() -> None:
    played = Played(Controller(), lambda now: (True, None), seconds=10, latency=0.1)
    assert played.most > 100


def test_an_endpoint_that_queues_is_not_flooded() -> None:
    """Ten at a time are worked on; more only wait. The latency grows, and concurrency stops growing by doubling."""
    controller, now = Controller(), 0.0
    free = [0.0] * 10
    events: list[tuple[float, int, object]] = []
    number = most = 0
    while now < 60:
        wait = controller.wait(now)
        if wait == 0.0:
            ticket = controller.send(now)
            free.sort()
            free[0] = max(free[0], now) + 0.1
            number += 1
            heapq.heappush(events, (free[0], number, ticket))
            most = max(most, controller.in_flight)
            continue
        now, _, ticket = heapq.heappop(events)  # type: ignore[assignment]
        controller.accept(now, ticket)
    assert 10 <= most < 80


def test_overload_cuts_concurrency_once_for_all_that_were_on_their_way() -> None:
    controller = Controller(concurrency=None)
    controller.limit = 90.0
    tickets = [controller.send(1.0) for _ in range(90)]
    for ticket in tickets:
        controller.refuse(1.5, ticket, "overloaded")
    assert controller.limit == pytest.approx(60, abs=1)


def test_a_retry_after_is_waited_for() -> None:
    controller = Controller()
    controller.refuse(1.0, controller.send(0.5), "rate", 17.0)
    assert controller.wait(1.0) == pytest.approx(17.0, abs=1.0)
    controller.observe(2.0, pause=40.0)
    assert controller.wait(2.0) == pytest.approx(40.0)


def test_a_retry_after_of_nothing_does_not_let_the_endpoint_be_asked_all_the_time() -> None:
    controller, now, sent = Controller(), 0.0, 0
    while now < 30:
        wait = controller.wait(now)
        assert wait is not None
        now += wait
        controller.refuse(now + 0.001, controller.send(now), retry_after=0.0)
        now += 0.002
        sent += 1
    assert sent < 20


def test_a_storm_is_tried_by_one_request_at_a_time_and_less_and_less_often() -> None:
    played = Played(Controller(), lambda now: (now > 3600, None), seconds=3700, latency=0.1)
    during = [time for time in played.sent if time < 3600]
    assert len(during) < 250
    assert played.taken > 10, "and when it is over, the run goes on"


@pytest.mark.parametrize("latency", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("pause", [None, 0.5])
@pytest.mark.parametrize(("begin", "lasts"), [(0.0, 1.5), (0.0, 30.0), (0.06, 1.5), (0.6, 1.5)])
def test_after_a_storm_the_rate_rises_as_at_the_start(
    latency: float, pause: float | None, begin: float, lasts: float
) -> None:
    """Nothing or little was taken before it, so that nothing is known of a limit."""

    def ask(now: float) -> tuple[bool, float | None]:
        return not begin <= now < begin + lasts, pause

    played = Played(Controller(), ask, seconds=300, latency=latency, rows=200)
    usual = Played(Controller(), lambda now: (True, None), seconds=300, latency=latency, rows=200)
    assert played.end <= usual.end + begin + 1.5 * lasts + 9
    assert played.refused < 70


def test_a_small_limit_that_was_taken_for_a_storm_is_learned() -> None:
    for kind in SERVERS.values():
        played = Played(Controller(), kind(20), seconds=600, latency=1.0, tells=False)
        assert played.taken >= 0.9 * 200
        assert played.refused < 45


def test_a_refused_burst_slows_growth_down_and_teaches_no_limit() -> None:
    controller = Controller()
    controller.limit = 64.0
    ticket = controller.send(0.0)
    controller.refuse(0.1, ticket, "burst", 1.0)
    assert controller.limit == pytest.approx(32)
    assert controller.requests_per_minute is None
    now = 1.2
    while now < 10.0:  # answers as quick as they can be
        if controller.wait(now) == 0.0:
            ticket = controller.send(now)
        else:
            now += 0.05
            while controller.in_flight:
                controller.accept(now, ticket)
    assert controller.limit <= 32 * 2 ** (10 / 5) + 1


def test_tokens_of_a_minute() -> None:
    controller = Controller(tokens=6000)
    now, used = 0.0, 0.0
    while now < 60:
        wait = controller.wait(now)
        assert wait is not None
        now += wait
        ticket = controller.send(now, 50.0)
        controller.accept(now, ticket, 100.0)  # it was estimated too low
        used += 100
    assert 0.9 * 6000 <= used <= 6000 + 100


@given(st.lists(st.tuples(st.floats(0, 200), st.booleans()), max_size=60))
def test_the_trail_counts_the_last_minute(steps: list[tuple[float, bool]]) -> None:
    trail = Trail()
    times: list[float] = []
    for now, take_back in sorted(steps):
        if take_back and times:
            trail.add(times.pop(), -1)
        else:
            trail.add(now)
            times.append(now)
        total = trail.total(now)
        assert (
            sum(time > now - 60 + 0.25 for time in times) <= total <= sum(time > now - 60.25 - 0.25 for time in times)
        )


def test_a_pace_makes_up_for_little() -> None:
    pace = RequestPace(60 / 0.985)
    assert pace.wait(100.0) == 0.0
    pace.use(100.0)
    assert pace.wait(100.0) == pytest.approx(0.75)
