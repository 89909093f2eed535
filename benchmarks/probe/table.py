"""Probe every model that was drawn, and write what came of it."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import cnllm.probe
from benchmarks.probe.invented import COUNT, invent
from benchmarks.probe.judge import Verdict, hidden, judge
from benchmarks.probe.models import draw
from benchmarks.probe.shown import Endpoint
from benchmarks.stats import table
from cnllm import Registry
from cnllm.simulator.server import running

GOALS = {60: 70, 200: 95}
"""The requests of a probe, and the share of the flags that differ which it is to find with them."""
BUDGETS = tuple(GOALS)
RESULTS = Path(__file__).with_name("RESULTS.md")
INVENTED = Path(__file__).with_name("INVENTED.md")
CACHE = Path(__file__).parents[2] / "build" / "probe-shown"
FOUND = ("recovered", "another")
WORDS = ("recovered", "another", "default", "wrong", "missed")


LIMIT = 60
"""The minutes in which a run is to end, on two cores that nobody else uses."""


class Run(NamedTuple):
    """One probe of one model: the flags' verdicts, and what it sent.

    `differing` are the flags that differ from what is assumed of any endpoint of the wire, `hidden` those whose name
    stands neither in the registry nor in any answer.
    """

    model: str
    protocol: str
    budget: int
    requests: int
    seconds: float
    verdicts: tuple[Verdict, ...]
    exchanges: tuple[str, ...] = ()
    error: str = ""
    differing: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()

    def count(self, *words: str) -> int:
        return sum(v.word in words for v in self.verdicts)

    def of_differing(self, *words: str) -> list[str]:
        """Return the flags that differ from what is assumed and can be found, with one of these verdicts."""
        wanted = self.differing - self.hidden
        return [v.flag for v in self.verdicts if v.flag in wanted and v.word in words]


class Task(NamedTuple):
    """A model to probe, and the numbers of requests. `overlay` is the file that invents it; `quick`: see `main`."""

    model: str
    protocol: str
    budgets: tuple[int, ...]
    overlay: str | None = None
    quick: bool = False


def probed(task: Task) -> list[Run]:
    """Probe a model with each number of requests."""
    name, protocol, budgets, overlay, quick = task
    registry = Registry.load()
    served = registry if overlay is None else Registry.load(overlay)  # the probe gets no answer from a registry
    model = served.resolve(name, protocol=protocol)
    endpoint = Endpoint(registry, model)
    shown, differing = _shown(endpoint, quick=quick)
    apart = hidden(endpoint, registry, differing) if overlay is not None else set()
    out = []
    for budget in budgets:
        with running(served, strict=True, neutral=True, models=[model.name]) as server:
            start = time.monotonic()
            try:
                report = cnllm.probe.run(
                    server.url, model="model-1", protocol=protocol, api_key="k", max_requests=budget, registry=registry
                )
                facts, sent, error = report.facts, report.requests, ""
            except cnllm.CnllmError as failure:  # a probe that ends in an error has learnt nothing
                report, facts, sent, error = None, [], 0, f"{type(failure).__name__}: {failure}"
            seconds = time.monotonic() - start
        verdicts = tuple(judge(endpoint, shown, facts))
        wrong = {v.flag for v in verdicts if v.word == "wrong"}
        exchanges = tuple(_exchanges(report, wrong)) if report is not None else ()
        run = Run(name, protocol, budget, sent, seconds, verdicts, exchanges, error)
        out.append(run._replace(differing=frozenset(differing), hidden=frozenset(apart)))
    print(f"{name} over {protocol}: {', '.join(_line(run) for run in out)}", file=sys.stderr, flush=True)
    return out


def _line(run: Run) -> str:
    if run.error:
        return run.error[:100]
    found, default, every = run.count(*FOUND), run.count("default"), run.count(*WORDS)
    missed = run.of_differing("missed")
    own = f"{len(run.of_differing(*FOUND))} of {len(run.of_differing(*WORDS))}"
    text = f"{run.requests} requests {own} that differ, {found} + {default} of {every}, {run.count('wrong')} wrong"
    return f"{text}, missed {' '.join(missed)}" if missed else text


def _shown(endpoint: Endpoint, *, quick: bool) -> tuple[list[str], list[str]]:
    """Return the flags that show, and those that differ from what is assumed; kept in `build`: it takes long.

    `quick`: of the flags that show only those that differ.
    """
    parts = [endpoint.model.name, endpoint.model.protocol, endpoint.flags, endpoint.plain, endpoint.digest, _code()]
    file = CACHE / f"{hashlib.sha256(msgspec.json.encode([*parts, quick])).hexdigest()[:32]}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([[] if quick else endpoint.shown(), endpoint.differing()]))
    shown, differing = json.loads(file.read_text())
    return sorted({*shown, *differing}), differing


def _code() -> str:
    """Return a digest of the code that decides what shows."""
    root = Path(__file__).parents[2]
    files = [Path(__file__).with_name(n) for n in ("variants.py", "shown.py")]
    files += [
        *sorted((root / "cnllm" / "simulator").glob("*.py")),
        *sorted((root / "cnllm" / "protocols").rglob("*.py")),
    ]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _exchanges(report: Any, flags: set[str]) -> Iterable[str]:
    """Yield the exchanges behind the facts of some flags, as text."""
    by_number = {exchange.number: exchange for exchange in report.exchanges}
    for fact in report.facts:
        if fact.flag not in flags and f"{fact.flag}.as" not in flags and fact.flag.removesuffix(".as") not in flags:
            continue
        yield f"{fact.flag} = {fact.value!r} ({fact.answer})"
        for number in fact.exchanges[:12]:
            exchange = by_number.get(number)
            if exchange is not None:
                answer = exchange.answer
                body = json.dumps(exchange.ask.body, ensure_ascii=False)
                said = answer.message or json.dumps(msgspec.to_builtins(answer.data), ensure_ascii=False, default=str)
                yield f"  {number}. {exchange.ask.why}: {body[:700]}"
                yield f"     {answer.status}: {said[:400]}"


# ── the page ─────────────────────────────────────────────────────────────────
def report(runs: Sequence[Run], seed: int, *, command: str, quick: bool = False) -> str:
    """Return the page, made by a command. `quick`: nothing is known of the flags that are as assumed."""
    models = {(run.model, run.protocol) for run in runs}
    providers = {name.partition("/")[0] for name, _ in models}
    budgets = sorted({run.budget for run in runs})
    parts = [
        "# What a probe finds out",
        f"Made by `{command}`; `benchmarks/probe/__init__.py` says what the words mean. A run is to end within {LIMIT} "
        "minutes on two cores that nobody else uses.",
        f"{len(models)} models of {len(providers)} providers, drawn with the seed {seed}; each by `cnllm.probe.run` "
        "over a socket, at `cnllm simulate --strict --neutral --model M`. It knows nothing of invented endpoints.",
        _sums(runs, budgets, quick=quick),
        "## By flag",
        _by_flag(runs, budgets),
        "## Missed of what differs",
        _missed(runs, budgets),
        "## Wrong",
        _wrong(runs),
        "## By model",
        _by_model(runs, budgets),
    ]
    return "\n\n".join(parts) + "\n"


def _ratio(runs: Sequence[Run]) -> str:
    """Return how many of the flags that differ from what is assumed were found."""
    found = sum(len(run.of_differing(*FOUND)) for run in runs)
    every = sum(len(run.of_differing(*WORDS)) for run in runs)
    return f"{found} of {every} ({100 * found / every:.1f} %)" if every else "–"


def _share(runs: Sequence[Run], *words: str) -> str:
    found = sum(run.count(*words) for run in runs)
    every = sum(v.truth is not None or v.word != "wrong" for run in runs for v in run.verdicts)
    return f"{found} of {every} ({100 * found / every:.1f} %)" if every else "–"


def _sums(runs: Sequence[Run], budgets: list[int], *, quick: bool) -> str:
    rows = []
    for protocol in ("all", *sorted({run.protocol for run in runs})):
        for budget in budgets:
            of = [run for run in runs if run.budget == budget and protocol in ("all", run.protocol)]
            requests = sorted(run.requests for run in of)
            seconds = sorted(run.seconds for run in of)
            rows.append(
                [
                    protocol,
                    budget,
                    len(of),
                    _ratio(of),
                    *(() if quick else (_share(of, *FOUND), _share(of, *FOUND, "default"))),
                    sum(run.count("wrong") for run in of),
                    sum(run.count("missed") for run in of),
                    requests[len(requests) // 2],
                    f"{seconds[len(seconds) // 2]:.1f} s",
                ]
            )
    every = "" if quick else "found of what shows | found, or as assumed | "
    head = (
        f"wire | at most | models | found of what differs | {every}wrong | missed | requests (median) | time (median)"
    )
    return table(head, rows)


def _by_flag(runs: Sequence[Run], budgets: list[int]) -> str:
    counts: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: {b: Counter() for b in budgets})
    for run in runs:
        for verdict in run.verdicts:
            counts[_general(verdict.flag)][run.budget][verdict.word] += 1
    head = "flag | " + " | ".join(
        f"{word} at {budget}" for budget in budgets for word in ("found", "as assumed", "wrong", "missed")
    )
    rows = []
    for flag, by in sorted(counts.items()):
        cells: list[Any] = []
        for budget in budgets:
            c = by[budget]
            cells += [
                c["recovered"] + c["another"],
                c["default"],
                f"**{c['wrong']}**" if c["wrong"] else 0,
                c["missed"],
            ]
        rows.append([f"`{flag}`", *cells])
    return table(head, rows)


def _missed(runs: Sequence[Run], budgets: list[int]) -> str:
    """Return the kinds of flags that were missed, and how many have a name that nobody says."""
    counts = {b: Counter(_general(f) for r in runs if r.budget == b for f in r.of_differing("missed")) for b in budgets}
    kinds = sorted(set().union(*counts.values()), key=lambda kind: (-counts[max(budgets)][kind], kind))
    rows = [[f"`{kind}`", *(counts[budget][kind] for budget in budgets)] for kind in kinds]
    apart = sum(len(run.hidden) for run in runs if run.budget == max(budgets))
    text = f"{apart} flags are counted apart: their names stand neither in the registry nor in any answer."
    return f"{table('flag | ' + ' | '.join(f'missed at {b}' for b in budgets), rows)}\n\n{text}"


def _general(flag: str) -> str:
    """Return a flag without what differs by endpoint: the paths of patches and the modes of a `when`."""
    keys = flag.split(".")
    if keys[0] == "when":
        return f"when.{_general('.'.join(keys[2:]))}"
    if "set" in keys[:-1]:
        return ".".join(keys[: keys.index("set") + 1])
    return flag


def _wrong(runs: Sequence[Run]) -> str:
    lines = [
        f"- {run.model} over {run.protocol}, {run.budget} requests: `{v.flag}` is "
        f"`{json.dumps(v.truth, ensure_ascii=False)}`, and the probe says `{json.dumps(v.fact, ensure_ascii=False)}`"
        for run in runs
        for v in run.verdicts
        if v.word == "wrong"
    ]
    return "\n".join(lines) or "Nothing."


def _by_model(runs: Sequence[Run], budgets: list[int]) -> str:
    by: dict[tuple[str, str], dict[int, Run]] = defaultdict(dict)
    for run in runs:
        by[run.model, run.protocol][run.budget] = run
    head = "model | wire | " + " | ".join(f"found at {b} | wrong | requests" for b in budgets)
    rows = []
    for (model, protocol), of in by.items():
        cells: list[Any] = []
        for budget in budgets:
            run = of[budget]
            cells += [run.error[:40] or _share([run], *FOUND), run.count("wrong"), run.requests]
        rows.append([model, protocol, *cells])
    return table(head, rows)


def main(seed: int = 1, only: str | None = None, *, invented: int = 0, quick: bool = False, workers: int = 2) -> int:
    """Probe the models, print the page, and write it where all were probed. Exit status 1 if a goal is missed.

    `invented` is the number of endpoints that are made up; 0: models are drawn from the registry. `quick`: only the
    flags that differ from what is assumed are judged, and those that the probe finds; the others take most of the time.
    """
    start = time.monotonic()
    CACHE.mkdir(parents=True, exist_ok=True)
    if invented:
        text, names = invent(seed, invented)
        overlay = str(CACHE.parent / f"probe-invented-{seed}.toml")
        Path(overlay).write_text(text, encoding="utf-8")
        tasks = [Task(name, protocol, BUDGETS, overlay, quick) for name, protocol in names]
    else:
        tasks = [Task(m.name, m.protocol, BUDGETS, None, quick) for m in draw(Registry.load(), seed)]
    tasks = [t for t in tasks if only is None or only in (t.model.partition("/")[0], t.protocol) or only in t.model]
    with ProcessPoolExecutor(workers) as pool:
        runs = [run for group in pool.map(probed, tasks) for run in group]
    command = (
        f"python -m benchmarks probe{' --invented' if invented else ''}{' --quick' if quick else ''} --seed {seed}"
    )
    page = report(runs, seed, command=command, quick=quick)
    print(page)
    minutes = (time.monotonic() - start) / 60
    print(f"{minutes:.0f} minutes of at most {LIMIT}", file=sys.stderr)
    _keep_exchanges(runs)
    if only is None and (invented == COUNT if invented else seed == 1):
        (INVENTED if invented else RESULTS).write_text(page, encoding="utf-8")
    return 0 if passes(runs, minutes) else 1


def passes(runs: Sequence[Run], minutes: float) -> bool:
    """Whether a run ended in time, said nothing wrong, and found as much of what differs as the goals say."""
    if minutes > LIMIT or any(run.count("wrong") for run in runs):
        return False
    for budget, goal in GOALS.items():
        of = [run for run in runs if run.budget == budget]
        if sum(len(r.of_differing(*FOUND)) for r in of) * 100 < goal * sum(len(r.of_differing(*WORDS)) for r in of):
            return False
    return True


def _keep_exchanges(runs: Sequence[Run]) -> None:
    """Write the exchanges behind the wrong facts to a file of `build`."""
    lines = [
        line
        for run in runs
        if run.exchanges
        for line in (f"## {run.model} over {run.protocol}, {run.budget} requests", *run.exchanges)
    ]
    if lines:
        file = CACHE.parent / "probe-wrong.txt"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"the exchanges behind the wrong ones: {file}", file=sys.stderr)
