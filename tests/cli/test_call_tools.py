"""`cnllm call --tool`: which tools there are, which calls are executed, and what is seen of them.

The simulator calls the first tool with the prompt as its text, and quotes the result in its answer.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases import each

from cnllm.cli.builtin_tools import calc, read, time

from .support import DONE, HEAD, Done, Machine, Server, chunk, texts

ROOT = Path(__file__).parent.parent.parent
CALL = ("call", "--model", "glm-4.7", "--simulate", "--hide-reasoning")
TOOLS = '''
from pathlib import Path

def shout(text: str) -> str:
    """Say it louder."""
    Path(__file__).with_name("ran").write_text(text)
    return text.upper()

def whisper(text: str) -> str:
    """Say it lower."""
    return text.lower()

def broken(text: str) -> str:
    raise RuntimeError("it \\x1b[31mbroke")

def untyped(thing: object()): ...

number = 5
'''


@pytest.fixture
def tools(machine: Machine) -> str:
    return machine.file("mytools.py", TOOLS)


def here(machine: Machine, *args: str) -> Done:
    """Runs in the machine's home."""
    return machine.run(*args, cwd=machine.home, env={"PYTHONPATH": str(ROOT)})


# ── built-in tools ───────────────────────────────────────────────────────────
def test_a_built_in_tool_is_executed_and_told_of_on_stderr(machine: Machine) -> None:
    done = machine.run(*CALL, "--tool", "calc", "2+3*4")
    assert done.status == 0
    assert 'The tool calc returned: "14"' in done.out
    assert done.out.count("\n") == 1
    assert 'tool call: calc {"expression": "2+3*4"}\ntool result: calc 14\n' in done.err


@pytest.mark.usefixtures("small_builtin")
def test_whole_answers_go_through_the_same_loop(machine: Machine) -> None:
    done = machine.run(*CALL, "--no-stream", "--tool", "calc", "2+3*4")
    assert (done.status, 'returned: "14"' in done.out) == (0, True)
    assert 'tool call: calc {"expression": "2+3*4"}\ntool result: calc 14\n' in done.err


def test_json_is_the_last_reply_with_the_usage_of_all_steps(machine: Machine) -> None:
    one = machine.run(*CALL, "--json", "--tool", "calc", "2+3*4").json()
    assert 'returned: "14"' in one["text"]
    assert one["finish"] == "stop"
    events = machine.run(*CALL, "--events", "--tool", "calc", "2+3*4").lines()
    assert [event["finish"] for event in events if event["type"] == "finished"] == ["tool_calls", "stop"]
    counts = {event["usage"]["output"] for event in events if event["type"] == "usage" and event["usage"]["output"]}
    assert one["usage"]["output"] > max(counts)


@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_results_are_among_the_events(machine: Machine, how: str) -> None:
    events = machine.run(*CALL, how, "--events", "--tool", "calc", "2+3*4").lines()
    (at,) = (n for n, event in enumerate(events) if event["type"] == "tool_result")
    (call,) = (event["call"] for event in events[:at] if event["type"] == "tool_call_end")
    assert events[at]["result"] == {"kind": "tool_result", "id": call["id"], "text": "14", "name": "calc"}
    assert events[at - 1]["type"] == "finished"
    (error,) = (e for e in machine.run(*CALL, "--events", "--tool", "calc", "?").lines() if e["type"] == "tool_result")
    assert error["result"]["error"] is True


def test_what_a_tool_raises_is_told_to_the_model(machine: Machine) -> None:
    done = machine.run(*CALL, "--tool", "calc", "__import__('os')")
    assert done.status == 0
    assert "tool error: calc ValueError: " in done.err
    assert "is not arithmetic" in done.out


