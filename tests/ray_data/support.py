"""Drivers of Ray in processes of their own, and the workers that they start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from batch.stub import Stub
from batch.support import KEY, PRICE

DRIVER = Path(__file__).parent / "driver.py"
MARK = "CNLLM_TEST_RUN"


def overlay(server: Stub, folder: Path, flags: str = PRICE) -> str:
    """The path of a registry file with `home/m`, which the stub serves."""
    path = folder / "overlay.toml"
    path.write_text(
        f'[providers.home]\ntitle = "A stub"\nprotocol = "openai-chat"\nbase_url = "{server.url}"\n'
        f'keys = ["HOME_TEST_KEY"]\n[models."home/m"]\n{flags}\n'
    )
    return str(path)


class Driver:
    """A driver that runs. `mark` is in the environment of all processes of its cluster."""

    def __init__(self, process: subprocess.Popen[str], mark: str) -> None:
        self.process = process
        self.mark = mark

    def pids(self, title: str) -> list[int]:
        """The processes of the cluster that have a word in their titles."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or title.encode() not in (entry / "cmdline").read_bytes():
                    continue
                if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # it ended meanwhile
                continue
        return found

    def kill(self, title: str) -> None:
        os.kill(self.pids(title)[0], signal.SIGKILL)

    def result(self, timeout: float = 300) -> dict[str, Any]:
        out, err = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0, err[-6000:]
        found: dict[str, Any] = json.loads(next(x for x in out.splitlines() if x.startswith("RESULT "))[7:])
        return found

    def failure(self, timeout: float = 120) -> str:
        out, err = self.process.communicate(timeout=timeout)
        assert self.process.returncode != 0, out
        return err


@contextmanager
def driver(spec: dict[str, Any], **environment: str) -> Iterator[Driver]:
    """A driver of `driver.py`; its cluster ends with it."""
    mark = uuid4().hex
    own = {"HOME_TEST_KEY": KEY, MARK: mark, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", **environment}
    process = subprocess.Popen(
        [sys.executable, str(DRIVER), json.dumps(spec)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **own},
    )
    running = Driver(process, mark)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@contextmanager
def answers_held(server: Stub) -> Iterator[set[str]]:
    """Let the endpoint answer nothing, wait until nobody sends more, and give the prompts that were answered.

    Workers send again whenever a report was taken in; so when they no longer do, all answers were told.
    """
    server.hold.clear()
    try:
        count, since = -1, time.monotonic()
        while time.monotonic() - since < 3:
            if len(server.log) != count:
                count, since = len(server.log), time.monotonic()
            time.sleep(0.05)
        yield set(server.answered)
    finally:
        server.hold.set()


def wait_until(condition: Callable[[], bool], timeout: float = 400) -> None:
    """Wait for what another process does."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
