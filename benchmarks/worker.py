"""Measures one runner in its own process: `python -m benchmarks.worker RUNNER TASK PORT MODE CHUNKS WIRE`.

It makes the runner, checks its result and says so; then each line on stdin is a number of calls to time,
answered by one line of JSON. A runner that drops data is not faster, it is wrong: so every round is checked.
The task is a function of the runner, whose calls come one after another (those of `acall` in one loop), those of
`astream` all at once. For
memory, `growth` is `stream`, warmed up on a short one, `memory` the same with what Python allocates in one more
call, and `requests` is `call`, warmed up by a hundred.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from benchmarks.payloads import Setting

Many = Callable[[int], list[object]]  # makes n calls, returns (some of) their results


def peak(forget: bool = False) -> int:
    """Return the highest resident memory in bytes, since it was last forgotten if the system can forget."""
    with contextlib.suppress(OSError, StopIteration):  # ru_maxrss is second best: it starts at the parent's
        if forget:
            with open("/proc/self/clear_refs", "w") as refs:
                refs.write("5")
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def in_turn(call: Callable[[], object]) -> Many:
    def several(n: int) -> list[object]:
        for _ in range(n - 1):
            call()  # its result is let go at once: kept, all of them would count as growth
        return [call()]

    return several


def at_once(call: Callable[[], Any]) -> Many:
    import asyncio

    async def gather(n: int) -> list[object]:
        return list(await asyncio.gather(*(call() for _ in range(n))))

    loop = asyncio.Runner()
    return lambda n: loop.run(gather(n))


def one_by_one(call: Callable[[], Any]) -> Many:
    """Await the calls in turn, all in one loop."""
    import asyncio

    async def several(n: int) -> list[object]:
        for _ in range(n - 1):
            await call()
        return [await call()]

    loop = asyncio.Runner()
    return lambda n: loop.run(several(n))


def check(results: list[object], setting: Setting) -> None:
    """Compare the data read with the data sent; the bare decoders, which collect nothing, count chunks instead."""
    for got in results:
        if got != setting.units and got != setting.expected:
            raise SystemExit(f"wrong result: got {got}, want {setting.expected}")


def measure(many: Many, n: int, setting: Setting) -> dict[str, float]:
    gc.collect()
    before, start = peak(), peak(forget=True)
    wall, cpu = time.perf_counter(), time.process_time()
    results = many(n)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    top = peak()
    check(results, setting)
    return {"n": n, "wall": wall, "cpu": cpu, "peak": max(before, top), "growth": top - start}


def held(many: Many) -> int:
    """Return the peak of what one more call allocates in Python: growth can hide in memory that was freed before."""
    tracemalloc.start()
    many(1)
    return tracemalloc.get_traced_memory()[1]


_FUNCTIONS = {"memory": "stream", "growth": "stream", "requests": "call"}


def main() -> None:
    runner, task, port, mode, chunks, wire = sys.argv[1:]
    setting = Setting(int(port), mode, int(chunks), wire)
    make = getattr(importlib.import_module(f"benchmarks.runners.{runner}"), _FUNCTIONS.get(task, task))
    warm = setting._replace(chunks=200) if task in ("memory", "growth") else setting
    many = {"astream": at_once, "acall": one_by_one}.get(task, in_turn)(make(warm))
    for _ in range(100 if task == "requests" else 3):
        check(many(1), warm)
    if warm != setting:
        many = in_turn(make(setting))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        sample = measure(many, int(line), setting)
        print(json.dumps(sample | ({"held": held(many)} if task == "memory" else {})), flush=True)
    os._exit(0)  # some peers leave threads behind


if __name__ == "__main__":
    main()
