"""`models`, `registry`, `keys`, `simulate`."""

from __future__ import annotations

import json
import os
import signal
import stat
import urllib.error
import urllib.request

import pytest

from .support import KEY, Machine

FLAGS = """limits = { context = 65_536, output = 4096 }
price = { currency = "CNY", input = 2, output = 8.5 }
input = ["text", "image"]
reasoning = { mode = "always" }
status = { is = "current" }
[models."home/m".sources.docs]
url = "https://example.org/facts"
seen = 2026-11-20
how = "docs"
backs = ["limits"]
[aliases]
mine = "home/m"
"""


@pytest.fixture(autouse=True)
def overlay(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", FLAGS)


# ── models ───────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("small_builtin")
def test_models_list_is_a_table(machine: Machine) -> None:
    done = machine.run("models", "list")
    assert done.status == 0
    row = next(line for line in done.out.splitlines() if line.startswith("home/m "))
    assert row.split() == ["home/m", "mine", "65,536", "4,096", "text,", "image", "always", "2", "/", "8.5", "CNY"]
    mine, home = machine.run("models", "list", "MINE"), machine.run("models", "list", "home/")
    assert mine.out == home.out


@pytest.mark.usefixtures("small_builtin")
def test_models_list_as_json(machine: Machine) -> None:
    done = machine.run("models", "list", "--json")
    assert len(done.out.splitlines()) == 1
    row = next(row for row in done.json() if row["name"] == "home/m")
    assert (row["short"], row["context"], row["price"]["input"]) == (["mine"], 65536, 2)


@pytest.mark.usefixtures("small_builtin")
def test_models_list_finds_nothing(machine: Machine) -> None:
    done = machine.run("models", "list", "no-such-thing")
    assert (done.status, done.out) == (0, "")
    assert machine.run("models", "list", "no-such-thing", "--json").json() == []


def test_models_show_has_the_endpoint_the_price_and_no_key(machine: Machine) -> None:
    done = machine.run("models", "show", "mine")
    assert (done.status, done.err) == (0, "")
    for words in ("home/m · A server at home", "127.0.0.1:9/v1/chat/completions", "HOME_TEST_KEY (set)", "8.5 out CNY"):
        assert words in done.out
    assert KEY not in done.out
    shown = machine.run("models", "show", "home/m", "--json").json()
    assert shown["flags"]["limits"] == {"context": 65536, "output": 4096}


def test_J5_models_show_takes_an_id_that_no_one_described(machine: Machine) -> None:
    done = machine.run("models", "show", "home/brand-new")
    assert done.status == 0
    assert "note" in done.out


def test_models_show_an_unknown_model(machine: Machine) -> None:
    machine.run("models", "show", "hom-m").fails(2, "home/m")


# ── registry ─────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("small_builtin")
def test_registry_check_names_the_file_the_line_and_the_correction(machine: Machine) -> None:
    done = machine.run("registry", "check")
    assert (done.status, done.out) == (0, "")
    bad = machine.file("bad.toml", '[providers.x]\ntool_choise = "auto"\n\n[models."x/y"]\nlimits.context = "many"\n')
    done = machine.run("registry", "check", bad)
    assert done.status == 2
    first, correction, second = done.out.splitlines()
    assert first.startswith(f"{bad}:2: ")
    assert "Did you mean 'tool_choice'?" in first
    assert correction.endswith('write: tool_choice = "auto"')
    assert second.startswith(f"{bad}:5: ")
    found = machine.run("registry", "check", "--json", bad).json()
    assert [problem["line"] for problem in found] == [2, 5]
    broken = machine.file("broken.toml", "[x\n")
    assert machine.run("registry", "check", broken).out.startswith(f"{broken}:1: ")
    assert "none.toml" in machine.run("registry", "check", "none.toml").out


def test_registry_schema_and_path(machine: Machine) -> None:
    schema = machine.run("registry", "schema").json()
    assert schema["$schema"].startswith("https://json-schema.org/")
    files = machine.run("registry", "path").out.splitlines()
    assert files[-1] == str(machine.config / "providers.toml")
    assert os.path.exists(files[0])
    assert machine.run("registry", "path", "--json").json() == files


def test_registry_trust_takes_a_file_that_is_there(machine: Machine) -> None:
    done = machine.run("registry", "trust", str(machine.config / "providers.toml"))
    assert (done.status, done.out) == (0, "")
    machine.run("registry", "trust", "none.toml").fails(2, "none.toml")
    machine.run("registry", "trust").fails(2, "FILE")


# ── keys ─────────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("small_builtin")
def test_keys_are_stored_in_a_private_file_and_never_printed(machine: Machine) -> None:
    path = machine.config / "keys.json"
    assert machine.run("keys", "path").out == f"{path}\n"
    assert machine.run("keys", "list").out == ""
    done = machine.run("keys", "set", "SOME_KEY", stdin=f"{KEY}\n")
    assert (done.status, done.out) == (0, "")
    assert KEY not in done.err
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert json.loads(path.read_text()) == {"SOME_KEY": KEY}
    done = machine.run("keys", "set", "home", KEY)
    assert (done.status, "HOME_TEST_KEY" in done.err) == (0, True)
    done = machine.run("keys", "list")
    assert [line.split()[0] for line in done.out.splitlines()] == ["NAME", "HOME_TEST_KEY", "SOME_KEY"]
    assert KEY not in done.out
    assert machine.run("keys", "list", "--json").json() == [
        {"name": "HOME_TEST_KEY", "used": "environment", "providers": ["home"]},
        {"name": "SOME_KEY", "used": "file", "providers": []},
    ]


def test_keys_that_cannot_be(machine: Machine) -> None:
    for args, stdin in (
        (["SOME_KEY"], "\n"),
        (["SOME_KEY"], "two words"),
        (["SOME_KEY"], b"\xff"),
        (["SOME_KEY", ""], None),
        (["some-key", KEY], None),
        (["openai-compatible", KEY], None),
    ):
        done = machine.run("keys", "set", *args, stdin=stdin)
        assert (done.status, done.out) == (2, "")
        assert "words" not in done.err
        assert KEY not in done.err
    assert not (machine.config / "keys.json").exists()


def test_keys_that_others_could_read_are_taken_from_them(machine: Machine) -> None:
    machine.run("keys", "set", "SOME_KEY", stdin=KEY)
    path = machine.config / "keys.json"
    path.chmod(0o644)
    done = machine.run("keys", "list")
    assert done.status == 0
    assert "0644" in done.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ── simulate ─────────────────────────────────────────────────────────────────
def test_simulate_serves_until_ctrl_c(machine: Machine) -> None:
    process = machine.start("simulate", "--port", "0")
    assert process.stdout is not None
    url = process.stdout.readline().decode().strip()
    assert url.startswith("http://127.0.0.1:")
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer any-key"}
    asked = urllib.request.Request(f"{url}/home/chat/completions", body, headers)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert json.load(answer)["choices"][0]["message"]["content"]
    taken = machine.run("simulate", "--port", url.rpartition(":")[2])
    taken.fails(2, "cannot listen", "--port N")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"simulated" in err
    assert b"Traceback" not in err


def test_simulated_over_a_socket(machine: Machine) -> None:
    process = machine.start("simulate", "--port", "0", "--pace", "0.001")
    assert process.stdout is not None
    url = process.stdout.readline().decode().strip()
    done = machine.run("call", "--model", "home/m", "--base-url", f"{url}/home", "--key-env", "HOME_TEST_KEY", "hi")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert done.status == 0
    assert done.out.strip()


def test_a_neutral_simulator_serves_one_model_without_its_name(machine: Machine) -> None:
    machine.run("simulate", "--model", "home/m").fails(2, "--neutral")
    process = machine.start("simulate", "--strict", "--neutral", "--model", "home/m")
    assert process.stdout is not None
    url = process.stdout.readline().decode().strip()
    statuses = {}
    for model, more in (("model-1", {}), ("model-2", {}), ("home/m", {}), ("model-1", {"messages": "x"})):
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}
        headers = {"Content-Type": "application/json", "Authorization": "Bearer any-key"}
        asked = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                said, statuses[model, *more] = answer.read(), answer.status
                assert json.loads(said)["model"] == model
        except urllib.error.HTTPError as error:
            with error:
                said, statuses[model, *more] = error.read(), error.code
        assert model == "home/m" or b"home" not in said
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert statuses == {("model-1",): 200, ("model-2",): 404, ("home/m",): 404, ("model-1", "messages"): 400}


def test_the_catalogue_is_listed_where_somebody_asks_for_it(machine: Machine) -> None:
    described = machine.run("models", "list", "--json").json()
    every = machine.run("models", "list", "--catalogue", "--json").json()
    assert len(every) > len(described) + 3000
    assert not any(row["provider"] == "kilo" for row in described)
    for args in (("kilo/",), ("--provider", "kilo")):
        rows = machine.run("models", "list", *args, "--json").json()
        assert rows
        assert {row["provider"] for row in rows} == {"kilo"}
    assert " of a public list are left out: --catalogue" in machine.run("models", "list").err
    done = machine.run("call", "-m", rows[0]["name"], "--simulate", "--no-log", "hi")
    assert done.status == 0
    assert "nobody has described how this model behaves here" in done.err


def test_keys_of_the_catalogues_providers(machine: Machine) -> None:
    assert machine.run("keys", "set", "vercel", stdin="abc\n").status == 0
    assert "AI_GATEWAY_API_KEY" in machine.run("keys", "list").out
    assert machine.run("keys", "remove", "vercel").status == 0
    machine.run("keys", "set", "verceel", stdin="abc\n").fails(2, "did you mean vercel")
