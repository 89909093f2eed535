"""A batch beside a program by hand that sends the same requests, each in a process of its own."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, Rounds, turned
from benchmarks.cases import BATCH
from benchmarks.peers import AIOHTTP, CNLLM_BATCH
from benchmarks.processes import Broken, environment, use_every_core
from benchmarks.results import Row, Sample
from benchmarks.venvs import ROOT, binary

_PROGRAMS = {AIOHTTP: "aiohttp by hand", CNLLM_BATCH: "cnllm batch"}
"""The programs of `benchmarks.batch`."""
_COMMAND: list[str | Path] = [binary(), "-m", "benchmarks.batch"]


def batch(bench: Bench) -> list[Row]:
    """Send the rows of a file, 200 at once, to a stub that answers each after 50 ms."""
    rows = 2_000 if bench.effort.quick else 20_000
    found = Rounds({peer: Row("batch", BATCH, peer) for peer in _PROGRAMS})
    with _stub() as port:
        for turn in range(bench.effort.fresh):
            for peer in turned(list(_PROGRAMS), turn):
                found.round(peer, partial(_sample, bench, _PROGRAMS[peer], port, rows))
    return found.done()


@contextlib.contextmanager
def _stub() -> Iterator[str]:
    """Yield the port of the stub that answers rows, which is not bound to the core of the programs."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*_COMMAND, "--serve"], cwd=ROOT, stdin=pipe, stdout=pipe, text=True, preexec_fn=use_every_core
    ) as server:
        assert server.stdout
        yield server.stdout.readline().strip()
        server.terminate()


def _sample(bench: Bench, program: str, port: str, rows: int) -> Sample:
    """Run a program once. Raises `Broken` unless it answered every row."""
    command = [*_COMMAND, "--run", program, port, str(rows)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(bench.home, "fast"), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Broken(done.stderr)
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    if figures["done"] != rows:
        raise Broken(f"wrong result: {figures['done']} of {rows} rows were answered")
    return Sample(rows, figures["seconds"], figures["cpu"], peak=round(figures["peak"] * 1024 * 1024))
