"""On a terminal: nothing that it would obey, reasoning dim; in a pipe: verbatim."""

from __future__ import annotations

import json
import os
import re
import signal
import termios
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnllm.cli.output import terminal as face

from .support import DONE, HEAD, Hold, Machine, Server, chunk, read_terminal, terminal, texts

EVIL = "a\x1b[31mred\x1b]0;title\x07 b\x9bm c\x7f d\u202ee\u2066 f\rg\b\tend\n最后"
SHOWN = "a\\x1b[31mred\\x1b]0;title\\x07 b\\x9bm c\\x7f d\\u202ee\\u2066 f\\x0dg\\x08\tend\n最后"
CALL = ("call", "--model", "home/m", "hi")


@pytest.fixture
def evil(machine: Machine) -> Iterator[None]:
    with Server([HEAD, chunk(reasoning_content="hm \x1b[2J"), texts(EVIL), chunk("stop"), DONE]) as peer:
        machine.overlay(peer.url)
        yield


@pytest.mark.usefixtures("evil")
def test_control_characters_are_spelt_out_on_a_terminal(machine: Machine) -> None:
    with terminal(machine, *CALL, both=False) as (master, process):
        seen = read_terminal(master)
        assert process.stderr is not None
        err = process.stderr.read().decode()
        assert process.wait() == 0
    assert seen.replace("        ", "\t") == SHOWN + "\n"
    assert "hm \x1b[2J" in err  # stderr is no terminal here


@pytest.mark.usefixtures("evil")
def test_raw_lets_them_through(machine: Machine) -> None:
    with terminal(machine, *CALL, "--raw", both=False) as (master, process):
        seen = read_terminal(master)
        process.wait()
    assert "\x1b[31mred" in seen


@pytest.mark.usefixtures("evil")
def test_a_pipe_gets_them_verbatim(machine: Machine) -> None:
    assert machine.run(*CALL).out == EVIL + "\n"
    assert machine.run(*CALL, "--json").json()["text"] == EVIL


@pytest.mark.usefixtures("evil")
def test_reasoning_is_dim_and_escaped_on_a_terminal(machine: Machine) -> None:
    with terminal(machine, *CALL) as (master, process):
        seen = read_terminal(master)
        process.wait()
    assert seen.startswith("\x1b[2mhm \\x1b[2J\x1b[0m\n\na\\x1b[31m")
    assert re.search(r"\x1b\[2mhome/m · 12 in · 34 out · \d+\.\d s to the first token\x1b\[0m\n", seen)


@pytest.mark.usefixtures("evil")
def test_no_color_is_respected(machine: Machine) -> None:
    machine.env["NO_COLOR"] = "1"
    with terminal(machine, *CALL) as (master, process):
        seen = read_terminal(master)
        process.wait()
    assert "\x1b" not in seen


@pytest.mark.usefixtures("evil")
def test_json_on_a_terminal_is_laid_out_and_harmless(machine: Machine) -> None:
    with terminal(machine, *CALL, "--json", both=False) as (master, process):
        seen = read_terminal(master)
        process.wait()
    assert json.loads(seen)["text"] == EVIL
    assert not any(character in seen for character in "\x1b\x07\x7f\x9b\u202e")
    assert len(seen.splitlines()) > 5
    with terminal(machine, *CALL, "--events", both=False) as (master, process):
        seen = read_terminal(master)
        process.wait()
    assert not any(character in seen for character in "\x1b\x07\x7f\x9b\u202e")


def test_no_text_on_a_terminal_is_an_error_and_no_wait(machine: Machine) -> None:
    import pty
    import subprocess

    machine.overlay("http://127.0.0.1:9/v1")
    master, slave = pty.openpty()
    done = subprocess.run(
        machine.command("call", "--model", "home/m"),
        env=machine.env,
        stdin=slave,
        capture_output=True,
        timeout=30,
        check=False,
    )
    os.close(master)
    os.close(slave)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"there is no text" in done.stderr


def test_ctrl_c_leaves_the_terminal_as_it_was(machine: Machine) -> None:
    with Server([HEAD, chunk(reasoning_content="hm"), Hold]) as peer:
        machine.overlay(peer.url)
        with terminal(machine, *CALL) as (master, process):
            assert peer.holding.wait(30)
            seen = ""
            while "hm" not in seen:
                seen += os.read(master, 100).decode()
            os.killpg(process.pid, signal.SIGINT)
            seen += read_terminal(master)
            assert process.wait() == 130
    assert seen.startswith("\x1b[2mhm\x1b[0m")
    assert seen.rfind("\x1b[0m") > seen.rfind("\x1b[2m")


def test_a_key_is_asked_for_without_echo(machine: Machine) -> None:
    import pty
    import subprocess

    master, slave = pty.openpty()
    process = subprocess.Popen(
        machine.command("keys", "set", "SOME_KEY"),
        env=machine.env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    seen = ""
    while "SOME_KEY:" not in seen:
        seen += os.read(master, 100).decode()
    while termios.tcgetattr(master)[3] & termios.ECHO:  # what is typed before that is thrown away
        time.sleep(0.01)
    os.write(master, b"sk-typed-by-hand\n")
    seen += read_terminal(master)
    os.close(master)
    assert process.wait() == 0
    assert "sk-typed" not in seen
    assert json.loads((machine.config / "keys.json").read_text()) == {"SOME_KEY": "sk-typed-by-hand"}


@given(st.text())
def test_escaped_text_holds_nothing_that_is_obeyed(text: str) -> None:
    shown = face.escape(text)
    assert not any(ord(c) < 32 and c not in "\n\t" for c in shown)
    assert not any(0x7F <= ord(c) < 0xA0 or "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" for c in shown)
    assert json.loads(face.escape_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize(
    "args",
    [
        ("models", "show", "glm-4.7"),
        ("call", "-m", "glm-4.7", "--reasoning", "wrong", "hi"),
        ("keys", "test", "zai"),
    ],
)
def test_messages_break_at_spaces_on_a_narrow_terminal(machine: Machine, args: tuple[str, ...]) -> None:
    plain = machine.run(*args)
    with terminal(machine, *args, columns=60) as (master, process):
        out = read_terminal(master)
        process.wait(30)
    lines = out.splitlines()
    assert max(len(line) for line in lines if " " in line.strip()) <= 60
    for word in (plain.err if plain.status else plain.out).split():
        assert word in out.split(), word


@pytest.mark.parametrize("columns", ["²", "9" * 5000])
def test_a_width_that_is_no_number_does_not_count(machine: Machine, columns: str) -> None:
    machine.env["COLUMNS"] = columns
    with terminal(machine, "call", "-m", "nobody-has-this", "hi") as (master, process):
        out = read_terminal(master)
        assert process.wait(30) == 2
    assert "nobody-has-this" in out
    assert "Traceback" not in out
