"""README.md out of the results: what is measured and how, the goals, the tables."""

from collections.abc import Sequence

from benchmarks.describe import ABOUT, About, Form
from benchmarks.goals import MB, goals
from benchmarks.payloads import Setting
from benchmarks.peers import VENDORS
from benchmarks.results import Results, Row
from benchmarks.stats import Spread, ratio, spread, table

PLOT = "plot.svg"

HEAD = f"""# How fast

<!-- Written by `python -m benchmarks`; `python -m benchmarks report` writes it again from results.json. -->

![CPU time of cnllm and its peers: a streamed chunk, a request, a first call, 256 streams at once]({PLOT})

## Run it

```sh
python -m benchmarks setup      # once: an environment for each peer in .bench-venv, the versions in pins/
python -m benchmarks            # measures everything, writes this page, {PLOT} and results.json
python -m benchmarks --quick --compare HEAD   # is anything slower than in the stored run? Writes nothing
```

On a quiet machine a run takes about forty minutes, one with `--quick` ten minutes; `--only SUITE` measures one suite
and prints it. `report` makes page and plot again from `results.json` without measuring. `setup --latest` takes the
newest releases of everyone and pins those. `--compare` takes a results.json or a git revision that has one, prints the
ratios to it with their spread, and exits with 1 where something of cnllm is slower or larger beyond it. A run wants
Python 3.11 or later, two cores for itself, and Linux (elsewhere processes are not held on a core, and peaks of memory
are those since the start).

## What is measured

- A stub server on this machine answers from memory; it has one core, who is measured has another. Nothing leaves
  127.0.0.1. There is no TLS, and nothing of a model's own time: the rest is the price of a client.
- Every peer runs in a process and an environment of its own, through its public interface, and does the same work.
  Before anything is timed, and after every round, an answer it has read (of streams at once: all of them) is compared
  with what was sent: the lengths of reasoning and text, the parsed arguments of the tool call. A peer that drops
  something is not faster but wrong, and has no figures.
- Rounds are interleaved, each begins with another peer, so that a busy minute hits all. A cell is the median
  (lowest–highest) over the rounds; a ratio is taken round by round first. CPU is user and system time of the process.
- Instructions are counted by valgrind, where it is installed: twice the same program with different numbers of calls,
  the difference divided by the difference of the calls. They do not depend on what else the machine does.
- The raw socket with orjson is a limit and no client: no errors, no retry, no types. httpx by hand is what a careful
  person writes in an afternoon. litellm is called by its prefix `deepseek/`, which costs it less than `openai/`, with
  its price list on disk; any-llm by its provider of that name, one client for all calls (its `completion()` makes a new
  one each time). pydantic-ai is asynchronous within: a loop runs each call, as in its own synchronous functions.
- A ratio may be carried to another machine, an absolute figure may not. A model sends 20 to 200 chunks a second: what
  a chunk costs is felt with many streams in one process, on a battery, or on a small machine, and not in one chat.
"""


_PROFILE = "Where a goal is not met, [PROFILE.md](PROFILE.md) shows where the rest goes."


def report(results: Results) -> str:
    """Return the whole page."""
    found = table("target | measured | goal | met", [goal.row() for goal in goals(results)])
    seen = table("environment | versions", [(env, ", ".join(names)) for env, names in results.versions])
    parts = [HEAD.strip(), f"{results.how}: {results.machine}.", seen, "## Goals", found]
    return "\n\n".join([*parts, _PROFILE, *(suite(results, name) for name in ABOUT)]) + "\n"


def suite(results: Results, name: str) -> str:
    """Return one suite's heading, table, and the peers that are missing."""
    about, rows = ABOUT[name], results.of(name)
    if not rows:
        return f"## {about.title}\n\nNot part of this run."
    shown = {Form.UNIT: _units, Form.PROCESS: _processes, Form.MEMORY: _memory, Form.LOAD: _loads}[about.form]
    head, cells = shown(results, about, [row for row in rows if not row.why_not])
    remarks = _remarks(rows) + (_sizes() if name == "wires" else [])
    parts = [f"## {about.title}", f"{about.how} Figures are of {about.unit}.", table(head, cells)]
    return "\n\n".join([*parts, *(["\n".join(remarks)] if remarks else [])])


