"""The limits of keys in one process: what it takes from a lease, reports, and gives back, and whom it refuses."""

from __future__ import annotations

import asyncio
import time
import zoneinfo
from pathlib import Path

import pytest
from msgspec.structs import replace

from cnllm.estimates.worst_case import WorstCase
from cnllm.gateway.limits.key_worker import Flight
from cnllm.gateway.limits.keys import Rights, period_bounds
from cnllm.gateway.limits.limiter import Limiter

from .limits_support import Counting, book_with, cny, code_of, in_use, quoted, run, sqlite_url


# ── refusals ─────────────────────────────────────────────────────────────────
def test_a_key_that_ends_after_it_was_looked_up_is_refused_with_the_reason(tmp_path: Path) -> None:
    book, _, digest = book_with(sqlite_url(tmp_path), rpm=10)

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        book.change("team", lambda record: replace(record, expires=1.0))
        expired = replace(rights, key=replace(rights.key, expires=1.0))
        assert (await code_of(limiter.admit(digest, expired))).startswith("expired_api_key: the key team expired at")
        assert (await code_of(limiter.find(digest))).startswith("expired_api_key: ")
        book.change("team", lambda record: replace(record, expires=None))
        assert await limiter.find(digest) is not None
        book.revoke("team")
        assert (await code_of(limiter.admit(digest, rights))).startswith("invalid_api_key: ")
        assert await limiter.find(digest) is None, "what was known of it is forgotten"

    run(sqlite_url(tmp_path), digest, steps)
    book.close()


def test_a_request_that_waits_for_a_store_is_refused_as_soon_as_the_store_fails(tmp_path: Path) -> None:
    """No other request asks the store in the next second."""
    book, _, digest = book_with(sqlite_url(tmp_path), budgets={"CNY": cny("1")})

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        counting.fails = "before"
        waiting = code_of(limiter.reserve(digest, rights, quoted(1), 1))
        assert (await asyncio.wait_for(waiting, 30)).startswith("keys_unavailable")
        operations = counting.operations
        for _ in range(3):
            assert (await code_of(limiter.reserve(digest, rights, quoted(1), 1))).startswith("keys_unavailable")
        assert counting.operations == operations
        counting.fails = ""

    run(sqlite_url(tmp_path), digest, steps)
    book.close()


@pytest.mark.parametrize(("taken", "next_one", "rpm"), [(9, 2, 1000), (10, 1, 1000), (10, 1, None)])
def test_a_limit_of_tokens_refuses_by_the_head_where_no_token_is_left(
    tmp_path: Path, taken: int, next_one: int, rpm: int | None
) -> None:
    book, _, digest = book_with(sqlite_url(tmp_path), tpm=10, rpm=rpm)

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        await limiter.admit(digest, rights)
        await limiter.reserve(digest, rights, quoted(1), taken)
        sentence = "rate_limit_exceeded: the key team may use 10 tokens a minute"
        assert (await code_of(limiter.reserve(digest, rights, quoted(1), next_one))).startswith(sentence)
        if taken < 10:
            await limiter.admit(digest, rights)
            await limiter.reserve(digest, rights, quoted(1), 1)
            return
        operations = counting.operations
        refused = 0
        while counting.operations < operations + 2:
            assert (await code_of(limiter.admit(digest, rights))).startswith(sentence)
            refused += 1
        assert refused > 10, "for a moment, nobody asks the store again"

    run(sqlite_url(tmp_path), digest, steps)
    book.close()


def test_tokens_above_the_estimate_count(tmp_path: Path) -> None:
    book, _, digest = book_with(sqlite_url(tmp_path), tpm=1000)

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        (await limiter.reserve(digest, rights, quoted(1), 100)).settle(1, 600)
        assert "1,000 tokens a minute" in await code_of(limiter.reserve(digest, rights, quoted(1), 401))
        (await limiter.reserve(digest, rights, quoted(1), 400)).release()

    run(sqlite_url(tmp_path), digest, steps)
    assert in_use(book).minute_tokens == 600
    book.close()


# ── requests in flight ───────────────────────────────────────────────────────
def test_the_end_of_a_request_lets_one_other_in_at_once(tmp_path: Path) -> None:
    book, _, digest = book_with(sqlite_url(tmp_path), concurrency=2)

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        (first,) = await limiter.admit(digest, rights)
        first.release()
        flights = [flight for _ in range(2) for flight in await limiter.admit(digest, rights)]
        for _ in range(2):
            assert (await code_of(limiter.admit(digest, rights))).startswith("concurrency_limit_exceeded")
            flights.pop().release()
            flights += await limiter.admit(digest, rights)
        for flight in flights:
            flight.release()

    run(sqlite_url(tmp_path), digest, steps)
    assert in_use(book).flights == 0
    book.close()


def test_all_requests_of_a_busy_key_end(tmp_path: Path) -> None:
    """Those that pass by what is on lease, too; those that were not let in leave their place in the minute."""
    book, _, digest = book_with(sqlite_url(tmp_path), rpm=100_000, concurrency=100_000)

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        flights: list[Flight] = []
        for _ in range(200):
            flights += await limiter.admit(digest, rights)
        assert len(flights) == 200
        assert counting.operations < 100
        for index, flight in enumerate(flights):
            flight.release(is_counted=index < 50)

    run(sqlite_url(tmp_path), digest, steps)
    assert (in_use(book).flights, in_use(book).minute_requests) == (0, 50)
    book.close()


