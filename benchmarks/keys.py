"""The cost of keys with limits and of metrics for a gateway: its requests with and without them, in turns.

    python -m benchmarks.keys [ROUNDS [SECONDS]]

Each gateway answers the same load: with `--key` and `--no-metrics`, or with metrics and a key that has requests, tokens
and a budget. The time of the processor for a request is compared, too: it says something on a machine that is busy with
other things.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import gateways
from benchmarks.load import run_load
from benchmarks.processes import environment, stub
from benchmarks.venvs import ROOT, binary

_LIMITS = ["--rpm", "100000000", "--tpm", "1000000000000", "--budget", "1000000", "--currency", "USD"]
_WIRE = "openai-chat"


class _Result(NamedTuple):
    """Requests a second, and the processor's seconds for a request."""

    rate: float
    cpu: float


@contextlib.contextmanager
def _redis() -> Iterator[str]:
    """Run a redis-server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _gateway(store: str, port: int, home: Path, *, limits: bool) -> Iterator[gateways.Gateway]:
    """Run a gateway on a store, with a key that has limits or with one that has none."""
    peer = "cnllm serve, measured"
    gateways._COMMANDS[peer] = gateways._cnllm(store, *(() if limits else ("--no-metrics",)))
    with gateways.running(peer, port, home) as started:
        if not limits:
            yield started
            return
        add = [
            str(binary("cnllm")),
            "serve",
            "keys",
            "add",
            f"bench{time.time_ns()}",
            *_LIMITS,
            "--store",
            store,
            "--json",
        ]
        done = subprocess.run(add, cwd=ROOT, env=environment(home, "fast"), capture_output=True, check=True)
        key = json.loads(done.stdout)["key"]
        yield started._replace(headers={**started.headers, "authorization": f"Bearer {key}"})


def _sample(started: gateways.Gateway, seconds: float, home: Path, *, stream: bool) -> _Result:
    """Load a gateway once."""
    cpu = gateways.cpu_seconds(started.pid)
    body = gateways.request_body(_WIRE, stream)
    load = run_load(started.address(_WIRE), started.headers, body, 32, seconds, home)
    gateways.settle(started.pid)
    return _Result(load.n / load.wall, (gateways.cpu_seconds(started.pid) - cpu) / load.n)


def main(rounds: int, seconds: float) -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        port = stack.enter_context(stub())
        stores = {"sqlite": f"sqlite:{folder}/gateway.db"}
        if shutil.which("redis-server"):
            stores["redis"] = stack.enter_context(_redis())
        running = {}
        for name, store in stores.items():
            for limits in (False, True):
                home = Path(folder) / f"{name}-{limits}"
                home.mkdir()
                running[name, limits] = stack.enter_context(_gateway(store, port, home, limits=limits))
        for stream in (False, True):
            results: dict[tuple[str, bool], list[_Result]] = {case: [] for case in running}
            for started in running.values():
                gateways.check(started, _WIRE, stream)
                _sample(started, 1, Path(folder), stream=stream)
            for turn in range(rounds):
                for case in list(running)[:: 1 if turn % 2 else -1]:
                    results[case].append(_sample(running[case], seconds, Path(folder), stream=stream))
            print("streams" if stream else "whole replies")
            for name in stores:
                without, with_ = results[name, False], results[name, True]
                rates = [max(result.rate for result in found) for found in (without, with_)]
                cpu = [min(result.cpu for result in found) for found in (without, with_)]
                print(
                    f"  {name}: {rates[0]:.0f} a second, with limits {rates[1]:.0f}: {rates[1] / rates[0]:.2f}; "
                    f"processor {cpu[0] * 1e6:.0f} µs each, with limits {cpu[1] * 1e6:.0f}: {cpu[0] / cpu[1]:.2f}"
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, float(sys.argv[2]) if len(sys.argv) > 2 else 3)