def test_read_reads_below_the_current_folder_and_nothing_else(machine: Machine) -> None:
    machine.file("notes.txt", "the sky is blue")
    machine.file(".env", "TOKEN=hidden")
    (machine.home / "out").symlink_to("/etc")
    assert "the sky is blue" in here(machine, *CALL, "--tool", "read", "notes.txt").out
    for path in ("/etc/passwd", "../../etc/passwd", "out/passwd", ".env", "./.env", "none.txt"):
        done = here(machine, *CALL, "--tool", "read", path)
        assert "tool error: read ValueError: " in done.err
        assert "root:" not in done.out
        assert "hidden" not in done.out.replace("hidden, and hidden files", "")


@each(
    "expression, value",
    [
        ("1 + 2 * 3", 7),
        ("-(2 ** 10) // 3", -342),
        ("round(sqrt(2), 3)", 1.414),
        ("2 * pi > 6", None),
        ("9**9**9", None),
        ("10**1999 * 10**1999", None),
        ("(-8) ** 0.5", None),
        ("().__class__", None),
        ("open('x')", None),
        ("'a' * 9", None),
        ("1 +", None),
        ("(" * 5000, None),
        ("True + 1", None),
        ("round(7, -10**9)", 0),
        ("round(7.125, 10**1000)", 7.125),
        ("round(12345, -2)", 12300),
        ("round(1, 1.5)", None),
        ("1e308 * 10", None),
        ("1e400", None),
        ("10**1000 / 3", None),
        ("2.0**10**400", None),
        ("exp(10**6)", None),
        ("1 / 0", None),
        ("abs()", None),
        ("max(1)", None),
        ("-" * 100 + "1", 1),
        ("9" * 1001, None),
    ],
)
def test_calc_computes_arithmetic_alone(expression: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(ValueError):
            calc(expression)
    else:
        assert calc(expression) == value


def test_time_knows_zones() -> None:
    assert time("Asia/Shanghai").split()[0].endswith("+08:00")
    assert time().split()[1].endswith("day")
    with pytest.raises(ValueError, match="no time zone"):
        time("../etc/passwd")


def test_read_takes_text_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.txt").write_text("a" * 200_000)
    (tmp_path / "binary").write_bytes(b"\0\1")
    assert read("long.txt").endswith("[cut off after 100000 characters]")
    for path, why in (("binary", "not text"), (".", "no file"), ("", "no file")):
        with pytest.raises(ValueError, match=why):
            read(path)


# ── tools of the user's own ──────────────────────────────────────────────────
def test_an_imported_tool_is_not_run_without_leave(machine: Machine, tools: str) -> None:
    done = machine.run(*CALL, "--tool", f"{tools}:shout", "hello")
    assert done.status == 0
    assert "the user did not give leave to run it (--approve all)" in done.out
    assert "tool error: shout not approved" in done.err
    assert not (machine.home / "ran").exists()


def test_approve_all_runs_it(machine: Machine, tools: str) -> None:
    done = machine.run(*CALL, "--approve", "all", "--tool", f"{tools}:shout", "hello")
    assert (done.status, 'returned: "HELLO"' in done.out) == (0, True)
    assert (machine.home / "ran").read_text() == "hello"


def test_a_module_is_found_in_the_current_folder(machine: Machine, tools: str) -> None:
    assert tools.endswith("mytools.py")
    args = (*CALL, "--approve", "all", "--tool", "mytools:whisper", "HeLLo")
    assert 'returned: "hello"' in here(machine, *args).out
    assert 'returned: "hello"' in here(machine, *args[:-2], "mytools.py:whisper", "HeLLo").out


def test_the_tools_are_offered_in_order_and_may_be_of_both_kinds(machine: Machine, tools: str) -> None:
    both = ("--tool", "calc", "--tool", f"{tools}:shout", "--tool", f"{tools}:whisper")
    plan = machine.run("call", "--model", "glm-4.7", *both, "--plan", "hi").json()
    assert [tool["function"]["name"] for tool in plan["body"]["tools"]] == ["calc", "shout", "whisper"]
    assert "Say it louder." in json.dumps(plan)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("rm", ["no such tool", "calc, read"]),
        ("nowhere_at_all:f", ["ModuleNotFoundError", "MODULE:FUNCTION"]),
        ("nowhere.py:f", ["no such file"]),
        ("TOOLS:none", ["there is no none"]),
        ("TOOLS:number", ["int"]),
        ("TOOLS:untyped", ["untyped", "name a function with type annotations"]),
        (":f", ["no such tool"]),
    ],
)
def test_a_tool_that_is_none_is_said_before_anything_is_sent(
    machine: Machine, tools: str, given: str, words: list[str]
) -> None:
    machine.run(*CALL, "--tool", given.replace("TOOLS", tools), "hi").fails(2, "--tool", *words)


