"""`cnllm chat --tool`: what is run, what is asked for, and who answers where there is no terminal."""

from __future__ import annotations

import pytest

from .support import Machine, chat

SIMULATED = ("chat", "--model", "glm-4.7", "--simulate")
TOOLS = """
from pathlib import Path

def shout(text: str) -> str:
    "Say it louder."
    with Path(__file__).with_name("ran").open("a") as file:
        file.write(text + ";")
    return text.upper()
"""


def ran(machine: Machine) -> str:
    file = machine.home / "ran"
    return file.read_text() if file.exists() else ""


def test_built_in_tools_are_run_without_asking(machine: Machine) -> None:
    done = chat(machine, "/tools", "6*7", args=(*SIMULATED, "--tool", "calc"))
    assert "calc: Compute an arithmetic expression" in done.err
    assert 'tool call: calc {"expression": "6*7"}\ntool result: calc 42\n' in done.err
    assert 'returned: "42"' in done.out


@pytest.mark.parametrize(
    ("lines", "executed"),
    [
        (["one", "y", "two", "n"], "one;"),
        (["one", "always", "two", "three"], "one;two;three;"),
        (["one", "n", "two", "yes"], "two;"),
        (["one"], ""),
        (["one", "what?", "n"], ""),
    ],
)
def test_a_tool_of_the_users_own_is_asked_for(machine: Machine, lines: list[str], executed: str) -> None:
    file = machine.file("mytools.py", TOOLS)
    done = chat(machine, *lines, args=(*SIMULATED, "--tool", f"{file}:shout"))
    assert done.status == 0
    assert 'run shout {"text": "one"}? [y]es / [n]o / [a]lways:' in done.err
    assert ran(machine) == executed
    assert ("the user said no" in done.out) == (executed in ("", "one;", "two;"))


def test_a_line_that_is_no_answer_means_no_and_is_the_next_turn(machine: Machine) -> None:
    file = machine.file("mytools.py", TOOLS)
    done = chat(machine, "one", "/cost", args=(*SIMULATED, "--tool", f"{file}:shout"))
    assert ran(machine) == ""
    assert "1 answer · " in done.err
    assert "1 simulated: nothing was paid" in done.err
    assert "unknown" not in done.err


def test_all_and_none_ask_nobody(machine: Machine) -> None:
    file = machine.file("mytools.py", TOOLS)
    none = chat(machine, "/tools", "one", args=(*SIMULATED, "--approve", "none", "--tool", f"{file}:shout"))
    assert "shout: Say it louder.  (does not run: --approve none)" in none.err
    assert "did not give leave" in none.out
    assert "run shout" not in none.err
    assert ran(machine) == ""
    every = chat(machine, "/tools", "one", args=(*SIMULATED, "--approve", "all", "--tool", f"{file}:shout"))
    assert "shout: Say it louder.  (runs without asking)" in every.err
    assert 'returned: "ONE"' in every.out
    assert ran(machine) == "one;"
