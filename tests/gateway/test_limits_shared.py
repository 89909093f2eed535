"""Keys that several processes use at once, on a file and on a Redis server: limits and budgets hold, through kills."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cnllm.errors import CnllmError
from cnllm.estimates.worst_case import WorstCase
from cnllm.gateway.limits.book import KeyBook, open_book
from cnllm.gateway.limits.keys import KeyRecord, Rights, team_digest
from cnllm.gateway.limits.limiter import Limiter, Reservations
from cnllm.gateway.limits.refusal import Refused
from cnllm.gateway.limits.sqlite_book import book_path

from .limits_support import (
    Counting,
    Worker,
    book_with,
    cny,
    code_of,
    in_use,
    quoted,
    rights_of,
    run,
    run_limiters,
    sqlite_url,
    workers,
)
from .store_support import program

Test = Callable[[Limiter, Rights], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """The URL of a server, None where there is none."""
    if shutil.which("redis-server") is None:
        yield None
        return
    pytest.importorskip("redis", reason="the package redis is not installed")
    from .test_store_redis import Server

    server = Server(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str | None) -> str:
    """A store that several processes share."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    if redis_url is None:
        pytest.skip("redis-server is not installed")
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return redis_url


# ── several processes ────────────────────────────────────────────────────────
def test_two_processes_keep_a_limit_of_requests_under_500_calls(url: str) -> None:
    book, _, digest = book_with(url, rpm=100)
    both = workers(url, digest, {"calls": 250}, {"calls": 250})
    for worker in both:
        worker.finish()
    sent = sum(len(worker.values("sent")) for worker in both)
    assert 98 <= sent <= 100
    assert sum(len(worker.values("refused")) for worker in both) == 500 - sent
    assert {code for worker in both for code in worker.values("refused")} == {"rate_limit_exceeded"}
    assert all(50 < seconds <= 61 for worker in both for seconds in worker.values("retry"))
    use = in_use(book)
    assert use.calls == sent
    assert sum(use.spent.values()) == sum(sum(worker.values("settled")) for worker in both)
    book.close()


def test_two_processes_keep_a_limit_of_tokens(url: str) -> None:
    book, _, digest = book_with(url, tpm=10_000)
    both = workers(url, digest, *[{"calls": 100, "tokens": 150}] * 2)
    for worker in both:
        worker.finish()
    assert 98 * 100 <= 150 * sum(len(worker.values("sent")) for worker in both) <= 10_000
    assert in_use(book).tokens == 150 * in_use(book).calls
    book.close()


def check_budget(book: KeyBook, all_: list[Worker], worst: int, budget: int) -> None:
    """What was sent stays within the budget; settled calls are charged exactly, those of a killed process in full."""
    sent = sum(sum(worker.values("sent")) for worker in all_)
    assert sent <= budget
    use = in_use(book)
    assert not any(use.open.values()), "no lease is open any more"
    spent = use.spent["CNY"]
    settled = sum(sum(worker.values("settled")) for worker in all_)
    lost = sum(len(worker.values("sent")) - len(worker.values("settled")) for worker in all_)
    assert sent <= spent <= budget
    # A process that is killed loses what it sent, what it had to report, and what it had to spare.
    assert settled <= spent
    if not lost:
        assert spent == settled
    else:
        assert spent >= settled + (lost - 1) * worst


def test_two_processes_keep_a_budget_under_500_calls_with_a_kill(url: str) -> None:
    worst, budget = cny("0.02"), cny("1")
    book, _, digest = book_with(url, budgets={"CNY": budget})
    plan = {"calls": 250, "worst": worst, "lease": 2.0}
    steady, doomed = workers(url, digest, {**plan, "for": 3.0}, {**plan, "hangs": True})
    while len(doomed.values("sent")) + len(doomed.values("refused")) < 250:
        doomed.read()
    open_ = in_use(book).open.get("CNY", 0)
    doomed.kill()
    steady.finish()
    last = time.monotonic() + 10
    while any(in_use(book).open.values()) and time.monotonic() < last:
        time.sleep(0.05)
    assert len(steady.values("sent")) + len(doomed.values("sent")) > 40
    assert in_use(book).spent["CNY"] > budget - 2 * worst, "the budget was used"
    assert open_ >= 0
    check_budget(book, [steady, doomed], worst, budget)
    book.close()


