"""`cnllm batch --ray`: the same command, sent from a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from batch.stub import Answer, Stub, error, stub
from batch.support import KEY

from .support import MARK, Driver, answers_held, overlay, wait_until

pytest.importorskip("ray")
pytestmark = pytest.mark.long


@contextmanager
def batch(server: Stub, folder: Path, *args: str, **environment: str) -> Iterator[Driver]:
    """A batch of `in.jsonl` into `out.jsonl` that runs."""
    mark = uuid4().hex
    own = {"CNLLM_PROVIDERS": overlay(server, folder), "CNLLM_CONFIG_DIR": str(folder), MARK: mark, **environment}
    command = [sys.executable, "-m", "cnllm", "batch", str(folder / "in.jsonl"), "-m", "home/m"]
    process = subprocess.Popen(
        [*command, "-o", str(folder / "out.jsonl"), "--key-env", "HOME_TEST_KEY", "--ray", "local", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **own},
    )
    try:
        yield Driver(process, mark)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def write_rows(folder: Path, count: int) -> None:
    rows = ({"id": f"r{n}", "prompt": f"p{n}"} for n in range(count))
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def answers(folder: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert Counter(line["id"] for line in lines).most_common(1)[0][1] == 1
    return {line["id"]: line["reply"]["text"] for line in lines if line["error"] is None}


def test_a_worker_is_killed(tmp_path: Path) -> None:
    count = 6000
    write_rows(tmp_path, count)
    with stub(latency=0.1) as server:
        with batch(server, tmp_path, "--json", HOME_TEST_KEY=KEY) as run:
            wait_until(lambda: len(server.log) > count // 3)
            with answers_held(server) as before:
                position, on_their_way = len(server.log), server.now
                run.kill("ray::RemoteSender")
            out, err = run.process.communicate(timeout=400)
        assert run.process.returncode == 0, err
        report = json.loads(out)
        assert report["done"] == count
        assert answers(tmp_path) == {f"r{n}": f"re: p{n}" for n in range(count)}
        assert not set(server.log[position:]) & before, "a finished row was asked again"
        assert 0 < len(server.log) - len(server.received) <= on_their_way
        assert set(server.keys) == {KEY}


def test_goes_on(tmp_path: Path) -> None:
    """Stopped by the cap, and run again with a higher one: only what is left is sent."""
    write_rows(tmp_path, 300)
    with stub() as server:
        more = ("-p", "max_tokens=10", "--currency", "CNY")
        with batch(server, tmp_path, "--max-cost", "0.006", *more, HOME_TEST_KEY=KEY) as run:
            _, err = run.process.communicate(timeout=400)
            assert run.process.returncode == 3, err
        first = len(server.log)
        assert 0 < first <= 100
        with batch(server, tmp_path, "--max-cost", "1", *more, HOME_TEST_KEY=KEY) as run:
            _, err = run.process.communicate(timeout=400)
            assert run.process.returncode == 0, err
        assert len(server.log) == 300 == len(answers(tmp_path))


def test_a_node_without_a_key(tmp_path: Path) -> None:
    write_rows(tmp_path, 3)
    with stub() as server:
        environment = {"HOME_TEST_KEY": ""}
        # A server on this machine needs no key, any other one does.
        with batch(server, tmp_path, "--base-url", "https://192.0.2.1/v1", **environment) as run:
            out, err = run.process.communicate(timeout=400)
        assert run.process.returncode == 2
        assert out == ""
        assert "HOME_TEST_KEY is not set" in err
        assert "node " in err
        assert server.log == []


def test_an_echoed_key_is_not_written(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer:
        return 400, error(f"your key {KEY} may not ask this"), {}

    write_rows(tmp_path, 3)
    with stub(rule=rule) as server, batch(server, tmp_path, HOME_TEST_KEY=KEY) as run:
        out, err = run.process.communicate(timeout=400)
    assert run.process.returncode == 3
    assert KEY not in out + err + (tmp_path / "out.jsonl").read_text()


def test_no_cluster(tmp_path: Path) -> None:
    write_rows(tmp_path, 3)
    with stub() as server, batch(server, tmp_path, "--ray", "127.0.0.1:9", HOME_TEST_KEY=KEY) as run:
        out, err = run.process.communicate(timeout=400)
    assert run.process.returncode == 2
    assert out == ""
    assert "127.0.0.1:9" in err
