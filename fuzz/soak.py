"""Many streams at once for a long time, some of which break: nothing is lost, nothing is mixed, nothing is left behind.

    python -m fuzz.soak [--streams 1000] [--seconds 600] [--transport fast|httpx]

The simulator is served by another process. Each stream asks with a number of its own, which the answer repeats: what
arrives has to be that answer, or its beginning where the server was told to break it. Every ten seconds the process's
memory and open files are measured; after the first fifth of the time they should not grow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cnllm
from cnllm import AsyncClient, Client, CnllmError, Model, Retry, Timeouts
from cnllm.transports import AsyncHttpx

from .models import registry

__all__ = ["Soak", "run", "served"]

_NAMES = (
    ("deepseek/deepseek-v4-pro", None),
    ("zai/glm-4.7", None),
    ("deepseek/deepseek-chat", "anthropic-messages"),
    ("google/gemini-2.5-pro", "gemini"),
    ("openai/gpt-5.1", "openai-responses"),
)
# What goes wrong, and how often of a hundred. The rest is left alone.
_FAULTS = (
    *(("cut", 4), ("drop", 4), ("reset", 4), ("reset-headers", 2), ("stall-middle", 1), ("error", 4)),
    *(("status=503; times=1", 4), ("retry-after=0.05; times=1", 4)),
)
_LEFT = (("cancelled", 5), ("left", 5))  # by this side, after a few events; of a hundred, too
_QUESTION = "number {:010d}."


@dataclass
class Soak:
    """The outcome. `wrong` holds what must not be, in words; `samples` are (seconds, KiB of memory, open files)."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    lasted: float = 0.0

    def slope(self, which: int) -> float:
        """Return the growth a minute of memory (1) or open files (2), by least squares, after the first fifth.

        What is measured when the time is over and the last streams end does not count.
        """
        rows = [s for s in self.samples if self.lasted / 5 <= s[0] <= self.lasted]
        if len(rows) < 2:
            return 0.0
        times, values = [row[0] / 60 for row in rows], [row[which] for row in rows]
        middle, mean = sum(times) / len(rows), sum(values) / len(rows)
        spread = sum((t - middle) ** 2 for t in times)
        return sum((t - middle) * (v - mean) for t, v in zip(times, values, strict=True)) / spread


@contextlib.contextmanager
def served(pace: float) -> Iterator[str]:
    """Start the simulator in another process; yield its address."""
    command = [sys.executable, "-m", "cnllm", "simulate", "--port", "0", "--pace", str(pace)]
    top = Path(__file__).resolve().parent.parent
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=top)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


@dataclass(frozen=True)
class _Target:
    """A model at the simulator, and what it thinks and says when asked for a number; `{}` stands for that."""

    model: Model
    text: str
    reasoning: str


def _targets(url: str) -> list[_Target]:
    out = []
    with Client(registry(), simulate=True) as client:
        for name, protocol in _NAMES:
            asked = _QUESTION.format(0)
            with client.stream(registry().resolve(name, protocol=protocol), asked) as stream:
                said = stream.reply
            assert asked in said.text, said.text
            model = registry().resolve(name, protocol=protocol, base_url=f"{url}/{name.partition('/')[0]}")
            out.append(_Target(model, said.text.replace(asked, "{}"), said.reasoning.replace(asked, "{}")))
    return out


def _chosen(dice: random.Random, weighted: tuple[tuple[str, int], ...]) -> str:
    at = dice.randrange(100)
    for name, weight in weighted:
        if (at := at - weight) < 0:
            return name
    return ""


