"""The commands of a chat that change the conversation: /system, /file, /clear, /save, and the picker of /model."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from .support import DONE, HEAD, Machine, Server, Step, chat, chunk, read_until, texts
from .test_chat_terminal import CTRL_C, CTRL_D, ENTER, HOME, ends, sent, shown, typing


def says(*pieces: str) -> list[Step]:
    return [HEAD, texts(*pieces), chunk("stop"), DONE]


def test_a_new_system_message_replaces_the_old_one(machine: Machine) -> None:
    with Server(says("a"), says("b"), says("c"), says("d")) as peer:
        machine.overlay(peer.url)
        lines = ("one", "/system", "/system Be brief.", "two", "three", "/system -", "four")
        done = chat(machine, *lines, args=(*HOME, "-s", "Be long."))
        assert done.status == 0, done.err
        systems = [[text for role, text in sent(peer, n) if role == "system"] for n in range(4)]
    assert systems == [["Be long."], ["Be brief."], ["Be brief."], []]
    assert "Be long." in done.err


def test_a_file_goes_with_the_next_question_alone(machine: Machine, tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("The sky is green.")
    with Server(says("a"), says("b")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, f"/file {notes}", f"/file {tmp_path}/none.md", "what?", "and?", args=HOME)
        first, second = (sent(peer, n)[-1][1] for n in range(2))
    assert "The sky is green." in str(first)
    assert str(first).endswith("what?")
    assert second == "and?"
    assert "none.md" in done.err


def test_clear_begins_a_new_conversation_and_keeps_the_old_one(machine: Machine) -> None:
    with Server(says("a"), says("b")) as peer:
        machine.overlay(peer.url)
        chat(machine, "one", "/clear", "two", args=HOME)
        assert [text for role, text in sent(peer, 1) if role == "user"] == ["two"]
    conversations = machine.run("logs", "list", "--json").json()
    assert len(conversations) == 2


def test_a_conversation_that_goes_on_outlives_a_log_that_cannot_be_written(machine: Machine) -> None:
    with Server(says("a"), says("b"), says("c"), says("d")) as peer:
        machine.overlay(peer.url)
        chat(machine, "one", args=HOME)
        with machine.start(*HOME, "-c", stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(b"two\n")
            process.stdin.flush()
            read_until(process, b"b\n")
            process.stdin.write(b"/tools\n")
            process.stdin.flush()
            assert process.stderr is not None
            while b"there are no tools" not in process.stderr.readline():
                pass  # the turn before it is written then
            (machine.data / "conversations.db").unlink()
            out, err = process.communicate(b"three\nfour\n", timeout=60)
        assert (process.returncode, out) == (0, b"c\nd\n"), err
        assert [text for _, text in sent(peer, 3)] == ["one", "a", "two", "b", "three", "c", "four"]
    assert err.count(b"this call is not logged: ") == 2


def test_save_writes_a_new_file(machine: Machine, tmp_path: Path) -> None:
    as_json, as_text = tmp_path / "talk.json", tmp_path / "talk.md"
    with Server(says("**Hello**")) as peer:
        machine.overlay(peer.url)
        done = chat(
            machine,
            "hi",
            f"/save {as_json}",
            f"/save {as_text}",
            f"/save {as_json}",
            "/save",
            args=(*HOME, "-s", "Be kind."),
        )
    messages = json.loads(as_json.read_text())
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert messages[2]["content"] == "**Hello**"
    assert re.search(r"## assistant \(home/m\)\n\n\*\*Hello\*\*\n", as_text.read_text())
    assert f"{as_json} exists" in done.err
    assert "/save needs a file" in done.err


def test_model_without_a_name_lets_the_user_pick(machine: Machine) -> None:
    with Server(says("a")) as peer:
        machine.overlay(peer.url, '[models."home/n"]\n')
        with typing(machine, *HOME) as child:
            child.send(f"/model{ENTER}")
            child.expect_exact("number or name")
            number = re.search(r"(\d+)  home/n", shown(child.before))
            assert number, child.before
            child.send(f"{number[1]}{ENTER}")
            child.expect_exact("now asking home/n")
            child.expect_exact("n>")
            child.send(f"/model{ENTER}")
            child.expect_exact("number or name")
            child.send(CTRL_C)
            child.expect_exact("n>")
            child.send(CTRL_D)
            assert ends(child) == 0
