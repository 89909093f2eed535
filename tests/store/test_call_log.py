"""The log of calls: none is lost without a word, whenever it comes and however the program ends."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cnllm.store import Store
from cnllm.store.call_log import CallLog, LoggedCall, _OpenFile


def call(name: str) -> Callable[[], LoggedCall]:
    return lambda: LoggedCall(
        conversation=f"{name} {os.getpid()}",
        began="2026-11-28T20:00:00.000+00:00",
        model="home/m",
        protocol="openai-chat",
        client="library",
        origin="endpoint",
        finish="stop",
    )


def count(path: Path) -> int:
    with Store.open(path) as store:
        return store.count()


def test_a_call_beside_the_end_of_the_log_is_written(tmp_path: Path) -> None:
    log = CallLog(str(tmp_path / "a.db"))
    rounds = 40
    with ThreadPoolExecutor(2) as pool:
        for number in range(rounds):
            both = threading.Barrier(2)

            def add(name: str, both: threading.Barrier = both) -> None:
                both.wait()
                log.add(call(name))

            def close(both: threading.Barrier = both) -> None:
                both.wait()
                log.close()

            for job in [pool.submit(add, str(number)), pool.submit(close)]:
                job.result()
    log.close()
    assert count(tmp_path / "a.db") == rounds


def test_a_call_after_the_end_of_the_log_is_written(tmp_path: Path) -> None:
    log = CallLog(str(tmp_path / "a.db"))
    for number in range(3):
        log.add(call(str(number)))
        log.close()
        assert count(tmp_path / "a.db") == number + 1


def test_the_pages_of_the_file_take_little_memory(tmp_path: Path) -> None:
    """SQLite would keep 2 MB of them in each process."""
    with closing(_OpenFile(str(tmp_path / "a.db"))) as file:
        file.add([call("one")()])
        assert file._store is not None
        assert file._store.file.execute("PRAGMA cache_size") == [(-512,)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_the_calls_of_a_child_of_multiprocessing_are_written(tmp_path: Path) -> None:
    log = CallLog(str(tmp_path / "a.db"))
    log.add(call("parent"))
    children = [multiprocessing.get_context("fork").Process(target=log.add, args=(call("child"),)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    log.close()
    assert count(tmp_path / "a.db") == 4


def test_all_calls_that_were_lost_are_counted_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.db").mkdir()
    log = CallLog(str(tmp_path / "a.db"))
    for number in range(100):
        log.add(call(str(number)))
    log.close()
    assert "the log of calls ends; calls lost: 100" in caplog.text


def test_a_record_that_cannot_be_made_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> LoggedCall:
        raise ZeroDivisionError

    log = CallLog(str(tmp_path / "a.db"))
    log.add(fail)
    log.close()
    log.add(call("a"))
    log.close()
    assert count(tmp_path / "a.db") == 1
    assert "calls are logged again; calls lost: 1" in caplog.text


@contextmanager
def no_threads() -> Iterator[None]:
    """Let no thread start: the system has no room for so great a stack."""
    before = threading.stack_size(1 << 50)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_without_a_thread_a_call_goes_on_and_a_line_says_what_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = CallLog(str(tmp_path / "a.db"))
    with caplog.at_level(logging.WARNING), no_threads():
        log.add(call("a"))
    assert "calls cannot be logged: can't start new thread; calls lost: 1" in caplog.text
    log.add(call("b"))
    log.close()
    assert count(tmp_path / "a.db") == 1


PROGRAM = """
import os, sys
from cnllm import Client
client = Client(simulate=True, log_calls=True)
client.call("glm-4.7", "hi")
stream = client.stream("glm-4.7", "hi")
next(iter(stream))
if sys.argv[1] == "fork":
    child = os.fork()
    if not child:
        sys.exit()
    os.waitpid(child, 0)
    list(stream)
"""


@pytest.mark.parametrize(
    ("end", "states"),
    [
        ("open", ["done", "failed"]),
        pytest.param("fork", ["done", "done"], marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")),
    ],
)
def test_a_stream_that_is_open_at_the_end_of_its_program_is_logged_once(
    end: str, states: list[str], tmp_path: Path
) -> None:
    """Python collects it when no thread can start any more; a fork collects its copy of its parent's."""
    env = {**os.environ, "CNLLM_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", PROGRAM, end]  # 3.12: on each fork
    done = subprocess.run(command, env=env, timeout=60, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    with Store.open(tmp_path / "conversations.db") as store:
        assert [turn.state for record in store.records() for turn in record.turns] == states


def test_a_call_that_ends_within_a_write_is_written_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = CallLog(str(tmp_path / "a.db"))
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)

    def make() -> LoggedCall:
        log.add(call("inner"))
        return call("outer")()

    log.add(make)
    assert caplog.text == ""
    assert count(tmp_path / "a.db") == 2
