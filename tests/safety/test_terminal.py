"""Nothing that anybody says can move the cursor, set the title or write the clipboard: model, endpoint, registry."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from cli.support import DONE, HEAD, Machine, Server, chunk, http, on_terminal, read_terminal, texts

EVIL = (
    "a\x1b[2Jb\x1b]0;title\x07c\x1b]52;c;Y2F0\x07d\x1b]8;;http://evil.example\x1b\\e\x9b31mf\x9d52;c;Y2F0\x9cg"
    "\u202eh\u2066i\x08\x7f\x00\rj\x1bPq\x1b\\"
)
OBEYED = set("\x1b\x07\x08\x7f\x00\x9b\x9c\x9d\x90\u202e\u2066")
REDRAWN = re.compile(r"\x1b\[\d+F\x1b\[J")  # a block of Markdown is replaced by its formatted form
ANSWER = (HEAD, chunk(reasoning_content=EVIL), texts(EVIL), chunk("stop"), DONE)
CALLED = {"index": 0, "id": f"c{EVIL}", "type": "function", "function": {"name": f"n{EVIL}", "arguments": f"{EVIL}"}}
CALLS = (HEAD, chunk(tool_calls=[CALLED]), chunk("tool_calls"), DONE)
REFUSED = http(400, f'{{"error": {{"message": "no: {EVIL.encode("unicode_escape").decode()}"}}}}'.encode())
PAGE = http(502, f"<html><title>{EVIL}</title></html>".encode(), "text/html")
CALL = ("call", "-m", "home/m", "hi")


def screen(machine: Machine, *args: str) -> str:
    """All that reaches a terminal with both streams on it."""
    machine.env["NO_COLOR"] = "1"
    return on_terminal(machine, *args)


def harmless(seen: str) -> None:
    seen = REDRAWN.sub("", seen)
    assert not OBEYED & set(seen), repr(seen)
    assert seen.strip()


@pytest.mark.share(2)
@pytest.mark.parametrize("script", [ANSWER, CALLS, (REFUSED,), (PAGE,)], ids=["text", "calls", "an error", "a page"])
@pytest.mark.parametrize("more", [[], ["--debug"], ["--json"], ["--events"], ["--sentences"]], ids=" ".join)
def test_a_reply_cannot_control_the_terminal(machine: Machine, script: tuple[bytes, ...], more: list[str]) -> None:
    with Server(script) as server:
        machine.overlay(server.url)
        harmless(screen(machine, *CALL, *more))


def test_logs_cannot_control_the_terminal(machine: Machine) -> None:
    with Server(ANSWER, CALLS, (REFUSED,)) as server:
        machine.overlay(server.url)
        for _ in range(3):
            machine.run("call", "-m", "home/m", f"hi {EVIL.replace(chr(0), '')}")
    for args in (["list"], ["show", "--reasoning"], ["show", "--json"], ["search", "hi"], ["export"]):
        harmless(screen(machine, "logs", *args))
    assert "\x1b[2J" in screen(machine, "logs", "show", "--raw") + machine.run("logs", "show", "--raw").out


def test_a_chat_cannot_control_the_terminal(machine: Machine) -> None:
    import pexpect

    with Server(ANSWER) as server:
        machine.overlay(server.url)
        machine.env |= {"TERM": "dumb", "NO_COLOR": "1"}
        command = machine.command("chat", "-m", "home/m")
        talk = pexpect.spawn(command[0], command[1:], env=machine.env, encoding="utf-8", timeout=60)
        talk.expect("m>")
        talk.send("hello\r")
        talk.expect("12 in")
        said = str(talk.before)
        talk.close(force=True)
    for evil in ("\x1b[2J", "\x1b]0;", "\x1b]52", "\x1b]8", "\x9b", "\x9d", "\u202e", "\u2066"):
        assert evil not in said
    assert "\\x1b]52;c;Y2F0" in said


def test_sanitized_text_cannot_control_the_terminal(machine: Machine, tmp_path: Path) -> None:
    import pty
    import subprocess

    for more in ([], ["--json"]):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            machine.command("sanitize", "-m", "glm-4.7", *more),
            env={**machine.env, "NO_COLOR": "1"},
            stdin=subprocess.PIPE,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        assert process.stdin is not None
        process.stdin.write(f"<think>{EVIL}</think>{EVIL}".encode())
        process.stdin.close()
        seen = read_terminal(master)
        os.close(master)
        assert process.wait() == 0
        harmless(seen)


HOSTILE = r"""
[providers.home]
title = "T\u001b]0;x\u0007\u009b2J\u202e"
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/\u001b[2J"
keys = []
[models."home/m"]
title = "T\u001b]52;c;Y2F0\u0007"
input = ["text", "\u001b[2J"]
[models."home/n\u001b]0;x\u0007"]
status = { is = "retired", use = "home/\u001b[2J" }
[aliases]
"al\u001b[2J" = "home/m"
"""


@pytest.mark.usefixtures("small_builtin")
def test_a_hostile_registry_file(machine: Machine) -> None:
    machine.config.mkdir(parents=True)
    (machine.config / "providers.toml").write_text(HOSTILE)
    for args in (
        ["models", "show", "home/m"],
        ["models", "show", "home/m", "--json"],
        ["models", "show", "home/m", "--explain"],
        ["models", "show", "home/m", "--explain", "--json"],
        ["models", "show", "al\x1b[2J"],
        ["models", "show", "home/n\x1b]0;x\x07"],
        ["models", "list", "home"],
        ["models", "list", "home", "--json"],
        ["models", "matrix", "home"],
        ["models", "diff", "home/m", "home/n\x1b]0;x\x07"],
        ["registry", "check"],
        ["registry", "path"],
        [*CALL, "--plan"],
        [*CALL, "--curl"],
        ["call", "-m", "home/x\x1b[2J", "hi"],
    ):
        harmless(screen(machine, *args))
