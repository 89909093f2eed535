"""What the tests of keys and limits share: books on real stores, and processes that use one key at once."""

from __future__ import annotations

import json
import queue
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from cnllm.estimates.money import units_of
from cnllm.gateway.access import digest
from cnllm.gateway.limits.book import KeyBook, open_book
from cnllm.gateway.limits.keys import KeyRecord, new_key

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
