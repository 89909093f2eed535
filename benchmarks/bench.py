"""Runs the same task in several peers, repetitions interleaved, and keeps what each round cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks import instructions, processes
from benchmarks.payloads import Setting
from benchmarks.peers import PEERS
from benchmarks.processes import Broken, Command, Missing, Worker
from benchmarks.results import Row, Sample
from benchmarks.venvs import binary

T = TypeVar("T")
HURRIED = "left out of a quick run"


class Effort(NamedTuple):
    """The length of a measurement: a batch starts every worker anew, a round is one timing of each."""

    batches: int
    rounds: int
    seconds: float
    fresh: int  # rounds of those tasks that take a new process for each
    cold: int  # rounds of whole processes
    quick: bool = False


QUICK = Effort(batches=1, rounds=5, seconds=0.1, fresh=2, cold=3, quick=True)
FULL = Effort(batches=3, rounds=5, seconds=0.4, fresh=3, cold=12)


class Whole(NamedTuple):
    """A whole process of a peer: what to start, and what it must print."""

    peer: str
    command: Command
    says: str = ""
    transport: str = "httpx"

    @property
    def is_counted(self) -> bool:
        """Whether its instructions are counted: those of programs in the first environment."""
        return binary().parent in (Path(self.command[0]).parent, Path(self.command[-1]).parent)


@dataclass
class Rounds:
    """The rows of one case while they are measured; one that went wrong once is out, with the reason."""

    rows: dict[str, Row]
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def attempt(self, peer: str, do: Callable[[], T]) -> T | None:
        row = self.rows[peer]
        if not (row.missing or row.failed):
            try:
                return do()
            except Broken as problem:
                self.rows[peer] = replace(row, failed=str(problem))
            except Missing as problem:
                self.rows[peer] = replace(row, missing=str(problem))
        return None

    def round(self, peer: str, do: Callable[[], Sample]) -> None:
        if sample := self.attempt(peer, do):
            self.samples.setdefault(peer, []).append(sample)

    def done(self) -> list[Row]:
        """Drop the rounds of a peer that failed on the way: half of them would say too little."""
        return [
            row if row.failed or row.missing else replace(row, rounds=tuple(self.samples.get(peer, ())))
            for peer, row in self.rows.items()
        ]


@dataclass(frozen=True)
class Bench:
    """The values that every suite needs."""

    port: int
    home: Path
    effort: Effort

    def compare(
        self,
        suite: str,
        case: str,
        peers: Iterable[str],
        task: str,
        setting: Setting,
        *,
        once: int = 0,
        fresh: int = 0,
        units: float = 0,
        counted: int = 0,
    ) -> list[Row]:
        """Measure all peers in turns, each in its process; `once`: that many calls, then a new one, `fresh` times.

        `units` of one call, where they are not those of the setting. With `counted`, instructions of as many calls
        are counted as well, of peers in the first environment: of the others the times are enough.
        """
        found = Rounds({peer: Row(suite, case, peer, units or setting.units) for peer in peers})
        for batch in range((fresh or self.effort.fresh) if once else self.effort.batches):
            workers: dict[str, tuple[Worker, int]] = {}
            for peer in turned(list(found.rows), batch):
                if started := found.attempt(peer, partial(self._start, peer, task, setting, once)):
                    workers[peer] = started
            for turn in range(1 if once else self.effort.rounds):
                for peer, (worker, n) in turned(list(workers.items()), turn):
                    found.round(peer, partial(worker.run, n))
            for worker, _ in workers.values():
                worker.close()
        rows = found.done()
        if not (counted and instructions.is_available()):
            return rows

        def count(row: Row) -> Row:
            if row.why_not or PEERS[row.peer].env != "base":
                return row
            return replace(row, instructions=instructions.count_calls(row.peer, task, setting, self.home, counted))

        return [count(row) for row in rows]

    def _start(self, peer: str, task: str, setting: Setting, once: int) -> tuple[Worker, int]:
        worker = Worker(PEERS[peer], task, setting, self.home)
        return worker, once or max(1, round(self.effort.seconds / worker.run(1).wall))

    def processes(self, suite: str, cases: Mapping[str, Sequence[Whole]]) -> list[Row]:
        """Measure whole processes in turns; first run each once to check its output (and to warm the page cache)."""
        every = [(case, whole) for case, several in cases.items() for whole in several]
        found = Rounds({f"{case}|{whole.peer}": Row(suite, case, whole.peer) for case, whole in every})
        for case, whole in every:
            found.attempt(f"{case}|{whole.peer}", partial(self._checked, whole))
        for turn in range(self.effort.cold):
            for case, whole in turned(every, turn):
                run = partial(processes.whole, whole.command, self.home, whole.transport)
                found.round(f"{case}|{whole.peer}", run)
        if not instructions.is_available():
            return found.done()

        def count(row: Row) -> Row:
            (whole,) = (one for case, one in every if (case, one.peer) == (row.case, row.peer))
            if row.why_not or not whole.is_counted:
                return row
            counted = instructions.count_process(whole.command, self.home, whole.transport)
            return replace(row, instructions=counted)

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(count, found.done()))

    def _checked(self, whole: Whole) -> None:
        said = processes.output(whole.command, self.home, whole.transport)
        if whole.says not in said:
            raise Broken(f"wrong output: {said.strip()[:80]!r}")


def left_out(suite: str, case: str, peers: Iterable[str], why: str) -> list[Row]:
    """Return rows of peers that a case is not measured with, and the reasons."""
    return [Row(suite, case, peer, missing=why) for peer in peers]


def turned(items: Sequence[T], by: int) -> list[T]:
    """Return the same items from another start, so that no one always comes after the same neighbour."""
    by %= len(items) or 1
    return [*items[by:], *items[:by]]