@pytest.mark.long
def test_processes_that_come_and_go_keep_a_limit_for_minutes(url: str) -> None:
    """Two processes call all the time; one is killed and replaced. In any minute 98 to 100 requests are sent."""
    book, _, digest = book_with(url, rpm=100)
    plan = {"calls": 3, "for": 150.0, "pause": 0.05}
    steady, doomed = workers(url, digest, plan, plan)
    every = [steady, doomed]
    end = time.monotonic() + 150
    while time.monotonic() < end - 40:
        time.sleep(20)
        doomed.kill()
        (doomed,) = workers(url, digest, {**plan, "for": max(1.0, end - time.monotonic())})
        every.append(doomed)
    steady.finish()
    doomed.finish()
    times = sorted(at for worker in every for at in worker.values("asked"))
    most = max(sum(1 for at in times[index:] if at < start + 60) for index, start in enumerate(times))
    assert most <= 100
    for begin in range(0, 80, 5):  # each minute but the last
        count = sum(1 for at in times if times[0] + begin <= at < times[0] + begin + 61)
        assert count >= 98, (begin, count)
    book.close()


@pytest.mark.long
def test_processes_that_are_killed_all_the_time_never_exceed_a_budget(url: str) -> None:
    worst, budget = cny("0.01"), cny("20")
    book, _, digest = book_with(url, budgets={"CNY": budget})
    plan = {"calls": 125, "worst": worst, "lease": 3.0, "for": 40.0, "pause": 0.3, "seconds": 0.2}
    every = workers(url, digest, *[plan] * 4)
    alive = list(every)
    for round_ in range(12):
        time.sleep(1.5)
        victim = alive.pop(0)
        victim.kill()
        (new,) = workers(url, digest, {**plan, "for": max(1.0, 30.0 - 2 * round_)})
        every.append(new)
        alive.append(new)
    for worker in alive:
        worker.finish()
    time.sleep(3.5)
    use = in_use(book)
    assert not any(use.open.values())
    sent = sum(sum(worker.values("sent")) for worker in every)
    assert sent <= use.spent["CNY"] <= budget
    book.close()


# ── one process ──────────────────────────────────────────────────────────────
def test_a_busy_key_does_not_write_at_each_request(url: str) -> None:
    """Count the operations of the store for two thousand requests, many at once, and for more, one after the other."""
    book, _, digest = book_with(url, rpm=10**6, tpm=10**9, budgets={"CNY": cny("1000")})

    async def steps(limiter: Limiter, record: Rights, counting: Counting) -> None:
        async def one() -> None:
            for _ in range(50):
                await limiter.admit(digest, record)
                (await limiter.reserve(digest, record, quoted(1000), 10)).settle(900, 12)
                await asyncio.sleep(0)

        await asyncio.gather(*[one() for _ in range(40)])
        assert counting.operations < 400
        before = counting.operations
        for _ in range(500):
            (await limiter.reserve(digest, record, quoted(1000), 10)).settle(900, 12)
        assert counting.operations - before < 250

    run(url, digest, steps)
    use = in_use(book)
    assert (use.calls, use.tokens, use.spent) == (2500, 30_000, {"CNY": 2_250_000})
    assert not any(use.open.values())
    book.close()


def test_a_revoked_key_is_refused_within_a_second(url: str) -> None:
    book, _, digest = book_with(url, rpm=1000)

    async def steps(limiter: Limiter, record: Rights, counting: Counting) -> None:
        await limiter.admit(digest, record)
        (await limiter.reserve(digest, record, quoted(1), 1)).settle(1, 1)
        for _ in range(100):
            assert await limiter.find(digest) is not None
        assert counting.searches <= 3, "a record is not looked up for each request"
        book.revoke("team")
        revoked = time.monotonic()
        while await limiter.find(digest) is not None:
            await asyncio.sleep(0.01)
        assert time.monotonic() - revoked < 15  # one second, and what a busy machine adds

    run(url, digest, steps)
    book.close()


