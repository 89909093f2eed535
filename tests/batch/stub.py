"""An endpoint on a real socket that counts what it gets and what it answers, and refuses what its rules refuse.

It speaks chat completions. A request is named by its last user message. It runs in a thread of the test's process, so
that it lives on when the batch is killed.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Answer = tuple[int, dict[str, Any], dict[str, str]]
"""Status, body and headers."""


def reply(text: str, **usage: int) -> dict[str, Any]:
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15} | usage
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "r", "object": "chat.completion", "model": "m", "choices": [choice], "usage": counts}


def error(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "code": code, "type": "error"}}


class Stub:
    """`received` and `answered` count prompts; `log` holds them in the order in which they came.

    `rule(prompt, stub)` returns an answer of its own, or None for the usual one. `most` is the highest number of
    requests that were there at the same time.
    """

    def __init__(self, latency: float = 0.0, rule: Callable[[str, Stub], Answer | None] | None = None) -> None:
        self.latency = latency
        self.rule = rule
        self.log: list[str] = []
        self.times: list[float] = []
        self.keys: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.answered: Counter[str] = Counter()
        self.refused = 0
        self.now = self.most = 0
        self.url = ""
        self.header: str | None = None  # a header whose values are kept, in `headers`
        self.headers: list[str] = []
        self.hold = threading.Event()
        self.hold.set()

    @property
    def received(self) -> Counter[str]:
        return Counter(self.log)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next(int(x.split(":")[1]) for x in head.split("\r\n") if x.startswith("content-length"))
                body = json.loads(await reader.readexactly(length))
                key = next((x.split(": ")[1] for x in head.split("\r\n") if x.startswith("authorization")), "")
                if self.header is not None:
                    found = [x.split(": ")[1] for x in head.split("\r\n") if x.startswith(f"{self.header}:")]
                    self.headers += found or ["none"]
                status, data, headers = await self.answer(body, key.removeprefix("bearer "))
                payload = json.dumps(data).encode()
                lines = [f"HTTP/1.1 {status} x", "content-type: application/json", f"content-length: {len(payload)}"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, StopIteration):
            pass
        finally:
            writer.close()

    async def answer(self, body: dict[str, Any], key: str) -> Answer:
        content = next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user")
        prompt = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        self.log.append(prompt)
        self.times.append(time.monotonic())
        self.keys.append(key)
        self.bodies.append(body)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            special = self.rule(prompt, self) if self.rule is not None else None
            if special is None or special[0] < 300:
                if self.latency:
                    await asyncio.sleep(self.latency)
                while not self.hold.is_set():
                    await asyncio.sleep(0.005)
                self.answered[prompt] += 1
            else:
                self.refused += 1
            return special or (200, reply(f"re: {prompt}"), {})
        finally:
            self.now -= 1


@contextmanager
def stub(latency: float = 0.0, rule: Callable[[str, Stub], Answer | None] | None = None) -> Iterator[Stub]:
    """A stub on loopback."""
    server = Stub(latency, rule)
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=1024)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await stop.wait()
        listener.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def run() -> None:
        loop.run_until_complete(main())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        server.hold.set()
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
