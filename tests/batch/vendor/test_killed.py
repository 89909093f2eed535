"""Killed between any two steps, a vendor batch loses nothing, submits nothing twice, and asks nothing one by one.

The steps are those that the vendor sees (a request arrives, has its effect, is answered) and those on the disk (each
transaction of the state and each `fsync`, before and after).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli.support import Machine

from .support import ROWS, SHAPES, Vendor, answers, arguments, configure, inputs, vendor

AT_WRITE = """
import atexit, os, signal, sys, threading
target, count = int(sys.argv.pop(1)), 0
def profile(frame, event, arg):
    global count
    if event in ("c_call", "c_return"):
        name = getattr(arg, "__name__", "")
        if name in ("fsync", "pwrite") or (name == "execute" and frame.f_code.co_name == "_begin"):
            count += 1
            if count == target:
                os.kill(os.getpid(), signal.SIGKILL)
if target == 0:
    atexit.register(lambda: print("writes", count, file=sys.stderr))
threading.setprofile(profile)
sys.setprofile(profile)
from cnllm.cli import main
main()
"""
"""The program, which kills itself at its write of a number; with 0 it prints how many there are."""


def start(machine: Machine, command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, env=machine.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(machine: Machine, server: Vendor, name: str, folder: Path, place: object) -> None:
    """Run the same command again; everything must be there once, from one job."""
    server.hook = None
    done = machine.run(*arguments(name, folder))
    assert done.status == 0, (place, done)
    found = answers(folder)
    assert set(found) == {f"r{n}" for n in range(ROWS)}, place
    assert all(line["error"] is None for line in found.values()), place
    assert server.count("submit") == 1, (place, "it was submitted twice")
    assert server.count("call") == 0, (place, "a row was asked by itself")


def trial(folder: Path, number: int) -> tuple[Machine, Path]:
    home = folder / str(number)
    home.mkdir()
    inputs(home)
    return Machine(home), home


def steps(name: str, folder: Path) -> list[tuple[str, str]]:
    """The steps of a run that nothing disturbs."""
    machine, home = trial(folder, 0)
    with vendor() as server:
        configure(machine, server, name)
        assert machine.run(*arguments(name, home)).status == 0
        return server.seen


FEW = {"openai/gpt-4.1-mini": 4, "mistral/mistral-small-latest": 4}
"""Models that are tried at every so many steps; .ci/long tries each shape at each step."""
PLACES = [pytest.param(name, 1, marks=pytest.mark.long) for name in SHAPES]


@pytest.mark.parametrize(("name", "every"), [*PLACES, *FEW.items()])
def test_killed_at_any_request(tmp_path: Path, name: str, every: int) -> None:
    all_steps = steps(name, tmp_path)
    assert {step for step, _ in all_steps} >= {"submit", "poll"}
    numbers = [n for n, (step, _) in enumerate(all_steps, 1) if step == "submit" or n % every == 0]
    for number in numbers:
        machine, home = trial(tmp_path, number)
        with vendor() as server:
            configure(machine, server, name)
            process = start(machine, machine.command(*arguments(name, home)))

            def kill(step: str, phase: str, server: Vendor = server, number: int = number) -> None:
                if len(server.seen) == number:
                    os.kill(process.pid, signal.SIGKILL)  # noqa: B023
                    process.wait()  # noqa: B023

            server.hook = kill
            process.communicate()
            assert process.returncode == -signal.SIGKILL, number
            finish(machine, server, name, home, all_steps[number - 1])


@pytest.mark.parametrize(("name", "every"), [*PLACES, *((name, 4 * every) for name, every in FEW.items())])
def test_killed_at_any_write(tmp_path: Path, name: str, every: int) -> None:
    machine, home = trial(tmp_path, 0)
    with vendor() as server:
        configure(machine, server, name)
        process = start(machine, [sys.executable, "-c", AT_WRITE, "0", *arguments(name, home)])
        err = process.communicate()[1].decode()
        assert process.returncode == 0, err
    count = int(err.rpartition("writes ")[2])
    assert count > 20
    for number in range(1, count + 1, every):
        machine, home = trial(tmp_path, number)
        with vendor() as server:
            configure(machine, server, name)
            process = start(machine, [sys.executable, "-c", AT_WRITE, str(number), *arguments(name, home)])
            err = process.communicate()[1].decode()
            assert process.returncode == -signal.SIGKILL, (number, err)
            finish(machine, server, name, home, f"write {number} of {count}")
