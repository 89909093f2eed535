"""Measure what one key can do to another: the times of a client, alone and while another key floods the gateway.

    python -m benchmarks gateway-fairness [--quick]

The key that floods may send one request a minute, and has 64 connections: half of them send short requests one after
the other, half of them bodies of 33 MB over a new connection each time. All are refused. The other key has no limits,
and sends a request as soon as the last one is answered. The gateway has one core, everything else the other one; the
flood has a low priority there, so that its own work is not what is measured. Of the pairs of phases, idle and flooded,
the one with the smallest quotients counts. Exit status 1 where p50 or p99 is above 8 times the idle one.
"""

import asyncio
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks import payloads
from benchmarks.gateways import MODEL, request_body, resident_bytes
from benchmarks.processes import environment, stub
from benchmarks.venvs import ROOT

_PATH = "/v1/chat/completions"
_CONNECTIONS = 64
_LARGE = 33  # megabytes
_MOST = 8.0
"""The goal: a time beside a flood, in times of the idle one."""


class _Times(NamedTuple):
    """The times of requests in seconds."""

    n: int
    p50: float
    p99: float


@contextlib.contextmanager
def _gateway(port: int, home: Path) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Run a gateway of this interpreter in front of the stub. Yield its URL, its process, and the two keys."""
    folder = home / "CONFIG" / "cnllm"
    folder.mkdir(parents=True)
    endpoint = f"http://127.0.0.1:{port}/m200/v1"
    (folder / "providers.toml").write_text(f'[providers.deepseek]\nbase_url = "{endpoint}"\nkeys = ["BENCH_KEY"]\n')
    env = environment(home, "fast")
    program = [sys.executable, "-m", "cnllm", "serve"]
    store = ["--store", f"sqlite:{home / 'gateway.db'}"]
    keys = {}
    for name, limits in (("flood", ["--rpm", "1"]), ("other", [])):
        add = [*program, "keys", "add", name, *limits, *store, "--json"]
        done = subprocess.run(add, cwd=ROOT, env=env, capture_output=True, check=True)
        keys[name] = json.loads(done.stdout)["key"]
    options = ["--port", "0", "--json", "--map", f"{MODEL}=deepseek/{MODEL}", "--key", payloads.KEY]
    with subprocess.Popen([*program, *options, *store], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        ready = json.loads(server.stdout.readline())
        try:
            yield ready["url"], server.pid, keys
        finally:
            server.terminate()


def _ask(connection: http.client.HTTPConnection, key: str, body: bytes) -> int:
    """Send a request, and return the status of its answer."""
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request("POST", _PATH, body, headers)
    response = connection.getresponse()
    response.read()
    return response.status


def _times(url: str, key: str, seconds: float) -> _Times:
    """Send requests one after the other for so long. Every one is answered with 200."""
    body = request_body("openai-chat", stream=False)
    times = []
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            status = _ask(connection, key, body)
            times.append(time.perf_counter() - start)
            assert status == 200, status
    times.sort()
    return _Times(len(times), times[len(times) // 2], times[int(len(times) * 0.99)])


# ── the flood ─────────────────────────────────────────────────────────────────


async def _flood(host: str, port: int, key: str) -> None:
    """Send a flood until the standard input ends, and print what was answered."""
    seen: Counter[str] = Counter()
    short = [request_body("openai-chat", stream=False)]
    long = [b"[" * 2**20] * _LARGE
    over = asyncio.Event()

    async def send(pieces: list[bytes], *, again: bool) -> None:
        length = sum(map(len, pieces))
        fields = f"host: {host}\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n"
        head = f"POST {_PATH} HTTP/1.1\r\n{fields}".encode()
        while not over.is_set():
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    while not over.is_set():
                        writing = asyncio.ensure_future(_write(writer, [head, *pieces]))
                        try:
                            answer = await reader.readuntil(b"\r\n\r\n")
                            seen[answer[9:12].decode()] += 1
                            size = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                            await reader.readexactly(size)
                        finally:
                            writing.cancel()
                        if not again:
                            break
                finally:
                    writer.transport.abort()

    tasks = [asyncio.ensure_future(send(long if n % 2 else short, again=not n % 2)) for n in range(_CONNECTIONS)]
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    over.set()
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    seen.update(repr(end) for end in ends if isinstance(end, Exception))
    print(json.dumps(seen))


async def _write(writer: asyncio.StreamWriter, pieces: list[bytes]) -> None:
    """Write pieces as the gateway takes them, until it has closed the connection."""
    with contextlib.suppress(OSError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()


@contextlib.contextmanager
def _flooded(url: str, key: str, answered: Counter[str]) -> Iterator[None]:
    """Send a flood while the block runs, and count what was answered."""
    parts = urlsplit(url)
    command = [sys.executable, "-m", "benchmarks.fairness", str(parts.hostname), str(parts.port), key]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, preexec_fn=_step_back) as flood:
        assert flood.stdin
        assert flood.stdout
        flood.stdout.readline()
        time.sleep(1)  # all connections are there
        try:
            yield
        finally:
            flood.stdin.close()
            answered.update(json.loads(flood.stdout.readline()))


def _step_back() -> None:
    """Give this process a low priority on the core of the load."""
    os.nice(10)


# ── the run ───────────────────────────────────────────────────────────────────


def main(*, quick: bool) -> int:
    """Measure, print the figures, and return the exit status."""
    seconds, rounds = (3.0, 2) if quick else (10.0, 3)
    answered: Counter[str] = Counter()
    pairs: list[tuple[_Times, _Times]] = []
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = stack.enter_context(stub(Path(sys.executable)))
        url, pid, keys = stack.enter_context(_gateway(port, home))
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(range(os.cpu_count() or 1))})  # the gateway keeps the other core
        with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
            _ask(connection, keys["flood"], request_body("openai-chat", stream=False))
        _times(url, keys["other"], 1.0)
        before = resident_bytes(pid) or 0
        for _ in range(rounds):
            idle = _times(url, keys["other"], seconds)
            with _flooded(url, keys["flood"], answered):
                pairs.append((idle, _times(url, keys["other"], seconds)))
        after = resident_bytes(pid) or 0
    best: tuple[float, float] | None = None
    for idle, flooded in pairs:
        quotients = flooded.p50 / idle.p50, flooded.p99 / idle.p99
        print(
            f"p50 {idle.p50 * 1000:.2f} → {flooded.p50 * 1000:.2f} ms ({quotients[0]:.1f} x), "
            f"p99 {idle.p99 * 1000:.2f} → {flooded.p99 * 1000:.2f} ms ({quotients[1]:.1f} x), "
            f"{idle.n} and {flooded.n} requests"
        )
        best = quotients if best is None or max(quotients) < max(best) else best
    assert best
    said = ", ".join(f"{n} x {status}" for status, n in sorted(answered.items()))
    print(f"the flood was answered with {said}; memory {before / 2**20:.0f} → {after / 2**20:.0f} MB")
    permitted = sum(answered.values()) - answered["429"]  # the key may send one request a minute
    is_fair = max(best) <= _MOST and permitted <= len(pairs)
    print(f"at most {_MOST:g} x the idle times: {'yes' if is_fair else 'no'}")
    return int(not is_fair)


if __name__ == "__main__":
    asyncio.run(_flood(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
