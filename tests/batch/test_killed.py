"""Killed at any moment, a batch loses nothing that is finished, asks nothing of it again, and marks what it sends."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from cli.support import Machine
from examples import SHARE

from cnllm.batch.rows import id_digest

from .stub import stub
from .support import prompts, rows, texts

ROWS = 600
KILLS = 20 if SHARE == 1 else 6


def finished(out: Path) -> set[str]:
    """The prompts whose lines are whole."""
    if not out.exists():
        return set()
    lines = out.read_bytes().split(b"\n")[:-1]
    return {json.loads(line)["reply"]["text"].removeprefix("re: ") for line in lines}


def marked(state: Path) -> set[bytes]:
    """The ids in the state, as another process would find them."""
    if not state.exists():
        return set()
    with closing(sqlite3.connect(state)) as db:
        try:
            return {row[0] for row in db.execute("SELECT id FROM rows")}
        except sqlite3.OperationalError:  # killed before the tables were there
            return set()


@pytest.mark.sampled
@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.long] if n else []) for n in range(3)])
def test_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    machine = Machine(tmp_path)
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"id": f"r{n}", "prompt": f"p{n}"}) + "\n" for n in range(ROWS)))
    chance = random.Random(seed)
    with stub(latency=0.03) as server:
        machine.overlay(server.url)
        kills = 0
        while kills < KILLS:
            before, start = finished(out), len(server.log)
            process = machine.start("batch", str(source), "-m", "home/m", "-o", str(out), "--concurrency", "8")
            while len(server.log) == start and process.poll() is None:
                time.sleep(0.001)  # it has not begun
            time.sleep(chance.uniform(0, 0.12))
            process.kill()
            process.communicate()
            kills += 1
            asked = set(server.log[start:])
            assert not asked & before, "a finished row was asked again"
            ids = marked(out.with_name("out.jsonl.state"))
            assert {id_digest(f"r{prompt[1:]}") for prompt in asked} <= ids, "a request was sent without its mark"
            assert finished(out) >= before
        before, start = finished(out), len(server.log)
        assert before, "the kills came too early to mean anything"
        assert len(before) < ROWS, "and too late"
        done = machine.run("batch", str(source), "-m", "home/m", "-o", str(out), process=True)
        assert done.status == 0, done
        assert not set(server.log[start:]) & before
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert Counter(line["id"] for line in lines) == Counter(f"r{n}" for n in range(ROWS))
        assert all(line["reply"]["text"] == f"re: p{line['id'][1:]}" and line["error"] is None for line in lines)
        start = len(server.log)
        assert machine.run("batch", str(source), "-m", "home/m", "-o", str(out)).status == 0
        assert len(server.log) == start


FULL = """
import resource, signal, sys
from cnllm.cli.app import run

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's size here")
def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    machine, out = Machine(tmp_path), tmp_path / "out.jsonl"
    source = rows(tmp_path, prompts(300))
    command = ("batch", str(source), "-m", "glm-4.7", "-o", str(out), "--simulate", "--no-plot")
    assert machine.run(*command).status == 0
    size = out.stat().st_size
    rows(tmp_path, prompts(400))
    full = subprocess.run(
        [sys.executable, "-c", FULL, str(size + 1_000), *command], env=machine.env, capture_output=True, text=True
    )
    assert full.returncode == 2, full.stderr
    assert f"{out}: File too large\n  free disk space" in full.stderr
    content = out.read_bytes()
    assert size <= len(content) <= size + 1_000
    assert content.endswith(b"}\n")
    assert machine.run(*command).status == 0
    assert len(texts(tmp_path)) == 400