def test_a_file_makes_no_revoked_key_valid(url: str) -> None:
    book, _, digest = book_with(url, rpm=10)
    record = book.uses()[0].record
    book.revoke(record.name)
    book.add(digest, replace(record, is_in_file=True))
    book.add(digest, replace(record, is_in_file=True, name="other"))
    rights = book.find(digest)
    assert rights is not None
    assert rights.key.revoked is not None
    assert (book.get(record.name), book.get("other")) == (None, None)
    book.close()


def test_of_several_keys_all_are_added_or_none(url: str) -> None:
    book, _, first = book_with(url, rpm=10)
    record = replace(book.uses()[0].record, is_in_file=True)
    book.add(first, record)
    more = {"second": replace(record, name="second"), "third": replace(record, name="third")}
    for name in ("team", "second"):  # of a key in the store, and of another one in the same file
        with pytest.raises(CnllmError, match=f"a key in use is called {name}"):
            book.add_all({first: replace(record, rpm=20), **more, "fourth": replace(record, name=name)})
        assert [use.record for use in book.uses()] == [record]
    book.add_all({first: replace(record, rpm=20, name="first"), **more})
    assert {use.record.name: use.record.rpm for use in book.uses()} == {"first": 20, "second": 10, "third": 10}
    assert (book.get("team"), book.get("third")) == (None, more["third"])
    book.close()


def test_what_is_said_of_a_key_is_on_the_disk_before_the_command_ends(tmp_path: Path) -> None:
    """The log of writes beside the file, which the system may lose with its power, is not needed for it."""
    path, book = book_path(str(tmp_path / "gateway.db")), open_book(sqlite_url(tmp_path))
    assert book is not None
    with contextlib.closing(book):
        book.add("d", KeyRecord("a", 1.0))
        for limit in (5, 6):
            book.change("a", partial(replace, rpm=limit))
            assert _without_log(path, tmp_path).rpm == limit
        book.revoke("a")
        assert _without_log(path, tmp_path).revoked is not None


def _without_log(path: Path, folder: Path) -> KeyRecord:
    """The only record of a file, read without its log of writes."""
    copy = shutil.copy(path, folder / "copy.db")
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        ((record,),) = connection.execute("SELECT record FROM keys").fetchall()
    return msgspec.msgpack.decode(record, type=KeyRecord)


def test_a_store_that_is_away_lets_nobody_pass_and_nothing_counts_twice(url: str) -> None:
    book, _, digest = book_with(url, budgets={"CNY": cny("1")})

    async def steps(limiter: Limiter, record: Rights, counting: Counting) -> None:
        async def reserve() -> Reservations | str:
            try:
                return await limiter.reserve(digest, record, quoted(cny("0.25")), 1)
            except Refused as error:
                return error.refusal.code if error.refusal.retry_after else "never"

        first = await reserve()
        assert isinstance(first, Reservations)
        counting.fails = "after"  # carried out, and nobody knows
        first.settle(cny("0.2"), 1)
        await asyncio.sleep(0.3)
        assert await reserve() == "keys_unavailable"
        await asyncio.sleep(0.5)
        with pytest.raises(Refused):
            await limiter.find(digest)
        counting.fails = ""
        last = time.monotonic() + 5
        while isinstance(second := await reserve(), str):
            assert second == "keys_unavailable"
            assert time.monotonic() < last
            await asyncio.sleep(0.05)
        second.release()

    run(url, digest, steps)
    assert in_use(book).spent == {"CNY": cny("0.2")}
    assert not any(in_use(book).open.values())
    book.close()


def test_a_request_that_is_given_up_while_it_waits_reserves_nothing(url: str) -> None:
    book, _, digest = book_with(url, budgets={"CNY": cny("1")})

    async def steps(limiter: Limiter, record: Rights, counting: Counting) -> None:
        for ticks in range(12):
            task = asyncio.ensure_future(limiter.reserve(digest, record, quoted(cny("0.9")), 1))
            for _ in range(ticks):
                await asyncio.sleep(0.0005)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await task).release()
            last = time.monotonic() + 5
            while time.monotonic() < last:
                try:
                    (await limiter.reserve(digest, record, quoted(cny("1")), 1)).release()
                    break
                except Refused:
                    await asyncio.sleep(0.05)
            else:
                raise AssertionError("what was given up is still reserved")

    run(url, digest, steps)
    assert not any(in_use(book).spent.values())
    assert not any(in_use(book).open.values())
    book.close()


