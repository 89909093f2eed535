"""Runs the same task in several peers, repetitions interleaved, and keeps what each round cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks import processes, venvs
from benchmarks.payloads import Setting
from benchmarks.processes import Broken, Command, Sample, Worker

T = TypeVar("T")
CNLLM, HAND, OPENAI = "cnllm", "httpx + orjson by hand", "openai SDK"
FAST, RAW = "cnllm[fast]", "raw socket + orjson"
ANTHROPIC, GENAI = "anthropic SDK", "google-genai SDK"
BARE, TYPED = "split + orjson, nothing kept", "split + msgspec typed, nothing kept"
OFF = "cnllm, calls in text not looked for"
RUNNERS = {
    CNLLM: "cnllm_client",
    FAST: "cnllm_client",
    RAW: "raw",
    OFF: "cnllm_client",
    HAND: "by_hand",
    OPENAI: "openai_sdk",
    ANTHROPIC: "anthropic_sdk",
    GENAI: "genai_sdk",
    BARE: "bare",
    TYPED: "bare",
}  # modules
TRANSPORTS = {FAST: "fast"}  # httpx's otherwise
VARIANTS = {TYPED: "_typed", OFF: "_off"}  # of a task


class Effort(NamedTuple):
    """How long to measure: a batch starts every worker anew, a round is one timing of each."""

    batches: int
    rounds: int
    seconds: float
    fresh: int  # rounds of those tasks that take a new process for each
    cold: int  # rounds of whole processes


QUICK = Effort(batches=1, rounds=5, seconds=0.15, fresh=3, cold=7)
FULL = Effort(batches=4, rounds=5, seconds=0.4, fresh=7, cold=25)


@dataclass
class Measured:
    """Each peer's rounds, in order, or why it could not be measured."""

    units: int  # of one call: a request is 1, a stream its chunks
    samples: dict[str, list[Sample]]
    broken: dict[str, str] = field(default_factory=dict)

    def attempt(self, label: str, do: Callable[[], T]) -> T | None:
        if label not in self.broken:
            try:
                return do()
            except Broken as problem:
                self.broken[label] = str(problem)
                self.samples[label].clear()
        return None

    def round(self, label: str, do: Callable[[], Sample]) -> None:
        if sample := self.attempt(label, do):
            self.samples[label].append(sample)

    def cpu(self, label: str) -> list[float]:
        """Microseconds of user and system time per unit."""
        return [1e6 * s.cpu / s.n / self.units for s in self.samples[label]]

    def wall(self, label: str) -> list[float]:
        return [1e6 * s.wall / s.n / self.units for s in self.samples[label]]


@dataclass
class Bench:
    """What every suite needs."""

    port: int
    home: Path
    effort: Effort
    optional: bool = False

    def peers(self, *always: str) -> list[str]:
        there = (name for name in venvs.OPTIONAL if self.optional and venvs.binary(peer=name).exists())
        return [*always, *there]

    def compare(self, peers: Iterable[str], task: str, setting: Setting, once: int = 0) -> Measured:
        """All peers in turns, each in its process; `once`: that many calls, then a new one."""
        measured = Measured(setting.units, {label: [] for label in peers})
        for batch in range(self.effort.fresh if once else self.effort.batches):
            workers: dict[str, tuple[Worker, int]] = {}
            for label in turned(list(measured.samples), batch):
                if started := measured.attempt(label, partial(self._start, label, task, setting, once)):
                    workers[label] = started
            for turn in range(1 if once else self.effort.rounds):
                for label, (worker, n) in turned(list(workers.items()), turn):
                    measured.round(label, partial(worker.run, n))
            for worker, _ in workers.values():
                worker.close()
        return measured

    def _start(self, label: str, task: str, setting: Setting, once: int) -> tuple[Worker, int]:
        runner, variant = RUNNERS.get(label, f"{label}_sdk"), task + VARIANTS.get(label, "")
        worker = Worker(label, runner, variant, setting, self.home, TRANSPORTS.get(label, "httpx"))
        return worker, once or max(1, round(self.effort.seconds / worker.run(1).wall))

    def processes(self, commands: Mapping[str, Command], checks: Mapping[str, str]) -> Measured:
        """Whole processes in turns; first each once to check what it prints (and to warm the page cache)."""
        measured = Measured(1, {label: [] for label in commands})
        for label, command in commands.items():
            said = measured.attempt(label, partial(processes.output, command, self.home))
            if said is not None and checks.get(label, "") not in said:
                measured.broken[label] = f"wrong output: {said.strip()[:80]!r}"
        for turn in range(self.effort.cold):
            for label, command in turned(list(commands.items()), turn):
                measured.round(label, partial(processes.whole, command, self.home))
        return measured


def turned(items: Sequence[T], by: int) -> list[T]:
    """The same items starting elsewhere, so that no one always comes after the same neighbour."""
    by %= len(items) or 1
    return [*items[by:], *items[:by]]
