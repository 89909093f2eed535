"""`cnllm call -c` and `--conversation`: what goes on, what is kept of a call, and what is not."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from typing import Any

import pytest

from .support import ANSWER, DONE, HEAD, KEY, Done, Hold, Machine, Server, chunk, http, interrupt, texts, whole

pytestmark = pytest.mark.usefixtures("small_builtin")

CALL = ("call", "--model", "home/m")


def conversations(machine: Machine) -> Any:
    return machine.run("logs", "list", "--json").json()


def shown(machine: Machine, ident: str = "last") -> Any:
    return machine.run("logs", "show", ident, "--json").json()["turns"]


def asked(server: Server) -> list[tuple[str, str]]:
    """Roles and texts of the last request."""
    return [(message["role"], message["content"]) for message in server.received[-1].json()["messages"]]


# ── going on ─────────────────────────────────────────────────────────────────
def test_c_goes_on_with_the_last_conversation_and_its_model(machine: Machine, server: Server) -> None:
    machine.run(*CALL, "-s", "Be brief.", "one")
    done = machine.run("call", "-c", "two")
    assert (done.status, done.out) == (0, "Hello\n")
    assert asked(server) == [("system", "Be brief."), ("user", "one"), ("assistant", "Hello"), ("user", "two")]
    machine.run("call", "-c", "-s", "Be long.", "three")
    assert [text for _, text in asked(server)] == ["Be long.", "one", "Hello", "two", "Hello", "three"]
    assert len(conversations(machine)) == 1
    assert [turn["state"] for turn in shown(machine)] == ["done"] * 3


def test_any_conversation_goes_on_by_its_id_with_any_model(machine: Machine, server: Server) -> None:
    for text in ("one", "other"):
        machine.run(*CALL, text)
    ident = conversations(machine)[1]["id"]
    other = ("--model", "openai-compatible/else", "--base-url", server.url, "--key-env", "HOME_TEST_KEY")
    assert machine.run("call", "--conversation", ident[:6], *other, "two").status == 0
    assert [text for _, text in asked(server)] == ["one", "Hello", "two"]
    assert machine.run("call", "-c", "--key-env", "HOME_TEST_KEY", "three").status == 0  # there, too
    assert server.received[-1].json()["model"] == "else"
    assert conversations(machine)[0]["models"] == ["home/m", "openai-compatible/else"]


def test_what_cannot_be_continued_is_2(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    machine.run("call", "-c", "hi").fails(2, "no conversation yet", "cnllm call --model M")
    machine.run("call", "--conversation", "abc", "hi").fails(2, "'abc'", "cnllm logs list")
    machine.run("call", "-c", "--conversation", "abc", "hi").fails(2, "two conversations")
    assert not machine.run("logs", "list", "--json").json()


def test_what_would_be_sent_can_be_seen_and_is_not_kept(machine: Machine, server: Server) -> None:
    machine.run(*CALL, "one")
    body = machine.run("call", "-c", "--plan", "two").json()["body"]
    assert [message["content"] for message in body["messages"]] == ["one", "Hello", "two"]
    assert machine.run("call", "-c", "--curl", "two").status == 0
    assert [len(server.received), conversations(machine)[0]["turns"]] == [1, 1]


def test_a_refused_question_is_not_asked_again(machine: Machine) -> None:
    refusal = http(400, json.dumps({"error": {"message": "no such thing"}}).encode())
    with Server(ANSWER, [refusal], ANSWER) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "one")
        assert machine.run("call", "-c", "ugly").status == 1
        assert machine.run("call", "-c", "two").status == 0
        assert [text for _, text in asked(peer)] == ["one", "Hello", "two"]
    assert [turn["state"] for turn in shown(machine)] == ["done", "failed", "done"]
    assert "no such thing" in machine.run("logs", "show").out


# ── sudden ends ──────────────────────────────────────────────────────────────
def test_a_killed_call_is_interrupted_and_the_conversation_goes_on(machine: Machine) -> None:
    with Server(ANSWER, [HEAD, texts("Hel"), Hold], ANSWER) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "one")
        process = machine.start("call", "-c", "two")
        assert peer.holding.wait(30)
        assert [turn["state"] for turn in shown(machine)] == ["done", "running"]
        process.kill()
        process.communicate(timeout=30)
        assert [turn["state"] for turn in shown(machine)] == ["done", "interrupted"]
        assert "interrupted" in machine.run("logs", "show").out
        assert machine.run("call", "-c", "three").status == 0
        roles, said = zip(*asked(peer), strict=True)
        assert "two" in "".join(said)
        assert said[-1].endswith("three")
        assert roles[:2] == ("user", "assistant")
        assert "assistant" not in roles[2:]


def test_what_came_before_ctrl_c_is_kept(machine: Machine) -> None:
    with Server([HEAD, texts("Hel"), Hold]) as peer:
        machine.overlay(peer.url)
        process = machine.start(*CALL, "one")
        assert process.stdout is not None
        assert process.stdout.read(3) == b"Hel"
        interrupt(process)
    (turn,) = shown(machine)
    assert (process.returncode, turn["state"], turn["finish"]) == (130, "interrupted", "cut")
    assert [message["content"] for message in turn["messages"]] == ["one", "Hel"]


def test_an_answer_that_is_cut_is_partial(machine: Machine) -> None:
    with Server([HEAD, texts("Hel")]) as peer:
        machine.overlay(peer.url)
        assert machine.run(*CALL, "one").status == 3
    (turn,) = shown(machine)
    assert (turn["state"], turn["error"]["type"]) == ("partial", "StreamCut")
    assert turn["messages"][1]["content"] == "Hel"


# ── what is kept ─────────────────────────────────────────────────────────────
def test_no_key_is_ever_on_disk(machine: Machine) -> None:
    echo = http(401, json.dumps({"error": {"message": f"wrong key {KEY}"}}).encode())
    parrot = [HEAD, texts(f"you sent {KEY[:9]}", KEY[9:]), chunk("stop"), DONE]
    with Server([echo], parrot) as peer:
        machine.overlay(peer.url)
        assert machine.run(*CALL, "hi").status == 1
        assert machine.run(*CALL, f"is {KEY} fine?").status == 0
    files = list((machine.data).iterdir())
    assert files
    for file in files:
        assert KEY.encode() not in file.read_bytes()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    exported = machine.run("logs", "export").out
    assert "3456789abcdef" not in exported  # nor what of it came in another piece
    assert "you sent [redacted]" in exported
    assert "wrong key [redacted]" in exported
    assert "Bearer [redacted]" in exported
    assert KEY not in exported


def test_a_simulated_answer_is_marked(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    assert machine.run(*CALL, "--simulate", "hi").status == 0
    assert conversations(machine)[0]["origins"] == ["simulated"]
    assert "simulated" in machine.run("logs", "list").out


@pytest.mark.parametrize("how", ["--no-log", "CNLLM_LOG", "logs off", "no key"])
@pytest.mark.usefixtures("server")
def test_what_is_not_to_be_kept_is_not(machine: Machine, how: str) -> None:
    def call() -> Done:
        return machine.run(*CALL, *(["--no-log"] if how == "--no-log" else []), "hi")

    if how == "CNLLM_LOG":
        machine.env["CNLLM_LOG"] = "off"
    elif how == "logs off":
        assert machine.run("logs", "off").status == 0
    elif how == "no key":
        machine.env["HOME_TEST_KEY"] = ""
        machine.config.joinpath("providers.toml").write_text(
            machine.config.joinpath("providers.toml").read_text().replace("127.0.0.1", "example.com")
        )
    assert call().status == (2 if how == "no key" else 0)
    assert how == "no key" or not (machine.data / "conversations.db").exists()
    assert conversations(machine) == []


def test_requests_and_responses_can_be_left_out(machine: Machine, server: Server) -> None:
    assert machine.run("logs", "on", "--no-exchanges").status == 0
    machine.run(*CALL, "hi")
    machine.run(*CALL, "hi", env={"CNLLM_LOG": "on"})
    assert ["exchanges" in line["turns"][0] for line in machine.run("logs", "export").lines()] == [False, True]
    machine.run(*CALL, "hi", env={"CNLLM_LOG": "loud"}).fails(2, "CNLLM_LOG=loud", "no-exchanges")
    assert len(server.received) == 2


def test_a_turn_that_will_not_be_part_of_the_conversation_says_so(machine: Machine, server: Server) -> None:
    machine.run(*CALL, "one")
    machine.run("logs", "off")
    done = machine.run("call", "-c", "two")
    assert (done.status, done.out, "logs are off" in done.err) == (0, "Hello\n", True)
    assert [text for _, text in asked(server)] == ["one", "Hello", "two"]
    assert conversations(machine)[0]["turns"] == 1


# ── a store that cannot be used ──────────────────────────────────────────────
@pytest.mark.usefixtures("server")
def test_a_call_does_not_fail_for_want_of_a_store(machine: Machine) -> None:
    machine.run(*CALL, "one")
    raw = sqlite3.connect(machine.data / "conversations.db")
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    done = machine.run(*CALL, "two")
    assert (done.status, done.out) == (0, "Hello\n")
    assert "cnllm: this call is not logged" in done.err
    assert "version 99" in done.err
    for args in (
        ("call", "-c", "two"),
        ("logs", "list"),
        ("logs", "show"),
        ("logs", "search", "x"),
        ("logs", "export"),
    ):
        machine.run(*args).fails(2, "newer cnllm", "version 99", "upgrade")
    assert machine.run("logs", "path").status == 0


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.usefixtures("server")
def test_a_folder_that_cannot_be_written_to_costs_no_answer(machine: Machine) -> None:
    (machine.data).mkdir(mode=0o500)
    done = machine.run(*CALL, "two")
    assert (done.status, done.out) == (0, "Hello\n")
    assert "not logged" in done.err


# ── nothing but thinking ─────────────────────────────────────────────────────
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_an_answer_of_thinking_alone_says_so(machine: Machine, finish: str) -> None:
    with Server([HEAD, chunk(reasoning_content="hm"), chunk(finish), DONE], ANSWER) as peer:
        machine.overlay(peer.url)
        done = machine.run(*CALL, "--hide-reasoning", "hi")
        assert (done.status, done.out) == (3, "")
        assert "cnllm: the model sent only reasoning, no answer" in done.err
        assert "the model sent only reasoning, no answer; --reasoning shows it" in machine.run("logs", "show").out
        assert "<thinking>\nhm\n</thinking>" in machine.run("logs", "show", "--reasoning").out
        assert machine.run("call", "-c", "and?").status == 0


def test_thinking_alone_is_not_whole_in_any_form(machine: Machine) -> None:
    streamed = [HEAD, chunk(reasoning_content="hm"), chunk(content="\n"), chunk("stop"), DONE]
    in_one = [http(200, whole(reasoning_content="hm", content=None))]
    for form in ("--json", "--events"):
        for way, script in (("--stream", streamed), ("--no-stream", in_one)):
            with Server(script) as peer:
                machine.overlay(peer.url)
                done = machine.run(*CALL, form, way, "--no-log", "hi")
            assert done.status == 3, (form, way, done)
            assert "answer-missing" in done.out


def test_a_call_says_which_conversation_goes_on(machine: Machine, server: Server) -> None:
    first = "Why is the sky blue, and why does it turn red when the day ends and the sun is low?"
    machine.run("call", "-m", "home/m", first)
    (row,) = machine.run("logs", "list", "--json").json()
    for args in (("-c",), ("--conversation", row["id"][:6])):
        done = machine.run("call", *args, "And?")
        line = next(line for line in done.err.splitlines() if line.startswith("continuing "))
        assert row["id"] in line
        assert "home/m" in line
        assert "Why is the sky blue" in line
        assert len(line) < 160
    assert "continuing" not in machine.run("call", "-m", "home/m", "New.").err


def test_a_call_says_that_the_conversation_it_continues_was_made_up(machine: Machine, server: Server) -> None:
    machine.run("call", "-m", "home/m", "--simulate", "Why?")
    for kind in (", simulated): Why?", ", simulated in part): Why?"):
        assert kind in machine.run("call", "-c", "And?").err
    machine.run("call", "-m", "home/m", "New.")
    assert "simulated" not in machine.run("call", "-c", "And?").err
