"""`python -m benchmarks [setup|faults] [--quick] [--only SUITE] [--peers all]`"""

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path

from benchmarks import in_process, processes, venvs, whole_processes
from benchmarks.bench import FULL, QUICK, Bench
from benchmarks.faults import table as table_of_faults
from benchmarks.stats import Section, table

SUITES = {
    "stream": in_process.stream,
    "parse": in_process.parse,
    "filters": in_process.filters,
    "wires": in_process.wires,
    "call": in_process.call,
    "concurrent": in_process.concurrent,
    "cold": whole_processes.cold,
    "registry": whole_processes.registry,
    "memory": in_process.memory,
}
DO = "setup makes .bench-venv; faults asks all what they make of answers that go wrong"
INTRO = """\
Made by `python -m benchmarks`. Everything on loopback: a stub that answers from memory has one core, what
is measured another. Repetitions are interleaved; a cell is the median (lowest–highest) of the rounds, a
ratio is taken round by round first. CPU is user + system time. Each result was checked for its text, its
reasoning and its tool arguments. A ratio may be carried to another machine; an absolute figure may not. No
TLS; not the model's time."""


def report(sections: list[Section], how: str) -> str:
    machine = f"{how}; CPython {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores"
    goals = table("target | measured | goal | met", [goal.row() for s in sections for goal in s.goals])
    head = ["# Results", INTRO, f"{machine}; {venvs.versions()}.", "## Goals", goals]
    return "\n\n".join([*head, *(section.markdown().strip() for section in sections)]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="cnllm beside its limit and its peers")
    parser.add_argument("do", nargs="?", default="run", choices=["run", "setup", "faults"], help=DO)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, under a minute")
    parser.add_argument("--only", choices=SUITES, help="one suite; printed, not written to RESULTS.md")
    parser.add_argument("--peers", choices=["all"], help=f"the optional ones too: {', '.join(venvs.OPTIONAL)}")
    asked = parser.parse_args()
    if asked.do == "faults":
        return table_of_faults.main()
    if asked.do == "setup":
        if asked.peers:
            table_of_faults.setup()
        return venvs.setup(optional=bool(asked.peers))
    if not venvs.binary().exists():
        print("there is no .bench-venv: run `python -m benchmarks setup` first", file=sys.stderr)
        return 2
    effort, how = (QUICK, "A quick run") if asked.quick else (FULL, "A full run")
    sections = []
    with tempfile.TemporaryDirectory() as home, processes.stub() as port:
        bench = Bench(port, Path(home), effort, optional=bool(asked.peers))
        for name in [asked.only] if asked.only else SUITES:
            print(f"{name} …", file=sys.stderr, flush=True)
            sections.append(SUITES[name](bench))
    text = report(sections, how)
    print(text)
    if not asked.only:
        Path(__file__).with_name("RESULTS.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
