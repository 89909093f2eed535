"""`cnllm logs`: what was kept, for people and for programs."""

from __future__ import annotations

import json
import os
import pty
import re
import sqlite3
import subprocess
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from store.support import reply

from cnllm.store import Store

from .support import ANSWER, HEAD, Machine, Server, chunk, read_terminal, terminal, texts

CALL = ("call", "--model", "home/m")


@pytest.fixture
def kept(machine: Machine) -> Machine:
    """Two conversations, the second of two turns."""
    with Server(ANSWER) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "Why is the sky blue?")
        machine.run(*CALL, "为什么天空是蓝色的？\n请简短。")
        machine.run("call", "-c", "为什么？")
    return machine


def test_with_nothing_kept_each_says_so(machine: Machine) -> None:
    for args, out, words in (
        (["list"], "", "no conversation is logged yet"),
        (["list", "--json"], "[]\n", ""),
        (["search", "x"], "", "nothing found"),
        (["search", "x", "--json"], "[]\n", ""),
        (["export"], "", ""),
    ):
        done = machine.run("logs", *args)
        assert (done.status, done.out) == (0, out)
        assert words in done.err
    machine.run("logs", "show").fails(2, "no conversation yet", "cnllm call")
    machine.run("logs", "export", "abc").fails(2, "abc", "cnllm logs list")


def test_a_folder_that_cannot_be_made_is_named_with_what_to_check(machine: Machine) -> None:
    (machine.home / "a-file").write_text("")
    done = machine.run("logs", "list", env={"CNLLM_DATA_DIR": str(machine.home / "a-file" / "x")})
    done.fails(2, "a-file", "the permissions of")


