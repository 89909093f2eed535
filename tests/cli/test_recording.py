"""`--record`, `--replay`, `--raw-log`: without secrets, with the splits, without a network."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from .support import ANSWER, HEAD, KEY, Machine, Reset, Server, http, texts

CALL = ("call", "--model", "home/m")


def lines(path: str) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_J4_a_recording_replays_without_network_and_without_key(machine: Machine) -> None:
    tape = str(machine.home / "tape.jsonl")
    with Server(ANSWER) as peer:
        machine.overlay(peer.url)
        first = machine.run(*CALL, "--record", tape, "hi")
    assert first.status == 0
    (entry,) = lines(tape)
    assert entry["request"]["headers"]["authorization"] == "Bearer [redacted]"
    assert entry["request"]["body"]["messages"] == [{"role": "user", "content": "hi"}]
    assert entry["ended"] == "whole"
    assert KEY not in Path(tape).read_text()
    assert stat.S_IMODE(Path(tape).stat().st_mode) == 0o600
    del machine.env["HOME_TEST_KEY"]
    again = machine.run(*CALL, "--replay", tape, "hi")
    assert (again.status, again.out) == (first.status, first.out)
    assert again.err == f"{first.err}cnllm: replayed: this answer was recorded before; nothing was sent or paid\n"
    assert machine.run(*CALL, "--replay", tape, "--json", "hi").json()["text"] == "Hello"


def test_another_request_is_not_answered(machine: Machine, server: Server) -> None:
    tape = str(machine.home / "tape.jsonl")
    machine.run(*CALL, "--record", tape, "hi")
    done = machine.run(*CALL, "--replay", tape, "ho")
    done.fails(2, "messages.0.content", '"ho"', '"hi"', "--record")
    assert len(server.received) == 1


def test_the_raw_log_appends_every_attempt_without_secrets(machine: Machine) -> None:
    log = str(machine.home / "log.jsonl")
    echo = json.dumps({"error": {"message": f"wrong key {KEY}"}}).encode()
    with Server([http(401, echo)], [HEAD, texts("Hel"), Reset], ANSWER) as peer:
        machine.overlay(peer.url)
        assert machine.run(*CALL, "--raw-log", log, "hi").status == 1
        machine.run(*CALL, "--raw-log", log, "hi")
        assert machine.run(*CALL, "--raw-log", log, "--record", log + "2", "hi").status == 0
    entries = lines(log)
    assert [entry["response"]["status"] for entry in entries] == [401, 200, 200]
    assert [entry["ended"] for entry in entries] == ["whole", "failed", "whole"]
    assert "wrong key [redacted]" in "".join(entries[0]["response"]["chunks"])
    assert KEY not in Path(log).read_text()
    recorded, logged = lines(log + "2")[0]["response"], entries[2]["response"]
    assert len(recorded.pop("times")) == len(logged.pop("times")) == len(logged["chunks"])
    assert recorded == logged
    assert machine.run(*CALL, "--replay", log + "2", "hi").out == "Hello\n"


def test_a_simulated_answer_is_recorded_as_one(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    tape = str(machine.home / "tape.jsonl")
    first = machine.run(*CALL, "--simulate", "--record", tape, "hi")
    assert first.status == 0
    assert "simulated" in json.dumps(lines(tape)[0]["response"]["headers"])
    replayed = machine.run(*CALL, "--replay", tape, "hi")
    assert (replayed.status, replayed.out) == (0, first.out)


def test_what_was_interrupted_is_abandoned(machine: Machine) -> None:
    from .support import Hold, interrupt, read_until

    tape = str(machine.home / "tape.jsonl")
    with Server([HEAD, texts("Hel"), Hold]) as peer:
        machine.overlay(peer.url)
        process = machine.start(*CALL, "--record", tape, "hi")
        read_until(process, b"Hel")
        interrupt(process)
        assert process.returncode == 130
    (entry,) = lines(tape)
    assert (entry["ended"], "".join(entry["response"]["chunks"])) == ("abandoned", texts("Hel").decode())
