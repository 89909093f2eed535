"""A stub that allows so many requests a minute, on a real socket: how much of it a batch uses, and how much is refused.

    python -m benchmarks.batch_rates [--limit 600] [--minutes 5] [--window sliding|fixed|bucket]

The limit is not told: no header, no option. Refusals have `Retry-After`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import cnllm
from cnllm import Registry

_BODY = json.dumps(
    {
        "id": "r",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11},
    }
).encode()
_REFUSED = b'{"error": {"message": "too many requests"}}'
_LATENCY = 0.05
Allow = Callable[[float], float]
"""Returns 0 for a request that is taken, else the seconds until one is."""


def sliding(limit: int) -> Allow:
    """Count the last sixty seconds."""
    times: deque[float] = deque()

    def allow(now: float) -> float:
        while times and times[0] <= now - 60:
            times.popleft()
        if len(times) >= limit:
            return times[0] + 60 - now
        times.append(now)
        return 0.0

    return allow


def fixed(limit: int) -> Allow:
    """Count the minutes of a clock."""
    state = [-1.0, 0.0]

    def allow(now: float) -> float:
        if state[0] != now // 60:
            state[:] = [now // 60, 0.0]
        state[1] += 1
        return 0.0 if state[1] <= limit else 60 - now % 60

    return allow


def bucket(limit: int) -> Allow:
    """Refill a bucket that holds a tenth of the limit."""
    state = [limit / 10, time.monotonic()]

    def allow(now: float) -> float:
        state[:] = [min(limit / 10, state[0] + (now - state[1]) * limit / 60), now]
        if state[0] < 1:
            return (1 - state[0]) * 60 / limit
        state[0] -= 1
        return 0.0

    return allow


WINDOWS = {"sliding": sliding, "fixed": fixed, "bucket": bucket}


class Server:
    """The stub. `taken` and `refused` count requests."""

    def __init__(self, allow: Allow) -> None:
        self.allow = allow
        self.taken = self.refused = 0
        self.port = 0
        self.ready = threading.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                wait = self.allow(time.monotonic())
                if wait:
                    self.refused += 1
                    status, body, more = b"429 x", _REFUSED, b"retry-after: %.3f\r\n" % wait
                else:
                    self.taken += 1
                    await asyncio.sleep(_LATENCY)
                    status, body, more = b"200 x", _BODY, b""
                head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n"
                writer.write(head % (status, len(body), more) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def run(self) -> None:
        """Serve for as long as the process lives."""

        async def main() -> None:
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=1024)
            self.port = server.sockets[0].getsockname()[1]
            self.ready.set()
            await asyncio.Event().wait()

        asyncio.run(main())


def main() -> None:
    """Run one case and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=600)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--window", choices=WINDOWS, default="sliding")
    given = parser.parse_args()
    server = Server(WINDOWS[given.window](given.limit))
    threading.Thread(target=server.run, daemon=True).start()
    server.ready.wait()
    registry = Registry.load()
    model = registry.resolve("openai-compatible/m", base_url=f"http://127.0.0.1:{server.port}/v1")
    rows = round(given.limit * given.minutes)
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        report = cnllm.batch.run(
            (f"prompt {number}" for number in range(rows)),
            model,
            out=Path(folder) / "out.jsonl",
            registry=registry,
            api_keys=("sk-0123456789abcdef",),
        )
        minutes = (time.monotonic() - start) / 60
    allowed = given.limit * max(minutes, 1)
    refused = server.refused / (server.taken + server.refused)
    print(
        f"{given.window}, {given.limit} a minute: {report.done:,} rows in {minutes:.2f} min, "
        f"{report.done / allowed:.1%} of the allowance used, {refused:.2%} refused"
    )


if __name__ == "__main__":
    main()
