"""`python -m benchmarks [TASK] [--quick] [--only SUITE] [--compare BASE] [--latest] [--seed N]`"""

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import fairness, instructions, processes, routes, venvs, verdicts
from benchmarks.bench import FULL, QUICK, Bench
from benchmarks.compare import compare, read_base
from benchmarks.describe import ABOUT
from benchmarks.faults import table as table_of_faults
from benchmarks.plot import svg
from benchmarks.probe import table as table_of_probe
from benchmarks.report import PLOT, report, suite
from benchmarks.results import Results, Row
from benchmarks.suites import SUITES

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
_TASKS = ["run", "setup", "report", "faults", "probe", "routes", "verdicts", "gateway-fairness"]
DO = (
    "run unless said; faults asks every client what it makes of answers that go wrong, probe what a probe finds out, "
    "routes what becomes of tool turns where hosts degrade, verdicts how often a comparison names a fault, "
    "and gateway-fairness what one key can do to another"
)


def measured(quick: bool, only: str | None) -> Results:
    """Run the suites; the results name a peer that is not installed."""
    seen = venvs.versions()
    day, python = time.strftime("%Y-%m-%d"), platform.python_version()
    busy = f", load {os.getloadavg()[0]:.1f} before" if hasattr(os, "getloadavg") else ""  # with others' work: noise
    machine = f"{day}, CPython {python}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores{busy}"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as home, processes.stub() as port:
        bench = Bench(port, Path(home), QUICK if quick else FULL)
        for name in [only] if only else SUITES:
            start = time.monotonic()
            rows += SUITES[name](bench)
            print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return Results("A quick run" if quick else "A full run", machine, seen, tuple(rows))


def written(results: Results) -> None:
    """Write the page and the plot."""
    (HERE / "README.md").write_text(report(results), encoding="utf-8")
    (HERE / PLOT).write_text(svg(results), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="cnllm beside its limit and its peers")
    parser.add_argument("do", nargs="?", default="run", choices=_TASKS, help=DO)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; probe: only what differs")
    parser.add_argument("--only", choices=ABOUT, help="one suite; printed, nothing is written")
    parser.add_argument(
        "--compare", metavar="BASE", help="a results.json or a git revision; 1 where something is slower"
    )
    parser.add_argument("--seed", type=int, default=1, help="probe: draws other models; a page is written with 1")
    parser.add_argument("--model", metavar="PART", help="probe: those of the models whose name or wire it is part of")
    parser.add_argument(
        "--invented",
        type=int,
        nargs="?",
        const=60,
        default=0,
        metavar="N",
        help="probe: N endpoints that no vendor has; with 60 a page is written",
    )
    parser.add_argument("--whole", metavar="FILE", type=Path, help="verdicts: whole runs, which FILE keeps")
    parser.add_argument("--latest", action="store_true", help="setup: the newest versions, which are then pinned")
    asked = parser.parse_args()
    if asked.do == "setup":
        return venvs.setup(asked.latest)
    if asked.do == "faults":
        return table_of_faults.main()
    if asked.do == "gateway-fairness":
        return fairness.main(quick=asked.quick)
    if asked.do == "probe":
        return table_of_probe.main(asked.seed, asked.model, invented=asked.invented, quick=asked.quick)
    if asked.do == "routes":
        return routes.main(asked.seed, quick=asked.quick)
    if asked.do == "verdicts":
        return verdicts.main(asked.seed, asked.whole, quick=asked.quick)
    if asked.do == "report":
        if not RESULTS.exists():
            print("there is no results.json: run `python -m benchmarks` first", file=sys.stderr)
            return 2
        written(Results.from_json(RESULTS.read_text(encoding="utf-8")))
        return 0
    if not venvs.binary().exists():
        print("there is no .bench-venv: run `python -m benchmarks setup` first", file=sys.stderr)
        return 2
    try:
        base = read_base(asked.compare) if asked.compare else None
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    results = measured(asked.quick, asked.only)
    if base:
        if not instructions.is_available():
            print("valgrind is not installed: only times are compared", file=sys.stderr)
        text, is_worse = compare(base, results)
        print(text)
        return int(is_worse)
    if asked.only:
        print(suite(results, asked.only))
        return 0
    RESULTS.write_text(results.to_json(), encoding="utf-8")
    written(results)
    print(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
