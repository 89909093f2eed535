"""Two gateways on one Redis server, one of them killed: limits and budgets hold over HTTP, under 500 calls at once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cnllm.gateway.access import digest
from cnllm.gateway.limits.book import KeyBook, open_book
from cnllm.gateway.limits.keys import KeyRecord, new_key

from .limits_support import cny
from .store_support import ROOT

PRICE = 'price = { currency = "CNY", input = 1, output = 100 }\nlimits = { context = 100_000, output = 8_000 }\n'
REQUEST = {"model": "here/priced", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100}


class Endpoint:
    """An endpoint that answers after a moment, and adds up what it charges for what it got."""

    def __init__(self) -> None:
        self.charged = self.calls = 0
        self.server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen, and return the URL."""
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                assert length is not None
                await reader.readexactly(int(length[1]))
                self.calls += 1
                output = 20 + self.calls % 81
                self.charged += 10 * 1000 + output * 100_000
                await asyncio.sleep(0.05 + self.calls % 7 / 50)
                usage = {"prompt_tokens": 10, "completion_tokens": output, "total_tokens": 10 + output}
                message = {"role": "assistant", "content": "Hello"}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                body = json.dumps({"id": "x", "choices": [choice], "usage": usage}).encode()
                start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                writer.write(start + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("redis", reason="the package redis is not installed")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    from .test_store_redis import Server

    server = Server(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


def serve(store: str, folder: Path, upstream: str, *options: str) -> tuple[subprocess.Popen[str], str]:
    """Start a gateway, and return its process and URL."""
    config = folder / "config"
    config.mkdir(exist_ok=True)
    (config / "providers.toml").write_text(
        f'[providers.here]\nextends = "openai-compatible"\nbase_url = "{upstream}/v1"\nkeys = ["HERE_KEY"]\n'
        f'[models."here/priced"]\n{PRICE}'
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HERE_KEY": "sk-here", "CNLLM_CONFIG_DIR": str(config)}
    env.pop("CNLLM_SERVE_KEY", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "cnllm", "serve", "--store", store, "--json", *options],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def make_key(book: KeyBook, name: str, **limits: Any) -> str:
    key = new_key()
    book.add(digest(key), KeyRecord(name, time.time(), **limits))
    return key


async def call(client: httpx.AsyncClient, url: str, key: str) -> tuple[int, str, str]:
    """Send a request. Return its status (0 where the gateway died), the code of an error, and Retry-After."""
    try:
        response = await client.post(
            f"{url}/v1/chat/completions", json=REQUEST, headers={"authorization": f"Bearer {key}"}
        )
    except httpx.HTTPError:
        return 0, "", ""
    error = response.json().get("error", {})
    return response.status_code, str(error.get("code", "")), response.headers.get("retry-after", "")


@pytest.mark.long
def test_two_gateways_on_one_server_keep_limits_and_budgets_through_a_kill(store: str, tmp_path: Path) -> None:
    asyncio.run(_kept(store, tmp_path))


async def _kept(store: str, folder: Path) -> None:
    endpoint = Endpoint()
    upstream = await endpoint.start()
    book = open_book(store)
    assert book is not None
    (one, first), (two, second) = (serve(store, folder, upstream) for _ in range(2))
    limits = httpx.Limits(max_connections=600)
    try:
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            # A limit of 100 requests a minute, 500 calls at once, half on each gateway.
            key = make_key(book, "rated", rpm=100)
            answers = await asyncio.gather(*[call(client, (first, second)[n % 2], key) for n in range(500)])
            sent = [answer for answer in answers if answer[0] == 200]
            assert 98 <= len(sent) <= 100
            assert endpoint.calls == len(sent)
            assert {answer[:2] for answer in answers if answer[0] != 200} == {(429, "rate_limit_exceeded")}
            assert all(int(answer[2]) in range(30, 62) for answer in answers if answer[0] != 200)

            # A key that one gateway has in its memory is revoked: within a second both refuse it.
            book.revoke("rated")
            await asyncio.sleep(1)
            for url in (first, second):
                assert (await call(client, url, key))[0] == 401

            # A budget, 500 calls at once and again, and one of the two gateways is killed in the middle.
            budget, before = cny("2.00"), endpoint.charged
            key = make_key(book, "paid", budgets={"CNY": budget})

            async def spend(number: int) -> list[int]:
                statuses = []
                for _ in range(3):
                    statuses.append((await call(client, (first, second)[number % 2], key))[0])
                    await asyncio.sleep(0.1)
                return statuses

            tasks = [asyncio.ensure_future(spend(number)) for number in range(500)]
            while endpoint.charged - before < budget // 3:
                await asyncio.sleep(0.01)
            two.kill()
            statuses = [status for task in tasks for status in await task]
            assert set(statuses) == {0, 200, 429}
            last = time.monotonic() + 60
            while time.monotonic() < last:
                (use,) = [use for use in book.uses() if use.record.name == "paid"]
                if not any(use.open.values()):
                    break
                await asyncio.sleep(0.5)
            charged = endpoint.charged - before
            assert not any(use.open.values()), "the lease of the dead gateway has expired"
            assert charged <= use.spent["CNY"] <= budget

            # What is left can be spent, to less than the worst case of one request.
            while (await call(client, first, key))[0] == 200:
                pass
            await asyncio.sleep(0.5)
            (use,) = [use for use in book.uses() if use.record.name == "paid"]
            assert endpoint.charged - before <= use.spent["CNY"] <= budget
            assert budget - use.spent["CNY"] < cny("0.02")
    finally:
        for process in (one, two):
            process.kill()
            process.communicate()
        assert endpoint.server is not None
        endpoint.server.close()
        book.close()
