"""A dataset of Ray answered by `cnllm.ray.Model`, beside the same by hand: throughput, CPU for each row, and the limit.

    python -m benchmarks.ray [--rows 20000] [--at-once 200] [--latency 0.2]

A stub of its own process answers after the latency. `aiohttp by hand` is a callable class for `map_batches` with a
session and a semaphore: no limits, no cap, no retries, no resuming. `cnllm.ray.Model` does all of that, once with
`concurrency` for the same number of requests at once, and once as it finds out by itself. CPU is that of the processes
that ask, and of the actor that they share, without their start. The last lines are the rate that two workers keep under
a limit a minute, and a batch without and with `--ray local`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.batch import Stub

_KEY = "sk-0123456789"
_TICK = os.sysconf("SC_CLK_TCK")
_PARALLEL = 4  # batches that Ray gives to an actor at a time
_BATCH = 256


class ByHand:
    """A callable class as a user writes it without a library."""

    def __init__(self, url: str, at_once: int) -> None:
        self._url = url
        self._slots = asyncio.Semaphore(at_once)
        self._session: Any = None

    async def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the batch with a column of answers."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        batch["text"] = list(await asyncio.gather(*(self._ask(prompt) for prompt in batch["prompt"])))
        return batch

    async def _ask(self, prompt: str) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
        async with (
            self._slots,
            self._session.post(self._url, json=body, headers={"authorization": f"Bearer {_KEY}"}) as answer,
        ):
            found: str = (await answer.json())["choices"][0]["message"]["content"]
            return found


class Endpoint(Stub):
    """A stub that keeps the times of its requests."""

    times: ClassVar[list[float]] = []

    def answer(self) -> None:
        """Write the answer."""
        self.times.append(time.monotonic())
        super().answer()


async def serve() -> None:
    """Serve until stdin ends. Print the port; for a line `count` the number of requests, for `times` their times."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Endpoint, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.strip() == "count":
            print(len(Endpoint.times), flush=True)
            continue
        print(json.dumps(Endpoint.times), flush=True)
        Endpoint.times.clear()


class Server:
    """The process of the endpoint."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{self._read()}/v1"

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def _ask(self, line: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._read()

    def count(self) -> int:
        """Return the number of answers since the last `times`."""
        return int(self._ask("count"))

    def times(self) -> list[float]:
        """Return the times of the answers since the last call."""
        times: list[float] = self._ask("times")
        return times


class CpuWatch:
    """The CPU seconds of processes with certain titles, once a tenth of the rows was answered: without their start."""

    def __init__(self, server: Server, rows: int, *titles: str) -> None:
        self._server = server
        self._rows = rows
        self._titles = [title.encode() for title in titles]
        self._seconds: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._answered = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _look(self) -> dict[str, float]:
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                title = (entry / "cmdline").read_bytes()
                if any(wanted in title for wanted in self._titles):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    found[entry.name] = (int(fields[11]) + int(fields[12])) / _TICK
            except OSError:  # it ended meanwhile
                continue
        return found

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self._seconds.update(self._look())
            if not self._answered and (count := self._server.count()) > self._rows / 10:
                self._answered, self._before = count, dict(self._seconds)

    def stop(self) -> float:
        """Return the seconds for each row."""
        self._ended.set()
        self._thread.join()
        return (sum(self._seconds.values()) - sum(self._before.values())) / max(1, self._rows - self._answered)


@contextmanager
def endpoint(latency: float) -> Iterator[Server]:
    """Run the endpoint."""
    command = [sys.executable, "-m", "benchmarks.ray", "--serve", "--latency", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.terminate()


def show(name: str, workers: int, times: list[float], rows: int, cpu: float) -> None:
    """Print a line of the table: answers a second between the first and the last one."""
    assert len(times) == rows, f"{name}: {len(times)} requests for {rows} rows"
    rate = (rows - 1) / (times[-1] - times[0])
    print(f"{name:34} {workers:7} {rate:10,.1f} {cpu * 1e6:8.0f} µs", flush=True)


def run(
    server: Server, name: str, kind: Any, rows: int, workers: int, arguments: tuple[Any, ...] | None = None
) -> None:
    """Answer a dataset and print the figures."""
    import ray.data

    items = [{"id": str(number), "prompt": f"Is {number} even?"} for number in range(rows)]
    dataset = ray.data.from_items(items, override_num_blocks=2 * workers)
    compute = ray.data.ActorPoolStrategy(size=workers, max_concurrent_calls_per_actor=2)
    watch = CpuWatch(server, rows, "ray::MapWorker", "ray::AllowanceActor")
    answers = dataset.map_batches(kind, batch_size=_BATCH, compute=compute, num_cpus=0.5, fn_constructor_args=arguments)
    done = sum(text == "yes" for batch in answers.iter_batches(batch_size=_BATCH) for text in batch["text"])
    cpu = watch.stop()
    assert done == rows, f"{name}: {done} of {rows} rows were answered"
    show(name, workers, server.times(), rows, cpu)


def run_batch(server: Server, rows: int, at_once: int) -> None:
    """Answer the same rows by the command, from a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        lines = (json.dumps({"id": str(number), "prompt": f"Is {number} even?"}) + "\n" for number in range(rows))
        source.write_text("".join(lines))
        command = [sys.executable, "-m", "cnllm", "batch", str(source), "-o", str(out), "--json", "--no-plot"]
        command += ["-m", "openai-compatible/m", "--base-url", server.url, "--concurrency", str(at_once)]
        for name, more in (("cnllm batch", []), ("cnllm batch --ray local", ["--ray", "local"])):
            out.unlink(missing_ok=True)
            Path(f"{out}.state").unlink(missing_ok=True)
            environment = {**os.environ, "OPENAI_COMPATIBLE_API_KEY": _KEY}
            watch = CpuWatch(server, rows, "ray::RemoteSender", f"{source}")
            ran = subprocess.run([*command, *more], env=environment, capture_output=True, text=True, check=False)
            cpu = watch.stop()
            assert ran.returncode == 0, ran.stderr
            show(name, 2 if more else 1, server.times(), rows, cpu)


def main() -> int:
    """Run all in turn and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray", description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--at-once", type=int, default=200, help="requests at a time, for all workers together")
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--rpm", type=int, default=1200)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        import benchmarks.batch

        benchmarks.batch._LATENCY = given.latency
        asyncio.run(serve())
        return 0
    import ray.data

    os.environ["OPENAI_COMPATIBLE_API_KEY"] = _KEY
    import cnllm.ray

    with endpoint(given.latency) as server:
        ray.init(num_cpus=4, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        print(f"{'':34} {'workers':>7} {'a second':>10} {'CPU':>10}")

        def model(**options: Any) -> Any:
            return cnllm.ray.Model("openai-compatible/m", base_url=server.url, **options)

        for workers in (1, 2):
            by_hand = (f"{server.url}/chat/completions", given.at_once // workers)
            run(server, "aiohttp by hand", ByHand, given.rows, workers, by_hand)
            run(server, "cnllm.ray.Model, fixed", model(concurrency=given.at_once), given.rows, workers)
            run(server, "cnllm.ray.Model, auto", model(), given.rows, workers)
        limited = model(rpm=given.rpm)
        run(server, f"cnllm.ray.Model, {given.rpm / 60:g} a second", limited, given.rpm, 2)
        ray.shutdown()
        run_batch(server, given.rows, given.at_once)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
