"""`cnllm chat` from a pipe: each line a turn, answers on stdout and all else on stderr."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cnllm.config.distribution import install_command

from .support import DONE, HEAD, Hold, Machine, Server, Step, chat, chunk, http, texts

SIMULATED = ("chat", "--model", "glm-4.7", "--simulate")
HOME = ("chat", "--model", "home/m")


def says(*pieces: str) -> list[Step]:
    return [HEAD, texts(*pieces), chunk("stop"), DONE]


def sent(peer: Server, number: int) -> list[tuple[str, Any]]:
    """Return the roles and texts of a request."""
    return [(message["role"], message["content"]) for message in peer.received[number].json()["messages"]]


# ── turns ────────────────────────────────────────────────────────────────────
def test_each_line_is_a_turn_and_answers_alone_are_on_stdout(machine: Machine) -> None:
    done = chat(machine, "Why is the sky blue?", "", "And at sunset?", args=SIMULATED)
    assert done.status == 0
    first, second = done.out.splitlines()
    assert 'You said: "Why is the sky blue?"' in first
    assert 'You said: "And at sunset?"' in second
    assert done.err.startswith("cnllm: simulated: ")
    assert done.err.count("made up on this machine") == 1
    assert "note: simulate:" not in done.err  # the first line says it
    assert done.err.count("zai/glm-4.7 · ") == 2


def test_what_was_said_before_goes_along(machine: Machine) -> None:
    with Server(says("One."), says("Two.")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "first", "second", args=(*HOME, "-s", "Be short."))
        assert (done.status, done.out) == (0, "One.\nTwo.\n")
        assert sent(peer, 1) == [
            ("system", "Be short."), ("user", "first"), ("assistant", "One."), ("user", "second")
        ]  # fmt: skip


def test_thinking_is_folded_into_a_line_and_can_be_shown(machine: Machine) -> None:
    with Server([HEAD, chunk(reasoning_content="hm, well"), texts("Hello"), chunk("stop"), DONE]) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "hi", "/thinking", "hi", "/thinking", args=HOME)
    assert done.out == "Hello\nHello\n"
    folded, shown = done.err.split("thinking is shown\n")
    assert folded == "reasoning of 8 characters is folded\nhome/m · 12 in · 34 out\n"
    lines = [line for line in shown.splitlines() if not line.startswith("note: reasoning.replay: ")]
    assert lines == ["hm, well", "hm, well", "home/m · 12 in · 34 out", "thinking is folded"]


def test_where_only_thinking_came_the_answer_says_so(machine: Machine) -> None:
    thought = [HEAD, chunk(reasoning_content="hm"), chunk("stop"), DONE]
    with Server(thought, says("Hello")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "hi", "still there?", args=HOME)
        assert done.status == 3
        assert (
            done.out.splitlines()[0]
            == "(the model sent only reasoning, no answer; /thinking shows it, /retry asks again)"
        )
        assert done.out.splitlines()[1] == "Hello"
        assert "reasoning of 2 characters is folded" in done.err
        roles = [role for role, _ in sent(peer, 1)]
        assert roles[0] == roles[-1] == "user"


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["one\\", "two"], "one\ntwo"),
        (["see:", "```", "a", "", "b", "```"], "```\na\n\nb\n```"),
        (["````", "```", "a", "````"], "````\n```\na\n````"),
        (["```", "run \\", "  it", "```"], "```\nrun \\\n  it\n```"),  # code stays as it is
        (["```a``` is code"], "```a``` is code"),
        (["//etc is a folder"], "/etc is a folder"),
        (["/etc/hosts holds names"], "/etc/hosts holds names"),
        (["one\\"], "one\\"),
        (["为什么？"], "为什么？"),
    ],
)
def test_a_turn_may_have_several_lines(machine: Machine, lines: list[str], said: str) -> None:
    with Server(says("Yes.")) as peer:
        machine.overlay(peer.url)
        assert chat(machine, *lines, args=HOME).status == 0
        assert sent(peer, -1)[-1] == ("user", said)


# ── commands ─────────────────────────────────────────────────────────────────
def test_help_lists_the_commands_and_an_unknown_one_is_no_turn(machine: Machine) -> None:
    done = chat(machine, "/help", "/bogus", "/quit", "never asked", args=SIMULATED)
    assert (done.status, done.out) == (2, "")
    for name in ("/help", "/model", "/tools", "/retry", "/undo", "/cost", "/thinking", "/quit", "Ctrl-C", "Alt-Enter"):
        assert name in done.err
    assert "there is no command /bogus" in done.err
    assert "did you mean /model?" in chat(machine, "/modle", args=SIMULATED).err
    done = chat(machine, "!multi", "!fragment notes.md", "/file none.txt", args=SIMULATED)
    assert (done.out, "there is no command !multi" in done.err) == ("", True)
    assert "/file FILE attaches a file" in done.err
    assert "/file none.txt: No such file" in done.err


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("/model no-such-model", "hi"), 2),  # the answer is not that model's
        (("/file none.txt", "hi"), 2),
        (("hi", "/save no-folder/talk.md"), 2),
        (("!multi", "hi"), 2),
        (("/help", "/model", "/cost", "/undo", "hi"), 0),
    ],
)
def test_a_command_that_fails_counts_in_the_exit_status(machine: Machine, lines: tuple[str, ...], status: int) -> None:
    assert chat(machine, *lines, args=SIMULATED).status == status


def test_another_model_can_go_on_and_what_it_is_not_told_is_noted(machine: Machine) -> None:
    done = chat(machine, "hello", "/model deepseek-flash", "/model", "again", args=SIMULATED)
    assert done.status == 0
    assert "the real glm-4.7" in done.out.splitlines()[0]
    assert "the real deepseek-flash" in done.out.splitlines()[1]
    before, after = done.err.split("now asking deepseek/deepseek-flash\n")
    assert "note: reasoning.if_foreign: messages[…]: another model's reasoning → left out (providers.toml:" in before
    assert "reasoning.if_foreign" not in after
    assert after.startswith("asking deepseek/deepseek-flash;")


def test_a_model_that_is_none_or_has_no_key_is_not_switched_to(machine: Machine) -> None:
    with Server(says("One."), says("Two.")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "first", "/model nonesuch", "/model glm-4.7", "second", args=HOME)
        assert (done.status, done.out) == (2, "One.\nTwo.\n")
    assert "nonesuch" in done.err
    assert "ZAI_API_KEY" in done.err
    assert "now asking" not in done.err


def test_undo_takes_the_last_turn_back_in_the_store_too(machine: Machine) -> None:
    with Server(says("One."), says("Two."), says("Three.")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "first", "second", "/undo", "third", args=HOME)
        assert "taken back: second (1 turn left)" in done.err
        assert sent(peer, 2) == [("user", "first"), ("assistant", "One."), ("user", "third")]
    shown = machine.run("logs", "show").out
    assert "first" in shown
    assert "third" in shown
    assert "second" not in shown


def test_undo_reaches_turns_of_an_earlier_day_and_the_system_message_comes_back(machine: Machine) -> None:
    with Server(says("One."), says("Two.")) as peer:
        machine.overlay(peer.url)
        machine.run("call", "--model", "home/m", "first")
        done = chat(machine, "/undo", "/undo", "second", args=("chat", "-c", "-s", "Be short."))
        assert (done.status, done.out) == (0, "Two.\n")
        assert "after 1 turn (home/m, " in done.err
        assert "there is no turn to take back" in done.err
        assert sent(peer, 1) == [("system", "Be short."), ("user", "second")]
    assert machine.run("logs", "list", "--json").json()[0]["turns"] == 1


def test_retry_asks_the_last_turn_again(machine: Machine) -> None:
    with Server(says("One."), says("Two."), says("Three.")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "/retry", "first", "second", "/retry", args=HOME)
        assert (done.status, done.out) == (0, "One.\nTwo.\nThree.\n")
        assert "there is no turn to ask again" in done.err
        assert sent(peer, 2) == sent(peer, 1)
    assert machine.run("logs", "list", "--json").json()[0]["turns"] == 2


def test_a_retry_that_fails_costs_no_answer(machine: Machine) -> None:
    refused = [http(400, b'{"error": {"message": "not now"}}')]
    with Server(says("One."), says("Two."), refused, refused, says("Three."), says("Four.")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "first", "second", "/retry", "/retry", "third", args=HOME)
        assert (done.status, done.out) == (0, "One.\nTwo.\nThree.\n")
        assert done.err.count("the previous answer stays") == 2
        assert sent(peer, 2) == sent(peer, 3) == sent(peer, 1)
        assert sent(peer, 4) == [*sent(peer, 1), ("assistant", "Two."), ("user", "third")]
        machine.run("call", "-c", "fourth")
        assert [text for _, text in sent(peer, 5)] == ["first", "One.", "second", "Two.", "third", "Three.", "fourth"]


def test_after_a_retry_that_failed_another_one_takes_the_place_of_the_answer(machine: Machine) -> None:
    refused = [http(400, b'{"error": {"message": "not now"}}')]
    with Server(says("One."), refused, says("Two."), refused, says("Three.")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "first", "/retry", "/retry", "/retry", "/undo", "second", args=HOME)
        assert (done.status, done.out) == (0, "One.\nTwo.\nThree.\n")
        assert "taken back: first (0 turns left)" in done.err
        assert sent(peer, 4) == [("user", "second")]


def test_reasoning_is_set_and_what_cannot_be_had_is_noted_at_once(machine: Machine) -> None:
    with Server(says("One."), says("Two."), says("Three.")) as peer:
        machine.overlay(
            peer.url, "reasoning = { mode = 'always', effort = { at = 'think.much', low = 'low', high = 'high' } }"
        )
        lines = ("/reasoning", "a", "/reasoning max", "/reasoning", "b", "/reasoning lots", "/reasoning default", "c")
        done = chat(machine, *lines, args=HOME)
        assert done.status == 2, done.err  # /reasoning lots
        assert [received.json().get("think") for received in peer.received] == [None, {"much": "high"}, None]
    assert "reasoning: the endpoint's default; /reasoning LEVEL sets it\n" in done.err
    assert "max → high" in done.err.partition("reasoning: max\n")[0]
    assert "reasoning: max; /reasoning" in done.err
    assert "cnllm: 'lots' is not a reasoning level\n  it is one of off, on, minimal" in done.err


def test_a_command_in_capitals_is_a_command(machine: Machine) -> None:
    done = chat(machine, "/HELP", "/Model\tdeepseek-flash", "/Quit", "never asked", args=SIMULATED)
    assert (done.status, done.out) == (0, "")
    assert "/reasoning LEVEL" in done.err
    assert "now asking deepseek/deepseek-flash" in done.err


def test_cost_sums_what_was_used_undone_turns_too(machine: Machine) -> None:
    with Server(says("One.")) as peer:
        price = "price = { currency = 'USD', input = 1.0, output = 2.0 }"
        machine.overlay(peer.url, price)
        done = chat(machine, "/cost", "first", "second", "/undo", "/cost", args=HOME)
    assert "0 answers · 0 in · 0 out\n" in done.err
    assert done.err.endswith("2 answers · 24 in · 68 out · 0.00016 USD\n")


def test_cost_says_what_is_not_known(machine: Machine) -> None:
    silent = [HEAD, texts("One."), chunk("stop"), b"data: [DONE]\n\n"]
    with Server(silent) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "first", "/cost", args=HOME)
    assert done.err.endswith("1 answer · 0 in · 0 out · usage of 1 unknown · price of 1 unknown\n")


def test_cost_is_a_lower_bound_after_a_turn_that_may_be_charged(machine: Machine) -> None:
    broken = [HEAD, texts("On")]
    for script, words in (
        ([http(400, b"{}")], "1 answer · 12 in · 34 out · 0.00008 USD\n"),
        (broken, "≥ 0.00008 USD"),
        ([], "1 answer · 12 in · 34 out · ≥ 0.00008 USD · usage of 1 unknown · price of 1 unknown\n"),
    ):
        machine.env["CNLLM_ATTEMPTS"] = "1"
        with Server(says("One."), script) as peer:
            machine.overlay(peer.url, "price = { currency = 'USD', input = 1.0, output = 2.0 }")
            done = chat(machine, "first", "second", "/cost", args=HOME)
        assert words in done.err, (script, done.err)


# ── errors ───────────────────────────────────────────────────────────────────
def test_an_error_is_told_in_two_lines_and_the_turn_can_be_asked_again(machine: Machine) -> None:
    refused = [http(400, b'{"error": {"message": "I do not like this"}}')]
    with Server(refused, says("One.")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "first", "/retry", args=HOME)
        assert (done.status, done.out) == (0, "One.\n")
        assert sent(peer, 1) == [("user", "first")]
    assert "I do not like this" in done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 3


def test_a_failed_turn_is_not_part_of_what_goes_on(machine: Machine) -> None:
    refused = [http(400, b'{"error": {"message": "I do not like this"}}')]
    with Server(refused, says("One."), says("Two.")) as peer:
        machine.overlay(peer.url)
        chat(machine, "first", "second", args=HOME)
        assert sent(peer, 1) == [("user", "second")]
        chat(machine, "third", args=("chat", "-c"))
        assert sent(peer, 2) == [("user", "second"), ("assistant", "One."), ("user", "third")]


def test_undo_after_an_error_leaves_the_turn_before_it(machine: Machine) -> None:
    refused = [http(400, b'{"error": {"message": "no"}}')]
    with Server(says("One."), refused, says("Three.")) as peer:
        machine.overlay(peer.url)
        chat(machine, "first", "second", "/undo", "third", args=HOME)
        assert sent(peer, 2) == [("user", "first"), ("assistant", "One."), ("user", "third")]
    assert "second" not in machine.run("logs", "show").out


def test_an_answer_that_is_not_whole_says_so_and_is_gone_on_with(machine: Machine) -> None:
    with Server([HEAD, texts("One"), chunk("length"), DONE], says("Two.")) as peer:
        machine.overlay(peer.url)
        done = chat(machine, "first", "second", args=HOME)
        assert (done.status, done.out) == (3, "One\nTwo.\n")
        assert "it reached the limit of tokens (finish length)" in done.err
        assert ("assistant", "One") in sent(peer, 1)


def test_the_exit_status_is_the_worst_of_the_turns_that_stand(machine: Machine) -> None:
    refused: list[Step] = [http(400, b'{"error": {"message": "not now"}}')]
    length: list[Step] = [HEAD, texts("One"), chunk("length"), DONE]
    withheld: list[Step] = [HEAD, texts("One"), chunk("content_filter"), DONE]
    broken: list[Step] = [HEAD, texts("One"), b'data: {"error": {"message": "engine died"}}\n\n']
    table: list[tuple[int, tuple[str, ...], tuple[list[Step], ...]]] = [
        (3, ("a", "b"), (says("One."), withheld)),
        (3, ("a", "b"), (broken, says("Two."))),
        (3, ("a", "/quit"), (length,)),
        (1, ("a", "b", "c"), (length, refused, says("Three."))),
        (0, ("a", "/retry"), (length, says("One."))),
        (3, ("a", "/retry"), (length, refused)),  # the previous answer stays
        (0, ("a", "/undo", "b"), (length, says("Two."))),
        (3, ("a", "/clear", "b"), (length, says("Two."))),
        (1, ("a", "/clear", "b"), (refused, says("Two."))),
        (1, ("a", "b", "/undo"), (refused, says("Two."))),
    ]
    for status, lines, answers in table:
        with Server(*answers) as peer:
            machine.overlay(peer.url)
            done = chat(machine, *lines, args=HOME)
            assert (done.status, len(peer.received)) == (status, len(answers)), (lines, done)


def test_what_is_wrong_from_the_start_is_said_before_a_turn(machine: Machine) -> None:
    chat(machine, "hi", args=("chat", "--model", "glm-4.7")).fails(2, "ZAI_API_KEY")
    chat(machine, "hi", args=("chat",)).fails(2, "no key", "--simulate")
    chat(machine, "hi", args=("chat", "-c")).fails(2, "no conversation")
    chat(machine, "hi", args=(*SIMULATED, "--tool", "rm")).fails(2, "no such tool")
    chat(machine, "hi", args=(*SIMULATED, "--reasoning", "lots")).fails(2, "not a reasoning level")


# ── the store ────────────────────────────────────────────────────────────────
def test_a_chat_is_one_conversation_that_can_be_gone_on_with(machine: Machine) -> None:
    chat(machine, "first", "second", args=SIMULATED)
    one = machine.run("logs", "list", "--json").json()
    assert [(found["turns"], found["origins"]) for found in one] == [(2, ["simulated"])]
    assert chat(machine, "third", args=("chat", "-c", "--simulate")).status == 0
    assert machine.run("logs", "list", "--json").json()[0]["turns"] == 3
    assert machine.run("call", "-c", "--simulate", "fourth").status == 0


@pytest.mark.parametrize(("args", "env"), [((*SIMULATED, "--no-log"), {}), (SIMULATED, {"CNLLM_LOG": "off"})])
def test_nothing_is_kept_where_logs_are_off(machine: Machine, args: tuple[str, ...], env: dict[str, str]) -> None:
    done = chat(machine, "first", "/undo", "second", args=args, env=env)
    assert done.status == 0
    assert not (machine.data).exists()


def test_no_key_of_a_model_that_was_switched_to_is_on_disk(machine: Machine) -> None:
    second = "sk-second-abcdef0123456789"
    echo = http(401, f'{{"error": {{"message": "wrong key {second}"}}}}'.encode())
    with Server(says("One."), [echo]) as peer:
        machine.overlay(peer.url)
        providers = machine.config / "providers.toml"
        other = f'[providers.other]\nprotocol = "openai-chat"\nbase_url = "{peer.url}"\nkeys = ["OTHER_TEST_KEY"]\n'
        providers.write_text(f'{providers.read_text()}{other}[models."other/n"]\n')
        done = chat(machine, "first", "/model other/n", "second", args=HOME, env={"OTHER_TEST_KEY": second})
        assert f"Bearer {second}" in peer.received[1].head
    assert second not in done.err
    exported = machine.run("logs", "export").out
    assert "wrong key [redacted]" in exported
    assert second not in exported


# ── Ctrl-C without a terminal ────────────────────────────────────────────────
def test_ctrl_c_stops_the_answer_and_not_the_program(machine: Machine) -> None:
    import subprocess

    with Server([HEAD, texts("One, "), Hold], says("Two.")) as peer:
        machine.overlay(peer.url)
        process = subprocess.Popen(
            machine.command(*HOME),
            env=machine.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        seen = b""
        while b"One, " not in seen:
            seen += os.read(process.stdout.fileno(), 100)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(b"second\n", timeout=60)
        assert (process.returncode, seen + out) == (130, b"One, \nTwo.\n")
        assert b"interrupted; the answer so far is shown above" in err
        assert sent(peer, 1) == [("user", "first"), ("assistant", "One, "), ("user", "second")]


def test_the_terminal_needs_prompt_toolkit_and_a_pipe_does_not(machine: Machine) -> None:
    import pty
    import subprocess

    machine.file("prompt_toolkit.py", "raise ImportError('not here')\n")
    path = f"{Path(__file__).parent.parent.parent}{os.pathsep}{machine.home}"
    assert chat(machine, "hi", env={"PYTHONPATH": path}, args=SIMULATED).status == 0
    master, slave = pty.openpty()
    done = subprocess.run(
        machine.command(*SIMULATED),
        env={**machine.env, "PYTHONPATH": path},
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(slave)
    os.close(master)
    assert done.returncode == 2
    assert install_command("chat").encode() in done.stderr
    assert len(done.stderr.splitlines()) == 2
