"""`--tool`: a call whose name only looks like an offered tool's is not run and not asked for, whatever is approved."""

from __future__ import annotations

import json

from .support import DONE, HEAD, Machine, Server, chat, chunk, read_terminal, terminal, texts

TOOLS = """
from pathlib import Path

def weather(city: str = "") -> str:
    "Tell the weather."
    with Path(__file__).with_name("ran").open("a", encoding="utf-8") as file:
        file.write(city + ";")
    return "sun"
"""
NAMES = [
    "Weather", "weather ", " weather", "wea\u200bther", "we\u0430ther", "\uff57eather", "weather\u202e",
    "weather\u200e", "weather\x1b[2K", "wea\u00adther", "weather\u2069", "c\u0430lc", "calc\u200b",
    "functions.weather", "read ", "\u061ccalc",
]  # fmt: skip
ANSWER = (HEAD, texts("done"), chunk("stop"), DONE)


def arguments(name: str, n: int) -> dict[str, str]:
    """What the tool that a name looks like would take."""
    return {"path": "x"} if "read" in name else {"expression": "1+1"} if "lc" in name else {"city": f"city{n}"}


def script(names: list[str]) -> tuple[bytes, ...]:
    made = [
        {"index": n, "id": f"c{n}", "type": "function",
         "function": {"name": name, "arguments": json.dumps(arguments(name, n))}}
        for n, name in enumerate(names)
    ]  # fmt: skip
    return (HEAD, chunk(tool_calls=made), chunk("tool_calls"), DONE)


def ran(machine: Machine) -> str:
    file = machine.home / "ran"
    return file.read_text() if file.exists() else ""


def test_look_alikes_are_never_run(machine: Machine) -> None:
    file = machine.file("mytools.py", TOOLS)
    tools = ("--tool", f"{file}:weather", "--tool", "calc")
    with Server(script(NAMES), ANSWER) as server:
        machine.overlay(server.url)
        done = machine.run("call", "-m", "home/m", *tools, "--approve", "all", "hi")
        assert done.status == 0, done.err
        assert "done" in done.out
        assert ran(machine) == ""
        told = [turn for turn in json.loads(server.received[1].body)["messages"] if turn["role"] == "tool"]
        assert len(told) == len(NAMES)
        assert all("There is no tool" in turn["content"] for turn in told)


def test_look_alikes_of_an_approved_tool_are_not_asked_for(machine: Machine) -> None:
    file = machine.file("mytools.py", TOOLS)
    args = ("chat", "--model", "home/m", "--tool", f"{file}:weather", "--tool", "calc")
    with Server(script(["weather"]), ANSWER, script([*NAMES, "weather"]), ANSWER) as server:
        machine.overlay(server.url)
        done = chat(machine, "one", "always", "two", "always", args=args)
        assert done.status == 0, done.err
        assert done.err.count("[y]es / [n]o / [a]lways:") == 1
        assert ran(machine) == f"city0;city{len(NAMES)};"


def test_names_are_shown_with_what_nobody_sees_spelt_out(machine: Machine) -> None:
    file = machine.file("mytools.py", TOOLS)
    machine.env["NO_COLOR"] = "1"
    with Server(script(NAMES), ANSWER) as server:
        machine.overlay(server.url)
        with terminal(machine, "call", "-m", "home/m", "--tool", f"{file}:weather", "--approve", "all", "hi") as (
            master,
            process,
        ):
            seen = read_terminal(master)
            process.wait()
    assert ran(machine) == ""
    assert "wea\\u200bther" in seen
    assert "weather\\u200e" in seen
    assert "\\u061ccalc" in seen
    assert not {"\u200b", "\u202e", "\u200e", "\xad", "\u2069", "\u061c", "\x1b"} & set(seen)
