"""A forked child and its parent each have locks of their own, whatever the parent's threads do with the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .support import script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

QUIET = "import warnings\nwarnings.simplefilter('ignore')\n"  # Python 3.12 warns of a fork beside threads

ORPHAN = """
import os, subprocess, sys
from cnllm.store import Store
from tests.store.support import ask
path = sys.argv[1]
CODE = "import sys; from cnllm.store import Store; store = Store.open(sys.argv[1]); print(store.count()); store.close()"

def others_count():
    return int(subprocess.run([sys.executable, "-c", CODE, path], stdout=subprocess.PIPE, check=True).stdout)

store = Store.open(path)
ask(store.conversation(), "hi")
parent = os.getpid()
reader, writer = os.pipe()
if os.fork():
    os._exit(0)
os.close(writer)
os.read(reader, 1)  # the parent has ended, and its locks have gone with it
ask(store.conversation(), "hi")
print(others_count())  # it was alone, as far as it knew
ask(store.conversation(), "hi")
print(others_count())
"""

BUSY = """
import os, signal, sys, threading
from cnllm.store import Store
from tests.store.support import ask
path = sys.argv[1]
ends = threading.Event()

def write():
    with Store.open(path) as store:
        while not ends.is_set():
            ask(store.conversation(), "hi")

threads = [threading.Thread(target=write) for _ in range(2)]
for thread in threads:
    thread.start()
outcomes = []
for _ in range(20):
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            with Store.open(path) as store:
                ask(store.conversation(), "hi")
            os._exit(0)
        finally:
            os._exit(1)
    outcomes.append(os.waitpid(child, 0)[1])
ends.set()
for thread in threads:
    thread.join()
print(outcomes == [0] * 20)
"""

INSIDE = """
import os, sys
from cnllm.store import Store
from tests.store.support import ask
with Store.open(sys.argv[1]) as store:
    ask(store.conversation(), "hi")
    with store.file.writing() as connection:
        connection.execute("DELETE FROM turns")
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
    print(store.count())
    ask(store.conversation(), "hi")
    print(store.count())
"""


def outcome(code: str, tmp_path: Path) -> str:
    """What a program says that uses a file."""
    return script(QUIET + code, str(tmp_path / "a.db")).communicate(timeout=120)[0]


def test_a_child_whose_parent_has_ended_loses_no_turn_where_others_close_the_file(tmp_path: Path) -> None:
    assert outcome(ORPHAN, tmp_path) == "2\n3\n"


def test_a_child_that_is_forked_beside_busy_threads_can_write(tmp_path: Path) -> None:
    assert outcome(BUSY, tmp_path) == "True\n"


def test_a_fork_in_the_middle_of_a_transaction_leaves_it_to_the_parent(tmp_path: Path) -> None:
    assert outcome(INSIDE, tmp_path) == "0\n1\n"