@pytest.mark.parametrize("is_free", [True, False])
def test_a_request_that_is_given_up_as_it_is_answered_reserves_nothing(url: str, is_free: bool) -> None:
    book, _, digest = book_with(url, budgets={"CNY": cny("1")})

    async def steps(limiter: Limiter, record: Rights, counting: Counting) -> None:
        other = await limiter.reserve(digest, record, quoted(cny("0.1" if is_free else "0.9")), 1)
        task = asyncio.ensure_future(limiter.reserve(digest, record, quoted(cny("0.9")), 1))
        counting.meets = task.cancel
        with pytest.raises(asyncio.CancelledError):
            await task
        assert counting.meets is None
        other.release()
        (await limiter.reserve(digest, record, quoted(cny("1")), 1)).release()

    run(url, digest, steps)
    assert not any(in_use(book).spent.values())
    assert not any(in_use(book).open.values())
    book.close()


def test_why_a_request_is_refused(url: str) -> None:
    book, _, digest = book_with(url, models=("p/*",), tpm=1000, budgets={"CNY": cny("1")})

    async def steps(limiter: Limiter, record: Rights, counting: Counting) -> None:
        async def code(quote: WorstCase, tokens: int = 1) -> tuple[str, bool]:
            with pytest.raises(Refused) as caught:
                await limiter.reserve(digest, record, quote, tokens)
            return caught.value.refusal.code, caught.value.refusal.retry_after is not None

        assert await code(WorstCase("other/m", 1, 1, "CNY", 1, 1)) == ("model_not_allowed", False)
        assert await code(WorstCase("p/m", 1, 1, unknown=("the price of p/m",))) == ("price_unknown", False)
        assert await code(WorstCase("p/m", 1, 1, "USD", 1, 1)) == ("currency_mismatch", False)
        assert await code(quoted(1), 1001) == ("request_too_large", False)
        (await limiter.reserve(digest, record, quoted(1), 1000)).release()  # it fits exactly
        assert await code(quoted(cny("1.01"))) == ("insufficient_quota", True)
        held = await limiter.reserve(digest, record, quoted(cny("0.6")), 900)
        assert await code(quoted(cny("0.6"))) == ("budget_reserved", True)
        assert await code(quoted(1), 200) == ("rate_limit_exceeded", True)
        held.settle(cny("0.1"), 100)  # the estimate was too high: the rest is free again
        await asyncio.sleep(0.2)
        (await limiter.reserve(digest, record, quoted(cny("0.6")), 200)).release()

    run(url, digest, steps)
    book.close()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no such signal here")
def test_a_process_that_stood_still_does_not_charge_twice(url: str) -> None:
    """Its lease expires meanwhile, and is charged in full; what it reports afterwards is not charged again."""
    book, _, digest = book_with(url, budgets={"CNY": cny("1")})
    (worker,) = workers(url, digest, {"calls": 1, "worst": cny("0.5"), "lease": 0.5, "waits": True})
    while not worker.values("sent"):
        worker.read()
    os.kill(worker.process.pid, signal.SIGSTOP)
    last = time.monotonic() + 10
    while any(in_use(book).open.values()) and time.monotonic() < last:
        time.sleep(0.05)
    assert in_use(book).spent == {"CNY": cny("0.5")}
    os.kill(worker.process.pid, signal.SIGCONT)
    worker.start()
    worker.finish()
    assert worker.values("settled")
    assert in_use(book).spent == {"CNY": cny("0.5")}
    book.close()