def _mounts() -> bool:
    """Whether a program may mount a file system of its own here."""
    try:
        return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def on_fixed_disk(machine: Machine, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the program where the folder of the log is on a disk that is read-only."""
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", script, str(machine.data), *machine.command(*args)]
    return subprocess.run(command, env=machine.env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not _mounts(), reason="nothing can be mounted here")
def test_a_log_on_a_read_only_disk_can_be_read(kept: Machine) -> None:
    for args in (["list"], ["show"], ["search", "blue"], ["export"], ["cost"], ["cache"]):
        here, there = kept.run("logs", *args), on_fixed_disk(kept, "logs", *args)
        assert (there.returncode, there.stdout) == (0, here.out), there.stderr
    before = {path.name: path.read_bytes() for path in kept.data.iterdir()}
    answered = on_fixed_disk(kept, "call", "--simulate", "-m", "glm-4.7", "hi")
    assert answered.returncode == 0
    assert "this call is not logged" in answered.stderr
    deleted = on_fixed_disk(kept, "logs", "delete", "last", "--yes")
    assert (deleted.returncode, deleted.stdout) == (2, "")
    assert "readonly" in deleted.stderr
    assert {path.name: path.read_bytes() for path in kept.data.iterdir()} == before


@pytest.mark.skipif(not _mounts(), reason="nothing can be mounted here")
def test_a_log_on_a_read_only_disk_is_read_with_the_writes_beside_it(kept: Machine) -> None:
    """A process that was killed leaves its last turns there. They are read, or nothing is."""
    path = kept.data / "conversations.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:  # it keeps both files where they are
        connection.execute("UPDATE turns SET model = 'home/other'")
        assert (kept.data / "conversations.db-wal").stat().st_size
        listed = on_fixed_disk(kept, "logs", "list")
        assert listed.returncode == 0, listed.stderr
        assert listed.stdout.count("home/other") == 2
        aside = kept.data / "conversations.db-shm"
        aside.rename(kept.home / "shm")
        listed = on_fixed_disk(kept, "logs", "list")
        assert (listed.returncode, listed.stdout) == (2, "")
        (kept.home / "shm").rename(aside)


@pytest.mark.skipif(not _mounts(), reason="nothing can be mounted here")
def test_an_older_log_on_a_read_only_disk_says_what_to_do(kept: Machine) -> None:
    with closing(sqlite3.connect(kept.data / "conversations.db")) as connection:
        connection.execute("PRAGMA user_version = 4")
    listed = on_fixed_disk(kept, "logs", "list")
    assert (listed.returncode, listed.stdout) == (2, "")
    assert "older cnllm" in listed.stderr
    assert "CNLLM_DATA_DIR" in listed.stderr


def test_list_shows_the_last_first(kept: Machine) -> None:
    lines = kept.run("logs", "list").out.splitlines()
    assert lines[0].split() == ["ID", "LAST", "TURNS", "MODEL", "STATE", "PROMPT"]
    assert lines[1].endswith("2  home/m  done   为什么天空是蓝色的？ 请简短。")
    assert lines[2].endswith("1  home/m  done   Why is the sky blue?")
    assert len(kept.run("logs", "list", "-n", "1").out.splitlines()) == 2
    (found,) = kept.run("logs", "list", "-n", "1", "--json").json()
    assert (found["turns"], found["models"], found["origins"], found["state"]) == (2, ["home/m"], ["endpoint"], "done")
    assert found["id"] == lines[1].split()[0]
    assert len(kept.run("logs", "list", "-n", "0").out.splitlines()) == len(lines)
    assert "-n 0 all" not in kept.run("logs", "list", "-n", "0").err
    assert "1 of 2; -n N shows more, -n 0 all" in kept.run("logs", "list", "-n", "1").err
    kept.run("logs", "list", "-n", "-1").fails(2, "-n")


def test_calls_without_words_say_so(machine: Machine) -> None:
    (machine.home / "in.txt").write_text("hi\n")
    machine.run("batch", str(machine.home / "in.txt"), "-m", "glm-4.7", "-o", str(machine.home / "o"), "--simulate")
    (found,) = machine.run("logs", "list", "--json").json()
    assert machine.run("logs", "list").out.endswith("(words not stored)\n")
    assert "(words not stored)" in machine.run("logs", "show", found["id"]).out
    again = machine.run("call", "--conversation", found["id"], "--simulate", "hi")
    again.fails(2, "its words are not stored", "cnllm logs list")


def test_show_prints_what_was_said(kept: Machine) -> None:
    out = kept.run("logs", "show").out
    order = ["── user\n为什么天空是蓝色的？\n请简短。", "── home/m\nHello", "── user\n为什么？", "── home/m\nHello"]
    places = [out.find(order[0]), out.find(order[1]), out.find(order[2]), out.rfind(order[3])]
    assert places == sorted(places)
    assert places[0] > 0
    assert "finish stop · 12 in · 34 out" in out
    assert "hm" not in out
    assert "<thinking>\nhm\n</thinking>\nHello" in kept.run("logs", "show", "--reasoning").out
    ident = kept.run("logs", "list", "--json").json()[1]["id"]
    assert "Why is the sky blue?" in kept.run("logs", "show", ident[:7]).out
    (turn,) = kept.run("logs", "show", ident, "--json").json()["turns"]
    assert turn["usage"] == {"input": 12, "output": 34, "total": 46}
    assert [message["role"] for message in turn["messages"]] == ["user", "assistant"]
    assert turn["messages"][1]["reasoning"] == "hm"


def test_search_finds_words_of_any_script_and_length(kept: Machine) -> None:
    for words, count in (
        (["SKY"], 1),
        (["天空"], 1),
        (["为"], 2),
        (["为什么", "简短"], 1),
        (["hello"], 3),
        (["hm"], 3),
    ):
        found = kept.run("logs", "search", *words, "--json").json()
        assert len(found) == count, words
        assert len(kept.run("logs", "search", *words).out.splitlines()) == count
    assert found[0]["where"] == "reasoning"
    line = kept.run("logs", "search", "sky").out
    ident = kept.run("logs", "list", "--json").json()[1]["id"]
    assert line.startswith(ident)
    assert line.endswith("  user: Why is the sky blue?\n")
    assert len(kept.run("logs", "search", "hello", "-n", "2", "--json").json()) == 2
    kept.run("logs", "search").fails(2, "WORDS")


def test_what_another_process_reads_is_not_called_gone(kept: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(kept.run("logs", "path").out.strip())

    def holds(words: bytes) -> bool:
        return any(words in file.read_bytes() for file in path.parent.iterdir())

    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM turns").fetchone()
        done = kept.run("logs", "delete", "--all", "--yes")
        assert (done.status, holds(b"sky blue")) == (3, True)
        assert "deleted: 2 conversations, 3 turns" in done.err
        assert f"another process is reading {path}" in done.err
        reader.execute("COMMIT")
    kept.run("logs", "list")
    assert not holds(b"sky blue")


def test_what_is_exported_can_be_replayed(kept: Machine) -> None:
    lines = kept.run("logs", "export").lines()
    assert [len(line["turns"]) for line in lines] == [1, 2]
    assert kept.run("logs", "export", lines[1]["id"][:8]).lines() == lines[1:]
    entries = [entry for turn in lines[0]["turns"] for entry in turn["exchanges"]]
    tape = kept.file("tape.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries))
    done = kept.run(*CALL, "--replay", tape, "Why is the sky blue?", env={"HOME_TEST_KEY": ""})
    assert (done.status, done.out) == (0, "Hello\n")
    assert kept.run("logs", "list", "--json").json()[0]["origins"] == ["replayed"]


def test_path_and_switch(machine: Machine) -> None:
    path = Path(machine.run("logs", "path").out.strip())
    assert path == machine.data / "conversations.db"
    assert not path.exists()
    machine.overlay("http://127.0.0.1:9/v1")
    for args, there in ((["off"], 0), (["on"], 1), (["off"], 1), (["on", "--no-exchanges"], 2)):
        done = machine.run("logs", *args)
        assert (done.status, done.out) == (0, "")
        assert "from now on" in done.err
        machine.run(*CALL, "--simulate", "hi")
        assert len(machine.run("logs", "list", "--json").json()) == there
    done = machine.run("logs", "on", env={"CNLLM_LOG": "off"})
    assert (done.status, "CNLLM_LOG=off wins over this setting" in done.err) == (0, True)


def test_a_terminal_gets_nothing_that_it_would_obey(machine: Machine) -> None:
    with Server([HEAD, texts("red\x1b[31m"), chunk("stop"), ANSWER[-1]]) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "--hide-reasoning", "be\x1b[2J gone")
    machine.run("call", "-c", "--simulate", "and \x9b2J?")
    for args in (["show"], ["list"], ["search", "red"], ["search", "gone"], ["export"]):
        with terminal(machine, "logs", *args) as (master, process):
            out = read_terminal(master)
            process.wait(30)
        assert "\x1b" not in out
        assert "\x9b" not in out
        assert "\\x1b" in out or "\\u001b" in out
    assert "\x1b[31m" in machine.run("logs", "show").out


@pytest.mark.parametrize("columns", [80, 100])
def test_a_line_stays_a_line_though_chinese_is_twice_as_wide(machine: Machine, columns: int) -> None:
    machine.run("call", "--model", "glm-4.7", "--simulate", "为什么天空是蓝色的，而不是紫色的？" * 5)
    machine.run("call", "--model", "glm-4.7", "--simulate", "Why is the sky blue, and not violet? " * 5)
    with terminal(machine, "logs", "list", columns=columns) as (master, process):
        lines = read_terminal(master).splitlines()
        process.wait(30)
    assert len(lines) == 3
    widths = [sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line) for line in lines]
    assert max(widths) <= columns
    assert min(widths[1:]) >= columns - 1


def test_a_narrow_terminal_shows_the_id_the_model_and_the_prompt_and_only_the_unusual_state(machine: Machine) -> None:
    prompt = "Why is the sky blue, and not violet?"
    machine.run("call", "--model", "moonshotai/kimi-k2.6", "--simulate", prompt)
    (found,) = machine.run("logs", "list", "--json").json()
    assert machine.run("logs", "list").out.splitlines()[1].split()[5:7] == ["done,", "simulated"]
    for columns, model in ((80, "kimi-k2.6"), (120, "moonshotai/kimi-k2.6")):
        with terminal(machine, "logs", "list", columns=columns) as (master, process):
            row = read_terminal(master).splitlines()[1]
            process.wait(30)
        ident, day, hour, turns, name, state, words = row.split(maxsplit=6)
        assert (ident, turns, name, state) == (found["id"], "1", model, "simulated")
        assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d", f"{day} {hour}"), "the year is this one"
        assert prompt.startswith(words.strip("…"))
        assert len(words) >= 24, "the prompt has most of the line"


def test_a_setting_that_cannot_be_read_costs_no_answer_and_keeps_nothing(machine: Machine) -> None:
    machine.run("logs", "off")
    (machine.data / "logging").write_text("maybe")
    done = machine.run("call", "--model", "glm-4.7", "--simulate", "hi")
    assert (done.status, bool(done.out)) == (0, True)
    assert "this call is not logged" in done.err
    assert "run cnllm logs on, or cnllm logs off, to rewrite it" in done.err
    assert not (machine.data / "conversations.db").exists()


def test_the_price_in_force_stays_with_each_turn(machine: Machine) -> None:
    """A price that changes later changes no turn of before. A price that many turns have stands in the file once."""
    with Server(ANSWER) as peer:
        for rate in (1.0, 1.0, 2.0):
            machine.overlay(peer.url, f'price = {{ currency = "USD", input = {rate}, output = 10.0 }}')
            machine.run("call", "--model", "home/m", "Hello")
        machine.overlay(peer.url)
        machine.run("call", "--model", "home/m", "Hello")
    with closing(sqlite3.connect(machine.data / "conversations.db", isolation_level=None)) as file:
        rows = file.execute("SELECT data FROM turns LEFT JOIN prices ON prices.id = turns.price ORDER BY turns.id")
        prices = [json.loads(data)["input"] if data else None for (data,) in rows]
        assert prices == [1.0, 1.0, 2.0, None]
        assert file.execute("SELECT count(*) FROM prices").fetchone() == (2,)


def test_a_conversation_that_goes_on_before_the_question_is_answered_is_not_deleted(kept: Machine) -> None:
    path = kept.data / "conversations.db"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE turns SET began = '2020-01-01T00:00:00.000+00:00'")
    master, slave = pty.openpty()
    command = kept.command("logs", "delete", "--before", "2021-01-01")
    process = subprocess.Popen(command, env=kept.env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    seen = b""
    while b"Really delete 2 conversations?" not in seen:
        seen += os.read(master, 1000)
    with Store.open(path) as store, store.conversation("last").turn([], model="home/m") as turn:
        turn.finish(reply())
    os.write(master, b"y\n")
    assert "deleted: 1 conversation, 1 turn" in read_terminal(master)
    os.close(master)
    assert process.wait() == 0
    with Store.open(path) as store:
        assert store.count() == 1


@pytest.mark.parametrize("command", ["show", "cache"])
def test_the_last_conversation_is_shown_while_another_process_deletes_some(kept: Machine, command: str) -> None:
    ends = threading.Event()

    def delete() -> None:
        with Store.open(kept.data / "conversations.db") as store:
            while not ends.is_set():
                store.conversation().turn([], model="home/m").forget()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(delete)
        try:
            for _ in range(60):
                done = kept.run("logs", command, "last")
                assert done.status == 0, done.err
        finally:
            ends.set()
        other.result()
