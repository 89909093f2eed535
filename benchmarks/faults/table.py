"""Ask every client for every case, and write the outcomes."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import venvs
from benchmarks.faults.answers import STREAMS, Case, cases
from benchmarks.faults.clients import CLIENTS
from benchmarks.faults.server import serving
from benchmarks.processes import environment
from benchmarks.stats import table

BOUND = 15.0  # seconds, after which it hangs
LARGE = 300_000_000  # bytes that a process may grow by unmentioned
RESULTS = Path(__file__).with_name("RESULTS.md")
WORDS = ("whole", "error", "told", "lie", "untyped", "hang")


class Outcome(NamedTuple):
    """A word of the package's docstring, the exception's name, whether a truncated call was handed out, the growth."""

    word: str
    detail: str = ""
    call: bool = False
    grown: int = 0

    def cell(self) -> str:
        shown = {"lie": "**lie**", "hang": "**hang**", "untyped": f"**untyped** {self.detail}"}.get(
            self.word, self.word
        )
        more = ", **call**" if self.call else ""
        return shown + more + (f", {self.grown // 1_000_000} MB" if self.grown > LARGE else "")


def python(client: str) -> Path:
    """Return the interpreter of a client."""
    return venvs.binary(env=client if client in venvs.WANTED else "base")


def judged(case: Case, said: dict[str, Any] | None) -> Outcome:
    """Return the first word of the package's docstring that holds."""
    if said is None:
        return Outcome("hang")
    grown = int(said.get("grown", 0))
    if "untyped" in said:
        return Outcome("untyped", said["untyped"], grown=grown)
    if "error" in said:
        return Outcome("error", said["error"], grown=grown)
    whole = [json.loads(arguments) for arguments in case.calls]
    truncated = any(_read(arguments) not in whole for arguments in said["calls"])
    lost = case.whole and len(said["calls"]) < len(whole)
    word = "told" if said["unfinished"] else "whole" if case.whole and not (truncated or lost) else "lie"
    return Outcome(word, call=truncated, grown=grown)


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return None


class Client:
    """A client's process, started anew after a hang; `first` is a call to warm up with."""

    def __init__(self, name: str, home: Path, first: str) -> None:
        self.name = name
        self._first = first
        self._home = home
        self._process: subprocess.Popen[str] | None = None

    def ask(self, url: str) -> dict[str, Any] | None:
        """Return the client's output, or None where it hangs."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{url}\n")
            process.stdin.flush()
        except BrokenPipeError:
            return {"untyped": "the process died"}
        return self._line(process, BOUND)

    def _start(self) -> subprocess.Popen[str]:
        transport = "fast" if self.name.endswith("[fast]") else "httpx"
        self._process = process = subprocess.Popen(
            [python(self.name), "-m", "benchmarks.faults.clients", self.name],
            cwd=venvs.ROOT,
            env=environment(self._home) | {"CNLLM_TRANSPORT": transport},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(f"{self._first}\n")
        process.stdin.flush()
        if self._line(process, 120) != {} or not self._line(process, 120):
            sys.exit(f"{self.name} does not start: python -m benchmarks setup")
        return process

    def _line(self, process: subprocess.Popen[str], bound: float) -> dict[str, Any] | None:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], bound)
        line = process.stdout.readline() if ready else ""
        if line:
            said: dict[str, Any] = json.loads(line)
            return said
        self.close()
        return {"untyped": "the process died"} if ready else None

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def measured(names: list[str], asked: list[Case], port: int, home: Path) -> dict[str, list[Outcome]]:
    """Return every outcome, client by client; some clients run side by side, since much of it is waiting."""

    def one(name: str) -> list[Outcome]:
        client, outcomes = Client(name, home, f"http://127.0.0.1:{port}/0/v1"), []
        for number, case in enumerate(asked):
            outcomes.append(judged(case, client.ask(f"http://127.0.0.1:{port}/{number}/v1")))
        client.close()
        print(f"{name}: done", file=sys.stderr, flush=True)
        return outcomes

    with ThreadPoolExecutor(3) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def report(asked: list[Case], found: dict[str, list[Outcome]]) -> str:
    """Return the page."""
    names = list(found)
    cut = [n for n, case in enumerate(asked) if case.cut]
    rows = []
    for name in names:
        counts = Counter(found[name][n].word for n in cut)
        calls = sum(found[name][n].call for n in cut)
        rows.append([name, *(str(counts[word]) for word in WORDS if word != "whole"), str(calls)])
    clean = table("client | " + " | ".join(w for w in WORDS if w != "whole") + " | truncated call handed out", rows)
    lies = []
    for stream in STREAMS:
        of = [n for n in cut if asked[n].name == stream]
        lies.append(
            [f"{stream} ({len(of)} cuts)", *(str(sum(found[name][n].word == "lie" for n in of)) for name in names)]
        )
    by_stream = table("presented as whole | " + " | ".join(names), lies)
    named = [n for n, case in enumerate(asked) if not case.cut]
    cells = [[asked[n].name, *(found[name][n].cell() for name in names)] for n in named]
    each = table("fault | " + " | ".join(names), cells)
    sums = [[word, *(str(sum(found[name][n].word == word for n in named)) for name in names)] for word in WORDS]
    summed = table(f"of {len(named)} faults | " + " | ".join(names), sums)
    return (
        "\n\n".join(
            [
                "# What clients make of answers that go wrong",
                "Made by `python -m benchmarks faults`; what the words mean stands in `benchmarks/faults/__init__.py`.",
                f"{versions()}.",
                f"## {len(cut)} clean cuts",
                "Streams that end before their finish, at random bytes, in the way that HTTP ends a body.",
                clean,
                by_stream,
                f"## {len(named)} faults",
                each,
                summed,
            ]
        )
        + "\n"
    )


def versions() -> str:
    """Return the clients and the conditions of this run."""
    asked = {name if name in venvs.WANTED else "base" for name in CLIENTS}
    return ", ".join(seen[0] for env, seen in venvs.versions() if env in asked)


def main(only: str | None = None) -> int:
    """Ask every client that is installed; print the page, and write it where all were asked."""
    names = [only] if only else list(CLIENTS)
    missing = [name for name in names if not python(name).exists()]
    if missing:
        print(f"not installed: {', '.join(missing)}; python -m benchmarks setup", file=sys.stderr)
        return 2
    asked = cases()
    with tempfile.TemporaryDirectory() as home, serving(asked) as port:
        found = measured(names, asked, port, Path(home))
    text = report(asked, found)
    print(text)
    if not only:
        RESULTS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
