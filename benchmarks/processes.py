"""Starts what is measured: the stub, the workers, whole processes. The stub has a core of its own."""

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.payloads import KEY, Setting
from benchmarks.peers import Peer
from benchmarks.results import Sample
from benchmarks.venvs import ROOT, binary

PATIENCE = 120.0  # seconds without an answer, after which a process counts as broken
Command = Sequence[str | Path]


class Broken(Exception):
    """Something that could not be measured; the message is its last line, without paths."""

    def __init__(self, said: str) -> None:
        lines = said.strip().splitlines() or ["it said nothing"]
        super().__init__(lines[-1].replace(f"{ROOT}{os.sep}", ""))


class Missing(Exception):
    """A peer that is not installed."""


def environment(home: Path, transport: str = "httpx") -> dict[str, str]:
    """Return an environment without overlays, keys, proxies and switched-off bytecode, with cnllm's transport."""
    made = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "BENCH_KEY": KEY,
        "CNLLM_TRANSPORT": transport,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches a list of prices while it is imported
    }
    return made | {f"XDG_{name}_HOME": str(home / name) for name in ("CONFIG", "CACHE", "DATA", "STATE")}


@contextlib.contextmanager
def stub(python: Path | None = None) -> Iterator[int]:
    """Yield the port of the stub, run by an interpreter: that of the first environment where none is given.

    This process and its later children keep to another core than the stub's.
    """
    pipe, command = subprocess.PIPE, [str(python or binary()), "-m", "benchmarks.stub"]
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout
        port = int(server.stdout.readline())
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        yield port
        server.terminate()


def use_every_core() -> None:
    """Undo, in a child process, that a measuring process keeps to one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def worker_command(peer: Peer, task: str, setting: Setting) -> list[str | Path]:
    """Return what starts a runner in its own process. Raises `Missing` where its environment is not there."""
    if not (python := binary(env=peer.env)).exists():
        raise Missing(f"there is no environment {peer.env}: `python -m benchmarks setup` makes it")
    return [python, "-m", "benchmarks.worker", peer.runner, task + peer.variant, *map(str, setting)]


class Worker:
    """One runner in its own process, made and checked; `run` times n calls in it."""

    def __init__(self, peer: Peer, task: str, setting: Setting, home: Path) -> None:
        command = worker_command(peer, task, setting)
        pipe, self.errors = subprocess.PIPE, tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in close)
        self.process = subprocess.Popen[str](
            command,
            cwd=ROOT,
            env=environment(home, peer.transport),
            stdin=pipe,
            stdout=pipe,
            stderr=self.errors,
            text=True,
        )
        self._answer()

    def run(self, n: int) -> Sample:
        assert self.process.stdin
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return Sample(**self._answer())

    def close(self) -> None:
        if self.errors.closed:  # it went wrong, and was closed then
            return
        self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()
        self.errors.close()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.errors.seek(0)
        said = self.errors.read()
        self.close()
        raise Broken(said)


def whole(command: Command, home: Path, transport: str = "httpx") -> Sample:
    """Run one process from start to end, seen from outside. Raises `Broken` unless it ends with 0."""
    start, null = time.perf_counter(), subprocess.DEVNULL
    env = environment(home, transport)
    process = subprocess.Popen(command, cwd=home, env=env, stdin=null, stdout=null, stderr=null)
    _, status, used = os.wait4(process.pid, 0)
    wall, process.returncode = time.perf_counter() - start, os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Broken(f"exit status {process.returncode}")
    return Sample(1, wall, used.ru_utime + used.ru_stime)


def output(command: Command, home: Path, transport: str = "httpx") -> str:
    """Return the output of a process.

    Raises `Broken` unless it ends with 0, `Missing` where its program is not there.
    """
    env = environment(home, transport)
    try:
        done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Missing("its environment is not there: `python -m benchmarks setup` makes it") from None
    if done.returncode:
        raise Broken(done.stderr or f"exit status {done.returncode}")
    return done.stdout
