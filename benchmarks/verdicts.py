"""Draw many runs of `cnllm compare`: how often a host with a fault is named, and how often a faithful one is accused.

    python -m benchmarks verdicts [--quick] [--seed N] [--whole FILE]

The model errs in one of twenty replies, on each host by itself: it answers in words, forgets one of several calls,
writes another value or another type, or another number. On top of that a host has one of the simulator's faults, in a
share of its replies. Each reply that can occur is sent through the simulator, the parser and the judge once, and its
result is kept; a run draws from these, so that thousands of runs take minutes. Times are drawn.

With `--whole` every reply of every run goes the whole way, for faithful hosts alone. A run is a line of FILE, and those
that are there are not made again. Exit status 1 where a statement of the manual does not hold.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from cnllm import Registry
from cnllm.comparison import ComparisonResult, ComparisonTask, choose_hosts, compare, make_tasks
from cnllm.comparison.figures import find_verdicts
from cnllm.comparison.hosts import right_replies
from cnllm.comparison.report import ALPHA
from cnllm.comparison.run import Budget, LiveExchanges, run_task
from cnllm.simulator import SimTransport
from cnllm.simulator.reply import SimulatedReply
from cnllm.simulator.request import ParsedRequest, RequestCall
from cnllm.simulator.respond import Change
from cnllm.simulator.unfaithful import UnfaithfulHost, read_host_faults

__all__ = ["CASES", "FAITHFUL", "Case", "Laboratory", "draw_verdicts", "hosts_registry", "main"]

NOISE = 0.05
"""The share of replies in which the model errs."""
_TIME_SPREAD = 0.5  # of the logarithm of the time to the first piece
_MOST_TOKENS = 9000
_HOSTS = ("home", "away")
POWER = 0.9
"""The share of runs in which a fault is named."""


class Case(NamedTuple):
    """A host with a fault: the simulator's words, the share of replies that it spoils, and the figures that name it.

    `slower` is the factor of its times.
    """

    faults: str
    share: float
    figures: frozenset[str]
    slower: float = 1.0

    def __str__(self) -> str:
        what = f"{self.slower:g} times slower" if self.slower > 1 else self.faults or "faithful"
        return f"{what}, in {100 * self.share:g} % of replies" if self.share < 1 else what


FAITHFUL = Case("", 1, frozenset())
CASES = {
    100: (
        Case("lost-calls=10", 1, frozenset({"kept"})),
        Case("leaked-calls=10", 1, frozenset({"kept"})),
        Case("ignored-schemas", 0.2, frozenset({"valid", "schema"})),
        Case("repetition", 1, frozenset({"exact"})),
        Case("truncation=40", 1, frozenset({"exact", "cut"})),
        Case("forgotten-thoughts", 1, frozenset({"reasoning"})),
        Case("", 1, frozenset({"first"}), 1.8),
    ),
    200: (
        Case("lost-calls=20", 1, frozenset({"kept"})),
        Case("leaked-calls=20", 1, frozenset({"kept"})),
        Case("ignored-schemas", 0.15, frozenset({"valid", "schema"})),
        Case("repetition", 0.7, frozenset({"exact"})),
        Case("truncation=40", 0.6, frozenset({"exact", "cut"})),
        Case("forgotten-thoughts", 0.7, frozenset({"reasoning"})),
        Case("", 1, frozenset({"first"}), 1.7),
    ),
}
"""The faults at the sizes that the manual states, by the number of tool turns."""


def hosts_registry() -> Registry:
    """Return a registry with two hosts of the same weights."""
    text = "".join(
        f'[providers.{name}]\nextends = "openai-compatible"\nprotocol = "openai-chat"\n'
        f'base_url = "https://{name}.test/v1"\n[models."{name}/m"]\nweights = "lab/M"\n'
        f"limits = {{ context = {_MOST_TOKENS}, output = 8000 }}\n"
        'price = { currency = "USD", input = 1, output = 2 }\n'
        'tools.supported = true\nschema.methods = ["json_schema"]\n'
        'reasoning = { mode = "always", fields = ["reasoning_content"], replay = "tool-turns" }\n'
        for name in _HOSTS
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hosts.toml")
        path.write_text(text, encoding="utf-8")
        return Registry.load(path)


# ── the model ────────────────────────────────────────────────────────────────
def spoil(rng: random.Random, task: ComparisonTask, reply: SimulatedReply) -> SimulatedReply:
    """Return a right reply as a model that errs gives it; there are few ways, so that each occurs often."""
    if reply.calls:
        kinds = ["words", "value", "type"] + ["fewer"] * (len(reply.calls) > 1)
        return _spoil_calls(rng.choice(kinds), reply)
    if task.cut:
        return replace(reply, finish="stop")
    if task.schema is not None:
        answer = json.loads(reply.text)
        wrong = {"age": str(answer["age"])} if rng.random() < 0.5 else {"age": answer["age"] + 1}
        return replace(reply, text=json.dumps(answer | wrong))
    if task.kind == "restraint" and rng.random() < 0.5:
        return replace(
            reply, text="", calls=(RequestCall("call_0", "set_timer", '{"minutes": 5}'),), finish="tool_calls"
        )
    head, comma, _ = reply.text.rpartition(", ")
    return replace(reply, text=head if comma else "It is 1.")


def _spoil_calls(kind: str, reply: SimulatedReply) -> SimulatedReply:
    if kind == "words":
        return replace(reply, text="I will look that up.", calls=(), finish="stop")
    if kind == "fewer":
        return replace(reply, calls=reply.calls[:-1])
    *others, last = reply.calls
    arguments = json.loads(last.arguments)
    name = next(iter(arguments))
    value = arguments[name]
    values = {int: 1, str: "Rome", dict: {"name": "Nobody", "age": 1}}
    arguments[name] = [value] if kind == "type" else values[type(value)]
    call = replace(last, arguments=json.dumps(arguments, ensure_ascii=False))
    return replace(reply, calls=(*others, call))


# ── runs that draw from known results ────────────────────────────────────────
class Laboratory:
    """The tasks of a seed, and the result of each reply that was needed so far."""

    def __init__(self, registry: Registry, seed: int, turns: int) -> None:
        self.tasks = make_tasks(seed, turns, most_tokens=_MOST_TOKENS)
        (self._host,), _ = choose_hosts(registry, registry.resolve("home/m"), ["home/m"], need_keys=False)
        self._answer = right_replies(self.tasks)
        self._given: Sequence[SimulatedReply] = ()
        self._seen: list[tuple[ParsedRequest, SimulatedReply]] = []
        self._live = LiveExchanges(SimTransport(registry, change=self._change), Budget({}), None)
        self._results: dict[Any, ComparisonResult] = {}
        self._steps = {task.name: self._right_steps(task) for task in self.tasks}

    def _change(self, request: ParsedRequest, reply: SimulatedReply) -> SimulatedReply:
        right = self._answer(request, reply)
        self._seen.append((request, right))
        return self._given[len(self._seen) - 1] if self._given else right

    def _right_steps(self, task: ComparisonTask) -> list[tuple[ParsedRequest, SimulatedReply]]:
        self._given, self._seen = (), []
        run_task(self._host, task, self._live.ask)
        return self._seen

    def _judge(self, task: ComparisonTask, replies: Sequence[SimulatedReply]) -> ComparisonResult:
        """Return the result of these replies; the last one may be wrong, and ends the task."""
        key = task.name, *((reply.text, reply.calls, reply.finish) for reply in replies)
        if (known := self._results.get(key)) is None:
            self._given, self._seen = replies, []
            result, _ = run_task(self._host, task, self._live.ask)
            known = self._results[key] = replace(result, first=None, rate=None)
        return known

    def draw(self, rng: random.Random, case: Case) -> list[ComparisonResult]:
        """Return the results of one host in one run."""
        host = UnfaithfulHost(read_host_faults(case.faults), rng.randrange(1000))
        results = []
        for task in self.tasks:
            replies: list[SimulatedReply] = []
            for request, right in self._steps[task.name]:
                reply = spoil(rng, task, right) if rng.random() < NOISE else right
                if case.share == 1 or rng.random() < case.share:
                    reply = host.change(request, reply)
                replies.append(reply)
                if reply != right:
                    break
            first = 0.4 * case.slower * rng.lognormvariate(0, _TIME_SPREAD)
            results.append(replace(self._judge(task, replies), first=first))
        return results


def draw_verdicts(laboratories: Sequence[Laboratory], case: Case, runs: int, seed: int) -> Iterator[frozenset[str]]:
    """Yield the figures in which each run names a host with these faults, beside a faithful one."""
    for number in range(runs):
        rng = random.Random(f"{seed}/{case}/{number}")
        laboratory = laboratories[number % len(laboratories)]
        results = {"home": laboratory.draw(rng, FAITHFUL), "away": laboratory.draw(rng, case)}
        yield frozenset(v.figure for v in find_verdicts(results, ALPHA) if v.verdict == "worse")


# ── runs in which every reply goes the whole way ─────────────────────────────
class WholeRun(msgspec.Struct, frozen=True):
    """A run of two faithful hosts: its seed, and the results of each, from which the verdicts follow."""

    seed: int
    results: dict[str, list[ComparisonResult]]


def run_whole(path: Path, runs: int, turns: int) -> int:
    """Make the runs that the file lacks. Return how many of all of them accuse a host."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    known = {run.seed: run for run in (msgspec.json.decode(line, type=WholeRun) for line in lines)}
    registry = hosts_registry()
    accused = 0
    for seed in range(runs):
        if (run := known.get(seed)) is None:
            run = WholeRun(seed, _whole_results(registry, seed, turns))
            with path.open("ab") as file:
                file.write(msgspec.json.encode(run) + b"\n")
        accused += any(verdict.verdict == "worse" for verdict in find_verdicts(run.results, ALPHA))
    return accused


