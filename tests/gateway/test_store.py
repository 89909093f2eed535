"""State in memory and in a file: its owner alone finds it, within bounds, whatever happens to the file."""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import os
import random
import sqlite3
import stat
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from examples import share

from cnllm.errors import CnllmError
from cnllm.gateway.store import (
    Ambiguous,
    AsyncStore,
    StateStore,
    StoreBounds,
    StoreCall,
    TurnRecord,
    check_store,
    open_store,
)
from cnllm.gateway.store.items import FailureLog, StoreFailure, item_size
from cnllm.gateway.store.memory import MemoryStore
from cnllm.gateway.store.sqlite import MARK, STEPS, SqliteStore
from cnllm.store import Store as Conversations
from cnllm.types import Opaque, Reasoning, ToolCall

from .store_support import (
    IDENTITIES,
    SEAL,
    TEXTS,
    async_turn_at_end,
    async_turn_by_call,
    awaited,
    program,
    random_operations,
    turn,
    turn_at_end,
    turn_by_call,
)

Make = Callable[..., StateStore]


@pytest.fixture(autouse=True)
def _no_open_file(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the files of a test at its end: Python 3.13 and later tell of each that is left open."""
    opened: list[SqliteStore] = []
    begin = SqliteStore.__init__

    def note(store: SqliteStore, *args: Any, **options: Any) -> None:
        begin(store, *args, **options)
        opened.append(store)

    monkeypatch.setattr(SqliteStore, "__init__", note)
    yield
    for store in opened:
        store.close()


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes stores of one kind; those of files share one file."""

    def build(bounds: StoreBounds | None = None, clock: Callable[[], float] = lambda: 0.0) -> StateStore:
        if request.param == "memory":
            return MemoryStore(bounds, clock=clock)
        return SqliteStore(tmp_path / "gateway.db", bounds, clock=clock)

    return build


# ── what is kept, and for whom ───────────────────────────────────────────────
def test_any_operations_in_any_order(tmp_path: Path) -> None:
    for seed in range(share(120)):
        random_operations(MemoryStore(), seed)
        path = tmp_path / f"{seed}.db"
        store = SqliteStore(path)
        random_operations(store, seed)
        store.close()


def test_the_order_of_keeps_does_not_matter(make: Make) -> None:
    """Each order with keys of its own: what is found under them is the same."""
    store = make()
    kept = [("alice", TEXTS[0], ["1"], b"p"), ("alice", TEXTS[1], ["2"], b"p"), ("bob", TEXTS[0], ["1"], b"p"),
            ("alice", TEXTS[0], ["1"], b"q"), ("alice", TEXTS[2], ["1", "3"], None)]  # fmt: skip
    outcomes = []
    for seed in range(30):
        random.Random(seed).shuffle(kept)
        for identity, text, calls, prefix in kept:
            store.keep_turn(f"{identity}{seed}", turn(text), calls, prefix and prefix + b"%d" % seed)
        outcome: list[TurnRecord | Ambiguous | None] = []
        for identity in (f"alice{seed}", f"bob{seed}"):
            outcome += [turn_by_call(store, identity, call) for call in "123"]
            outcome += [turn_at_end(store, identity, b"%s%d" % (prefix, seed)) for prefix in (b"p", b"q")]
        outcomes.append(outcome)
    assert all(outcome == outcomes[0] for outcome in outcomes)
    hm, aha, half = (turn(text) for text in TEXTS[:3])
    assert outcomes[0] == [None, aha, half, Ambiguous(), hm, hm, None, None, hm, None]


def test_items_of_an_output_are_found_by_their_ids_and_deleted_with_it(make: Make) -> None:
    store = make()
    assert store.keep_response("me", "id", b"blob", {"a": b"1", "b": b"2"})
    assert store.keep_response("me", "other", b"blob", {"c": b"3"})
    assert store.output_items("me", ["a", "c", "x"]) == {"a": b"1", "c": b"3"}
    assert store.output_items("you", ["a"]) == {}
    assert store.delete_response("me", "id", ["a", "b"]) is True
    assert store.output_items("me", ["a", "b", "c"]) == {"c": b"3"}
    assert store.delete_response("me", "id", ["a", "b"]) is False


def test_no_identity_sees_anothers_state(make: Make) -> None:
    store = make()
    for number, identity in enumerate(IDENTITIES):
        store.keep_turn(identity, turn(str(number)), ["call"], b"prefix")
        store.keep_response(identity, "id", b"%d" % number)
    for number, identity in enumerate(IDENTITIES):
        assert turn_by_call(store, identity, "call") == turn(str(number))
        assert turn_at_end(store, identity, b"prefix") == turn(str(number))
        assert store.response(identity, "id") == b"%d" % number
    assert turn_by_call(store, "alic", "ecall") is None
    assert store.delete_response("carol", "id") is False
    assert store.response("alice", "id") == b"0"


def test_a_key_of_one_kind_finds_nothing_of_another(make: Make) -> None:
    store = make()
    store.keep_turn("me", turn(), ["x"], None)
    store.keep_response("me", "y", b"blob")
    assert turn_at_end(store, "me", b"x") is None
    assert store.response("me", "x") is None
    assert turn_by_call(store, "me", "y") is None
    assert turn_at_end(store, "me", b"y") is None


def test_a_turn_comes_back_as_it_was(make: Make) -> None:
    store = make()
    whole = TurnRecord(
        "p",
        "m",
        "openai-chat",
        (
            Reasoning("think " * 1000, SEAL),
            Reasoning("\ud83d half of a pair"),
            ToolCall("c", "n", {"big": 2**80, "none": None, "float": 1.25, "list": [[], {}]}, raw='{"', problem="p"),
            Opaque({"type": "new", "data": "\x00\u2028"}, SEAL),
        ),
    )
    store.keep_turn("me", whole, ["c"], b"p")
    assert turn_by_call(store, "me", "c") == whole
    numbers = TurnRecord("p", "m", "w", (Opaque({"inf": float("inf"), "bytes": b"\xff"}),))
    store.keep_turn("me", numbers, ["d"], None)
    assert turn_by_call(store, "me", "d") == numbers
    empty = TurnRecord("p", "m", "w")
    store.keep_turn("me", empty, ["e"], None)
    assert turn_by_call(store, "me", "e") == empty


def test_a_turn_without_keys_is_not_kept(make: Make) -> None:
    assert make().keep_turn("me", turn(), [], None) is False


# ── bounds ───────────────────────────────────────────────────────────────────
def test_the_oldest_go_first(make: Make) -> None:
    store = make(StoreBounds(count=40, share=0.5))
    for number in range(100):
        assert store.keep_turn("me", turn(str(number)), [f"a{number}", f"b{number}"], b"%d" % number)
        present = [n for n in range(number + 1) if turn_by_call(store, "me", f"a{n}") is not None]
        assert present == list(range(max(0, number - 19), number + 1))
    every = store.find_turns("me", call_ids=[f"b{n}" for n in range(100)], prefixes=[b"%d" % n for n in range(100)])
    assert set(every.by_call) == {f"b{n}" for n in range(80, 100)}
    assert set(every.by_prefix) == {b"%d" % n for n in range(80, 100)}


@pytest.mark.share(3)
@pytest.mark.parametrize("length", [10, 500, 5000])
def test_the_bytes_in_memory_are_those_that_it_takes(length: int) -> None:
    store = MemoryStore(StoreBounds(bytes=2_000_000, share=1))

    def keep(first: int) -> None:
        for number in range(first, first + 4000):
            store.keep_turn("me", turn("r", size=length), [f"call_{number}"], number.to_bytes(24))

    keep(0)  # it is full
    tracemalloc.start()
    keep(4000)  # every item is a new one
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 2_200_000


def test_bytes_are_bounded(make: Make) -> None:
    store = make(StoreBounds(bytes=100_000, share=0.5))
    for number in range(60):
        assert store.keep_turn("me", turn(str(number), size=4000), [str(number)], None)
        assert turn_by_call(store, "me", str(number)) is not None
    present = [n for n in range(60) if turn_by_call(store, "me", str(n)) is not None]
    assert present == list(range(60 - len(present), 60))
    assert 8 <= len(present) <= 12
    assert store.keep_turn("me", turn(size=60_000), ["large"], None) is False
    assert store.keep_response("me", "large", bytes(60_000)) is False
    assert turn_by_call(store, "me", "59") is not None
    assert store.failure is None


@pytest.mark.parametrize("bounds", [StoreBounds(count=100), StoreBounds(bytes=150_000)], ids=["count", "bytes"])
def test_one_client_does_not_push_the_others_out(make: Make, bounds: StoreBounds) -> None:
    store = make(bounds)
    for number in range(5):
        store.keep_turn("quiet", turn(str(number)), [str(number)], None)
        store.keep_response("quiet", str(number), b"x")
    for number in range(300):
        store.keep_turn("loud", turn(str(number)), [str(number), f"more {number}"], b"%d" % number)
        store.keep_turn(
            "loud", turn(f"other {number}"), [str(number)], None
        )  # marks of ambiguous keys are bounded, too
    for number in range(5):
        assert turn_by_call(store, "quiet", str(number)) == turn(str(number))
        assert store.response("quiet", str(number)) == b"x"


def test_all_clients_together_are_bounded(make: Make) -> None:
    store = make(StoreBounds(count=20))
    for number in range(100):
        store.keep_turn(f"client {number}", turn(), ["call"], None)
    present = [n for n in range(100) if turn_by_call(store, f"client {n}", "call") is not None]
    assert present == list(range(80, 100))


def test_state_has_a_time_to_live(make: Make) -> None:
    now = [1000.0]
    store = make(StoreBounds(seconds=60), clock=lambda: now[0])
    store.keep_turn("me", turn(), ["call"], b"prefix")
    store.keep_turn("me", turn("other"), ["x"], b"prefix")
    store.keep_response("me", "id", b"blob")
    now[0] += 60
    assert turn_by_call(store, "me", "call") == turn()
    assert turn_at_end(store, "me", b"prefix") == Ambiguous()
    now[0] += 1
    assert turn_by_call(store, "me", "call") is None
    assert turn_at_end(store, "me", b"prefix") is None
    assert store.response("me", "id") is None
    assert store.delete_response("me", "id") is False
    store.keep_turn("me", turn("new"), ["call"], b"prefix")  # what has expired makes nothing ambiguous
    assert turn_by_call(store, "me", "call") == turn("new")
    assert turn_at_end(store, "me", b"prefix") == turn("new")


def test_a_clock_that_is_set_back_keeps_nothing_for_longer(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = SqliteStore(tmp_path / "a.db", StoreBounds(seconds=600), clock=lambda: now[0])
    store.keep_turn("me", turn(), ["future"], b"future")
    now[0] = 1000.0
    assert turn_by_call(store, "me", "future") == turn()
    store.keep_turn("me", turn(), ["call"], b"prefix")
    now[0] += 600
    assert turn_by_call(store, "me", "future") == turn_by_call(store, "me", "call") == turn()
    now[0] += 1
    assert turn_by_call(store, "me", "future") is turn_by_call(store, "me", "call") is None
    store.keep_turn("me", turn(), ["new"], None)
    with closing(sqlite3.connect(store.path)) as raw:
        assert raw.execute("SELECT count(*) FROM items").fetchone() == (1,), "what is too old is deleted"


def test_what_is_kept_again_lives_longer(make: Make) -> None:
    now = [1000.0]
    store = make(StoreBounds(seconds=60), clock=lambda: now[0])
    for _ in range(5):
        store.keep_turn("me", turn(), ["call"], b"prefix")
        now[0] += 40
    assert turn_at_end(store, "me", b"prefix") == turn()


def test_bounds_are_checked() -> None:
    for wrong in ({"count": 0}, {"bytes": -1}, {"seconds": float("nan")}, {"share": 1.5}, {"seconds": float("inf")}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            StoreBounds(**wrong)


# ── URLs ─────────────────────────────────────────────────────────────────────
def test_the_url_of_a_store_decides_its_kind_and_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store(), MemoryStore)
    assert isinstance(open_store("memory:"), MemoryStore)
    for url, place in (
        ("sqlite:", tmp_path / "data" / "gateway.db"),
        (f"sqlite:{tmp_path}/a.db", tmp_path / "a.db"),
        (f"sqlite://{tmp_path}/b.db", tmp_path / "b.db"),
        ("sqlite:c.db", tmp_path / "c.db"),
    ):
        open_store(url).close()
        assert place.exists()
    for url in ("", "postgres://me:secret@host/db", "/a/path", "redis", "sqlite"):
        with pytest.raises(CnllmError, match="names no store") as caught:
            open_store(url)
        assert "secret" not in f"{caught.value} {caught.value.hint}"
        assert "redis://" in str(caught.value.hint)


# ── coroutines ───────────────────────────────────────────────────────────────
def test_the_same_methods_awaited(make: Make) -> None:
    store = AsyncStore(plain := make())

    async def main() -> None:
        kept = [awaited(store, "keep_turn", "me", turn(str(n)), [str(n)], b"%d" % n) for n in range(50)]
        assert all(await asyncio.gather(*kept))
        assert await async_turn_by_call(store, "me", "7") == turn("7")
        assert await async_turn_at_end(store, "me", b"8") == turn("8")
        both = await awaited(store, "find_turns", "me", call_ids=["1", "x"], prefixes=[b"2"])
        assert (both.by_call, both.by_prefix) == ({"1": turn("1")}, {b"2": turn("2")})
        assert await awaited(store, "keep_response", "me", "id", b"blob")
        assert await awaited(store, "response", "me", "id") == b"blob"
        assert await awaited(store, "delete_response", "me", "id")
        assert await awaited(store, "response", "me", "id") is None
        assert plain.failure is None
        await store.aclose()

    asyncio.run(main())


def test_a_cancelled_call_is_carried_out_and_blocks_no_other(make: Make) -> None:
    store = AsyncStore(make())

    async def main() -> None:
        task = asyncio.ensure_future(awaited(store, "keep_turn", "me", turn(), ["call"], None))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await awaited(store, "keep_turn", "me", turn("b"), ["b"], None)
        assert await async_turn_by_call(store, "me", "b") == turn("b")
        await store.aclose()

    asyncio.run(main())


def test_a_call_that_fails_ends_with_its_error_and_blocks_no_other(make: Make) -> None:
    store = AsyncStore(make())

    async def main() -> None:
        calls = (awaited(store, "response"), awaited(store, "keep_turn", "me", turn("b"), ["b"], None))
        failed, kept = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
        assert (type(failed), kept) == (TypeError, True)
        assert await async_turn_by_call(store, "me", "b") == turn("b")
        await store.aclose()

    asyncio.run(main())


def test_turns_that_are_kept_at_once_share_a_transaction(tmp_path: Path) -> None:
    """Each transaction writes its pages to the log: a few for all turns, or a few for each."""

    async def main(path: Path, *, at_once: bool) -> int:
        store = AsyncStore(SqliteStore(path))
        kept = (awaited(store, "keep_turn", "me", turn(str(n)), [str(n)], b"%d" % n) for n in range(100))
        if at_once:
            assert all(await asyncio.gather(*kept))
        else:
            assert all([await each for each in kept])
        size = path.with_name(f"{path.name}-wal").stat().st_size
        found = await awaited(store, "find_turns", "me", call_ids=[str(n) for n in range(100)])
        assert found.by_call == {str(n): turn(str(n)) for n in range(100)}
        await store.aclose()
        return size

    at_once, one_by_one = (asyncio.run(main(tmp_path / f"{at_once}.db", at_once=at_once)) for at_once in (True, False))
    assert at_once * 5 < one_by_one


def test_a_file_that_nobody_holds_is_written_without_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnllm.gateway.store.sqlite._SLOW_SECONDS", math.inf)  # also where this machine is busy
    path = tmp_path / "gateway.db"

    async def main() -> None:
        store = AsyncStore(SqliteStore(path))
        before = threading.active_count()
        assert await awaited(store, "keep_turn", "me", turn("a"), ["call"], None)
        assert turn_by_call(SqliteStore(path), "me", "call") == turn("a"), "committed, for every process"
        assert await async_turn_by_call(store, "me", "call") == turn("a")
        assert threading.active_count() == before
        await store.aclose()

    asyncio.run(main())


def test_a_file_that_another_process_holds_makes_one_request_wait_and_not_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cnllm.gateway.store.sqlite._BUSY_SECONDS", 60.0)
    path = tmp_path / "gateway.db"

    async def main() -> None:
        store = AsyncStore(SqliteStore(path))
        assert await awaited(store, "keep_turn", "me", turn("a"), ["a"], None)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        kept = asyncio.ensure_future(awaited(store, "keep_turn", "me", turn("b"), ["b"], None))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not kept.done(), "the loop went on before the write did"
        other.execute("COMMIT")
        other.close()
        assert await kept
        assert await async_turn_by_call(store, "me", "b") == turn("b")
        await store.aclose()

    asyncio.run(main())


def test_a_response_is_deleted_once_beside_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    SqliteStore(path).close()

    async def use(name: int) -> list[bool]:
        store, deleted = AsyncStore(SqliteStore(path)), []
        for number in range(100):
            ids = [f"{name} {number} {item}" for item in range(6)]
            await asyncio.gather(*(store.run(StoreCall("keep_response", ("me", id, b"x"))) for id in ids))
            deleted += await asyncio.gather(*(store.run(StoreCall("delete_response", ("me", id))) for id in ids))
        await store.aclose()
        return deleted

    with ThreadPoolExecutor(4) as pool:
        for deleted in pool.map(lambda name: asyncio.run(use(name)), range(4)):
            assert deleted == [True] * 600


def test_after_a_slow_write_the_next_ones_take_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnllm.gateway.store.sqlite._SLOW_SECONDS", -1.0)

    async def main() -> None:
        store = AsyncStore(SqliteStore(tmp_path / "gateway.db"))
        before = threading.active_count()
        for number in range(3):
            assert await awaited(store, "keep_turn", "me", turn(str(number)), [str(number)], None)
            assert (threading.active_count() > before) is (number > 0)
        await store.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("is_link", [False, True])
def test_the_log_of_writes_is_moved_into_the_file_while_requests_go_on(tmp_path: Path, is_link: bool) -> None:
    path = tmp_path / "gateway.db"
    log = tmp_path / "gateway.db-wal"
    if is_link:
        path = tmp_path / "link.db"
        path.symlink_to("gateway.db")

    async def main() -> None:
        store, sizes = AsyncStore(SqliteStore(path)), [0]
        while sizes[-1] >= sizes[-2:][0]:  # it grows
            name = str(len(sizes))
            assert await awaited(store, "keep_turn", "me", turn(name, size=50_000), [name], None)
            sizes.append(log.stat().st_size)
            assert len(sizes) < 2_000, "100 MB were written, and the log has all of them"
        assert max(sizes) > 3_000_000
        assert await async_turn_by_call(store, "me", "1") == turn("1", size=50_000)
        await store.aclose()

    asyncio.run(main())


def test_each_turn_of_a_transaction_has_its_own_outcome(tmp_path: Path) -> None:
    async def main() -> None:
        bounds = StoreBounds(count=100, bytes=20_000, share=0.5)
        store = AsyncStore(SqliteStore(tmp_path / "gateway.db", bounds, clock=lambda: 0.0))
        turns = [turn("a"), turn("b", size=30_000), turn("c"), turn("other"), turn("d")]
        keys = [["1"], ["2"], ["3"], ["1"], ["4"]]
        kept = [awaited(store, "keep_turn", "me", each, ids, None) for each, ids in zip(turns, keys, strict=True)]
        assert await asyncio.gather(*kept) == [True, False, True, False, True]
        found = await awaited(store, "find_turns", "me", call_ids=["1", "2", "3", "4"])
        assert found.by_call == {"3": turn("c"), "4": turn("d")}, "two turns claim the first call"
        await store.aclose()

    asyncio.run(main())


# ── the file ─────────────────────────────────────────────────────────────────
def test_the_file_is_private_and_survives(tmp_path: Path) -> None:
    path = tmp_path / "new" / "gateway.db"
    store = SqliteStore(path)
    store.keep_turn("my-secret-key", turn(), ["call"], b"prefix")
    assert [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()] == [0o600] * 3
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert b"my-secret-key" not in file.read_bytes()
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()
    store.close()
    assert turn_by_call(SqliteStore(path), "my-secret-key", "call") == turn()
    assert turn_by_call(store, "my-secret-key", "call") == turn()  # a closed store opens again


def test_the_sums_stay_true(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    now = [0.0]
    store = SqliteStore(path, StoreBounds(count=30, bytes=60_000, seconds=50), clock=lambda: now[0])
    chance = random.Random(1)
    raw = sqlite3.connect(path)
    for step in range(300):
        now[0] += chance.choice([0, 1, 20])
        identity = chance.choice(["a", "b", "c", "d", "e"])
        made = turn(chance.choice(TEXTS), chance.randrange(2000))
        store.keep_turn(identity, made, chance.choices("123456789", k=3), chance.choice([None, b"p"]))
        store.keep_response(identity, str(step % 7), bytes(chance.randrange(3000)))
        store.delete_response(identity, str(step % 5))
        sums = raw.execute("SELECT identity, count(*), sum(size) FROM items GROUP BY 1").fetchall()
        if sums:
            sums.append((b"", sum(row[1] for row in sums), sum(row[2] for row in sums)))
            assert sums[-1][1] <= 30
            assert sums[-1][2] <= 60_000
        assert sorted(raw.execute("SELECT * FROM usage WHERE items > 0")) == sorted(sums)
        assert raw.execute("SELECT count(*) FROM items WHERE id NOT IN (SELECT item FROM keys)").fetchone() == (0,)
    raw.close()


def test_a_deleted_response_leaves_no_bytes_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    store.keep_response("me", "id", b"private words " * 500)
    store.keep_turn("me", turn(), ["call"], None)
    assert store.delete_response("me", "id")
    store.close()
    assert b"private words" not in path.read_bytes()


def test_several_stores_and_threads_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    stores = [SqliteStore(tmp_path / "a.db") for _ in range(2)]
    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(lambda n: stores[n % 2].keep_turn("me", turn(str(n)), [str(n)], None), range(200)))
    assert kept == [True] * 200
    assert len(stores[0].find_turns("me", call_ids=map(str, range(200))).by_call) == 200


FORK = """
import asyncio, os, sys
from cnllm.gateway.store import AsyncStore
from cnllm.gateway.store.sqlite import SqliteStore
from tests.gateway.store_support import async_turn_by_call, awaited, turn, turn_by_call
plain = SqliteStore(sys.argv[1])
store = AsyncStore(plain)
assert asyncio.run(awaited(store, "keep_turn", "me", turn("parent"), ["parent"], None))
connection = plain._file._connection
children = []
for number in range(3):
    child = os.fork()
    if not child:
        assert turn_by_call(plain, "me", "parent") == turn("parent")
        assert plain._file._connection is not connection
        assert asyncio.run(awaited(store, "keep_turn", "me", turn("child"), [f"child {number}"], None))
        assert asyncio.run(async_turn_by_call(store, "me", f"child {number}")) == turn("child")
        os._exit(0)
    children.append(child)
assert asyncio.run(awaited(store, "keep_turn", "me", turn("parent"), ["again"], None))
for child in children:
    assert os.waitpid(child, 0)[1] == 0
names = {"parent", "again", "child 0", "child 1", "child 2"}
assert asyncio.run(awaited(store, "find_turns", "me", call_ids=names)).by_call.keys() == names
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_children_use_connections_of_their_own(tmp_path: Path) -> None:
    code = "import warnings\nwarnings.simplefilter('ignore')\n" + FORK  # Python 3.12 warns of a fork beside threads
    out, error = program(code, str(tmp_path / "a.db")).communicate(timeout=60)
    assert out == "done\n", error


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_is_forked_beside_a_thread_that_may_not_wait_waits_itself(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")

    def fork() -> int:
        if child := os.fork():
            return child
        try:
            kept = store.keep_response("me", "id", b"x")
            os._exit(0 if isinstance(kept, StoreFailure) and "has locked" in kept.reason else 1)
        finally:
            os._exit(2)

    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        child = store.attempt(fork)
        assert child is not None
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.close()


# ── damage ───────────────────────────────────────────────────────────────────
def fill(path: Path) -> bytes:
    store = SqliteStore(path)
    for number in range(40):
        store.keep_turn("me", turn(str(number), size=1500), [str(number)], None)
    store.close()
    return path.read_bytes()


def use(store: StateStore) -> None:
    """Requests go on, whatever is lost, and the next turns are kept."""
    for number in range(40):
        assert turn_by_call(store, "me", str(number)) in (None, turn(str(number), size=1500))
    store.keep_turn("me", turn("first"), ["first"], b"first")
    assert turn_by_call(store, "me", "first") in (None, turn("first"))
    assert store.keep_turn("me", turn("new"), ["new"], b"new")
    assert store.keep_response("me", "id", b"blob")
    assert turn_by_call(store, "me", "new") == turn("new")
    assert turn_at_end(store, "me", b"new") == turn("new")
    assert store.response("me", "id") == b"blob"
    assert store.failure is None


@pytest.mark.sampled
def test_a_damaged_file_is_set_aside_and_no_request_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "gateway.db"
    whole = fill(path)
    chance = random.Random(3)
    page = 4096
    refused = 0
    for number in range(share(60)):
        for file in tmp_path.iterdir():
            file.unlink()
        start = chance.choice([16, 100, *range(page, len(whole), page)])
        broken = bytearray(whole)
        broken[start : start + chance.choice([8, page])] = chance.randbytes(page)[: chance.choice([8, page])]
        path.write_bytes(broken if number % 3 else whole[: chance.randrange(1, len(whole))])
        try:
            store = SqliteStore(path)
        except CnllmError:  # its header is gone, so that nothing says whose file it is
            refused += 1
            continue
        use(store)
        store.close()
    assert refused < share(60) / 2
    assert any("gateway.db.damaged" in record.message for record in caplog.records)


def test_a_file_whose_damage_is_no_text_is_set_aside(tmp_path: Path) -> None:
    """SQLite quotes the bytes of a damaged table in its message."""
    path = tmp_path / "gateway.db"
    path.write_bytes(fill(path).replace(b"CREATE TABLE items", b"CREATE \xffABLE items"))
    use(SqliteStore(path))
    assert (tmp_path / "gateway.db.damaged").exists()
    path = tmp_path / "a.db"
    Conversations.open(path).close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE turns", b"CREATE \xffABLE turns"))
    with pytest.raises(CnllmError, match=r"cannot be used: its tables are damaged"):
        Conversations.open(path)


def test_the_default_file_is_set_aside_whatever_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_DATA_DIR", str(tmp_path))
    (tmp_path / "gateway.db").write_bytes(b"\xff" * 9000)
    store = open_store("sqlite:")
    assert store.keep_turn("me", turn(), ["call"], None)
    assert (tmp_path / "gateway.db.damaged").read_bytes() == b"\xff" * 9000


def test_damage_under_an_open_store(tmp_path: Path) -> None:
    """Several processes meet it: one sets the file aside, and all go on with one new file."""
    path = tmp_path / "gateway.db"
    fill(path)
    stores = [SqliteStore(path) for _ in range(3)]
    for store in stores:
        assert turn_by_call(store, "me", "3") is not None
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    for number, store in enumerate(stores):
        assert turn_by_call(store, "me", "39" if number else "5") is None
        assert store.keep_turn("me", turn(f"new {number}"), [f"new {number}"], None)
    for store in stores:
        every = store.find_turns("me", call_ids=["new 0", "new 1", "new 2"])
        assert set(every.by_call) == {"new 0", "new 1", "new 2"}
        use(store)
    assert {file.name.partition("-")[0] for file in tmp_path.iterdir()} == {"gateway.db", "gateway.db.damaged"}


def test_a_file_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    fill(path)
    stores = [SqliteStore(path) for _ in range(2)]
    path.unlink()
    for number, store in enumerate(stores):
        assert store.keep_turn("me", turn(), [f"new {number}"], None)
    assert set(stores[0].find_turns("me", call_ids=["new 0", "new 1", "3"]).by_call) == {"new 0", "new 1"}


@pytest.mark.sampled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_file_that_is_moved_while_it_is_opened(tmp_path: Path) -> None:
    system = multiprocessing.get_context("fork")
    path = tmp_path / "gateway.db"

    def move(both: Barrier, pause: float) -> None:
        both.wait()
        end = time.perf_counter() + pause
        while time.perf_counter() < end:
            pass
        path.rename(tmp_path / "moved.db")

    for number in range(0, 60, 60 // share(60)):
        SqliteStore(path).close()
        both = system.Barrier(2)
        other = system.Process(target=move, args=(both, number / 40_000))  # at another moment each time
        other.start()
        both.wait()
        try:
            store = SqliteStore(path)
        except CnllmError:  # SQLite noticed it
            continue
        finally:
            other.join()
        with closing(store):
            assert store.keep_turn("me", turn(), [f"new {number}"], None)
            with closing(SqliteStore(path)) as reader:
                assert turn_by_call(reader, "me", f"new {number}") == turn()


def test_a_damaged_row_blocks_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for value in (b"", b"m", b"m\xff", b"j{", b"x", "text", 5, None, 1.5, b"j" + b"[" * 100_000):
        path.unlink(missing_ok=True)
        store = SqliteStore(path)
        for number in range(3):
            store.keep_turn("me", turn(str(number)), [str(number)], b"%d" % number)
        raw = sqlite3.connect(path)
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute("UPDATE items SET data = coalesce(?, zeroblob(0)) WHERE id = 2", (value,))
        raw.commit()
        raw.close()
        every = store.find_turns("me", call_ids="012", prefixes=[b"0", b"1", b"2"])
        assert set(every.by_call) == {"0", "2"}, value
        assert set(every.by_prefix) == {b"0", b"2"}
        assert store.failure is None
        store.close()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    text, other, newer, ours = (tmp_path / name for name in ("text", "other.db", "newer.db", "conversations.db"))
    text.write_text("dear diary, " * 1000)
    with closing(sqlite3.connect(other, isolation_level=None)) as raw:
        raw.execute("CREATE TABLE items (id)")
    raw.close()
    SqliteStore(newer).close()
    with closing(sqlite3.connect(newer, isolation_level=None)) as raw:
        raw.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    raw.close()
    Conversations.open(ours).close()
    for path, words in (
        (text, "cannot be used"),
        (other, "another program"),
        (newer, "newer"),
        (ours, "newer|another"),
    ):
        before = path.read_bytes()
        with pytest.raises(CnllmError, match=words) as caught:
            SqliteStore(path)
        assert str(path) in str(caught.value)
        assert caught.value.hint
        assert path.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == {"text", "other.db", "newer.db", "conversations.db"}
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as raw:
        SqliteStore(tmp_path / "a.db").close()
        assert raw.execute("PRAGMA application_id").fetchone() == (MARK,)
    raw.close()


# ── a file that cannot be written ────────────────────────────────────────────
FULL = """
import logging, resource, sys
from cnllm.gateway.store.sqlite import SqliteStore
from tests.gateway.store_support import async_turn_by_call, turn, turn_by_call
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
store = SqliteStore(sys.argv[1])
assert store.keep_turn("me", turn("before"), ["before"], None)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, most))
lost = [n for n in range(100) if not store.keep_turn("me", turn(str(n), size=9000), [str(n)], None)]
assert 50 < len(lost), lost
assert store.failure and type(store.keep_response("me", "id", bytes(60_000))).__name__ == "StoreFailure"
assert turn_by_call(store, "me", "before") == turn("before")
for n in range(100):
    assert (turn_by_call(store, "me", str(n)) is None) == (n in lost), n
