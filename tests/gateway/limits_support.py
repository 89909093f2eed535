"""What the tests of keys and limits share: books on real stores, and processes that use one key at once."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cnllm.errors import CnllmError
from cnllm.estimates.money import units_of
from cnllm.estimates.worst_case import WorstCase
from cnllm.gateway.access import digest
from cnllm.gateway.limits.account import Grant, Operation
from cnllm.gateway.limits.book import AsyncKeyBook, KeyBook, open_book
from cnllm.gateway.limits.key_use import KeyUse
from cnllm.gateway.limits.keys import KeyRecord, Rights, new_key
from cnllm.gateway.limits.limiter import Limiter
from cnllm.gateway.limits.refusal import Refused

from .store_support import program

WORKER = """
import asyncio, json, random, sys, time
from cnllm.gateway.limits.book import AsyncKeyBook, open_book
from cnllm.gateway.limits.limiter import Limiter
from cnllm.estimates.worst_case import WorstCase
from cnllm.gateway.limits.refusal import Refused

url, digest, plan = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
chance = random.Random(plan["seed"])

def say(**fields):
    sys.stdout.write(json.dumps(fields) + "\\n")
    sys.stdout.flush()

async def call(limiter, record, number):
    worst = plan["worst"]
    quote = WorstCase("p/m", 1, 1, "CNY", worst, worst)
    asked = time.time()
    try:
        flights = await limiter.admit(digest, record)
        reservation = await limiter.reserve(digest, record, quote, plan.get("tokens", 1))
    except Refused as error:
        return say(refused=error.refusal.code, retry=error.refusal.retry_after)
    cost = chance.randrange(worst + 1)  # what the endpoint will charge
    say(sent=cost, asked=asked, at=time.time())
    if plan.get("hangs") and number % 2:
        await asyncio.sleep(3600)
    await asyncio.sleep(chance.random() * plan.get("seconds", 0.02))
    if plan.get("waits"):
        await asyncio.to_thread(sys.stdin.readline)
    reservation.settle(cost, plan.get("tokens", 1))
    for flight in flights:
        flight.release()
    say(settled=cost)

async def main():
    limiter = Limiter(AsyncKeyBook(open_book(url)), lease=plan.get("lease", 30.0))
    record = await limiter.find(digest)
    assert record is not None
    say(ready=True)
    sys.stdin.readline()
    end = time.monotonic() + plan.get("for", 0)
    number = 0
    while True:
        calls = [call(limiter, record, number + index) for index in range(plan["calls"])]
        number += len(calls)
        await asyncio.gather(*calls)
        if time.monotonic() >= end:
            break
        await asyncio.sleep(plan.get("pause", 0.05))
    await limiter.aclose()
    say(done=True)

asyncio.run(main())
"""


class Worker:
    """Another process that uses a key. A thread reads its lines, so that it never waits for this process."""

    def __init__(self, url: str, digest: str, **plan: Any) -> None:
        self.process = program(WORKER, url, digest, json.dumps({"seed": 1, "worst": 1, **plan}))
        self.lines: list[dict[str, Any]] = []
        self._errors = ""
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read_lines, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("}\n"):  # the last one of a killed process may be a piece
                self._queue.put(json.loads(line))
        self._queue.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors = self.process.stderr.read()

    def read(self) -> dict[str, Any]:
        """The next line."""
        line = self._queue.get(timeout=60)
        assert line is not None, self._errors
        self.lines.append(line)
        return line

    def start(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> None:
        """Wait for its end."""
        self._end()
        assert self.process.returncode == 0, self._errors

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self._end()

    def _end(self) -> None:
        """Read the rest, and close everything."""
        self.process.wait()
        for thread in self._threads:
            thread.join()
        while (line := self._queue.get()) is not None:
            self.lines.append(line)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def values(self, name: str) -> list[Any]:
        """The values of all lines with a field."""
        return [line[name] for line in self.lines if name in line]


def workers(url: str, digest: str, *plans: dict[str, Any]) -> list[Worker]:
    """Start processes that begin together."""
    made = [Worker(url, digest, seed=index, **plan) for index, plan in enumerate(plans)]
    for worker in made:
        assert worker.read() == {"ready": True}
    for worker in made:
        worker.start()
    return made


def book_with(url: str, **limits: Any) -> tuple[KeyBook, str, str]:
    """A book with one key: the book, the key, its digest."""
    book = open_book(url)
    assert book is not None
    key = new_key()
    book.add(digest(key), KeyRecord("team", time.time(), **limits))
    return book, key, digest(key)


def cny(amount: str) -> int:
    """An amount in units."""
    return units_of(Decimal(amount))


def sqlite_url(folder: Path) -> str:
    return f"sqlite:{folder / 'gateway.db'}"


def quoted(worst: int) -> WorstCase:
    return WorstCase("p/m", 1, 1, "CNY", worst, worst)


def in_use(book: KeyBook) -> KeyUse:
    """The use of the only key in use."""
    (use,) = [use for use in book.uses() if use.record.revoked is None]
    return use


class Counting(AsyncKeyBook):
    """A book that counts the operations, and can fail before or after one is carried out."""

    def __init__(self, book: KeyBook) -> None:
        super().__init__(book)
        self.operations = self.searches = 0
        self.fails = ""
        self.begins: Callable[[], object] | None = None  # it is called while an operation is under way
        self.meets: Callable[[], object] | None = None  # it is called between a grant and those who wait for it

    async def find(self, digest: str, *, is_known: bool = False) -> Rights | None:
        self.searches += 1
        if self.fails:
            raise CnllmError("the store is away")
        return await super().find(digest, is_known=is_known)

    async def update(self, digest: str, operation: Operation) -> Grant:
        self.operations += 1
        if self.begins is not None:
            self.begins()
            self.begins = None
        if self.fails == "before":
            raise CnllmError("the store is away")
        grant = await super().update(digest, operation)
        if self.fails == "after":
            raise CnllmError("the answer was lost")
        if self.meets is not None:
            asyncio.get_running_loop().call_soon(self.meets)
            self.meets = None
        return grant

    async def aclose(self) -> None:
        await super().aclose()


def run(url: str, digest: str, steps: Callable[[Limiter, Rights, Counting], Coroutine[Any, Any, None]]) -> None:
    """Run steps with the limits of one process."""

    async def main() -> None:
        book = open_book(url)
        assert book is not None
        counting = Counting(book)
        limiter = Limiter(counting)
        record = await limiter.find(digest)
        assert record is not None
        await steps(limiter, record, counting)
        await limiter.aclose()

    asyncio.run(main())


def run_limiters(url: str, count: int, steps: Callable[..., Coroutine[Any, Any, object]]) -> None:
    """Run steps with several limiters on one store, as several processes have them."""

    async def main() -> None:
        limiters = []
        for _ in range(count):
            book = open_book(url)
            assert book is not None
            limiters.append(Limiter(AsyncKeyBook(book), lease=2.0))
        await steps(*limiters)
        for limiter in limiters:
            await limiter.aclose()

    asyncio.run(main())


async def rights_of(limiter: Limiter, digest: str) -> Rights:
    rights = await limiter.find(digest)
    assert rights is not None
    return rights


async def code_of(answer: Coroutine[Any, Any, Any]) -> str:
    """The code and the sentence of a refusal."""
    with pytest.raises(Refused) as caught:
        await answer
    return f"{caught.value.refusal.code}: {caught.value.refusal.message}"
