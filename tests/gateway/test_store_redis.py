"""State on a Redis server: the same as in a file, for several machines, and nothing waits for a server that is away."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples import share

from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.gateway.store import Ambiguous, AsyncStore, StoreBounds, StoreFailure, open_store
from cnllm.gateway.store.redis import RedisStore

from .store_support import (
    IDENTITIES,
    async_turn_at_end,
    async_turn_by_call,
    awaited,
    program,
    random_operations,
    turn,
    turn_at_end,
    turn_by_call,
)

redis = pytest.importorskip("redis", reason="the package redis is not installed")
needs_server = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


class Server:
    """A redis-server on a port of its own, which can stop and start again."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir"]
        self.process = subprocess.Popen([*command, str(self._folder), *options], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if b"Ready to accept connections" in line:
                break
        else:
            raise AssertionError("redis-server did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("redis"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def raw(server: Server) -> Iterator[Any]:
    """A client of the empty server."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        yield client


def sums(client: Any) -> None:
    """The sums are those of the items, and everything expires."""
    prefix = "{cnllm:gateway}"
    items: dict[str, int] = {}
    for member in client.zrange(f"{prefix}:all", 0, -1):
        _, size, owner = member.decode().split(":")
        items[owner] = items.get(owner, 0) + int(size)
    usage = {name.decode(): int(value) for name, value in client.hgetall(f"{prefix}:u").items()}
    total = usage.pop("all", 0)
    assert usage == items
    assert total == sum(items.values())
    for name in client.scan_iter(count=10_000):
        assert name.startswith(prefix.encode())
        assert client.pttl(name) > 0, name


# ── what is kept ─────────────────────────────────────────────────────────────
@needs_server
def test_a_clock_that_is_set_back_evicts_nothing_new(server: Server, raw: Any) -> None:
    store = RedisStore(server.url, StoreBounds(count=4, share=0.5))
    for number in range(4):
        assert store.keep_turn(f"client {number % 2}", turn(), [str(number)], None)
    for name in raw.keys("{cnllm:gateway}:all") + raw.keys("{cnllm:gateway}:o:*"):  # the clock was a day ahead
        for member, score in raw.zrange(name, 0, -1, withscores=True):
            raw.zadd(name, {member: score + 86_400e6})
    for number in range(4, 8):
        assert store.keep_turn(f"client {number % 2}", turn(), [str(number)], None)
        assert turn_by_call(store, f"client {number % 2}", str(number)) == turn()
        assert turn_by_call(store, f"client {number % 2}", str(number - 4)) is None
    sums(raw)
    store.close()


@needs_server
def test_any_operations_in_any_order(server: Server, raw: Any) -> None:
    for seed in range(share(80)):
        raw.flushall()
        store = RedisStore(server.url)
        random_operations(store, seed)
        sums(raw)
        store.close()


@needs_server
def test_the_sums_stay_true(server: Server, raw: Any) -> None:
    for seed in range(10):
        raw.flushall()
        store = RedisStore(server.url, StoreBounds(count=20, bytes=20_000))
        chance = random.Random(seed)
        for _ in range(60):
            identity, text = chance.choice(IDENTITIES), chance.choice("abc")
            store.keep_turn(identity, turn(text, chance.randrange(900)), chance.choices("123", k=2), b"p")
            store.keep_response(identity, chance.choice("123"), bytes(chance.randrange(2000)))
            store.delete_response(identity, chance.choice("123"))
        assert store.failure is None
        sums(raw)
        assert raw.zcard("{cnllm:gateway}:all") <= 20
        store.close()


@needs_server
def test_the_oldest_go_first_and_no_client_pushes_the_others_out(server: Server, raw: Any) -> None:
    store = RedisStore(server.url, StoreBounds(count=80))
    for number in range(5):
        store.keep_turn("quiet", turn(str(number)), [str(number)], None)
    for number in range(100):
        assert store.keep_turn("loud", turn(str(number)), [f"a{number}", f"b{number}"], b"%d" % number)
    every = store.find_turns("loud", call_ids=[f"a{n}" for n in range(100)], prefixes=[b"%d" % n for n in range(100)])
    assert list(every.by_call) == [f"a{n}" for n in range(80, 100)]
    assert list(every.by_prefix) == [b"%d" % n for n in range(80, 100)]
    assert len(store.find_turns("quiet", call_ids="01234").by_call) == 5
    for number in range(200):
        store.keep_turn(f"client {number}", turn(), ["call"], None)
    assert raw.zcard("{cnllm:gateway}:all") == 80
    assert store.keep_response("me", "id", bytes(65 << 20)) is False
    sums(raw)
    store.close()


@needs_server
def test_state_has_a_time_to_live(server: Server, raw: Any) -> None:
    store = RedisStore(server.url, StoreBounds(seconds=0.2))
    store.keep_turn("me", turn(), ["call"], b"prefix")
    store.keep_turn("me", turn("other"), [], b"prefix")
    store.keep_response("me", "id", b"blob")
    while turn_at_end(store, "me", b"prefix") is not None or store.response("me", "id") is not None:
        time.sleep(0.01)
    store.keep_turn("me", turn("new"), ["call"], b"prefix")
    assert turn_by_call(store, "me", "call") == turn("new")
    assert raw.zcard("{cnllm:gateway}:all") == 1  # what has expired is out of the sums
    sums(raw)
    store.close()


@needs_server
def test_several_machines_see_one_state(server: Server, raw: Any) -> None:
    code = (
        "import sys\nfrom cnllm.gateway.store import open_store\nfrom tests.gateway.store_support import turn\n"
        "store = open_store(sys.argv[1])\n"
        "for n in range(50): assert store.keep_turn('me', turn(str(n)), [f'{sys.argv[2]} {n}'], b'%d' % n)\n"
        "store.close()\n"
    )
    runs = [program(code, server.url, str(number)) for number in range(3)]
    for run in runs:
        _, error = run.communicate(timeout=60)
        assert run.returncode == 0, error
    store = open_store(server.url)
    for name in range(3):
        for number in range(50):
            assert turn_by_call(store, "me", f"{name} {number}") == turn(str(number))
    assert turn_at_end(store, "me", b"7") == turn("7")  # the same content three times is one candidate
    store.keep_turn("me", turn("other"), [], b"7")
    assert turn_at_end(store, "me", b"7") == Ambiguous()
    sums(raw)
    store.close()


@needs_server
def test_many_coroutines_share_one_store(server: Server, raw: Any) -> None:
    plain = RedisStore(server.url)
    store = AsyncStore(plain)

    async def main(name: str) -> None:
        kept = [awaited(store, "keep_turn", "me", turn(name), [f"{name} {n}"], None) for n in range(100)]
        assert all(await asyncio.gather(*kept))
        assert await async_turn_by_call(store, "me", f"{name} 7") == turn(name)
        await awaited(store, "keep_turn", "me", turn(name), [], name.encode())
        every = await awaited(store, "find_turns", "me", call_ids=[f"{name} 1", "x"], prefixes=[name.encode()])
        assert (every.by_call, every.by_prefix) == ({f"{name} 1": turn(name)}, {name.encode(): turn(name)})
        assert await async_turn_at_end(store, "me", name.encode()) == turn(name)
        assert await awaited(store, "keep_response", "me", "id", b"blob")
        assert await awaited(store, "response", "me", "id") == b"blob"
        assert await awaited(store, "delete_response", "me", "id")
        assert await awaited(store, "response", "me", "id") is None
        task = asyncio.ensure_future(awaited(store, "response", "me", "id"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await async_turn_by_call(store, "me", f"{name} 9") == turn(name)
        assert plain.failure is None
        await store.aclose()

    asyncio.run(main("one"))
    asyncio.run(main("two"))  # another event loop has connections of its own
    sums(raw)


@needs_server
def test_a_forked_child_has_connections_of_its_own(server: Server, raw: Any) -> None:
    code = (
        "import asyncio, os, sys, warnings\nwarnings.simplefilter('ignore')\n"
        "from cnllm.gateway.store import AsyncStore, open_store\n"
        "from tests.gateway.store_support import async_turn_by_call, awaited, turn, turn_by_call\n"
        "plain = open_store(sys.argv[1]); store = AsyncStore(plain)\n"
        "async def main():\n"
        "    assert await awaited(store, 'keep_turn', 'me', turn('parent'), ['parent'], None)\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        assert plain.keep_turn('me', turn('child'), ['child'], None)\n"
        "        os._exit(0)\n"
        "    for _ in range(100): assert await async_turn_by_call(store, 'me', 'parent') == turn('parent')\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    assert await async_turn_by_call(store, 'me', 'child') == turn('child')\n"
        "    await store.aclose()\n"
        "turn_by_call(plain, 'me', 'x')\nasyncio.run(main())\nprint('done')\n"
    )
    out, error = program(code, server.url).communicate(timeout=60)
    assert out == "done\n", error


# ── a server that is away ────────────────────────────────────────────────────
def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_without_a_server_calls_go_on_without_state(caplog: pytest.LogCaptureFixture) -> None:
    port = closed_port()
    store = open_store(f"redis://user:pass%40word@127.0.0.1:{port}/0")
    for number in range(50):
        assert type(store.keep_turn("me", turn(), [str(number)], b"p")) is StoreFailure
        every = store.find_turns("me", call_ids=["1"])
        assert every.by_call == {}
        assert every.failure is not None
        assert f"127.0.0.1:{port}" in every.failure
        assert type(store.response("me", "id")) is StoreFailure
        assert type(store.keep_response("me", "id", b"x")) is StoreFailure
        assert type(store.delete_response("me", "id")) is StoreFailure
    lines = warnings_of(caplog)
    assert len(lines) == 1
    assert "without state" in lines[0]
    assert "pass@word" not in lines[0] + str(store.failure)
    assert "pass%40word" not in lines[0] + str(store.failure)


def test_a_server_that_hangs_costs_one_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts connections and says nothing. Of a hundred requests one waits."""
    monkeypatch.setattr("cnllm.gateway.store.redis.TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr("cnllm.gateway.store.redis._FIRST_PAUSE", 3600.0)
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        accepted: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    accepted.append(silent.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        plain = open_store(url)
        assert not any(plain.keep_turn("me", turn(), [str(n)], None) for n in range(100))
        assert len(accepted) <= 2
        hanging = open_store(url)
        store = AsyncStore(hanging)

        async def main() -> None:
            for _ in range(100):
                assert await async_turn_by_call(store, "me", "1") is None
            assert hanging.failure is not None
            await store.aclose()

        asyncio.run(main())
        assert len(accepted) <= 4
        silent.shutdown(socket.SHUT_RDWR)
        thread.join()
        for one in accepted:
            one.close()


@needs_server
def test_a_server_that_comes_back_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cnllm.gateway.store.redis._FIRST_PAUSE", 0.01)
    monkeypatch.setattr("cnllm.gateway.store.redis._LAST_PAUSE", 0.02)
    caplog.set_level(logging.INFO, "cnllm.gateway")
    own = Server(tmp_path)
    own.start()
    store = RedisStore(own.url)
    waited = AsyncStore(store)

    async def main() -> None:
        assert store.keep_turn("me", turn(), ["call"], None)
        assert await async_turn_by_call(waited, "me", "call") == turn()
        own.stop()
        assert turn_by_call(store, "me", "call") is None
        assert store.failure is not None
        assert type(await awaited(waited, "keep_turn", "me", turn(), ["call"], None)) is StoreFailure
        own.start()
        while not await awaited(waited, "keep_turn", "me", turn(), ["call"], None):
            await asyncio.sleep(0.01)
        assert turn_by_call(store, "me", "call") == turn()
        assert store.failure is None
        own.stop()
        own.start()  # so fast that no request fails: the connections are dead, and the scripts are gone
        assert store.keep_turn("me", turn(), ["call"], None)
        assert await async_turn_by_call(waited, "me", "call") == turn()
        await waited.aclose()

    try:
        asyncio.run(main())
    finally:
        own.stop()
    messages = [record.getMessage() for record in caplog.records]
    assert any("works again" in message for message in messages)


@needs_server
def test_a_full_server_can_be_read(server: Server, raw: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = RedisStore(server.url)
    assert store.keep_turn("me", turn(), ["call"], None)
    raw.config_set("maxmemory", "1mb")
    try:
        assert type(store.keep_turn("me", turn("private words"), ["more"], None)) is StoreFailure
        assert "OutOfMemory" in str(store.failure)
        assert turn_by_call(store, "me", "call") == turn()
        assert len(warnings_of(caplog)) == 1
        assert "private words" not in warnings_of(caplog)[0]
    finally:
        raw.config_set("maxmemory", "0")
    assert store.keep_turn("me", turn(), ["more"], None)
    assert store.failure is None
    store.close()


@needs_server
def test_a_server_that_evicts_keys_of_its_own_leaves_no_wrong_sums(server: Server, raw: Any) -> None:
    store = RedisStore(server.url, StoreBounds(count=20, bytes=40_000))
    for name in (":all", ":u", ":i:*", ":k:*", ":o:*"):
        for number in range(60):
            store.keep_turn("me", turn(str(number), 500), [str(number)], b"%d" % number)
            if number == 30:
                for key in raw.scan_iter(match="{cnllm:gateway}" + name):
                    raw.delete(key)
        assert turn_by_call(store, "me", "59") == turn("59", 500)
        assert store.failure is None
        assert raw.dbsize() < 100, name


# ── what cannot be a server ──────────────────────────────────────────────────
def test_wrong_urls_are_typed_errors() -> None:
    for url in ("redis://127.0.0.1:port/0", "redis://:secret@host:99999/0", "redis://host/secret?socket_timeout=soon"):
        with pytest.raises(CnllmError, match="Redis server") as caught:
            open_store(url)
        assert "secret" not in f"{caught.value} {caught.value.hint}"
        assert caught.value.__cause__ is None


def test_without_the_package_there_is_a_hint() -> None:
    code = (
        "import sys\nfrom cnllm.gateway.store import open_store\nassert 'redis' not in sys.modules\n"
        "sys.modules['redis'] = None\n"
        "try: open_store('redis://127.0.0.1')\nexcept Exception as error: print(type(error).__name__, error.hint)"
    )
    out, error = program(code).communicate(timeout=60)
    assert out.strip() == f"CnllmError {install_command('redis')}", error


@needs_server
def test_a_wrong_password_is_a_failure_without_the_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = Server(tmp_path)
    own.start("--requirepass", "right-password")
    try:
        wrong = open_store(f"redis://:wrong-password@127.0.0.1:{own.port}/0")
        assert type(wrong.keep_turn("me", turn(), ["call"], None)) is StoreFailure
        assert "Authentication" in str(wrong.failure)
        assert "wrong-password" not in str(wrong.failure) + "".join(warnings_of(caplog))
        right = open_store(f"redis://:right-password@127.0.0.1:{own.port}/0")
        assert right.keep_turn("me", turn(), ["call"], None)
        right.close()
    finally:
        own.stop()
