"""`models add`: a model in the user's own file, whatever else stands there."""

from __future__ import annotations

import os
import select
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from .support import KEY, Machine

pytestmark = pytest.mark.usefixtures("small_builtin")

OWN = """# my endpoints
[providers.home]
title = "A server at home"   # in the cellar
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys = ["HOME_TEST_KEY"]

  [aliases]      # short ones
mine = "home/m"

[models."home/m"]
limits = { context = 65_536 }
"""


@pytest.fixture
def own(machine: Machine) -> Path:
    machine.config.mkdir(parents=True)
    path = machine.config / "providers.toml"
    path.write_text(OWN)
    return path


def test_a_file_is_made_where_there_is_none(machine: Machine) -> None:
    done = machine.run(
        *("models", "add", "--provider", "home", "--id", "m", "--base-url", "http://127.0.0.1:8000/v1/"),
        *(
            "--key-env",
            "HOME_KEY",
            "--context",
            "65536",
            "--output",
            "4096",
            "--reasoning",
            "always",
            "--alias",
            "mine",
        ),
    )
    path = machine.config / "providers.toml"
    assert done.status == 0, done.err
    assert path.read_text() == done.out
    assert tomllib.loads(done.out) == {
        "providers": {
            "home": {
                "title": "home",
                "protocol": "openai-chat",
                "base_url": "http://127.0.0.1:8000/v1",
                "keys": ["HOME_KEY"],
            }
        },
        "models": {"home/m": {"limits": {"context": 65536, "output": 4096}, "reasoning": {"mode": "always"}}},
        "aliases": {"mine": "home/m"},
    }
    assert f"added home/m to {path}:" in done.err
    assert "cnllm call --model mine" in done.err
    shown = machine.run("models", "show", "mine", "--json").json()
    assert (shown["context"], shown["reasoning"], shown["short"]) == (65536, "always", ["mine"])
    assert machine.run("registry", "check").status == 0


def test_what_was_there_stays_as_it_was(machine: Machine, own: Path) -> None:
    done = machine.run("models", "add", "--provider", "HOME", "--id", "Big/one", "--context", "1000")
    assert done.status == 0, done.err
    assert own.read_text() == f"{OWN}\n{done.out}"
    line = own.read_text().splitlines().index('[models."home/Big/one".limits]') + 1
    assert f"added home/Big/one to {own}:{line}\n" in done.err
    done = machine.run(
        "models", "add", "--provider", "home", "--id", "two", "--alias", "deux", "--reasoning", "unknown"
    )
    assert own.read_text().replace('deux = "home/two"\n', "").startswith(OWN)
    assert 'mine = "home/m"\ndeux = "home/two"\n' in own.read_text()
    assert 'deux = "home/two"' in done.out
    assert [row["id"] for row in machine.run("models", "list", "home/", "--json").json()] == ["Big/one", "m", "two"]


def test_a_built_in_provider_needs_no_more_than_an_id(machine: Machine) -> None:
    done = machine.run("models", "add", "--provider", "deepseek", "--id", "brand-new")
    assert (done.status, done.out) == (0, '[models."deepseek/brand-new"]\n')
    assert machine.run("models", "show", "deepseek/brand-new").status == 0


def test_what_is_there_already_is_refused(machine: Machine, own: Path) -> None:
    machine.run("models", "add", "--provider", "home", "--id", "M").fails(2, "home/m", f"{own}:11")
    machine.run("models", "add", "--provider", "home", "--id", "n", "--alias", "Mine").fails(2, "mine", "home/m")
    built_in = machine.run("models", "list", "--json").json()[0]
    done = machine.run("models", "add", "--provider", built_in["provider"], "--id", built_in["id"])
    done.fails(2, built_in["name"], "providers.toml:")
    given = ("--provider", "home", "--id", "n")
    machine.run("models", "add", *given, "--base-url", "http://h/v1").fails(2, "--base-url", "new provider")
    machine.run("models", "add", *given, "--key-env", "K").fails(2, "--key-env")
    assert own.read_text() == OWN


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["--provider is missing"]),
        (["--provider", "home"], ["--id is missing"]),
        (["--id", "m"], ["--provider is missing"]),
        (["--provider", "brand-new", "--id", "m"], ["--base-url is missing"]),
        (["--provider", "a b", "--id", "m"], ["--provider"]),
        (["--provider", "home", "--id", "a b"], ["--id"]),
        (["--provider", "home", "--id", "a\x1bb"], ["--id"]),
        (["--provider", "home", "--id", ""], ["--id"]),
        (["--provider", "new", "--id", "m", "--base-url", "ftp://x"], ["--base-url", "http://"]),
        (["--provider", "new", "--id", "m", "--base-url", "http://u:p@h/v1"], ["--base-url"]),
        (["--provider", "home", "--id", "n", "--context", "0"], ["--context"]),
        (["--provider", "home", "--id", "n", "--reasoning", "maybe"], ["--reasoning"]),
        (["--provider", "home", "--id", "n", "--alias", "a/b"], ["--alias"]),
    ],
)
def test_what_is_missing_or_wrong_names_the_option(
    machine: Machine, own: Path, args: Sequence[str], words: list[str]
) -> None:
    machine.run("models", "add", *args).fails(2, *words)
    assert own.read_text() == OWN


