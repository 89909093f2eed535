"""One damaged row blocks nothing else, and is named; a file of a newer version and two migrations at once."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from examples import some

import cnllm
from cnllm.store import Store
from cnllm.store.file import STEPS

BAD = ["{", "[]", "12", "null", b"\xff\xfe", "[" * 100_000, '{"input": "x"}', '{"kind": 3}', 7, 1.5, '"\\ud83d']


def filled(path: Path) -> list[str]:
    ids = []
    with Store.open(path) as store:
        for word in ("one", "two", "three"):
            conversation = store.conversation()
            with conversation.turn([cnllm.Message("user", [cnllm.Text(f"{word} sunset")])], model="p/m") as turn:
                turn.exchange({"request": {}, "response": None})
                reply = cnllm.Client(simulate=True).call("deepseek/deepseek-flash", word)
                turn.finish(reply)
            ids.append(conversation.id)
    return ids


@pytest.mark.sampled
def test_one_bad_row_blocks_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ids = filled(path)
    columns = ["usage", "error", "notes", "incomplete", "cost", "origin", "state", "process", "model", "began",
               "seconds", "finish"]  # fmt: skip
    blocked: list[str] = []
    pristine = path.read_bytes()
    for table, names in (
        ("turns", columns),
        ("messages", ["data", "text", "role", "reasoning"]),
        ("exchanges", ["entry"]),
    ):
        for number, name in enumerate(names):
            for value in some(BAD, number):
                for more in ("", "-wal", "-shm"):
                    path.with_name(path.name + more).unlink(missing_ok=True)
                path.write_bytes(pristine)
                with closing(sqlite3.connect(path, isolation_level=None)) as raw:
                    row = raw.execute(f"SELECT min(id) + 1 FROM {table}").fetchone()[0]
                    if table == "messages":
                        row = raw.execute("SELECT id FROM messages WHERE turn = 2 AND role = 'user'").fetchone()[0]
                    if name == "cost":
                        raw.execute("UPDATE turns SET currency = 'CNY'")
                    raw.execute(f"UPDATE {table} SET {name} = ? WHERE id = ?", (value, row))
                raw.close()
                with Store.open(path) as store:
                    assert [one.id for one in store.summaries()] == ids[::-1]
                    assert [one.id for one in store.records(exchanges=True)] == ids
                    assert {ids[0], ids[2]} <= {one.conversation for one in store.search(["sunset"])}
                    store.prompts(10)
                    if name in ("data", "entry", "usage") and value in ("{", b"\xff\xfe", "[" * 100_000, 1.5):
                        assert any("2" in line for line in store.damaged), (name, value)
                    assert len(store.conversation(ids[0]).messages()) == 2
                    try:
                        store.conversation(ids[1]).messages()
                    except cnllm.CnllmError as error:
                        blocked.append(str(error))
    assert blocked
    assert all(ids[1] in said for said in blocked)


def test_a_store_without_damage_names_none(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ids = filled(path)
    with Store.open(path) as store:
        assert [one.id for one in store.records(exchanges=True)] == ids
        assert all(store.conversation(id).messages() for id in ids)
        assert not store.damaged


def test_a_newer_store_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    filled(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(cnllm.CnllmError, match="newer cnllm"):
        Store.open(path)
    assert path.read_bytes() == before


def test_processes_that_make_the_file_at_once_all_get_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    code = (
        "import sys, cnllm\nfrom cnllm.store import Store\nsys.stdin.read(1)\n"
        "with Store.open(sys.argv[1]) as store:\n"
        "    store.conversation().turn([cnllm.Message('user', [cnllm.Text('hi')])], model='p/m')\n"
    )
    made = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for one in made:
        assert one.stdin is not None
        one.stdin.write(b"x")
        one.stdin.flush()
    for one in made:
        _, said = one.communicate(timeout=60)
        assert one.returncode == 0, said
    with Store.open(path) as store:
        assert len(store.summaries()) == 4


def test_processes_that_take_the_next_step_at_once_take_it_once(tmp_path: Path) -> None:
    """There is one version so far, so that the step to the next is the test's."""
    path = tmp_path / "a.db"
    ids = filled(path)
    code = (
        "import sqlite3, sys\nfrom cnllm.store.file import STEPS, migrate\n"
        "connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\nsys.stdin.read(1)\n"
        "migrate(connection, [*STEPS, ['CREATE TABLE extra (id)', 'INSERT INTO extra VALUES (1)']])\n"
    )
    made = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for one in made:
        assert one.stdin is not None
        one.stdin.write(b"x")
        one.stdin.flush()
    for one in made:
        _, said = one.communicate(timeout=60)
        assert one.returncode == 0, said
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (len(STEPS) + 1,)
        assert raw.execute("SELECT count(*) FROM extra").fetchone() == (1,)
        assert raw.execute("SELECT count(DISTINCT conversation) FROM turns").fetchone() == (len(ids),)
    raw.close()


def test_a_file_that_cannot_be_written_or_is_held_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    filled(path)
    monkeypatch.setattr("cnllm.store.file.BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(path)
    holder.execute("BEGIN IMMEDIATE")
    with Store.open(path) as store, pytest.raises(cnllm.CnllmError, match="another process has locked"):
        store.conversation().turn([cnllm.Message("user", [cnllm.Text("hi")])], model="p/m")
    holder.close()
    with Store.open(path) as store:
        pages = store.file.execute("PRAGMA page_count")[0][0]
        store.file.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(cnllm.CnllmError, match="full"):
            store.conversation().turn([cnllm.Message("user", [cnllm.Text("x" * 1_000_000)])], model="p/m")
        store.file.execute("PRAGMA query_only = ON")
        with pytest.raises(cnllm.CnllmError, match="readonly"):
            store.conversation().turn([cnllm.Message("user", [cnllm.Text("hi")])], model="p/m")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_reads_and_writes_by_a_connection_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ids = filled(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("UPDATE messages SET text = CAST(? AS TEXT) WHERE id = 1", (b"\xff sunset",))
    raw.close()
    with Store.open(path) as store:
        assert len(store.summaries()) == 3
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert [one.id for one in store.summaries()] == ids[::-1]
                assert [one.id for one in store.records(exchanges=True)] == ids
                store.search(["sunset"])
                with store.conversation().turn([cnllm.Message("user", [cnllm.Text("of the child")])], model="p/m"):
                    pass
                store.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(store.summaries()) == 4  # the parent's connection goes on, and sees what the child wrote
        with store.conversation().turn([cnllm.Message("user", [cnllm.Text("of the parent")])], model="p/m"):
            pass
        assert len(store.summaries()) == 5
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()
