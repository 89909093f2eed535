"""The file: private, of some version, ours or not, and alive after whatever happened to its writers."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from cnllm import Registry, engine
from cnllm.errors import CnllmError
from cnllm.store import Store
from cnllm.store.file import STEPS, DatabaseFile, migrate, schema_version

from .support import ask, reply, script, user

WRITER = """
import sys
from cnllm.store import Store
from tests.store.support import reply, user
path, name = sys.argv[1:]
with Store.open(path) as store:
    conversation = store.conversation()
    for number in range(10_000 if name == "endless" else 20):
        with conversation.turn([user(f"{name} {number}")], model="zai/glm-4.7") as turn:
            turn.exchange({"request": "x" * 3000})
            turn.finish(reply(f"answer {number} " * 50))
        print(conversation.id, number, flush=True)
"""


# ── the file itself ──────────────────────────────────────────────────────────
def test_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.db"
    with Store.open(path) as store:
        ask(store.conversation(), "hi")
        assert {f.suffix for f in path.parent.iterdir()} == {".db", ".db-wal", ".db-shm"}
        assert [stat.S_IMODE(f.stat().st_mode) for f in path.parent.iterdir()] == [0o600] * 3
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    Store.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Store.open(path) as store:
        ask(store.conversation(), "hi")
        for file in path.parent.iterdir():  # as a copy of the folder may have left them
            file.chmod(0o644)
        Store.open(path).close()
        assert [stat.S_IMODE(f.stat().st_mode) for f in path.parent.iterdir()] == [0o600] * 3


def test_the_file_is_at_the_place_of_the_platform_or_where_the_user_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CNLLM_DATA_DIR", str(tmp_path / "data"))
    with Store.open() as store:
        assert store.path == tmp_path / "data" / "conversations.db"
        assert store.path.exists()


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    Store.open(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(
        CnllmError, match=rf"a\.db was written by a newer cnllm \(version {len(STEPS) + 1}; this one reads"
    ):
        Store.open(path)
    assert path.read_bytes() == before


def test_what_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "text.db", tmp_path / "other.db"
    text.write_text("dear diary, " * 100)
    with closing(sqlite3.connect(other, isolation_level=None)) as raw:
        raw.execute("CREATE TABLE turns (id)")
    raw.close()
    for path, words in ((text, "cannot be used"), (other, "another program"), (tmp_path, "unable to open")):
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(CnllmError, match=words) as caught:
            Store.open(path)
        assert str(path) in str(caught.value)
        assert caught.value.hint
        assert before is None or path.read_bytes() == before


# ── versions ─────────────────────────────────────────────────────────────────
def test_an_older_file_is_brought_up_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store.open(path) as store:
        ask(store.conversation(), "hi")
        before = list(store.records())
    later = (*STEPS, ("ALTER TABLE turns ADD COLUMN mood TEXT NOT NULL DEFAULT 'fair'", "CREATE TABLE moods (id)"))
    raw = sqlite3.connect(path, isolation_level=None)
    migrate(raw, later)
    assert schema_version(raw) == len(STEPS) + 1
    assert raw.execute("SELECT mood FROM turns").fetchall() == [("fair",)]
    migrate(raw, later)  # nothing is left to do
    raw.execute(f"PRAGMA user_version = {len(STEPS)}")
    raw.close()
    with Store.open(path) as store:
        assert list(store.records()) == before


REBUILT = (
    # SQLite changes a column by making the table anew, which with foreign keys on would empty those that refer to it.
    next(made for made in STEPS[0] if made.startswith("CREATE TABLE turns ")).replace("turns", "turns_", 1),
    *(statement.replace("turns", "turns_", 1) for step in STEPS[1:] for statement in step if "turns" in statement),
    "INSERT INTO turns_ SELECT * FROM turns",
    "DROP TABLE turns",
    "ALTER TABLE turns_ RENAME TO turns",
    "ALTER TABLE turns ADD COLUMN mood TEXT NOT NULL DEFAULT 'fair'",
)


def test_opening_an_older_file_takes_it_up_a_step_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    with Store.open(path) as store:
        ask(store.conversation(), "hi")
        before = list(store.records(exchanges=True))
    monkeypatch.setattr("cnllm.store.file.STEPS", (*STEPS, REBUILT))
    for _ in range(2):
        with Store.open(path) as store:
            assert list(store.records(exchanges=True)) == before
            assert [message.text for message in store.conversation("last").messages()] == ["hi", "Hello"]
    raw = sqlite3.connect(path)
    assert schema_version(raw) == len(STEPS) + 1
    assert raw.execute("SELECT mood FROM turns").fetchall() == [("fair",)]
    raw.close()
    monkeypatch.undo()
    with pytest.raises(CnllmError, match=r"by a newer cnllm"):
        Store.open(path)


def test_an_older_file_whose_new_tables_do_not_fit_together_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    with Store.open(path) as store:
        ask(store.conversation(), "hi")
        before = list(store.records())
    with monkeypatch.context() as patch:
        patch.setattr("cnllm.store.file.STEPS", (*STEPS, ("DELETE FROM turns",)))
        with pytest.raises(CnllmError, match=r"a\.db"):
            Store.open(path)
    with Store.open(path) as store:
        assert list(store.records()) == before


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store.open(path) as store:
        ask(store.conversation(), "hi")
    raw = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrate(raw, (*STEPS, ("CREATE TABLE moods (id)", "CREATE TABLE turns (id)")))
    assert schema_version(raw) == len(STEPS)
    assert not raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'moods'").fetchone()
    raw.close()
    with Store.open(path) as store:
        assert [m.text for m in store.conversation("last").messages()] == ["hi", "Hello"]


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files are POSIX's")
def test_a_disk_that_is_full_at_the_start_is_told_as_such(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from cnllm.store import Store; from cnllm.errors import CnllmError\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "sys.dont_write_bytecode = True\n"  # Python would leave a cut file of a module that is compiled now
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)\n"
        "try: Store.open(sys.argv[1])\n"
        "except CnllmError as error: print(error)\n"
    )
    for size in (0, 4096, 40_000):
        path = tmp_path / str(size) / "a.db"
        done = subprocess.run([sys.executable, "-c", code, path, str(size)], capture_output=True, text=True, check=True)
        assert str(path) in done.stdout
        assert "full" in done.stdout or "disk I/O error" in done.stdout, done.stdout
        assert "rollback" not in done.stdout


# ── many at once, and sudden ends ────────────────────────────────────────────
def test_eight_processes_write_at_once_into_a_file_that_none_had_made(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    writers = [script(WRITER, str(path), f"w{number}") for number in range(8)]
    written = [len(writer.communicate(timeout=120)[0].splitlines()) for writer in writers]
    assert [(writer.returncode, lines) for writer, lines in zip(writers, written, strict=True)] == [(0, 20)] * 8
    with Store.open(path) as store:
        found = list(store.records())
        assert len(found) == 8
        for one in found:
            texts = [turn.messages[0]["content"] for turn in one.turns]
            assert [text.split()[1] for text in texts] == [str(number) for number in range(20)]
            assert len({text.split()[0] for text in texts}) == 1
            assert {turn.state for turn in one.turns} == {"done"}
        assert len(store.search(["answer 7"])) == 8
    _sound(path)


def test_no_one_of_several_that_create_a_file_takes_it_for_another_programs(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for number in range(100):
            start = threading.Barrier(4)

            def create(start: threading.Barrier = start, path: Path = tmp_path / f"{number}.db") -> None:
                start.wait(60)
                DatabaseFile(path).close()

            for opened in [pool.submit(create) for _ in range(4)]:
                opened.result(60)


def test_a_writer_that_is_held_up_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnllm.store.file.BUSY_SECONDS", 0.05)
    with Store.open(tmp_path / "a.db") as store:
        raw = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        raw.execute("BEGIN IMMEDIATE")
        with pytest.raises(CnllmError, match="another process has locked"):
            store.conversation().turn([user("hi")], model="zai/glm-4.7")
        raw.execute("ROLLBACK")
        raw.close()
        ask(store.conversation(), "hi")


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_killed_at_any_moment_it_loses_at_most_the_turn_in_flight(tmp_path: Path) -> None:
    path, seed = tmp_path / "a.db", random.randrange(1 << 30)
    chance = random.Random(seed)
    model = Registry.load().resolve("zai/glm-4.7")
    said: dict[str, int] = {}
    for _ in range(8):
        process = script(WRITER, str(path), "endless")
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randrange(1, 15))]
        time.sleep(chance.random() / 100)  # somewhere within a turn, not just after one
        process.kill()
        lines += process.stdout.readlines()
        ident, number = next(line for line in reversed(lines) if line.endswith("\n")).split()
        said[ident] = int(number)
        process.stdout.close()
        process.wait()
    _sound(path)
    with Store.open(path) as store:
        found = list(store.records(exchanges=True))
        assert len(found) == 8
        for one in found:
            states = [turn.state for turn in one.turns]
            assert set(states[:-1]) <= {"done"}, f"seed {seed}"
            assert states[-1] in ("done", "interrupted"), f"seed {seed}"
            assert states.count("done") > said[one.id], f"seed {seed}: what was told to be written is not there"
            for turn in one.turns:
                roles = [message["role"] for message in turn.messages]
                assert roles == ["user", "assistant"][: 1 + (turn.state == "done")], f"seed {seed}"
                assert len(turn.exchanges) == (turn.state == "done")
            conversation = store.conversation(one.id)
            history = conversation.messages(user("go on"))
            assert engine.build_request(model, history).body["messages"][-1]["content"].endswith("go on")
        ask(store.conversation(found[0].id), "go on", reply("as before"))
        assert store.conversation("last").messages()[-1].text == "as before"
    _sound(path)


def _sound(path: Path) -> None:
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    raw.close()


def test_a_store_that_is_closed_or_another_threads_is_no_broken_file(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "conversations.db")
    with ThreadPoolExecutor(1) as pool, pytest.raises(CnllmError, match="another thread") as caught:
        pool.submit(store.count).result()
    assert caught.value.hint == "use a store in the thread that opened it"
    store.close()
    with pytest.raises(CnllmError, match="was closed"):
        store.count()


def test_a_file_that_was_moved_or_deleted_gets_no_more_turns_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open("a.db") as store:
        chat = store.conversation()
        ask(chat, "one")
        (tmp_path / "sub").mkdir()
        monkeypatch.chdir(tmp_path / "sub")
        ask(chat, "two")  # a program may go to another folder
        os.rename(tmp_path / "a.db", tmp_path / "moved.db")
        with pytest.raises(CnllmError, match=r"a\.db was moved or deleted while it was open"):
            ask(chat, "three")
        assert len(chat.turns()) == 2
        Store.open(tmp_path / "a.db").close()
        with pytest.raises(CnllmError, match="moved or deleted"):
            ask(chat, "three")


def test_readers_see_one_state_beside_a_process_that_deletes(tmp_path: Path) -> None:
    path, ends = tmp_path / "a.db", threading.Event()
    with Store.open(path) as store:
        for number in range(20):
            ask(store.conversation(), f"a question {number}")

    def delete() -> None:
        with Store.open(path) as store:
            while not ends.is_set():
                turn = store.conversation().turn([user("a question that is not sent")], model="zai/glm-4.7")
                turn.finish(reply())
                store.search(["question"])  # the index holds it
                turn.forget()

    with ThreadPoolExecutor(1) as pool, Store.open(path) as store:
        other = pool.submit(delete)
        try:
            for _ in range(200):
                assert len(store.summaries()) >= 20
                assert len(store.search(["question"])) >= 20
                assert all(turn.messages for record in store.records() for turn in record.turns)
        finally:
            ends.set()
        other.result()


FORKED = """
import os, sqlite3, sys
from cnllm.errors import CnllmError
from cnllm.store import Store
path = sys.argv[1]
store = Store.open(path)
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.rename(path, path + ".ours")
sqlite3.connect(path).execute("CREATE TABLE theirs (x)")
try:
    store.count()
except CnllmError as error:
    print(error)
os.rename(path + ".ours", path)
print(store.count(), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_tries_again_after_a_file_that_it_could_not_open(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        ask(store.conversation(), "hi")
    out, _ = script(FORKED, str(tmp_path / "a.db")).communicate(timeout=60)
    assert "is a database of another program" in out
    assert out.endswith("\n1\n")