def test_a_limit_that_is_new_holds_for_a_busy_key_at_once(tmp_path: Path) -> None:
    book, _, digest = book_with(sqlite_url(tmp_path), rpm=100_000)

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        for _ in range(20):
            await limiter.admit(digest, rights)
        book.change("team", lambda record: replace(record, concurrency=1, budgets={"CNY": cny("1")}))
        rights = replace(rights, key=replace(rights.key, concurrency=1, budgets={"CNY": cny("1")}))
        (flight,) = await limiter.admit(digest, rights)
        assert (await code_of(limiter.admit(digest, rights))).startswith("concurrency_limit_exceeded")
        assert (await code_of(limiter.reserve(digest, rights, quoted(cny("1.1")), 1))).startswith("insufficient_quota")
        (await limiter.reserve(digest, rights, quoted(cny("1")), 1)).settle(cny("0.9"), 1)
        flight.release()

    run(sqlite_url(tmp_path), digest, steps)
    assert in_use(book).spent == {"CNY": cny("0.9")}
    book.close()


# ── reports ──────────────────────────────────────────────────────────────────
def test_what_ends_while_the_store_works_is_reported_without_another_request(tmp_path: Path) -> None:
    book, _, digest = book_with(sqlite_url(tmp_path), budgets={"CNY": 100})

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        first = await limiter.reserve(digest, rights, quoted(10), 1)
        counting.begins = lambda: first.settle(7, 1)
        second = await limiter.reserve(digest, rights, quoted(10), 1)
        last = time.monotonic() + 6
        while in_use(book).spent != {"CNY": 7}:  # far sooner than the lease is renewed
            assert time.monotonic() < last
            await asyncio.sleep(0.01)
        assert in_use(book).open == {"CNY": 10}, "that of the other, which goes on"
        second.release()

    run(sqlite_url(tmp_path), digest, steps)
    assert (in_use(book).spent, in_use(book).calls) == ({"CNY": 7}, 1)
    book.close()


@pytest.mark.parametrize(("budgets", "spent"), [({}, 14), ({"CNY": 100}, 20)])
def test_what_is_reported_after_the_lease_expired_counts_and_no_money_twice(
    tmp_path: Path, budgets: dict[str, int], spent: int
) -> None:
    """The store was away for longer than a lease. All that was reserved of a budget is charged then."""
    book, _, digest = book_with(sqlite_url(tmp_path), rpm=10, tpm=100, budgets=budgets)

    async def steps(_: Limiter, rights: Rights, counting: Counting) -> None:
        limiter = Limiter(counting, lease=1.0)
        await limiter.admit(digest, rights)
        made = await limiter.reserve(digest, rights, quoted(10), 5)
        late = await limiter.reserve(digest, rights, quoted(10), 5)
        counting.fails = "before"
        made.settle(7, 3)
        await asyncio.sleep(1.5)
        counting.fails = ""
        last = time.monotonic() + 20
        while not in_use(book).calls:
            assert time.monotonic() < last
            await asyncio.sleep(0.02)
        late.settle(7, 3)
        await limiter.aclose()

    run(sqlite_url(tmp_path), digest, steps)
    use = in_use(book)
    assert (use.spent, use.calls, use.tokens, use.unpriced) == ({"CNY": spent}, 2, 6, 0)
    assert (use.open.get("CNY", 0), use.minute_requests, use.minute_tokens) == (0, 1, 6)
    book.close()


def test_a_soft_budget_warns_from_its_very_amount_on_and_counts_what_is_not_reported_yet(tmp_path: Path) -> None:
    budgets = {"CNY": 1_000_000_000}
    book, _, digest = book_with(sqlite_url(tmp_path), budgets=budgets, soft_budgets={"CNY": 5000})

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        warned = []
        for _ in range(60):
            made = await limiter.reserve(digest, rights, quoted(1000), 1)
            warned += [[warning.spent for warning in made.soft_budgets]]
            made.settle(1000, 1)
        assert counting.operations < 40, "most of them pass by what is on lease"
        assert warned == [[]] * 5 + [[1000 * count] for count in range(5, 60)]
        free = await limiter.reserve(digest, rights, WorstCase("p/m", 1, 1, None, 0, 0), 1)
        assert free.soft_budgets == []
        free.release()

    run(sqlite_url(tmp_path), digest, steps)
    book.close()


def test_a_process_without_requests_asks_its_store_nothing(tmp_path: Path) -> None:
    book, _, digest = book_with(sqlite_url(tmp_path), rpm=10, concurrency=10, budgets={"CNY": cny("1")})

    async def steps(_: Limiter, rights: Rights, counting: Counting) -> None:
        limiter = Limiter(counting, lease=3.0)
        (flight,) = await limiter.admit(digest, rights)
        made = await limiter.reserve(digest, rights, quoted(10), 1)
        made.settle(7, 1)
        made.settle(7, 1)
        flight.release()
        last, operations, since = time.monotonic() + 20, counting.operations, time.monotonic()
        while time.monotonic() < since + 2.5:
            assert time.monotonic() < last
            await asyncio.sleep(0.05)
            if counting.operations != operations:
                operations, since = counting.operations, time.monotonic()
        await limiter.aclose()
        assert counting.operations == operations

    run(sqlite_url(tmp_path), digest, steps)
    assert (in_use(book).spent, in_use(book).calls) == ({"CNY": 7}, 1)
    book.close()


# ── time zones ───────────────────────────────────────────────────────────────
def test_utc_needs_no_list_of_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_zone(name: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr("cnllm.gateway.limits.keys.ZoneInfo", no_zone)
    assert period_bounds("day", "UTC", 86_400.0 * 3 + 5) == (86_400 * 3, 86_400 * 4)
