"""A batch beside programs that send the same requests: CPU and throughput for each request, and the memory of a batch.

    python -m benchmarks.batch [--rows 100000] [--peer-rows 5000] [--at-once 200]

A stub of its own process answers after 50 ms. Every program runs in a process of its own, with the same number of
requests at once. `asyncio + aiohttp` is written by hand: no file, no state, no retries; it keeps nothing but a count.
A program that is not installed is left out. CPU is that of the program's process, system time included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_REPLY = json.dumps(
    {
        "id": "r",
        "object": "chat.completion",
        "created": 1763650000,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11},
    }
).encode()
_LATENCY = 0.05
_KEY = "sk-0123456789"


class Stub(asyncio.Protocol):
    """A connection that answers every request after the latency."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            size = end + 4 + int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self.buffer) < size:
                return
            self.buffer = self.buffer[size:]
            asyncio.get_running_loop().call_later(_LATENCY, self.answer)

    def answer(self) -> None:
        """Write the answer."""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_REPLY)
        if not self.transport.is_closing():
            self.transport.write(head + _REPLY)  # type: ignore[attr-defined]


async def serve() -> None:
    """Serve until stdin ends; print the port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def body(number: int) -> dict[str, object]:
    """Return the request of a row."""
    return {"model": "m", "messages": [{"role": "user", "content": f"Is {number} even?"}]}


def by_aiohttp(port: int, rows: int, at_once: int) -> int:
    """Send the rows by hand; return how many were answered."""
    import aiohttp
    import orjson

    async def main() -> int:
        numbers = iter(range(rows))
        done = 0
        headers = {"authorization": f"Bearer {_KEY}", "content-type": "application/json"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=at_once), headers=headers) as session:

            async def work() -> None:
                nonlocal done
                for number in numbers:
                    url = f"http://127.0.0.1:{port}/v1/chat/completions"
                    async with session.post(url, data=orjson.dumps(body(number))) as answer:
                        orjson.loads(await answer.read())["choices"][0]["message"]["content"]
                        done += 1

            await asyncio.gather(*(work() for _ in range(at_once)))
        return done

    return asyncio.run(main())


def by_litellm(port: int, rows: int, at_once: int) -> int:
    """Send the rows by litellm's batch completion; return how many were answered."""
    import litellm

    litellm.suppress_debug_info = True
    replies = litellm.batch_completion(
        model="openai/m",
        messages=[body(number)["messages"] for number in range(rows)],
        max_workers=at_once,
        api_base=f"http://127.0.0.1:{port}/v1",
        api_key=_KEY,
    )
    return sum(1 for reply in replies if getattr(reply, "choices", None))


def by_cnllm(port: int, rows: int, at_once: int, loop: str = "") -> int:
    """Send the rows of a file by `cnllm.batch`; return how many were answered."""
    import cnllm
    from cnllm import Registry

    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        with source.open("w") as file:
            for number in range(rows):
                file.write(json.dumps({"id": str(number), "prompt": f"Is {number} even?"}) + "\n")
        model = Registry.load().resolve("openai-compatible/m", base_url=f"http://127.0.0.1:{port}/v1")
        report = cnllm.batch.run(str(source), model, out=str(out), concurrency=at_once, api_key=_KEY)
    return int(report.done)


RUNNERS = {"aiohttp by hand": by_aiohttp, "cnllm batch": by_cnllm, "litellm.batch_completion": by_litellm}


def run_one(name: str, port: int, rows: int, at_once: int) -> None:
    """Run one program in this process and print its figures."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.monotonic()
    done = RUNNERS[name](port, rows, at_once)
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"done": done, "seconds": seconds, "cpu": cpu, "peak": after.ru_maxrss / 1024}))


def main() -> int:
    """Run every program in turn and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--peer-rows", type=int, default=5_000, help="rows of peers that take milliseconds for each")
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=list(RUNNERS))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        try:
            import uvloop

            uvloop.run(serve())
        except ImportError:
            asyncio.run(serve())
        return 0
    if given.run:
        run_one(given.run[0], int(given.run[1]), int(given.run[2]), given.at_once)
        return 0
    command = [sys.executable, "-m", "benchmarks.batch"]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with subprocess.Popen([*command, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        port = stub.stdout.readline().strip()
        print(f"{'':26} {'rows':>8} {'a second':>9} {'CPU':>8} {'peak':>7}")
        for name in given.only:
            rows = given.peer_rows if name == "litellm.batch_completion" else given.rows
            arguments = ["--at-once", str(given.at_once), "--run", name, port, str(rows)]
            ran = subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment, check=False)
            if ran.returncode:
                print(f"{name:26} left out: {(ran.stderr.strip().splitlines() or ['?'])[-1]}")
                continue
            figures = json.loads(ran.stdout.strip().splitlines()[-1])
            if figures["done"] != rows:
                print(f"{name:26} wrong: {figures['done']} of {rows} rows were answered")
                continue
            each = figures["cpu"] / rows * 1e6
            print(f"{name:26} {rows:8,} {rows / figures['seconds']:9,.0f} {each:5.0f} µs {figures['peak']:4.0f} MB")
        stub.terminate()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