assert store.failure
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
assert store.keep_turn("me", turn("after"), ["after"], None)
assert store.failure is None
assert turn_by_call(store, "me", "after") == turn("after")
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_a_full_disk_costs_state_and_a_log_line_and_nothing_else(tmp_path: Path) -> None:
    run = program(FULL, str(tmp_path / "a.db"))
    out, error = run.communicate(timeout=60)
    assert run.returncode == 0, error
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == ["WARNING", "WARNING"]
    assert "a.db" in lines[0]
    assert "without state" in lines[0]


def test_a_file_that_another_process_locks_delays_one_request_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cnllm.gateway.store.sqlite._BUSY_SECONDS", 0.05)
    monkeypatch.setattr("cnllm.gateway.store.sqlite._PAUSE_SECONDS", 3600.0)
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    store.keep_turn("me", turn(), ["call"], None)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert not any(store.keep_turn("me", turn(), [str(n)], None) for n in range(50))
    assert "locked" in str(store.failure)
    assert turn_by_call(store, "me", "call") == turn()  # reading goes on
    holder.execute("ROLLBACK")
    holder.close()
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    store._locked_until = 0.0
    assert store.keep_turn("me", turn(), ["new"], None)
    assert store.failure is None


def test_a_failure_is_logged_once_another_one_at_once_and_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr("cnllm.gateway.store.items.time.monotonic", lambda: now[0])
    caplog.set_level(logging.INFO, "cnllm.gateway")
    log = FailureLog()
    log.log_recovery()
    for seconds, failure in ((0, "full"), (1, "full"), (2, "locked"), (59, "locked"), (70, "locked")):
        now[0] = 1000.0 + seconds
        log.log_failure(failure)
    assert log.failure == "locked"
    log.log_recovery()
    log.log_recovery()
    log.log_failure("locked")
    lines = [record.getMessage() for record in caplog.records]
    begin = "the gateway's store fails, and requests go on without state: "
    end = "the gateway's store works again"
    assert lines == [f"{begin}{text}" for text in ("full", "locked", "locked")] + [end, f"{begin}locked"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}, "the log of requests has JSON alone"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list open files")
def test_a_check_of_a_store_leaves_nothing_open(tmp_path: Path) -> None:
    for number in range(3):
        check_store(f"sqlite:///{tmp_path}/{number}.db")
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # one of another thread that is closed meanwhile
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    assert [link for link in links if link.startswith(str(tmp_path))] == []


def test_an_item_counts_for_its_content_and_for_its_keys() -> None:
    assert [item_size(b"x" * size, keys) for size, keys in ((0, 0), (100, 0), (0, 2), (9, 1))] == [128, 228, 256, 201]
