"""A job whose id was lost is found: among other jobs, on later pages, or by its rows where jobs carry no mark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.support import KEY, Machine

from .support import ROWS, SHAPES, Vendor, answers, arguments, configure, inputs, vendor

FILE, INLINE = "openai/gpt-4.1-mini", "anthropic/claude-haiku-4-5"


def home(folder: Path, name: str, count: int = ROWS) -> Machine:
    path = folder / name
    path.mkdir()
    inputs(path, count)
    return Machine(path)


def killed(machine: Machine, server: Vendor, name: str, when: Callable[[str, str], bool]) -> None:
    """Run until the vendor is at a step, and kill the client there."""
    process = machine.start(*arguments(name, machine.home))

    def kill(step: str, phase: str) -> None:
        if when(step, phase):
            server.hook = None
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    server.hook = kill
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def submitted(step: str, phase: str) -> bool:
    return (step, phase) == ("submit", "handled")


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SHAPES)
def test_among_other_jobs_on_several_pages(tmp_path: Path, name: str) -> None:
    with vendor() as server:
        mine = home(tmp_path, "mine")
        configure(mine, server, name, "page-size=2;seconds=1")
        killed(mine, server, name, submitted)
        for number in range(4):
            other = home(tmp_path, f"other-{number}", number + 3)
            configure(other, server, name)
            assert other.run(*arguments(name, other.home)).status == 0
        before = server.count("list")
        done = mine.run(*arguments(name, mine.home))
        assert done.status == 0, done
        assert server.count("list") - before >= (2 if name != FILE else 1)
        assert (server.count("submit"), server.count("call")) == (5, 0)
    assert set(answers(mine.home)) == {f"r{n}" for n in range(ROWS)}


@pytest.mark.parametrize(("unsure", "calls"), [("ask", 2), ("skip", 1)])
def test_where_nobody_can_tell_the_user_decides(tmp_path: Path, unsure: str, calls: int) -> None:
    with vendor() as server:
        mine = home(tmp_path, "mine")
        configure(mine, server, FILE, flags='unset = ["batch.list"]', delay=None)
        killed(mine, server, FILE, submitted)
        done = mine.run(*arguments(FILE, mine.home), "--unsure", unsure)
        assert "the vendor has no list of jobs" in done.out
        assert server.count("submit") == calls
        if unsure == "ask":
            assert done.status == 0
            assert len(answers(mine.home)) == ROWS
        else:
            assert f"still at the vendor: {ROWS} rows" in done.out


@pytest.mark.parametrize(("name", "path"), [(FILE, "/openai/batches"), (INLINE, "/anthropic/v1/messages/batches")])
def test_a_job_that_was_cancelled_at_the_vendor(tmp_path: Path, name: str, path: str) -> None:
    """Of the second one only the results say so: the job itself has ended like any other."""
    with vendor() as server:
        mine = home(tmp_path, "mine")
        configure(mine, server, name, "seconds=30")
        killed(mine, server, name, lambda step, phase: (step, phase) == ("poll", "handled"))
        base = f"{server.url}{path}"
        headers = {"authorization": f"Bearer {KEY}", "x-api-key": KEY, "anthropic-version": "2023-06-01"}
        with urllib.request.urlopen(urllib.request.Request(base, headers=headers)) as answer:
            job = json.load(answer)["data"][0]["id"]
        request = urllib.request.Request(f"{base}/{job}/cancel", data=b"", headers=headers, method="POST")
        urllib.request.urlopen(request).close()
        done = mine.run(*arguments(name, mine.home))
        assert done.status == 3, done
        assert f"stopped: job {job} was cancelled at the vendor" in done.out
        assert f"{ROWS} rows were in a job that was cancelled" in done.out
        assert server.count("call") == 0
        configure(mine, server, name)
        assert mine.run(*arguments(name, mine.home)).status == 0
        assert (server.count("submit"), server.count("call")) == (2, 0)
    assert len(answers(mine.home)) == ROWS


def test_a_second_interrupt_does_not_wait_for_an_answer(tmp_path: Path) -> None:
    with vendor() as server:
        mine = home(tmp_path, "mine")
        configure(mine, server, FILE, "stall-headers;step=poll")
        process = mine.start(*arguments(FILE, mine.home))

        polled = threading.Event()

        def interrupt(step: str, phase: str) -> None:
            if (step, phase) == ("poll", "received"):
                process.send_signal(signal.SIGINT)
                polled.set()

        server.hook = interrupt
        try:
            assert polled.wait(30)
            with pytest.raises(subprocess.TimeoutExpired):  # the first waits for the answer, which never comes
                process.communicate(timeout=1)
            process.send_signal(signal.SIGINT)
            out = process.communicate(timeout=30)[0].decode()
        finally:
            process.kill()
        assert process.returncode == 130, out
        assert f"1 job with {ROWS} rows go on at the vendor" in out
        server.hook = None
        configure(mine, server, FILE)
        assert mine.run(*arguments(FILE, mine.home)).status == 0
        assert (server.count("submit"), server.count("call")) == (1, 0)
    assert len(answers(mine.home)) == ROWS
