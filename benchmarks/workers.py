"""The gain of more processes for a gateway: requests a second with one worker and with one per core, in turns.

    python -m benchmarks.workers [ROUNDS [SECONDS]]

The load and the endpoint run on the same cores, so that the ratio is lower than it is on a machine of its own.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import gateways
from benchmarks.load import run_load
from benchmarks.processes import stub

_WIRE = "openai-chat"


def main(rounds: int, seconds: float) -> None:
    """Measure, and print a table."""
    every = os.sched_getaffinity(0)
    cores = len(every)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        port = stack.enter_context(stub())
        os.sched_setaffinity(0, every)  # it keeps to one
        running = {}
        for count in (1, cores):
            home = Path(folder) / str(count)
            home.mkdir()
            peer = f"cnllm serve, {count} workers"
            gateways._COMMANDS[peer] = gateways._cnllm("sqlite:{home}/gateway.db", "--workers", str(count))
            running[count] = stack.enter_context(gateways.running(peer, port, home))
        for stream in (False, True):
            rates: dict[int, list[float]] = {count: [] for count in running}
            for turn in range(rounds + 1):
                for count, started in running.items():
                    gateways.check(started, _WIRE, stream)
                    body = gateways.request_body(_WIRE, stream)
                    load = run_load(started.address(_WIRE), started.headers, body, 64, seconds, Path(folder))
                    if turn:  # the first one warms up
                        rates[count].append(load.n / load.wall)
            one, many = max(rates[1]), max(rates[cores])
            kind = "streams" if stream else "whole replies"
            print(f"{kind}: {one:.0f} a second with 1 worker, {many:.0f} with {cores}: {many / one:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, float(sys.argv[2]) if len(sys.argv) > 2 else 3)
