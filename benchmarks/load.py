"""Load on a gateway, from the core of the stub: wrk where it is installed, else (and at a set rate) a client in Python.

    python -m benchmarks.load URL CONNECTIONS SECONDS RATE < HEADERS_AND_BODY

RATE is the number of requests a second, 0 for as many as are answered. At a set rate a request's time runs from the
moment at which it was due, so that a gateway that stops for a while does not look fast. It prints one line of JSON.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from benchmarks.processes import Broken
from benchmarks.venvs import ROOT, binary

_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
"""All cores, before this process keeps to one of them."""

_REPORT = """done = function(summary, latency, requests)
  local e = summary.errors
  local bad = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format('\\n{"n": %d, "wall": %f, "bad": %d, "p50": %f, "p99": %f}\\n', summary.requests,
    summary.duration / 1e6, bad, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6))
end
"""


MARK = b"#00000000 "
"""A place in a body where the client in Python writes the number of the request, so that no two are the same."""

_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Load(NamedTuple):
    """The results of a gateway under load; times are seconds."""

    n: int
    wall: float
    bad: int  # requests without an answer, or with another status than 200
    p50: float
    p99: float


def run_load(
    url: str, headers: dict[str, str], body: bytes, connections: int, seconds: float, home: Path, rate: float = 0
) -> Load:
    """Load a gateway. Raises `Broken` where requests fail."""
    wrk = shutil.which("wrk")
    if wrk and not rate:
        script = home / "load.lua"
        lines = ['wrk.method = "POST"', f"wrk.body = {_lua_text(body)}"]
        lines += [f"wrk.headers[{_lua_text(k.encode())}] = {_lua_text(v.encode())}" for k, v in headers.items()]
        script.write_text("\n".join([*lines, _REPORT]))
        length = max(1, round(seconds))
        command = [wrk, "-t1", f"-c{connections}", f"-d{length}s", "--timeout", "30s", "-s", str(script), url]
        data = b""
    else:
        command = [str(binary()), "-m", "benchmarks.load", url, str(connections), str(seconds), str(rate)]
        data = json.dumps(headers).encode() + b"\n" + body
    if taskset := shutil.which("taskset"):
        command = [taskset, "-c", str(_CORES[0]), *command]
    done = subprocess.run(command, cwd=ROOT, input=data, capture_output=True, check=False)
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise Broken(done.stderr.decode() or done.stdout.decode())
    load = Load(**json.loads(lines[-1]))
    if load.bad or not load.n:
        raise Broken(f"{load.bad} of {load.n + load.bad} requests failed")
    return load


def _lua_text(data: bytes) -> str:
    """Return bytes as a text of Lua."""
    return '"' + "".join(f"\\{byte:03d}" for byte in data) + '"'


class _Connection(asyncio.Protocol):
    """A connection to the gateway."""

    def __init__(self, client: "_Client") -> None:
        self.client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, start: float) -> None:
        """Send the request, which was due at `start`."""
        self.start, self.size, self.length = start, 0, -1
        self.pieces: list[bytes] = []
        self.tail = b""
        self.transport.write(self.client.next_request())

    def data_received(self, data: bytes) -> None:
        if self.length < 0:
            data = b"".join([*self.pieces, data])
            self.pieces = [data]
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = data[:end].lower()
            self.is_right = head.startswith(b"http/1.1 200")
            _, _, length = head.partition(b"\r\ncontent-length:")
            self.length = end + 4 + int(length.partition(b"\r\n")[0]) if length else 0  # 0: in chunks
            self.size = len(data)
        else:
            self.size += len(data)
        self.tail = (self.tail + data)[-len(_LAST_CHUNK) :]  # the last chunk may come in pieces
        is_end = self.size >= self.length if self.length else self.tail == _LAST_CHUNK
        if is_end:
            self.client.take(self)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.client.is_over:
            self.client.fail()


class _Client:
    """The connections of one load, and the times of its requests."""

    def __init__(self, request: bytes, rate: float) -> None:
        self.request = request
        self.parts = request.split(MARK)
        self.count = 0
        self.rate = rate
        self.times: list[float] = []
        self.bad = 0
        self.is_over = False
        self.idle: deque[_Connection] = deque()
        self.due: deque[float] = deque()

    async def run(self, host: str, port: int, connections: int, seconds: float) -> Load:
        """Send requests for so long."""
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, connection = await loop.create_connection(lambda: _Connection(self), host, port)
            self.idle.append(connection)
        self.over = loop.create_future()
        begin = time.perf_counter()
        loop.call_later(seconds, self.stop)
        if self.rate:
            await self._pace(begin, seconds)
        else:
            for connection in list(self.idle):
                connection.send(time.perf_counter())
        await self.over
        wall = time.perf_counter() - begin
        self.times.sort()
        n = len(self.times)
        return Load(n, wall, self.bad, *(self.times[min(n - 1, int(n * q))] if n else 0.0 for q in (0.5, 0.99)))

    async def _pace(self, begin: float, seconds: float) -> None:
        """Send each request when it is due, or as soon as a connection is free."""
        for number in range(int(self.rate * seconds)):
            due = begin + number / self.rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            if self.is_over:
                return
            if self.idle:
                self.idle.popleft().send(due)  # each in turn: none idles until the gateway closes it
            else:
                self.due.append(due)

    def next_request(self) -> bytes:
        """Return the request, with its number at each mark."""
        self.count += 1
        return self.request if len(self.parts) == 1 else (b"#%08d " % self.count).join(self.parts)

    def take(self, connection: _Connection) -> None:
        """Take the time of an answer, and send the next request."""
        now = time.perf_counter()
        if self.is_over:
            return
        self.times.append(now - connection.start)
        self.bad += not connection.is_right
        if not self.rate:
            connection.send(now)
        elif self.due:
            connection.send(self.due.popleft())
        else:
            self.idle.append(connection)

    def fail(self) -> None:
        """Count a connection that the gateway closed, and end the load."""
        self.bad += 1
        self.stop()

    def stop(self) -> None:
        """End the load."""
        self.is_over = True
        if not self.over.done():
            self.over.set_result(None)


def main() -> None:
    """Load the gateway that the command line names, and print what it did."""
    import uvloop

    url, connections, seconds, rate = sys.argv[1:]
    headers, _, body = sys.stdin.buffer.read().partition(b"\n")
    parts = urlsplit(url)
    lines = [f"POST {parts.path} HTTP/1.1", f"host: {parts.netloc}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in json.loads(headers).items()]
    client = _Client("\r\n".join([*lines, "", ""]).encode() + body, float(rate))
    load = uvloop.run(client.run(parts.hostname or "", parts.port or 80, int(connections), float(seconds)))
    print(json.dumps(load._asdict()))


if __name__ == "__main__":
    main()