def _whole_results(registry: Registry, seed: int, turns: int) -> dict[str, list[ComparisonResult]]:
    tasks = make_tasks(seed, turns, most_tokens=_MOST_TOKENS)
    names = [f"{name}/m" for name in _HOSTS]
    results: dict[str, list[ComparisonResult]] = {name: [] for name in names}
    transports = {name: SimTransport(registry, change=_model(tasks, random.Random(f"{seed}/{name}"))) for name in names}
    compare(
        names[0],
        names,
        tasks=turns,
        seed=seed,
        registry=registry,
        transports=transports,
        on_result=lambda host, result: results[host].append(result),
    )
    return results


def _model(tasks: Sequence[ComparisonTask], rng: random.Random) -> Change:
    """Return a function that makes a reply of a model that errs now and then."""
    by_prompt = {task.prompt: task for task in tasks}
    answer = right_replies(tasks)

    def change(request: ParsedRequest, reply: SimulatedReply) -> SimulatedReply:
        reply = answer(request, reply)
        task = by_prompt.get(request.prompt)
        return reply if task is None or rng.random() >= NOISE else spoil(rng, task, reply)

    return change


def main(seed: int, whole: Path | None, *, quick: bool) -> int:
    """Print how often faults are named, and faithful hosts accused. Return 1 where the manual says more of it."""
    runs = 100 if quick else 500
    registry = hosts_registry()
    if whole is not None:
        accused = run_whole(whole, runs, 200)
        print(f"{accused} of {runs} whole runs accuse a faithful host")
        return int(accused > runs * ALPHA)
    is_wrong = False
    for turns, cases in CASES.items():
        laboratories = [Laboratory(registry, seed + number, turns) for number in range(2 if quick else 5)]
        for case in (*cases, FAITHFUL):
            named = list(draw_verdicts(laboratories, case, runs, seed))
            if case.figures:
                right = sum(bool(case.figures & figures) for figures in named)
                is_wrong |= right < runs * POWER
                words = f"named in {right} of {runs} runs"
            else:
                right = sum(map(bool, named))
                is_wrong |= right > runs * ALPHA
                words = f"accused in {right} of {runs} runs"
            print(f"{turns} turns: {case}: {words}", flush=True)
    return int(is_wrong)
