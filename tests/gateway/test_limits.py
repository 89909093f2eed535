"""The arithmetic of keys: windows, bounds of a cost, accounts; in Python and in the scripts of a Redis server."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import cnllm
from cnllm import Registry, engine
from cnllm.engine.decode.cost import cost_of
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.estimates.money import UNITS, amount_of, format_units, units_of
from cnllm.estimates.worst_case import settled_cost, worst_case, worst_cost
from cnllm.gateway.access import digest
from cnllm.gateway.limits import window
from cnllm.gateway.limits.account import FLIGHTS, Account, Grant, Operation
from cnllm.gateway.limits.account import update as update_at
from cnllm.gateway.limits.key_use import account_of
from cnllm.gateway.limits.keys import KEY, KeyRecord, Period, new_key, zone_of
from cnllm.registry.flags import Price
from cnllm.types import Cost, Usage

from .limits_support import book_with, cny, sqlite_url

MINUTE = 60_000_000
LEASE = 30_000_000


def update(account: Account, record: KeyRecord, operation: Operation, now: int) -> Grant:
    """Carry out an operation where both clocks show the same time."""
    return update_at(account, record, operation, now, now / 1_000_000)


# ── windows ──────────────────────────────────────────────────────────────────
def test_in_any_minute_no_more_is_used_than_the_limit() -> None:
    chance = random.Random(3)
    for limit in (1, 7, 100):
        account, record = Account(), KeyRecord("k", 0.0, rpm=limit)
        now, uses = 10**15, []
        for number in range(1, 1500):
            now += chance.randrange(1, chance.choice([1000, 400_000, 2_000_000]))
            need, spare = chance.randrange(4), chance.randrange(3)
            grant = update(account, record, Operation("w", number, LEASE, (need, spare)), now)
            # What is leased is used at any time within half a second.
            uses += [now + chance.randrange(500_000) for _ in range(grant.requests)]
            assert grant.requests >= need or grant.request_window
        uses.sort()
        for index in range(limit, len(uses)):
            assert uses[index] - uses[index - limit] > MINUTE, limit


def test_what_is_leased_to_spare_stays_within_the_limit() -> None:
    account, record = Account(), KeyRecord("k", 0.0, rpm=1000, tpm=10_000, budgets={"CNY": 1000}, concurrency=1000)
    money = {"CNY": (998, 9), FLIGHTS: (998, 9)}
    first = update(account, record, Operation("w", 1, LEASE, (998, 9), (9990, 90), money), 10**15)
    assert (first.requests, first.tokens) == (1000, 10_000), "a five hundredth to spare at most, and what is left"
    assert first.money == [("CNY", 998, 1000), (FLIGHTS, 998, 1000)], "a five hundredth of what is left"
    again = update(account, record, Operation("w", 2, LEASE, (1, 9), (1, 90), {"CNY": (3, 9)}), 10**15)
    assert (again.requests, again.tokens, again.money) == (0, 0, [("CNY", 2, 1000)])
    wide = KeyRecord("k", 0.0, rpm=5000, budgets={"CNY": 5000})
    grant = update(Account(), wide, Operation("w", 1, LEASE, (1, 50), money={"CNY": (1, 50)}), 10**15)
    assert (grant.requests, grant.money) == (11, [("CNY", 10, 5000)])


def test_what_is_given_back_after_its_minute_gives_nobody_more() -> None:
    account, record = Account(), KeyRecord("k", 0.0, rpm=10, tpm=10)
    update(account, record, Operation("w", 1, 10 * MINUTE, (10, 0), (10, 0)), 10**15)
    slot = window.slot_of(10**15)
    report = Operation(
        "w", 2, MINUTE, (30, 0), (30, 0), request_counts=[slot, -10], token_counts=[slot, -10, slot + 1, -10]
    )
    grant = update(account, record, report, 10**15 + 2 * MINUTE)
    assert (grant.requests, grant.tokens) == (10, 10)


def test_a_limit_is_used_to_ninety_eight_percent() -> None:
    account, record = Account(), KeyRecord("k", 0.0, rpm=100)
    granted = 0
    for number in range(1, 20 * 60 * 20):
        now = 10**15 + number * 50_000
        granted += update(account, record, Operation("w", number, LEASE, (1, 0)), now).requests
    assert 0.98 * 2000 <= granted <= 2000


def test_retry_after_is_the_moment_at_which_it_fits() -> None:
    chance = random.Random(5)
    for _ in range(300):
        now = 10**15
        counts: list[int] = []
        for _ in range(chance.randrange(1, 30)):
            now += chance.randrange(1, 4_000_000)
            window.trim(counts, now)
            window.add(counts, window.slot_of(now), chance.randrange(1, 9))
        need = chance.randrange(1, 12)
        seconds = window.seconds_until(counts, need, 40, now)
        assert seconds is not None
        for wait, fits in ((round(seconds * 1e6), True), (round(seconds * 1e6) - 1, False)):
            later = list(counts)
            window.trim(later, now + wait)
            if wait >= 0:
                assert (window.total(later) + need <= 40) is fits, (seconds, wait)
    assert window.seconds_until([], 41, 40, 10**15) is None


# ── money ────────────────────────────────────────────────────────────────────
def test_money_is_whole_units_rounded_up() -> None:
    assert units_of(Decimal("0.0000000001")) == 1
    assert units_of(Decimal("20")) == 20 * UNITS
    assert units_of(Decimal("0.1")) + units_of(Decimal("0.2")) == units_of(Decimal("0.3"))
    assert amount_of(units_of(Decimal("123.456789"))) == Decimal("123.456789")
    shown = {20 * UNITS: "20.00", 1: "0.000000001", 0: "0.00", 1_500_000: "0.0015", 990_000_000: "0.99"}
    assert {units: format_units(units) for units in shown} == shown


def test_no_reply_within_the_bounds_costs_more_than_the_worst_case() -> None:
    chance = random.Random(7)

    def rate() -> float:
        return chance.choice([0.0, 0.1, 0.27, 2.0, 15.0])

    for _ in range(3000):
        tiers = [
            {"above": above, **{name: rate() for name in ("input", "output", "cached") if chance.random() < 0.7}}
            for above in chance.sample([0, 100, 5000], chance.randrange(3))
        ]
        off_peak = (
            {"peak": ["09:00-12:00"], "zone": "Asia/Shanghai", "input": rate()} if chance.random() < 0.3 else None
        )
        cached, write = (chance.choice([None, rate()]) for _ in range(2))
        price = Price(
            currency="CNY",
            input=rate(),
            output=rate(),
            cached=cached,
            cache_write=write,
            tiers=tiers,
            off_peak=off_peak,
        )
        most_input, most_output = chance.randrange(10_000), chance.randrange(10_000)
        input, output = chance.randrange(most_input + 1), chance.randrange(most_output + 1)
        read = chance.randrange(input + 1)
        usage = Usage(input=input, output=output, cached=read, cache_write=chance.randrange(input - read + 1))
        cost = cost_of(usage, price, chance.choice([None, 1.7e9, 1.7e9 + 43_200]))
        worst = worst_cost(price, most_input, most_output)
        if cost is not None:  # a price that is not known makes a part of it unknown
            assert units_of(cost.amount if cost.at_most is None else cost.at_most) <= worst, (price, usage)


def plan_of(registry: Registry, model: str = "zai/glm-4.7", messages: Any = "Hi", **options: Any) -> Plan:
    return engine.build_request(registry.resolve(model), messages, stream=False, **options)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    overlay = tmp_path_factory.mktemp("quote") / "overlay.toml"
    price = "price = { currency = 'CNY', input = 2, output = 8 }\n"
    overlay.write_text(
        "[providers.here]\nextends = 'openai-compatible'\nbase_url = 'http://127.0.0.1:1/v1'\nkeys = []\n"
        f"[models.'here/priced']\n{price}limits = {{ context = 100_000, output = 8_000 }}\n"
        "[models.'here/unpriced']\nlimits = { context = 100_000 }\n"
        f"[models.'here/endless']\n{price}"
        f"[models.'here/searching']\n{price}limits = {{ context = 100_000, output = 10 }}\n"
        "web_search = { tool = { type = 'web_search' } }\n"
        f"[models.'here/charging']\n{price}limits = {{ context = 100_000, output = 10 }}\n"
        "web_search = { tool = { type = 'web_search' }, fee = 0.5 }\n"
        "[models.'here/free']\nprice = { currency = 'CNY', input = 0, output = 0 }\nlimits = { context = 9_000 }\n"
    )
    return Registry.load(str(overlay))


def test_what_is_not_known_makes_the_cost_unknown(registry: Registry) -> None:
    priced = worst_case(plan_of(registry, "here/priced", max_tokens=100))
    assert (priced.currency, priced.output) == ("CNY", 100)
    assert priced.cost == priced.attempt == (priced.input or 0) * 2000 + 100 * 8000
    assert worst_case(plan_of(registry, "here/priced")).output == 8_000, "no limit in the request: that of the model"
    unpriced = worst_case(plan_of(registry, "here/unpriced"))
    assert unpriced.cost is None
    assert "the price of here/unpriced" in unpriced.unknown
    endless = worst_case(plan_of(registry, "here/endless"))
    assert endless.cost is None
    assert "length of a reply" in str(endless.unknown)
    assert worst_case(plan_of(registry, "here/endless", max_tokens=10)).cost is not None
    assert worst_case(plan_of(registry, "here/free")).cost == 0, "a price of zero is known"


def test_a_call_that_is_paid_and_has_no_known_fee_makes_the_cost_unknown(registry: Registry) -> None:
    search = {"tools": [cnllm.web_search()]}
    assert worst_case(plan_of(registry, "here/searching")).cost is not None, "without a search nothing is missing"
    unknown = worst_case(plan_of(registry, "here/searching", **search))
    assert unknown.cost is None
    assert "the fee of web_search at here" in unknown.unknown
    plain = worst_case(plan_of(registry, "here/charging")).cost
    paid = worst_case(plan_of(registry, "here/charging", **search)).cost
    fewer = worst_case(plan_of(registry, "here/charging", **search, extra_body={"max_tool_calls": 2})).cost
    assert plain is not None
    assert paid is not None
    assert fewer is not None
    assert paid - plain > 9 * UNITS // 2, "ten searches, since the request sets no limit"
    assert UNITS < fewer - plain < 2 * UNITS


def test_the_bound_of_the_input_holds_for_text_and_media(registry: Registry) -> None:
    texts = ["x" * 5000, "思" * 5000, "\x00" * 100, "a b " * 900]
    for text in texts:
        bound = worst_case(plan_of(registry, "here/priced", text, max_tokens=1)).input
        assert bound is not None
        assert bound >= len(text.encode()), "a token is a byte at least"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 60_000}}
    content = [{"type": "text", "text": "Look"}, picture]
    bound = worst_case(plan_of(registry, "here/priced", [{"role": "user", "content": content}], max_tokens=1)).input
    assert bound is not None
    assert 16_384 <= bound < 20_000, "a picture counts as a picture, not as text"
    video = {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}
    messages = [{"role": "user", "content": [video]}]
    assert worst_case(plan_of(registry, "here/priced", messages, max_tokens=1)).input == 100_000, "the whole window"
    assert worst_case(plan_of(registry, "here/endless", messages, max_tokens=1)).cost is None


def test_several_replies_and_several_attempts_count(registry: Registry) -> None:
    one = worst_case(plan_of(registry, "here/priced", max_tokens=100))
    assert one.attempt is not None
    for count in (2, 5):
        more = worst_case(
            plan_of(registry, "here/priced", max_tokens=100, extra_body={"n": count}, on_unsupported="send")
        )
        assert more.attempt is not None
        assert more.attempt - one.attempt >= (count - 1) * 100 * 8000
    again = worst_case(plan_of(registry, "here/priced", max_tokens=100, if_cut="again-whole"))
    checked = worst_case(plan_of(registry, "here/priced", max_tokens=100, schema={"type": "object"}, corrections=2))
    assert checked.cost == 3 * (checked.attempt or 0)
    assert again.cost == 2 * (again.attempt or 0)


def test_the_cost_of_a_reply(registry: Registry) -> None:
    bounds = worst_case(plan_of(registry, "here/priced", max_tokens=100))
    body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
    model = registry.resolve("here/priced")
    content = msgspec.json.encode({**body, "usage": {"prompt_tokens": 10, "completion_tokens": 5}})
    reply = engine.parse_response(model, 200, {}, content)
    assert settled_cost(bounds, reply) == 10 * 2000 + 5 * 8000
    assert settled_cost(bounds, engine.parse_response(model, 200, {}, msgspec.json.encode(body))) is None
    assert settled_cost(bounds, msgspec.structs.replace(reply, cost=Cost(Decimal(1), "USD"))) is None
    lower = Cost(Decimal("0.00006"), "CNY", missing=("cached",), at_most=Decimal("0.00007"))
    assert settled_cost(bounds, msgspec.structs.replace(reply, cost=lower)) == 70_000, "the most that it can be"
    endless = Cost(Decimal("0.00006"), "CNY", missing=("request",))
    assert settled_cost(bounds, msgspec.structs.replace(reply, cost=endless)) is None, "nothing bounds it"


# ── keys ─────────────────────────────────────────────────────────────────────
def test_patterns_of_models() -> None:
    def allows(model: str, *patterns: str) -> bool:
        return KeyRecord("k", 0.0, patterns).allows(model)

    assert allows("zai/glm-4.7")
    assert allows("zai/glm-4.7", "zai/*")
    assert allows("zai/glm-4.7", "deepseek/x", "glm-*")
    assert not allows("zai/glm-4.7", "deepseek/*")
    assert not allows("zai/glm-4.7", "GLM-*")
    assert not allows("openrouter/zai/glm-4.7", "zai/*"), "a pattern with a slash is the whole name"
    assert not allows("openrouter/zai/glm-4.7", "glm-*")


def test_a_key_is_random_and_its_hash_alone_is_stored(tmp_path: Path) -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(KEY.fullmatch(key) for key in made)
    book, key, _ = book_with(sqlite_url(tmp_path), budgets={"CNY": cny("1")})
    book.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert digest(key).encode() in content
    assert key.encode() not in content
    assert key.removeprefix("sk-cnllm-").encode() not in content


# ── accounts ─────────────────────────────────────────────────────────────────
def test_an_operation_that_is_sent_twice_counts_once() -> None:
    account, record = Account(), KeyRecord("k", 0.0, rpm=10, budgets={"CNY": 1000})
    first = update(account, record, Operation("w", 1, MINUTE, (3, 0), money={"CNY": (600, 0)}), 10**15)
    assert (first.requests, first.money) == (3, [("CNY", 600, 1000)])
    settle = Operation("w", 2, MINUTE, charges={"CNY": 450}, closed={"CNY": 600}, calls=1)
    for _ in range(3):
        update(account, record, settle, 10**15 + 5)
    assert (account.spent, account.open("CNY"), account.calls) == ({"CNY": 450}, 0, 1)


def test_the_money_of_a_worker_that_died_is_spent_and_its_late_report_counts_no_more() -> None:
    account, record = Account(), KeyRecord("k", 0.0, budgets={"CNY": 1000})
    update(account, record, Operation("dead", 1, 30, money={"CNY": (600, 0)}), 10**15)
    grant = update(account, record, Operation("other", 1, 30, money={"CNY": (600, 0)}), 10**15 + 29)
    assert grant.money == [("CNY", 400, 1000)], "what is on lease is kept from all others"
    update(account, record, Operation("other", 2, 30, closed={"CNY": 400}), 10**15 + 31)
    assert (account.spent, account.open("CNY")) == ({"CNY": 600}, 0)
    late = Operation("dead", 2, 30, charges={"CNY": 500}, closed={"CNY": 600})
    assert update(account, record, late, 10**15 + 40).state == "lost"
    assert account.spent == {"CNY": 600}


def test_an_endpoint_that_counts_absurd_numbers_locks_no_key(tmp_path: Path) -> None:
    """It may report the largest count and the largest bill that are believed, again and again."""
    book, _, digest_ = book_with(sqlite_url(tmp_path), rpm=5)
    bill = units_of(Decimal(10**15))
    for number in range(1, 4):
        absurd = Operation("w", number, LEASE, charges={"USD": 1024 * bill}, calls=1024, used=1024 * 2**53)
        assert book.update(digest_, absurd).state == "ok"
    (use,) = book.uses()
    assert (use.calls, use.tokens) == (3 * 1024, 2**63 - 1)
    assert use.spent["USD"] == 2**63 - 1
    book.close()


def test_budgets_are_kept_by_currency() -> None:
    account, record = Account(), KeyRecord("k", 0.0, budgets={"CNY": 1000, "USD": 10})
    grant = update(account, record, Operation("w", 1, MINUTE, money={"CNY": (900, 0), "USD": (11, 0)}), 10**15)
    assert sorted(grant.money) == [("CNY", 900, 1000), ("USD", 10, 10)]


def test_a_key_is_revoked_and_its_name_is_free_again(tmp_path: Path) -> None:
    book, _, digest_ = book_with(sqlite_url(tmp_path), rpm=5)
    with pytest.raises(CnllmError, match="a key in use is called team"):
        book.add("other", KeyRecord("team", 1.0))
    assert book.revoke("team").revoked is not None
    with pytest.raises(CnllmError, match="no key in use is called team"):
        book.revoke("team")
    book.add("other", KeyRecord("team", 2.0))
    assert [use.record.revoked is None for use in book.uses()] == [False, True]
    assert msgspec.structs.asdict(book.uses()[0].record)["name"] == "team"
    book.close()
    assert digest_ != "other"


# ── two clocks ───────────────────────────────────────────────────────────────
def test_a_clock_of_deadlines_that_begins_anew_keeps_nobody_out() -> None:
    """Slots in the future are dropped, and a lease lasts as long as it would have."""
    account, record = Account(), KeyRecord("k", 0.0, rpm=5, budgets={"CNY": 1000})
    assert update(account, record, Operation("w", 1, 30 * 10**6, (5, 0), money={"CNY": (600, 0)}), 10**15).requests == 5
    assert update(account, record, Operation("w", 2, 30 * 10**6, (1, 0)), 10**15 + 1).requests == 0
    assert update(account, record, Operation("w", 3, 30 * 10**6, (1, 0)), 50).requests == 1, "the machine was started"
    assert account.open("CNY") == 600
    update(account, record, Operation("other", 1, 30 * 10**6), 31 * 10**6)
    assert (account.open("CNY"), account.spent) == (0, {"CNY": 600}), "its worker is gone"


def test_a_clock_of_deadlines_that_is_set_back_a_little_gives_nothing_out_twice() -> None:
    """That of a Redis server, when it is corrected."""
    account, record = Account(), KeyRecord("k", 0.0, rpm=5, tpm=50)
    now = 10**15
    assert update(account, record, Operation("w", 1, LEASE, (3, 0), (30, 0)), now).requests == 3
    assert update(account, record, Operation("w", 2, LEASE, (2, 0), (20, 0)), now + 10 * 10**6).requests == 2
    for number, seconds in enumerate((7, 20, 13, 40), 3):
        grant = update(account, record, Operation("w", number, LEASE, (1, 0), (1, 0)), now + seconds * 10**6)
        assert (grant.requests, grant.tokens) == (0, 0), seconds
    granted = [
        update(account, record, Operation("w", number, LEASE, (1, 0)), now + (40 + number) * 10**6).requests
        for number in range(7, 30)
    ]
    waits = [index + 7 for index, count in enumerate(granted) if count]
    assert waits == [11, 12, 13, 21, 22], "a minute after each: the clock was set back by 10 s in all"


def test_counts_outlive_a_clock_that_is_set_back_by_less_than_they_last() -> None:
    for slots, granted in ((window.LIFE - 1, 0), (window.LIFE, 1)):
        account, record = Account(), KeyRecord("k", 0.0, rpm=1)
        assert update(account, record, Operation("w", 1, LEASE, (1, 0)), 10**15).requests == 1
        back = 10**15 - slots * window.SLOT
        assert update(account, record, Operation("w", 2, LEASE, (1, 0)), back).requests == granted


def test_a_wall_clock_that_is_set_changes_no_deadline() -> None:
    account, record = Account(), KeyRecord("k", 0.0, rpm=1, budgets={"CNY": 1000})
    update_at(account, record, Operation("w", 1, MINUTE, (1, 0), money={"CNY": (600, 0)}), 10**9, 1.8e9)
    for number, (seconds, wall) in enumerate([(1, 1.9e9), (2, 1.0e9), (3, 1.8e9)], 2):
        grant = update_at(account, record, Operation("w", number, MINUTE, (1, 0)), 10**9 + seconds * 10**6, wall)
        assert (grant.requests, account.open("CNY"), account.spent) == (0, 600, {}), wall
    last = update_at(account, record, Operation("other", 1, MINUTE, (1, 0)), 10**9 + 2 * MINUTE - 10**6, 1.0e9)
    assert last.requests == 1


DAY = 86_400.0
NEW_YEAR = 1_798_761_600.0  # 2027-01-01 00:00 UTC


@pytest.mark.parametrize(
    ("period", "zone", "start"),
    [
        ("day", "UTC", NEW_YEAR),
        ("month", "UTC", NEW_YEAR),
        ("month", "Asia/Shanghai", NEW_YEAR - 8 * 3600),
        ("week", "UTC", NEW_YEAR + 3 * DAY),  # the first Monday
        ("day", "America/New_York", NEW_YEAR + 5 * 3600),
    ],
)
def test_a_budget_begins_anew_with_its_period(period: Period, zone: str, start: float) -> None:
    """In each period no more than the budget is spent, through writing and reading, and a clock that goes back."""
    record = KeyRecord("k", 0.0, budgets={"CNY": 10}, periods={"CNY": period}, time_zone=zone)
    account, now = Account(), 10**9

    def spend(wall: float) -> int:
        nonlocal account, now
        account = account_of(msgspec.msgpack.encode(account))  # as a store keeps it
        now += 10**6
        grant = update_at(account, record, Operation(f"w{now}", 1, MINUTE, money={"CNY": (4, 0)}), now, wall)
        units = grant.money[0][1]
        report = Operation(f"w{now}", 2, MINUTE, charges={"CNY": units}, closed={"CNY": units})
        update_at(account, record, report, now, wall)
        return units

    assert [spend(start - 1) for _ in range(4)] == [4, 4, 2, 0]
    assert [spend(start) for _ in range(4)] == [4, 4, 2, 0]
    assert account.starts == {"CNY": int(start)}
    assert (account.spent, account.past) == ({"CNY": 10}, {"CNY": 10})
    assert [spend(start - 1) for _ in range(2)] == [0, 0], "a clock that goes back gives nothing back"
    assert spend(start + 32 * DAY) == 4, "it began anew, as soon as the clock was right"


def test_a_clock_that_is_set_and_corrected_begins_no_budget_twice() -> None:
    record = KeyRecord("k", 0.0, budgets={"CNY": 10}, periods={"CNY": "day"})
    account, now = Account(), 10**9

    def spend(day: float, units: int = 10) -> int:
        nonlocal account, now
        account = account_of(msgspec.msgpack.encode(account))
        now += 10**6
        wall = NEW_YEAR + day * DAY
        grant = update_at(account, record, Operation(f"w{now}", 1, MINUTE, money={"CNY": (units, 0)}), now, wall)
        granted = grant.money[0][1]
        report = Operation(f"w{now}", 2, MINUTE, charges={"CNY": granted}, closed={"CNY": granted})
        update_at(account, record, report, now, wall)
        return granted

    assert spend(0.5) == 10
    assert spend(3650.0, 4) == 4, "nobody knows that the clock is wrong"
    assert spend(0.6) == 0, "it is right again: the budget of this day is spent"
    assert (account.spent, account.past) == ({"CNY": 10}, {"CNY": 4})
    assert [spend(day, 3) for day in (0.999, 1.001, 0.999, 1.001, 0.999, 1.001)] == [0, 3, 0, 3, 0, 3]
    assert [spend(day) for day in (1.5, 1.6, 0.9, 2.5, 3.5)] == [1, 0, 0, 10, 10]
    assert (account.spent, account.past) == ({"CNY": 10}, {"CNY": 34})
    for day in range(4, 40):
        assert [spend(day), spend(day)] == [10, 0]
    assert len(account.others["CNY"]) < 10


def test_a_period_of_an_old_budget_begins_at_zero_and_a_budget_in_all_counts_everything() -> None:
    account = Account(spent={"CNY": 500})
    yearly = KeyRecord("k", 0.0, budgets={"CNY": 100}, periods={"CNY": "month"})
    grant = update_at(account, yearly, Operation("w", 1, MINUTE, money={"CNY": (60, 0)}), 10**9, NEW_YEAR)
    assert grant.money == [("CNY", 60, 100)]
    in_all = KeyRecord("k", 0.0, budgets={"CNY": 600})
    grant = update_at(account, in_all, Operation("w", 2, MINUTE, money={"CNY": (60, 0)}), 10**9, NEW_YEAR)
    assert grant.money == [("CNY", 40, 100)], "500 before, and 60 on lease"
    account = Account()
    update_at(account, yearly, Operation("w", 1, MINUTE), 10**9, NEW_YEAR)
    update_at(account, in_all, Operation("w", 2, MINUTE), 10**9, NEW_YEAR)
    assert (account.spent, account.starts, account.past) == ({}, {}, {}), "nothing was spent"


def test_a_zone_that_nobody_knows_is_named() -> None:
    with pytest.raises(CnllmError, match="Mars/Olympus"):
        zone_of("Mars/Olympus")


def test_requests_in_flight_are_lent_and_a_worker_that_died_gives_them_back() -> None:
    account, record = Account(), KeyRecord("k", 0.0, concurrency=3)
    assert update(account, record, Operation("a", 1, 30, money={FLIGHTS: (2, 0)}), 10**15).money == [(FLIGHTS, 2, 3)]
    assert update(account, record, Operation("b", 1, 30, money={FLIGHTS: (2, 0)}), 10**15).money == [(FLIGHTS, 1, 3)]
    update(account, record, Operation("b", 2, 30, closed={FLIGHTS: 1}), 10**15 + 29)
    grant = update(account, record, Operation("b", 3, 30, money={FLIGHTS: (3, 0)}), 10**15 + 31)
    assert grant.money == [(FLIGHTS, 3, 3)]
    assert account.spent == {}, "they are no money"