# ── teams, flights, soft budgets, expiry, changes ────────────────────────────
def with_team(url: str, team: dict[str, Any], *keys: dict[str, Any]) -> tuple[KeyBook, list[str]]:
    """A book with a team and its keys: the book, and the digests of the keys."""
    book = open_book(url)
    assert book is not None
    book.add(team_digest("t"), KeyRecord("t", time.time(), kind="team", **team))
    digests = [f"digest-{number}" for number in range(len(keys))]
    for digest, limits in zip(digests, keys, strict=True):
        book.add(digest, KeyRecord(digest, time.time(), team="t", **limits))
    return book, digests


def test_a_request_must_pass_its_key_and_its_team(url: str) -> None:
    team = {"budgets": {"CNY": cny("0.5")}, "models": ("p/*",), "rpm": 3}
    book, (one, two) = with_team(url, team, {"budgets": {"CNY": cny("1")}, "rpm": 100}, {"models": ("*/m",)})

    async def steps(first: Limiter, second: Limiter) -> None:
        rights, other = await rights_of(first, one), await rights_of(second, two)
        assert [rights.allows(name) for name in ("p/m", "p/x", "q/m")] == [True, True, False]
        assert [other.allows(name) for name in ("p/m", "p/x", "q/m")] == [True, False, False]
        (await first.reserve(one, rights, quoted(cny("0.4")), 1)).settle(cny("0.4"), 1)
        await asyncio.sleep(0.3)
        refused = await code_of(first.reserve(one, rights, quoted(cny("0.2")), 1))
        assert refused.startswith("insufficient_quota: the budget of the team t has 0.10 CNY left")
        refused = await code_of(second.reserve(two, other, quoted(cny("0.2")), 1))
        assert "the team t" in refused
        last = time.monotonic() + 5
        while any(book.uses(teams=True)[0].open.values()) and time.monotonic() < last:
            await asyncio.sleep(0.05)  # what did not suffice is given back
        (await second.reserve(two, other, quoted(cny("0.05")), 1)).settle(cny("0.05"), 1)
        refused = await code_of(first.reserve(one, rights, WorstCase("q/m", 1, 1, "CNY", 1, 1), 1))
        assert refused.startswith("model_not_allowed: the team t")
        for limiter, digest, mine in ((first, one, rights), (second, two, other), (first, one, rights)):
            await limiter.admit(digest, mine)
        for limiter, digest, mine in ((first, one, rights), (second, two, other)):
            refused = await code_of(limiter.admit(digest, mine))
            assert refused.startswith("rate_limit_exceeded: the team t may send 3 requests a minute")
        await asyncio.sleep(0.3)

    run_limiters(url, 2, steps)
    by_name = {use.record.name: use for use in book.uses()}
    assert by_name[one].spent == {"CNY": cny("0.4")}
    assert by_name[two].spent == {"CNY": cny("0.05")}
    assert by_name[one].minute_requests == 2, "what the team refused does not count for the key"
    (used,) = book.uses(teams=True)
    assert (used.spent, used.minute_requests) == ({"CNY": cny("0.45")}, 3)
    assert not any(used.open.values())
    book.close()


def test_a_team_that_is_removed_is_gone_with_what_it_used_and_lets_no_key_of_it_pass(url: str) -> None:
    book, (one,) = with_team(url, {"budgets": {"CNY": cny("0.5")}}, {})

    async def spend(limiter: Limiter) -> None:
        rights = await rights_of(limiter, one)
        (await limiter.reserve(one, rights, quoted(cny("0.4")), 1)).settle(cny("0.4"), 1)

    run_limiters(url, 1, spend)
    book.remove(team_digest("t"))
    assert book.uses(teams=True) == []
    with pytest.raises(CnllmError, match="no team in use is called t"):
        book.remove(team_digest("t"))

    async def refused(limiter: Limiter) -> None:
        assert (await code_of(limiter.find(one))).startswith("keys_unavailable")

    run_limiters(url, 1, refused)
    book.add(team_digest("t"), KeyRecord("t", time.time(), kind="team"))
    (used,) = book.uses(teams=True)
    assert (used.spent, used.calls) == ({}, 0)
    book.close()


