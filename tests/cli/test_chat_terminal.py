"""`cnllm chat` at a terminal: the prompt, what is typed, Ctrl-C."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pexpect
import pytest

from cnllm.cli.chat_commands import COMMANDS, TYPING
from cnllm.cli.output.terminal import display_width

from .support import DONE, HEAD, Hold, Machine, Server, Step, chunk, texts

HOME = ("chat", "--model", "home/m")
PROMPT = "m>"
ENTER, ALT_ENTER, CTRL_C, CTRL_D, UP = "\r", "\x1b\r", "\x03", "\x04", "\x1b[A"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


def says(*pieces: str) -> list[Step]:
    return [HEAD, texts(*pieces), chunk("stop"), DONE]


@contextmanager
def typing(machine: Machine, *args: str, prompt: str = PROMPT) -> Iterator[pexpect.spawn[str]]:
    """The program on a terminal, up to its first prompt."""
    command = machine.command(*args)
    env = {**machine.env, "TERM": "xterm", "NO_COLOR": "", "PROMPT_TOOLKIT_NO_CPR": "1"}
    child = pexpect.spawn(
        command[0], command[1:], env=env, timeout=30, encoding="utf-8", dimensions=(40, 100), echo=False
    )
    child.delaybeforesend = None
    try:
        child.expect_exact(prompt)
        yield child
    finally:
        child.close(force=True)


def ends(child: pexpect.spawn[str]) -> int | None:
    """Its exit status, once it has ended."""
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus


def sent(peer: Server, number: int) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in peer.received[number].json()["messages"]]


def shown(text: str | None) -> str:
    return _ESCAPES.sub("", text or "")


def test_a_chat_greets_answers_and_leaves_on_ctrl_d(machine: Machine) -> None:
    with Server(says("Hel", "lo")) as peer:
        machine.overlay(peer.url)
        with typing(machine, *HOME) as child:
            assert "asking home/m; /help lists the commands, Ctrl-D leaves" in shown(child.before)
            child.send(f"hi{ENTER}")
            child.expect_exact("Hello")
            child.expect_exact("home/m · 12 in · 34 out")
            child.expect_exact(PROMPT)
            child.send(CTRL_D)
            assert ends(child) == 0
        assert sent(peer, 0) == [("user", "hi")]


def test_at_a_terminal_an_answer_that_is_not_whole_is_told_and_the_exit_status_stays_0(machine: Machine) -> None:
    with Server([HEAD, texts("One"), chunk("length"), DONE]) as peer:
        machine.overlay(peer.url)
        with typing(machine, *HOME) as child:
            child.send(f"hi{ENTER}")
            child.expect_exact("it reached the limit of tokens (finish length)")
            child.expect_exact(PROMPT)
            child.send(CTRL_D)
            assert ends(child) == 0


@pytest.mark.share(2)
@pytest.mark.parametrize("language", ["C.UTF-8", "zh_CN.UTF-8"])
def test_help_fits_a_small_terminal_and_breaks_no_word(machine: Machine, language: str) -> None:
    machine.env["LANG"] = language
    machine.overlay("http://127.0.0.1:9/v1")
    with typing(machine, *HOME) as child:
        child.setwinsize(24, 80)
        child.send(f"/help{ENTER}")
        child.expect_exact("/help ")
        child.expect_exact(PROMPT)
        lines = [line.rstrip() for line in shown(f"/help {child.before}").splitlines() if line.strip()]
        child.send(CTRL_D)
    listed = lines[: max(number for number, line in enumerate(lines) if "Ctrl-C" in line) + 1]
    assert 13 < len(listed) <= 22
    assert all(display_width(line) <= 80 for line in listed)
    words = " ".join(" ".join(listed).split())
    for text in (*(text for text, _ in COMMANDS.values()), *TYPING.splitlines()):
        assert text in words or language != "C.UTF-8", text


def test_thinking_is_seen_while_it_lasts_and_then_folded(machine: Machine) -> None:
    with Server([HEAD, chunk(reasoning_content="hm"), texts("Hello"), chunk("stop"), DONE]) as peer:
        machine.overlay(peer.url)
        with typing(machine, *HOME) as child:
            child.send(f"hi{ENTER}")
            child.expect_exact(
                "\x1b[2mthinking…\x1b[0m\r\x1b[K\x1b[2mreasoning of 2 characters is folded\x1b[0m\r\nHello"
            )
            child.expect_exact(PROMPT)
            child.send(f"/quit{ENTER}")
            assert ends(child) == 0


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (f"one{ALT_ENTER}two{ENTER}", "one\ntwo"),
        (f"one\\{ENTER}two{ENTER}", "one\ntwo"),
        (f"```{ENTER}a{ENTER}```{ENTER}", "```\na\n```"),
        (f"```{ENTER}a \\{ENTER}b{ENTER}```{ENTER}", "```\na \\\nb\n```"),
        (f"```a``` is code{ENTER}", "```a``` is code"),
        (f"\x1b[200~run \\\n  it\x1b[201~{ENTER}", "run \\\n  it"),  # pasted: as it was
    ],
)
def test_a_turn_may_have_several_lines(machine: Machine, typed: str, said: str) -> None:
    with Server(says("Hello")) as peer:
        machine.overlay(peer.url)
        with typing(machine, *HOME) as child:
            child.send(typed)
            child.expect_exact("Hello")
            child.expect_exact(PROMPT)
            child.send(CTRL_D)
            assert ends(child) == 0
        assert sent(peer, 0) == [("user", said)]


def test_ctrl_c_stops_the_answer_keeps_what_came_and_goes_on(machine: Machine) -> None:
    with Server([HEAD, texts("One, "), Hold], says("Three.")) as peer:
        machine.overlay(peer.url)
        with typing(machine, *HOME) as child:
            child.send(f"first{ENTER}")
            child.expect_exact("One, ")
            child.send(CTRL_C)
            child.expect_exact("interrupted; the answer so far is shown above")
            child.expect_exact(PROMPT)
            child.send(f"second{ENTER}")
            child.expect_exact("Three.")
            child.expect_exact(PROMPT)
            child.send(CTRL_D)
            assert ends(child) == 0
        assert sent(peer, 1) == [("user", "first"), ("assistant", "One, "), ("user", "second")]
    assert "interrupted" in machine.run("logs", "show").out


def test_ctrl_c_before_anything_came_takes_the_turn_back(machine: Machine) -> None:
    with Server([HEAD, chunk(reasoning_content="hm"), Hold], says("Three.")) as peer:
        machine.overlay(peer.url)
        with typing(machine, *HOME) as child:
            child.send(f"first{ENTER}")
            child.expect_exact("thinking…")
            child.send(CTRL_C)
            child.expect_exact("interrupted; no answer arrived, /retry asks again")
            child.expect_exact(PROMPT)
            child.send(f"/retry{ENTER}")
            child.expect_exact("Three.")
            child.expect_exact(PROMPT)
            child.send(CTRL_D)
            assert ends(child) == 0
        assert sent(peer, 1) == [("user", "first")]


def test_ctrl_c_at_the_prompt_says_how_to_leave_and_drops_what_was_typed(machine: Machine) -> None:
    with Server(says("Hello")) as peer:
        machine.overlay(peer.url)
        with typing(machine, *HOME) as child:
            child.send(CTRL_C)
            child.expect_exact("Ctrl-D or /quit leaves")
            child.expect_exact(PROMPT)
            child.send("nonsense")
            child.expect_exact("nonsense")
            child.send(CTRL_C)
            child.expect_exact(PROMPT)
            child.send(f"hi{ENTER}")
            child.expect_exact("Hello")
            child.expect_exact(PROMPT)
            child.send(CTRL_D)
            assert ends(child) == 0
        assert sent(peer, 0) == [("user", "hi")]


def test_a_tool_is_asked_for_and_ctrl_c_there_stops_the_turn(machine: Machine) -> None:
    file = machine.file("mytools.py", "def shout(text: str) -> str:\n    return text.upper()\n")
    args = ("chat", "--model", "glm-4.7", "--simulate", "--tool", f"{file}:shout")
    with typing(machine, *args, prompt="glm-4.7>") as child:
        child.send(f"one{ENTER}")
        child.expect_exact("lways:")
        child.send(f"maybe{ENTER}")
        child.expect_exact("lways:")
        child.send(f"y{ENTER}")
        child.expect_exact('returned: "ONE"')
        child.expect_exact("glm-4.7>")
        child.send(f"two{ENTER}")
        child.expect_exact("lways:")
        child.send(CTRL_C)
        child.expect_exact("interrupted")
        child.expect_exact("glm-4.7>")
        child.send(CTRL_D)
        assert ends(child) == 0


def test_what_was_asked_earlier_is_found_again(machine: Machine) -> None:
    with Server(says("Hello")) as peer:
        machine.overlay(peer.url)
        assert machine.run("call", "--model", "home/m", "an earlier one").status == 0
        with typing(machine, *HOME) as child:
            child.send(f"{UP}{ENTER}")
            child.expect_exact("Hello")
            child.expect_exact(PROMPT)
            child.send(CTRL_D)
            assert ends(child) == 0
        assert sent(peer, 1) == [("user", "an earlier one")]


def test_tab_completes_commands_and_models(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    with typing(machine, "chat", "--model", "glm-4.7", "--simulate", prompt="glm-4.7>") as child:
        child.send("/und\t")
        child.expect_exact("o")  # what completes it
        child.send(ENTER)
        child.expect_exact("there is no turn to take back")
        child.expect_exact("glm-4.7>")
        child.send("/model hom\t")
        child.expect_exact("e/m")
        child.send(ENTER)
        child.expect_exact("now asking home/m")
        child.expect_exact(PROMPT)
        child.send(CTRL_D)
        assert ends(child) == 0


def test_nothing_of_an_answer_is_obeyed(machine: Machine) -> None:
    with Server(says("a\x1b]0;title\x07b")) as peer:
        machine.overlay(peer.url)
        with typing(machine, *HOME) as child:
            child.send(f"hi{ENTER}")
            child.expect_exact("a\\x1b]0;title\\x07b")
            child.expect_exact(PROMPT)
            child.send(CTRL_D)
            assert ends(child) == 0
