"""Keys that several processes use at once, on a file and on a Redis server: limits and budgets hold, through kills."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from cnllm.errors import CnllmError
from cnllm.estimates.quote import Quote
from cnllm.gateway.limits.account import Grant, Operation
from cnllm.gateway.limits.book import AsyncKeyBook, KeyBook, KeyUse, open_book
from cnllm.gateway.limits.keys import Rights
from cnllm.gateway.limits.limiter import Limiter, Reservations
from cnllm.gateway.limits.refusal import Refused

from .limits_support import Worker, book_with, cny, sqlite_url, workers

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


def in_use(book: KeyBook) -> KeyUse:
    """The use of the only key in use."""
    (use,) = [use for use in book.uses() if use.record.revoked is None]
    return use


def quoted(worst: int) -> Quote:
    return Quote("p/m", 1, 1, "CNY", worst, worst)


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
class Counting:
    """A book that counts the operations, and can fail before or after one is carried out."""

    def __init__(self, book: AsyncKeyBook) -> None:
        self.book = book
        self.operations = self.searches = 0
        self.fails = ""

    async def find(self, digest: str) -> Rights | None:
        self.searches += 1
        if self.fails:
            raise CnllmError("the store is away")
        return await self.book.find(digest)

    async def update(self, digest: str, operation: Operation) -> Grant:
        self.operations += 1
        if self.fails == "before":
            raise CnllmError("the store is away")
        grant = await self.book.update(digest, operation)
        if self.fails == "after":
            raise CnllmError("the answer was lost")
        return grant

    async def aclose(self) -> None:
        await self.book.aclose()


def run(url: str, digest: str, steps: Callable[[Limiter, Rights, Counting], Coroutine[Any, Any, None]]) -> None:
    """Run steps with the limits of one process."""

    async def main() -> None:
        book = open_book(url)
        assert book is not None
        counting = Counting(book.coroutines())
        limiter = Limiter(counting)
        record = await limiter.find(digest)
        assert record is not None
        await steps(limiter, record, counting)
        await limiter.aclose()

    asyncio.run(main())


def test_a_busy_key_does_not_write_at_each_request(url: str) -> None:
    """Count the operations of the store for two thousand requests, one after the other and many at once."""
    book, _, digest = book_with(url, rpm=10**6, tpm=10**9, budgets={"CNY": cny("1000")})

    async def steps(limiter: Limiter, record: Rights, counting: Counting) -> None:
        async def one() -> None:
            for _ in range(50):
                await limiter.admit(digest, record)
                (await limiter.reserve(digest, record, quoted(1000), 10)).settle(900, 12)
                await asyncio.sleep(0)

        await asyncio.gather(*[one() for _ in range(40)])
        assert counting.operations < 400

    run(url, digest, steps)
    use = in_use(book)
    assert (use.calls, use.tokens, use.spent) == (2000, 24_000, {"CNY": 1_800_000})
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
        assert time.monotonic() - revoked < 1

    run(url, digest, steps)
    book.close()


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


def test_why_a_request_is_refused(url: str) -> None:
    book, _, digest = book_with(url, models=("p/*",), tpm=1000, budgets={"CNY": cny("1")})

    async def steps(limiter: Limiter, record: Rights, counting: Counting) -> None:
        async def code(quote: Quote, tokens: int = 1) -> tuple[str, bool]:
            with pytest.raises(Refused) as caught:
                await limiter.reserve(digest, record, quote, tokens)
            return caught.value.refusal.code, caught.value.refusal.retry_after is not None

        assert await code(Quote("other/m", 1, 1, "CNY", 1, 1)) == ("model_not_allowed", False)
        assert await code(Quote("p/m", 1, 1, unknown="the price of p/m is not known")) == ("price_unknown", False)
        assert await code(Quote("p/m", 1, 1, "USD", 1, 1)) == ("currency_mismatch", False)
        assert await code(quoted(1), 1001) == ("request_too_large", False)
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