def _cpu_against(results: Results, row: Row, peer: str) -> Spread | None:
    """Return that row's ratio to a peer in the same case; None where that one is not in it."""
    return ratio(row.cpu(), results.row(row.suite, row.case, peer).cpu())


def _wall_against(results: Results, row: Row, peer: str) -> Spread | None:
    """Return the ratio to a process that stands alone in a case of its own."""
    return next((ratio(row.wall(), one.wall()) for one in results.of(row.suite) if one.peer == peer), None)


Cells = tuple[str, list[Sequence[object]]]


def _units(results: Results, about: About, rows: list[Row]) -> Cells:
    against = [f"CPU, x {peer}" for peer in about.against]
    counted = ["instructions"] if any(row.instructions for row in rows) else []
    head = ["case", "peer", "CPU µs", "wall µs", *against, *counted, "peak RSS MB"]
    cells: list[Sequence[object]] = []
    for row in rows:
        held_against = [_cpu_against(results, row, peer) for peer in about.against]
        number = [_thousands(row)] if counted else []
        peak = spread(s.peak / MB for s in row.rounds if s.peak is not None)
        cells.append([row.case, row.peer, spread(row.cpu()), spread(row.wall()), *held_against, *number, peak])
    return " | ".join(head), cells


def _thousands(row: Row) -> str | None:
    """Return the instructions of a unit, in thousands."""
    if row.instructions is None:
        return None
    number = row.instructions / row.units / 1e3
    return f"{number:,.0f} k" if number >= 100 else f"{number:.1f} k"


def _processes(results: Results, about: About, rows: list[Row]) -> Cells:
    counted = ["instructions"] if any(row.instructions for row in rows) else []
    head = ["case", "peer", "wall ms", "CPU ms", *(f"wall, x `{peer}`" for peer in about.against), *counted]
    cells: list[Sequence[object]] = []
    for row in rows:
        held_against = [_wall_against(results, row, peer) for peer in about.against]
        number = [_thousands(row)] if counted else []
        cells.append([row.case, row.peer, spread(row.wall(1e3)), spread(row.cpu(1e3)), *held_against, *number])
    return " | ".join(head), cells


def _memory(results: Results, about: About, rows: list[Row]) -> Cells:
    cells: list[Sequence[object]] = []
    for row in rows:
        sizes = [
            spread(size / MB for s in row.rounds if (size := getattr(s, name)) is not None)
            for name in ("growth", "held", "peak")
        ]
        cells.append([row.case, row.peer, *sizes])
    return "case | peer | resident memory grew by MB | allocated in Python at most MB | peak RSS MB", cells


def _loads(results: Results, about: About, rows: list[Row]) -> Cells:
    (limit,) = about.against
    head = ["case", "peer", "a second", f"x {limit}", "p50 ms", "p99 ms", "CPU µs", "ready after ms", "resident MB"]
    cells: list[Sequence[object]] = []
    for row in rows:
        is_load = any(s.p50 is not None for s in row.rounds)
        rate = [1e6 / wall for wall in row.wall()] if is_load else []
        against = ratio(results.row(row.suite, row.case, limit).wall(), row.wall()) if is_load else None
        p50 = spread(1e3 * s.p50 for s in row.rounds if s.p50 is not None)
        p99 = spread(1e3 * s.p99 for s in row.rounds if s.p99 is not None)
        cpu = spread(value for value in row.cpu() if is_load and value)
        ready = spread(wall for wall in row.wall(1e3) if wall) if not is_load else None
        size = spread(s.peak / MB for s in row.rounds if s.peak is not None)
        cells.append([row.case, row.peer, spread(rate), against, p50, p99, cpu, ready, size])
    return " | ".join(head), cells


def _remarks(rows: list[Row]) -> list[str]:
    """Return the peers that are not in the table, and the reasons: the peers of one reason in one line."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.why_not:
            reasons.setdefault((row.case, row.why_not), []).append(row.peer)
    return [f"- {case}: {', '.join(peers)}: not measured: {why}" for (case, why), peers in reasons.items()]


def _sizes() -> list[str]:
    """Return a caution: an event is not as long on every wire, which matters for the comparison with the chat wire."""

    def mean(wire: str) -> float:
        events = Setting(0, "event", 1000, wire).events()
        return sum(map(len, events)) / len(events)

    chat = mean("openai-chat")
    return [f"- {wire}: an event of the chat stream has {chat / mean(wire):.2f} times the bytes" for wire in VENDORS]
