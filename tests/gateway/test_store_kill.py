"""Processes that are killed at any moment: what was committed is there, and the others go on."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from pathlib import Path

import pytest

from cnllm.gateway.store.sqlite import SqliteStore

from .store_support import program, turn

WRITER = """
import sys
from cnllm.gateway.store import AsyncStore
from cnllm.gateway.store.sqlite import SqliteStore
from tests.gateway.store_support import async_turn_by_call, turn, turn_by_call
path, name = sys.argv[1:]
store = SqliteStore(path)
for number in range(100_000):
    assert store.keep_turn("me", turn(f"{name} {number}", size=3000), [f"{name} {number}"], b"%d" % number)
    assert store.keep_response("me", f"{name} {number % 5}", b"%d" % number)
    print(number, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_kill_at_any_moment_loses_no_committed_turn(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    chance = random.Random(7)
    for round_ in range(2):
        writers = [program(WRITER, str(path), f"{round_}-{number}") for number in range(3)]
        committed: dict[str, int] = {}
        for number, writer in enumerate(writers):
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 60)):
                line = writer.stdout.readline()
                assert line, writer.communicate()
            if number < 2:  # the last one goes on beside the dead
                writer.kill()
                rest = writer.communicate()[0].splitlines()
                committed[f"{round_}-{number}"] = int(rest[-1] if rest and rest[-1].isdigit() else line)
        last = writers[-1]
        assert last.stdout is not None
        for _ in range(20):
            assert last.stdout.readline()
        store = SqliteStore(path)  # while it writes
        for name, number in committed.items():
            every = store.find_turns("me", call_ids=[f"{name} {n}" for n in range(number + 1)])
            assert len(every.by_call) == number + 1, (name, number)
            assert every.by_call[f"{name} {number}"] == turn(f"{name} {number}", size=3000)
            assert store.response("me", f"{name} {number % 5}") is not None
        assert store.keep_turn("me", turn("new"), [f"new {round_}"], None)
        store.close()
        last.kill()
        last.communicate()
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    raw.close()
    assert not path.with_name("gateway.db.damaged").exists()


CREATOR = """
import os, signal, sqlite3, sys
from cnllm.gateway.store.sqlite import SqliteStore
from tests.gateway.store_support import async_turn_by_call, turn, turn_by_call
count = 0

def begin_step():
    global count
    count += 1
    if count > step:
        os.kill(os.getpid(), signal.SIGKILL)

class Killer(sqlite3.Connection):
    def execute(self, *args):
        begin_step()
        return super().execute(*args)
    def __exit__(self, *error):
        begin_step()
        return super().__exit__(*error)

connect = sqlite3.connect
for step in range(100):
    path = f"{sys.argv[1]}/{step}.db"
    child = os.fork()
    if not child:
        sqlite3.connect = lambda *args, **options: connect(*args, factory=Killer, **options)
        SqliteStore(path)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    store = SqliteStore(path)
    assert store.keep_turn("me", turn(), ["call"], b"prefix"), step
    assert turn_by_call(store, "me", "call") == turn(), step
    store.close()
    if not status:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
print("steps", step)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_kill_while_the_file_is_created(tmp_path: Path) -> None:
    """After each statement in turn; the next process opens what is there."""
    out, error = program(CREATOR, str(tmp_path)).communicate(timeout=60)
    assert out.startswith("steps "), error
    assert 8 < int(out.split()[1]) < 99
    assert not list(tmp_path.glob("*.damaged"))
