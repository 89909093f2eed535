"""What workers together may send: simulated workers, without Ray."""

from __future__ import annotations

import asyncio
import heapq
import random
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from batch.stub import Answer, Stub, error, stub
from batch.support import KEY, PRICE, registry
from hypothesis import given, settings
from hypothesis import strategies as st

from cnllm.batch.shared import Asker, PendingRow, model_settings
from cnllm.batch.shared.allowance import (
    LEASE,
    Allowance,
    Done,
    EndpointLimits,
    Hello,
    Need,
    Permissions,
    RunLedger,
    WorkerReport,
    decode_grant,
    decode_report,
    encode,
)
from cnllm.batch.shared.sender import LinkLost
from cnllm.errors import BadKey, CnllmError


def hello(folder: Path, place: str, *, cap: int | None = None, committed: int = 0, **limits: float | None) -> Hello:
    endpoint = EndpointLimits("e", limits.get("concurrency"), limits.get("requests"), None)  # type: ignore[arg-type]
    return Hello(place, endpoint, "run", str(folder / "ledger"), "CNY", cap, committed)


class Worker:
    """A worker in simulated time. `charged` is what its requests cost in truth."""

    def __init__(self, name: str, greeting: Hello, rows: int, worst: int, chance: random.Random) -> None:
        self.name, self.greeting, self.rows, self.worst, self.chance = name, greeting, rows, worst, chance
        self.finished: list[Done] = []
        self.on_their_way: list[tuple[float, int]] = []
        self.sent: list[float] = []
        self.charged = 0
        self.known = False
        self.stop: str | None = None

    def exchange(self, allowance: Allowance, now: float) -> float | None:
        """One report, encoded as it travels; return when to send the next one."""
        while self.on_their_way and self.on_their_way[0][0] <= now:
            _, ticket = heapq.heappop(self.on_their_way)
            cost = self.chance.randint(1, self.worst)
            self.charged += cost
            self.finished.append(Done(ticket, "accepted", self.worst, cost, 10.0))
        needs = [Need(10.0, self.worst)] * min(self.rows, 64)
        greeting = None if self.known else self.greeting
        report = WorkerReport(self.name, self.finished, needs, None, greeting)
        grant: Permissions = decode_grant(encode(allowance.exchange(now, decode_report(encode(report)))))
        self.known = grant.known
        if not grant.known:
            return 0.0
        self.finished = []
        for ticket in grant.tickets:
            self.rows -= 1
            self.sent.append(now)
            heapq.heappush(self.on_their_way, (now + self.chance.uniform(0.1, 1.0), ticket))
        self.stop = grant.stop
        if grant.stop is not None:
            self.rows = 0
        return grant.wait

    @property
    def is_done(self) -> bool:
        return not (self.rows or self.on_their_way or self.finished)