def test_requests_in_flight_are_limited_over_processes(url: str) -> None:
    book, _, digest = book_with(url, concurrency=2)

    async def steps(first: Limiter, second: Limiter) -> None:
        rights = await rights_of(first, digest)
        (one,) = await first.admit(digest, rights)
        (two,) = await second.admit(digest, rights)
        for limiter in (first, second):
            refused = await code_of(limiter.admit(digest, rights))
            assert refused.startswith("concurrency_limit_exceeded: the key team may have 2 requests in flight")
        assert in_use(book).flights == 2
        one.release()
        one.release()
        last = time.monotonic() + 5
        while True:
            try:
                (three,) = await second.admit(digest, rights)
                break
            except Refused:
                assert time.monotonic() < last
                await asyncio.sleep(0.05)
        await asyncio.sleep(2.5)  # longer than a lease: what runs on keeps its place
        assert "concurrency" in await code_of(first.admit(digest, rights))
        two.release()
        three.release()
        (four,) = await second.admit(digest, rights)
        four.release()

    run_limiters(url, 2, steps)
    assert in_use(book).flights == 0
    book.close()


def test_a_process_that_is_killed_gives_its_requests_in_flight_back(url: str) -> None:
    book, _, digest = book_with(url, concurrency=3)
    (doomed,) = workers(url, digest, {"calls": 3, "hangs": True, "seconds": 100, "lease": 1.0})
    while len(doomed.values("sent")) < 3:
        doomed.read()
    assert in_use(book).flights == 3
    doomed.kill()
    last = time.monotonic() + 10
    while in_use(book).flights:
        assert time.monotonic() < last
        time.sleep(0.05)
    book.close()


def test_a_soft_budget_warns_and_the_budget_refuses(url: str) -> None:
    book, _, digest = book_with(url, budgets={"CNY": cny("1")}, soft_budgets={"CNY": cny("0.5")})

    async def steps(limiter: Limiter) -> None:
        rights = await rights_of(limiter, digest)
        warned = []
        for _ in range(3):
            made = await limiter.reserve(digest, rights, quoted(cny("0.3")), 1)
            warned.append([warning.spent for warning in made.soft_budgets])
            made.settle(cny("0.3"), 1)
        assert warned == [[], [], [cny("0.6")]]
        assert "insufficient_quota" in await code_of(limiter.reserve(digest, rights, quoted(cny("0.3")), 1))

    run_limiters(url, 1, steps)
    book.close()


def test_a_key_that_expires_is_refused_and_can_be_given_more_time(url: str) -> None:
    book, _, digest = book_with(url, expires=time.time() + 0.7)

    async def steps(limiter: Limiter) -> None:
        await rights_of(limiter, digest)
        while time.time() < book.uses()[0].record.expires + 0.5:  # type: ignore[operator]
            await asyncio.sleep(0.05)
        assert "expired_api_key: the key team expired at" in await code_of(limiter.find(digest))
        book.change("team", lambda record: replace(record, expires=time.time() + 60))
        await rights_of(limiter, digest)

    run_limiters(url, 1, steps)
    book.close()


def test_a_change_is_followed_within_a_second(url: str) -> None:
    book, _, digest = book_with(url, rpm=1)

    async def steps(limiter: Limiter) -> None:
        await limiter.admit(digest, await rights_of(limiter, digest))
        await code_of(limiter.admit(digest, await rights_of(limiter, digest)))
        book.change("team", lambda record: replace(record, rpm=2, concurrency=1))
        last = time.monotonic() + 1
        while (rights := await rights_of(limiter, digest)).key.rpm != 2:
            assert time.monotonic() < last
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        (flight,) = await limiter.admit(digest, rights)
        assert "concurrency" in await code_of(limiter.admit(digest, rights))
        flight.release()
        await asyncio.sleep(0.3)
        assert "2 requests a minute" in await code_of(limiter.admit(digest, rights))

    run_limiters(url, 1, steps)
    book.close()


CHANGES = """
import sys
from msgspec.structs import replace
from cnllm.gateway.limits.book import open_book
from cnllm.gateway.limits.keys import KeyRecord, team_digest

book = open_book(sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    number += 1
    book.change("team", lambda record: replace(record, rpm=number, tpm=number))
    book.add(f"digest-{number}", KeyRecord(f"k{number}", 1.0 + number))
    book.revoke(f"k{number}")
    book.add(team_digest(f"t{number}"), KeyRecord(f"t{number}", 1.0, kind="team", rpm=number))
"""


