"""The memory that a gateway keeps under a long load, minute by minute, at a steady rate.

    python -m benchmarks.endurance [MINUTES [RATE]]

Each request is a conversation of its own, so that the store has something to keep. RATE is the number of requests a
second; without it, half of what the gateway answered in ten seconds before. The program ends with 1 if a request fails.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import gateways
from benchmarks.load import MARK, run_load
from benchmarks.peers import CNLLM_SQLITE
from benchmarks.processes import stub

_WIRE = "openai-chat"
_CONNECTIONS = 32
_MB = 1_000_000


def main(minutes: int, rate: float) -> None:
    """Measure, and print a line for each minute."""
    every = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        gateway = stack.enter_context(gateways.running(CNLLM_SQLITE, stack.enter_context(stub()), home))
        os.sched_setaffinity(0, every)
        body = gateways.request_body(_WIRE, stream=False)
        gateways.check(gateway, _WIRE, stream=False)
        content = body.replace(b'"content":"', b'"content":"' + MARK, 1)
        if content == body:
            sys.exit("the request has no text that can be told apart")
        url, headers = gateway.address(_WIRE), gateway.headers
        if not rate:
            load = run_load(url, headers, body, _CONNECTIONS, 10, home)
            rate = load.n / load.wall / 2
        print(f"{rate:.0f} requests a second; {_memory(gateway):.1f} MB before", flush=True)
        for minute in range(1, minutes + 1):
            load = run_load(url, headers, content, _CONNECTIONS, 60, home, rate)
            times = f"p50 {load.p50 * 1000:.1f} ms, p99 {load.p99 * 1000:.1f} ms"
            print(f"minute {minute}: {load.n} answers, {times}, {_memory(gateway):.1f} MB", flush=True)


def _memory(gateway: gateways.Gateway) -> float:
    return (gateways.resident_bytes(gateway.pid) or 0) / _MB


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30, float(sys.argv[2]) if len(sys.argv) > 2 else 0)