def drive(allowance: Allowance, workers: list[Worker], start: float = 1.0) -> Iterator[float]:
    """Let the workers report in turn, each as soon as it may, until all are done; yield the time before each report."""
    now, number = start, 0
    due: list[tuple[float, int, Worker]] = []
    for worker in workers:
        heapq.heappush(due, (now, number, worker))
        number += 1
    while due and now < start + 600:
        now, _, worker = heapq.heappop(due)
        yield now
        wait = worker.exchange(allowance, now)
        if worker.is_done:
            continue
        soonest = worker.on_their_way[0][0] if worker.on_their_way else now + 1.0
        after = min(soonest, now + (1.0 if wait is None else max(wait, 0.002))) if worker.rows else soonest
        number += 1
        heapq.heappush(due, (max(after, now + 0.005), number, worker))


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 5), rate=st.sampled_from([60, 600, 3000]), seed=st.integers(0, 99))
def test_a_limit_is_that_of_all_workers(
    tmp_path_factory: pytest.TempPathFactory, count: int, rate: int, seed: int
) -> None:
    folder, chance = tmp_path_factory.mktemp("limit"), random.Random(seed)
    allowance = Allowance()
    rows = max(30, rate // 4)
    workers = [Worker(f"w{n}", hello(folder, f"p{n}", requests=rate), rows // count, 1, chance) for n in range(count)]
    for _ in drive(allowance, workers):
        pass
    sent = sorted(time for worker in workers for time in worker.sent)
    assert len(sent) == rows // count * count
    assert 60 * (len(sent) - 1) / (sent[-1] - sent[0]) <= rate * 1.05
    assert 60 * (len(sent) - 1) / (sent[-1] - sent[0]) >= rate * 0.9
    allowance.close()


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 4), seed=st.integers(0, 999), deaths=st.integers(0, 3), restarts=st.integers(0, 2))
def test_a_cap_holds_whatever_ends(
    tmp_path_factory: pytest.TempPathFactory, count: int, seed: int, deaths: int, restarts: int
) -> None:
    """Workers are killed and started again, and the allowance too: what was charged stays below the cap."""
    folder, chance = tmp_path_factory.mktemp("cap"), random.Random(seed)
    cap, worst = 5000, 20
    allowance = Allowance()
    workers = [Worker(f"w{n}", hello(folder, f"p{n}", cap=cap), 400, worst, chance) for n in range(count)]
    gone: list[Worker] = []
    moments = sorted(chance.uniform(1.05, 4.0) for _ in range(deaths + restarts))
    kinds = ["death"] * deaths + ["restart"] * restarts
    chance.shuffle(kinds)
    running = drive(allowance, workers)
    while (now := next(running, None)) is not None:
        if not moments or now < moments[0]:
            continue
        moments.pop(0)
        if kinds.pop() == "death":
            victim = chance.choice(workers)
            gone.append(victim)
            # The endpoint answered what it had, and nobody heard it.
            victim.charged += sum(chance.randint(1, worst) for _ in victim.on_their_way)
            rows, greeting = victim.rows + len(victim.on_their_way), hello(folder, victim.greeting.place, cap=cap)
            workers[workers.index(victim)] = Worker(f"{victim.name}+", greeting, rows, worst, chance)
        else:
            allowance.close()
            allowance = Allowance()
            for worker in workers:
                worker.known = False
        running = drive(allowance, workers, now)
    charged = sum(worker.charged for worker in [*workers, *gone])
    assert charged <= cap
    allowance.close()
    with closing(sqlite3.connect(folder / "ledger", isolation_level=None)) as db:
        (spent,) = db.execute("SELECT units FROM spent WHERE currency = 'CNY'").fetchone()
    assert charged <= spent <= cap


def test_a_silent_worker_gives_its_permissions_back(tmp_path: Path) -> None:
    allowance = Allowance()
    first = WorkerReport("a", [], [Need(1, 5)] * 8, None, hello(tmp_path, "1", concurrency=4))
    granted = allowance.exchange(1.0, first)
    assert len(granted.tickets) == 4
    other = WorkerReport("b", [], [Need(1, 5)] * 8, None, hello(tmp_path, "2", concurrency=4))
    assert allowance.exchange(2.0, other).tickets == []
    later = allowance.exchange(2.0 + LEASE, WorkerReport("b", [], [Need(1, 5)] * 8))
    assert len(later.tickets) == 4
    assert later.committed == 4 * 5 + 4 * 5, "those of the silent one count as paid"
    back = allowance.exchange(3.0 + LEASE, WorkerReport("a", [], []))
    assert back.known is False
    done = [Done(ticket, "accepted", 5, 1) for ticket in granted.tickets]
    told = allowance.exchange(3.1 + LEASE, WorkerReport("a", done, [], None, hello(tmp_path, "1", concurrency=4)))
    assert told.committed == 4 * 1 + 4 * 5, "and are corrected"
    allowance.close()


def test_two_that_want_share(tmp_path: Path) -> None:
    allowance = Allowance()
    needs = [Need(1, None)] * 100
    for name in ("a", "b"):
        allowance.exchange(0.9, WorkerReport(name, [], needs, None, hello(tmp_path, name, concurrency=1)))
    first = Allowance()
    grants = {
        name: first.exchange(1.0, WorkerReport(name, [], needs, None, hello(tmp_path / "x", name, concurrency=40)))
        for name in ("a", "b")
    }
    assert len(grants["a"].tickets) == 40, "nobody else wants yet"
    done = [Done(ticket, "accepted", None, None) for ticket in grants["a"].tickets]
    assert first.exchange(1.1, WorkerReport("a", done, needs)).tickets != []
    assert len(first.exchange(1.2, WorkerReport("b", [], needs)).tickets) == 20
    allowance.close()
    first.close()


def test_answers_of_a_process_that_is_gone(tmp_path: Path) -> None:
    """One with an id is for everybody; one without is for others only when its process ended, and once.

    A request that failed leaves none.
    """
    allowance = Allowance()
    allowance.exchange(1.0, WorkerReport("a", [], [Need(1, 1)] * 2, None, hello(tmp_path, "1")))
    done = [Done(0, "accepted", 1, 1, key=b"id", reply=b"x"), Done(0, "accepted", 1, 1, None, None, b"n", b"y", True)]
    done += [Done(0, "failed", 1, 1, key=b"failed"), Done(0, "accepted", 1, 1, reply=b"z")]
    allowance.exchange(1.1, WorkerReport("a", done, []))
    assert allowance.find("a", [(b"failed", False)]) == [None]
    allowance.exchange(1.1, WorkerReport("b", [], [], None, hello(tmp_path, "2")))
    assert allowance.find("b", [(b"id", False), (b"n", True)]) == [b"x", None]
    allowance.exchange(1.2, WorkerReport("c", [], [], None, hello(tmp_path, "1")))
    assert allowance.find("c", [(b"id", False), (b"n", True)]) == [b"x", b"y"]
    assert allowance.find("b", [(b"n", True)]) == [None]
    allowance.close()


def test_one_process_has_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnllm.batch.database._BUSY_SECONDS", 0.1)
    ledger = RunLedger(tmp_path / "state")
    ledger.commit([], "CNY", 5)
    with pytest.raises(CnllmError, match="locked"):
        RunLedger(tmp_path / "state")
    ledger.close()
    again = RunLedger(tmp_path / "state")
    assert again.spent() == {"CNY": 5}
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    again.close()


def test_a_new_allowance_waits_for_reports_before_it_ends_a_run(tmp_path: Path) -> None:
    """What its predecessor had reserved may be paid back."""
    first = Allowance()
    one = WorkerReport("a", [], [Need(1, 50)] * 2, None, hello(tmp_path, "1", cap=100))
    granted = first.exchange(1.0, one)
    assert len(granted.tickets) == 2
    first.close()
    second = Allowance()
    again = WorkerReport("a", [], [Need(1, 50)], None, hello(tmp_path, "1", cap=100, committed=granted.committed))
    assert second.exchange(2.0, again).stop is None
    done = [Done(ticket, "accepted", 50, 20) for ticket in granted.tickets]
    assert len(second.exchange(3.0, WorkerReport("a", done, [Need(1, 50)])).tickets) == 1
    assert second.exchange(4.0, WorkerReport("a", [], [Need(1, 50)])).stop is None
    second.close()


def test_workers_learn_from_one_another_how_much_input_an_endpoint_adds(tmp_path: Path) -> None:
    """A worker whose worst cases are too high, because it does not know yet, ends no run."""
    first = Allowance()
    both = {name: hello(tmp_path, name, cap=100) for name in "ab"}
    assert first.exchange(1.0, WorkerReport("a", [], [], None, both["a"])).added is None
    assert first.exchange(1.0, WorkerReport("b", [], [], None, both["b"])).added is None
    assert first.exchange(2.0, WorkerReport("a", [], [], added=7)).added == 7
    told = first.exchange(2.1, WorkerReport("b", [], [Need(1, 900)]))
    assert (told.stop, told.tickets, told.added) == (None, [], 7)
    assert len(first.exchange(2.2, WorkerReport("b", [], [Need(1, 90)], added=7)).tickets) == 1
    assert first.exchange(2.3, WorkerReport("b", [], [], added=3)).added == 7, "the highest one counts"
    first.close()
    again = Allowance()
    assert again.exchange(3.0, WorkerReport("a", [], [], None, both["a"])).added == 7, "the next run knows it"
    again.close()


class Here:
    """The link to an allowance in this process, with every message encoded as it travels, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._allowance = Allowance(str(folder))
        self._lock, self._is_closed = threading.Lock(), False

    async def exchange(self, report: WorkerReport) -> Permissions:
        with self._lock:
            if self._is_closed:
                raise LinkLost
            return decode_grant(encode(self._allowance.exchange(time.monotonic(), decode_report(encode(report)))))

    async def find(self, worker: str, keys: Sequence[tuple[bytes, bool]]) -> list[bytes | None]:
        with self._lock:
            return self._allowance.find(worker, list(keys))

    def close(self) -> None:
        with self._lock:  # the workers' threads go on
            self._is_closed = True
            self._allowance.close()


def test_workers_under_a_small_cap_ask_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of two processes, at an endpoint that adds little: the cap would hold for few at the first worst case.

    One that failed is sent again when more is known of what the endpoint adds.
    """

    def rule(prompt: str, server: Stub) -> Answer | None:
        return (503, error("later"), {}) if prompt.endswith("-0") and server.log.count(prompt) == 1 else None

    monkeypatch.setenv("HOME_TEST_KEY", KEY)
    here = Here(tmp_path)
    with stub(latency=0.002, rule=rule) as server:
        options: dict[str, Any] = {"max_tokens": 5, "max_cost": "0.0035", "registry": registry(server, tmp_path, PRICE)}
        made = model_settings("home/m", **options, state=tmp_path / "state", key_env="HOME_TEST_KEY")
        askers = [Asker(made, name, here) for name in "ab"]
        results = []
        for part in range(4):
            asker = askers[part % 2]
            rows = [asker.row({"prompt": f"p{part}-{n}"}) for n in range(10)]
            results += asker.ask_and_wait([row for row in rows if isinstance(row, PendingRow)])
    here.close()
    assert [result["error"] for result in results] == [None] * 40
    assert len(server.log) == 44


def test_runs_with_one_state_send_one_idempotency_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor must not charge a request twice that another run of the same dataset sends again."""
    monkeypatch.setenv("HOME_TEST_KEY", KEY)
    here, long = Here(tmp_path), tmp_path / ("s" * 64)
    with stub() as server:
        server.header = "x-idempotency-key"
        known = registry(server, tmp_path, 'idempotency = "X-Idempotency-Key"')
        for name, state in (("a", long), ("b", long), ("c", None)):
            made = model_settings("home/m", registry=known, state=state, key_env="HOME_TEST_KEY")
            asker = Asker(made, name, here)
            row = asker.row({"id": name, "prompt": "p"})
            assert isinstance(row, PendingRow)
            assert [result["error"] for result in asker.ask_and_wait([row])] == [None]
    here.close()
    assert server.headers[0] == server.headers[1]
    assert len(set(server.headers)) == 2


def test_a_key_that_the_endpoint_refuses_ends_the_wait_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME_TEST_KEY", KEY)
    here = Here(tmp_path)
    with stub(rule=lambda prompt, server: (401, error("wrong key"), {})) as server:
        made = model_settings("home/m", registry=registry(server, tmp_path), concurrency=1, key_env="HOME_TEST_KEY")
        asker = Asker(made, "a", here)
        rows = [row for n in range(3) if isinstance(row := asker.row({"prompt": f"p{n}"}), PendingRow)]
        with pytest.raises(BadKey, match="wrong key"):
            asyncio.run(asyncio.wait_for(asker.ask(rows), 20))
        assert len(server.log) == 1
    here.close()


def test_an_error_of_ours_in_a_row_ends_the_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*parts: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setenv("HOME_TEST_KEY", KEY)
    monkeypatch.setattr("cnllm.batch.sender.Sender.send", fail)
    here = Here(tmp_path)
    with stub() as server:
        made = model_settings("home/m", registry=registry(server, tmp_path), key_env="HOME_TEST_KEY")
        asker = Asker(made, "a", here)
        row = asker.row({"prompt": "p"})
        assert isinstance(row, PendingRow)
        with pytest.raises(ZeroDivisionError):
            asker.ask_and_wait([row])
    here.close()


@pytest.mark.parametrize("failure", [CnllmError("the disk is full"), ZeroDivisionError()], ids=["an error", "ours"])
def test_a_report_that_fails_ends_the_wait_for_the_rows_in_it(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Here):
        async def exchange(self, report: WorkerReport) -> Permissions:
            if report.finished:  # the other rows wait for leave in the same report
                raise failure
            return await super().exchange(report)

    monkeypatch.setenv("HOME_TEST_KEY", KEY)
    here = Full(tmp_path)
    with stub() as server:
        made = model_settings("home/m", registry=registry(server, tmp_path), concurrency=1, key_env="HOME_TEST_KEY")
        asker = Asker(made, "a", here)
        rows = [row for n in range(3) if isinstance(row := asker.row({"prompt": f"p{n}"}), PendingRow)]
        with pytest.raises(type(failure)):
            asyncio.run(asyncio.wait_for(asker.ask(rows), 20))
    here.close()


def test_a_row_that_is_to_wait_again_behind_such_an_error_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Here):
        is_broken = False

        async def exchange(self, report: WorkerReport) -> Permissions:
            if self.is_broken:
                raise ZeroDivisionError
            return await super().exchange(report)

    async def ask_both(asker: Asker) -> list[Any]:
        first, second = (row for n in "ab" if isinstance(row := asker.row({"prompt": n}), PendingRow))
        early = asyncio.ensure_future(asker.ask([first]))
        while not server.log:
            await asyncio.sleep(0.01)
        here.is_broken = True
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(asker.ask([second]), 20)
        server.hold.set()
        return await asyncio.wait_for(early, 20)

    monkeypatch.setenv("HOME_TEST_KEY", KEY)
    here = Broken(tmp_path)
    with stub(rule=lambda prompt, server: (200, error("Rate limit reached", "rate_limit_exceeded"), {})) as server:
        server.hold.clear()
        made = model_settings("home/m", registry=registry(server, tmp_path), key_env="HOME_TEST_KEY")
        with pytest.raises(ZeroDivisionError):
            asyncio.run(ask_both(Asker(made, "a", here)))
    here.close()