def test_a_change_that_is_killed_is_whole_or_not_there(url: str) -> None:
    book, _, digest = book_with(url, rpm=1, tpm=1)
    for round_ in range(4):
        with program(CHANGES, url) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.05 + round_ * 0.03)
            process.kill()
        (use,) = [use for use in book.uses() if use.record.name == "team"]
        assert use.record.rpm == use.record.tpm
        for used in book.uses():
            name = used.record.name
            if used.record.revoked is None:
                assert book.get(name) == used.record, "what is in use has its name"
                if name != "team":
                    book.revoke(name)
            else:
                assert book.get(name) is None
        for used in book.uses(teams=True):
            name = used.record.name
            if used.record.revoked is not None:
                continue
            assert book.get(team_digest(name)) == used.record
            book.change(team_digest(name), lambda record: replace(record, revoked=1.0))
    run_limiters(url, 1, lambda limiter: rights_of(limiter, digest))
    book.close()


def test_accounts_of_earlier_versions_are_read(url: str) -> None:
    """Their one clock was that of the wall, and a script wrote them where tables that are empty are lists."""
    book, _, digest = book_with(url, rpm=2, budgets={"CNY": cny("1")})
    now = int(time.time() * 1_000_000)
    slot = now // 250_000
    if url.startswith("sqlite"):
        grant = ["ok", now, 1, 0, [["CNY", 7, 9]], [], []]
        lease = {"number": 1, "expires": now + 500_000, "open": {"CNY": cny("0.2")}, "grant": grant}
        old = {"requests": [slot, 2], "tokens": [], "spent": {"CNY": cny("0.3")}, "leases": {"w": lease}, "calls": 4}
        state = msgspec.msgpack.encode({**old, "used": 40, "unpriced": 1, "last": now})
        book.close()
        with contextlib.closing(sqlite3.connect(book_path(url.removeprefix("sqlite:")))) as file:
            file.execute("REPLACE INTO accounts VALUES (?, ?)", (digest, state))
            file.commit()
    else:
        import redis

        script = """
            local grant = cmsgpack.pack({'ok', tonumber(ARGV[2]), 1, 0, {{'CNY', 7, 9}}, {}, {}})
            local lease = {number = 1, expires = ARGV[2] + 500000, open = {CNY = tonumber(ARGV[4])}, grant = grant}
            local idle = {number = 1, expires = ARGV[2] + 500000, open = {}, grant = cmsgpack.pack({'ok'})}
            redis.call('SET', KEYS[1], cmsgpack.pack({requests = {tonumber(ARGV[1]), 2}, tokens = {},
              spent = {CNY = tonumber(ARGV[3])}, past = {}, starts = {},
              leases = {w = lease, v = idle}, calls = 4, used = 40, unpriced = 1,
              last = tonumber(ARGV[2])}))
        """
        with redis.Redis.from_url(url) as client:
            name = "{cnllm:keys}:use:" + digest
            client.eval(script, 1, name, slot, now, cny("0.3"), cny("0.2"))
    use = in_use(book)
    assert (use.calls, use.tokens, use.unpriced, use.spent["CNY"]) == (4, 40, 1, cny("0.3"))
    assert abs((use.last or 0) - now / 1_000_000) < 1
    if not url.startswith("sqlite"):
        assert (use.minute_requests, use.past, use.starts) == (2, {}, {})

    async def steps(limiter: Limiter) -> None:
        rights = await rights_of(limiter, digest)
        await asyncio.sleep(1)
        (await limiter.reserve(digest, rights, quoted(cny("0.5")), 1)).settle(cny("0.5"), 1)

    run_limiters(url, 1, steps)
    last = time.monotonic() + 5
    while any(in_use(book).open.values()) and time.monotonic() < last:
        time.sleep(0.05)
    assert in_use(book).spent == {"CNY": cny("1")}, "what its worker had on lease is charged"
    book.close()
