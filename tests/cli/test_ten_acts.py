"""The table of the manual that sets `llm` and cnllm side by side: what it names works and is no longer to type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from .support import Machine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-line.md"
ROW = re.compile(r"^\| (?P<act>[^|]+?) \| (?P<llm>.+?) (?<!\\)\| (?P<ours>.+) \|$")


def rows() -> list[tuple[str, list[str], list[str]]]:
    """Return (act, commands of llm, our commands) of each line of the table."""
    section = PAGE.read_text(encoding="utf-8").split("## For users of `llm`")[1]
    found = []
    for line in section.splitlines():
        match = ROW.match(line)
        if match and match["act"].strip("- "):
            llm, ours = (re.findall(r"`([^`]+)`", match[side]) for side in ("llm", "ours"))
            found.append((match["act"], llm, ours))
    return found


def typed(commands: list[str]) -> int:
    """Return how many keys the commands take, Enter included, without the name of the program."""
    return sum(len(re.sub(r"\b(cnllm|llm)(?= )", "", command).replace("\\|", "|")) + 1 for command in commands)


def test_the_table_has_the_ten_acts() -> None:
    assert len(rows()) >= 10


@pytest.mark.parametrize(("act", "llm", "ours"), rows(), ids=[row[0] for row in rows()])
def test_no_act_takes_more_to_type(act: str, llm: list[str], ours: list[str]) -> None:
    if act == "what it cost":
        return  # the last line of an answer has it: nothing to type
    assert len(ours) <= len(llm), act
    assert typed(ours) <= typed(llm), act


def test_every_command_of_ours_works(machine: Machine) -> None:
    folder = Path(machine.file("chart.png", b"\x89PNG\r\n\x1a\n")).parent
    env = {"CNLLM_MODEL": "kimi-k2.6"}
    ran = 0
    for act, _, ours in rows():
        for command in ours:
            pipe, _, last = command.replace("\\|", "|").rpartition("| ")
            program, *args = shlex.split(last)
            if program != "cnllm":
                continue  # pip
            if args[0] not in ("keys", "models", "logs"):
                args.append("--simulate")
            stdin = "sk-test" if args[0] == "keys" else "a piped text" if pipe else ""
            done = machine.run(*args, stdin=stdin, env=env, cwd=folder)
            assert done.status == 0, (act, command, done)
            if act == "what it cost":
                assert "simulated" in done.err  # which costs nothing
            ran += 1
    assert ran >= 10


@pytest.mark.usefixtures("small_builtin")
def test_a_group_without_a_command_lists(machine: Machine) -> None:
    for group in ("models", "logs", "aliases", "templates", "keys"):
        bare, explicit = machine.run(group), machine.run(group, "list")
        assert (bare.status, bare.out, bare.err) == (0, explicit.out, explicit.err), group
    assert machine.run("models", "--json").json() == machine.run("models", "list", "--json").json()
    assert "Usage:" in machine.run("registry").err