async def _one(client: AsyncClient, target: _Target, number: int, dice: random.Random, soak: Soak) -> None:
    """Read one stream, broken or not, and check that it arrived as it should."""
    asked = _QUESTION.format(number)
    fault, leave = _chosen(dice, _FAULTS), _chosen(dice, _LEFT)
    headers = {"x-cnllm-fault": f"{fault}; id={number}"} if fault else {}
    text, reasoning, error = [], [], None
    after = dice.randint(1, 12)
    stream = client.stream(target.model, asked, extra_headers=headers)

    async def read() -> None:
        count = 0
        async with stream:
            async for event in stream:
                if isinstance(event, cnllm.TextDelta):
                    text.append(event.text)
                elif isinstance(event, cnllm.ReasoningDelta):
                    reasoning.append(event.text)
                count += 1
                if leave and count == after:
                    if leave == "left":
                        return
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    if after % 2:
                        await asyncio.sleep(0)  # here; else wherever it waits next, which is for the server

    try:
        if leave == "cancelled":
            task = asyncio.ensure_future(read())
            with contextlib.suppress(asyncio.CancelledError):
                await task
            leave = leave if task.cancelled() else ""
        else:
            await read()
    except CnllmError as caught:
        error = caught
    said, thought = "".join(text), "".join(reasoning)
    whole = (target.text.format(asked), target.reasoning.format(asked))
    outcome = f"{type(error).__name__}" if error else leave if (said, thought) != whole and leave else "whole"
    soak.outcomes[f"{fault.partition(';')[0] or 'no fault'}: {outcome}"] += 1
    told = f"{target.model.name} {number} {fault or 'no fault'} {outcome}"
    if not (whole[0].startswith(said) and whole[1].startswith(thought)):
        soak.wrong.append(f"{told}: it says {said!r} {thought!r}")
    if outcome == "whole":
        if (said, thought) != whole:
            soak.wrong.append(f"{told}: it is not all there: {said!r} {thought!r}")
        elif fault in ("cut", "drop", "reset", "stall-middle", "error", "reset-headers") and not leave:
            soak.wrong.append(f"{told}: a reply that was broken is taken for whole")
    if error is not None:
        got = error.reply
        if (got.text, got.reasoning) != (said, thought) if got is not None else said + thought:
            soak.wrong.append(f"{told}: what arrived is not in the error: {error} {got!r}")
        if not fault:
            soak.wrong.append(f"{told}: {error}")


def _open_files() -> int:
    return len(os.listdir("/dev/fd"))


def _memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


async def run(
    url: str, streams: int, seconds: float, transport: Any, *, turns: int = 0, seed: int = 0, every: float = 10.0
) -> Soak:
    """Run so many streams at a time, for so long, or `turns` for each; then close all, and tell what is left."""
    soak, targets = Soak(lasted=seconds), _targets(url)
    gc.collect()
    before, began = _open_files(), time.monotonic()
    client = AsyncClient(
        registry(), transport, api_key="sk-0123456789", retry=Retry(attempts=3, base=0.05), timeout=Timeouts(idle=30)
    )

    async def worker(which: int) -> None:
        dice, turn = random.Random(seed * 1_000_003 + which), 0
        await asyncio.sleep(dice.random() * min(5.0, seconds / 4))  # not all at the same moment
        while turn < turns or time.monotonic() - began < seconds:
            await _one(client, dice.choice(targets), which * 1_000_000 + turn, dice, soak)
            turn += 1

    async def watch() -> None:
        while True:
            await asyncio.sleep(every)
            soak.samples.append((time.monotonic() - began, _memory(), _open_files()))
            at, memory, files = soak.samples[-1]
            done = sum(soak.outcomes.values())
            print(f"{at:5.0f} s {done:8} streams {memory:8} KiB {files:5} files {len(soak.wrong)} wrong", flush=True)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(worker(which) for which in range(streams)))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await client.aclose()
    for _ in range(50):  # transports close their sockets in a later turn of the loop
        await asyncio.sleep(0)
    gc.collect()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    soak.left_behind += [f"a task: {task!r}" for task in tasks]
    if (after := _open_files()) > before:
        soak.left_behind.append(f"open files: {after}, {before} before")
    return soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.soak", description="many streams at once, for a long time")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--transport", choices=["fast", "httpx"], default="fast")
    parser.add_argument("--pace", type=float, default=0.1, help="seconds between the pieces of a stream")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else 65536, hard))
    with served(asked.pace) as url:
        soak = asyncio.run(run(url, asked.streams, asked.seconds, _transport(asked.transport), seed=asked.seed))
    for outcome, count in sorted(soak.outcomes.items()):
        print(f"{count:8}  {outcome}")
    done, load = sum(soak.outcomes.values()), " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{done} streams over {asked.transport}, {asked.streams} at a time; the machine's load was {load}")
    print(f"memory {soak.slope(1):+.0f} KiB a minute, open files {soak.slope(2):+.2f} a minute")
    for said in [*soak.wrong[:20], *soak.left_behind[:20]]:
        print(f"  {said[:600]}")
    print(f"{len(soak.wrong)} wrong, {len(soak.left_behind)} left behind")
    return 1 if soak.wrong or soak.left_behind else 0


def _transport(name: str) -> Any:
    if name == "httpx":
        return AsyncHttpx()
    from cnllm.transports.fast import AsyncFast

    return AsyncFast()


if __name__ == "__main__":
    sys.exit(main())