def test_a_key_given_for_the_name_of_a_variable_is_not_shown(machine: Machine) -> None:
    done = machine.run("models", "add", "--provider", "x", "--id", "m", "--base-url", "http://h/v1", "--key-env", KEY)
    done.fails(2, "--key-env")
    assert KEY not in done.err
    assert not (machine.config / "providers.toml").exists()


def test_the_registry_is_asked_before_anything_is_written(machine: Machine, own: Path) -> None:
    done = machine.run("models", "add", "--provider", "home", "--id", "n", "--reasoning", "toggle")
    done.fails(2, "toggle", "nothing was written")
    assert own.read_text() == OWN
    assert [p.name for p in machine.config.iterdir()] == ["providers.toml"]
    own.write_text(OWN + "[models]]\n")
    machine.run("models", "add", "--provider", "home", "--id", "n").fails(2, "not TOML")


def test_another_file_is_written_on_demand_and_is_not_in_use(machine: Machine, own: Path) -> None:
    path = machine.home / "team" / "t.toml"
    done = machine.run("models", "add", "--provider", "home", "--id", "n", "--file", str(path))
    assert done.status == 0, done.err
    assert path.read_text() == done.out
    assert "not in use" in done.err
    assert own.read_text() == OWN
    env = {"CNLLM_PROVIDERS": f"{own}{os.pathsep}{path}"}
    done = machine.run("models", "add", "--provider", "home", "--id", "n2", env=env)
    assert f"added home/n2 to {path}:" in done.err, "the last file in use"
    assert "not in use" not in done.err
    machine.run("models", "add", "--provider", "home", "--id", "n", env=env).fails(2, f"{path}:1")


def test_a_file_that_cannot_be_written(machine: Machine) -> None:
    blocked = machine.file("plain", "")
    done = machine.run("models", "add", "--provider", "deepseek", "--id", "n", "--file", f"{blocked}/x.toml")
    done.fails(2, "cannot be")


def test_models_add_says_where_trust_is_needed(machine: Machine, own: Path) -> None:
    machine.run("registry", "trust", str(own))
    done = machine.run("models", "add", "--provider", "home", "--id", "n")
    assert f"cnllm registry trust {own}" in done.err
    taken = ("--provider", "pirate", "--id", "n", "--base-url", "https://pirate.example/v1")
    done = machine.run("models", "add", *taken, "--key-env", "DEEPSEEK_API_KEY")
    assert "its key is not sent before you run" in done.err
    assert f"cnllm registry trust {own}" in done.err


# ── at a terminal ────────────────────────────────────────────────────────────
def asked(machine: Machine, answers: Sequence[str], *args: str) -> tuple[int, str, str]:
    """A run that is answered through a terminal: exit status, stdout, and what was on the terminal."""
    import pty

    master, slave = pty.openpty()
    process = subprocess.Popen(
        machine.command("models", "add", *args),
        env={**machine.env, "TERM": "xterm"},
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    shown = ""
    for answer in answers:
        shown += until(master, ": ")
        os.write(master, answer.encode() + b"\n")
    assert process.stdout is not None
    out = process.stdout.read().decode()
    process.stdout.close()
    status = process.wait(timeout=30)
    shown += until(master, None)
    os.close(master)
    return status, out, shown


def until(master: int, end: str | None) -> str:
    """What is shown on a terminal until a question ends, or until nobody has it open."""
    data = ""
    while end is None or not data.endswith(end):
        ready, _, _ = select.select([master], [], [], 20 if end else 1)
        if not ready:
            break
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        data += piece.decode(errors="replace")
    return data


def test_at_a_terminal_what_is_missing_is_asked_for(machine: Machine) -> None:
    answers = [
        "away",
        "m 1",
        "m1",
        "nonsense",
        "http://127.0.0.1:8000/v1",
        "",
        "128,000",
        "",
        "sometimes",
        "never",
        "short",
    ]
    status, out, shown = asked(machine, answers)
    assert status == 0, shown
    said = tomllib.loads(out)
    assert said["providers"]["away"]["base_url"] == "http://127.0.0.1:8000/v1"
    assert said["providers"]["away"]["keys"] == []
    assert said["models"]["away/m1"] == {"limits": {"context": 128000}, "reasoning": {"mode": "never"}}
    assert said["aliases"] == {"short": "away/m1"}
    assert "cnllm: --id 'm 1' is not an id" in shown
    assert "added away/m1" in shown


def test_at_a_terminal_what_is_given_is_not_asked_for(machine: Machine, own: Path) -> None:
    status, out, shown = asked(machine, ["n"], "--provider", "home", "--context", "5", "--output", "4",
                               "--reasoning", "never", "--alias", "en")  # fmt: skip
    assert (status, 'en = "home/n"' in out) == (0, True), shown
    status, out, shown = asked(machine, [], "--provider", "home", "--id", "n3")
    assert (status, out) == (0, '[models."home/n3"]\n'), "all that is needed was given"


def test_no_answer_to_a_question_writes_nothing(machine: Machine, own: Path) -> None:
    status, out, _ = asked(machine, ["home", "\x04"])
    assert (status, out) == (130, "")
    assert own.read_text() == OWN