def test_two_tools_of_one_name_and_two_ways_of_offering_are_refused(machine: Machine) -> None:
    file = machine.file("other.py", "def calc(text: str) -> str:\n    return text\n")
    machine.run(*CALL, "--tool", "calc", "--tool", f"{file}:calc", "hi").fails(2, "another tool called calc")
    machine.run(*CALL, "--tool", f"{file}:calc", "hi")
    tools = machine.file("tools.json", '[{"name": "f"}]')
    machine.run(*CALL, "--tool", "calc", "--tools", tools, "hi").fails(2, "--tools", "--tool")


def test_a_tool_of_the_users_own_is_not_safe_for_its_name(machine: Machine) -> None:
    file = machine.file("other.py", "def calc(text: str) -> str:\n    return 'ran'\n")
    assert "did not give leave" in machine.run(*CALL, "--tool", f"{file}:calc", "hi").out


# ── how it ends ──────────────────────────────────────────────────────────────
def asked(name: str, arguments: str, *before: str) -> list[bytes]:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [HEAD, texts(*before), chunk(tool_calls=[call]), chunk("tool_calls"), DONE]


def test_the_texts_of_the_steps_are_on_lines_of_their_own(machine: Machine) -> None:
    script = asked("calc", '{"expression": "6*7"}', "Let me see.")
    with Server(script, [HEAD, texts("It is 42."), chunk("stop"), DONE]) as peer:
        machine.overlay(peer.url)
        done = machine.run("call", "--model", "home/m", "--tool", "calc", "hi")
        assert (done.status, done.out) == (0, "Let me see.\nIt is 42.\n")
        assert "home/m · 24 in · 68 out" in done.err  # of both
        assert peer.received[1].json()["messages"][-1]["content"] == "42"


def test_a_model_that_goes_round_in_circles_is_stopped(machine: Machine) -> None:
    with Server(asked("calc", '{"expression": "1"}')) as peer:
        machine.overlay(peer.url)
        done = machine.run("call", "--model", "home/m", "--tool", "calc", "hi")
    assert (done.status, done.out) == (3, "")
    assert "repeated the same calls, and was stopped" in done.err


def test_the_calls_are_in_the_conversation_and_it_goes_on(machine: Machine) -> None:
    script = asked("calc", '{"expression": "6*7"}')
    with Server(script, [HEAD, texts("It is 42."), chunk("stop"), DONE]) as peer:
        machine.overlay(peer.url)
        machine.run("call", "--model", "home/m", "--tool", "calc", "What is it?")
        assert machine.run("call", "-c", "Sure?").status == 0
        roles = [message["role"] for message in peer.received[2].json()["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]
    shown = machine.run("logs", "show").out
    assert '(tool call: calc {"expression": "6*7"})' in shown


def test_with_tools_too_an_answer_may_come_a_sentence_at_a_time(machine: Machine) -> None:
    with Server([HEAD, texts("One. T", "wo. ", "3"), chunk("stop"), DONE]) as peer:
        machine.overlay(peer.url)
        args = ("call", "--model", "home/m", "--tool", "calc", "--sentences", "--events", "hi")
        events = machine.run(*args).lines()
    assert [event["text"] for event in events if event["type"] == "text_delta"] == ["One. ", "Two. ", "3"]
