"""`cnllm keys remove` and `keys test`, and what a wrong name gets."""

from __future__ import annotations

import json
import os
import re
import signal
import sys

import pytest

from .support import KEY, Machine, Server, http, whole

OVERLAY = """[providers.home]
title = "home"
protocol = "openai-chat"
base_url = "{url}"
keys = ["HOME_TEST_KEY", "HOME_OTHER_KEY"]
[models."home/dear"]
price = {{ currency = "USD", input = 9.0, output = 9.0 }}
[models."home/cheap"]
price = {{ currency = "USD", input = 0.1, output = 0.2 }}
reasoning = {{ mode = "toggle", off = {{ set = {{ thinking = "off" }} }} }}
[models."home/old"]
price = {{ currency = "USD", input = 0.0, output = 0.0 }}
status = {{ is = "retired" }}
"""


def prepare(machine: Machine, url: str) -> None:
    machine.config.mkdir(parents=True, exist_ok=True)
    (machine.config / "providers.toml").write_text(OVERLAY.format(url=url))


@pytest.mark.usefixtures("small_builtin")
def test_a_key_is_removed_by_its_variable_or_its_provider(machine: Machine) -> None:
    assert "history of your shell" in machine.run("keys", "set", "zai", KEY).err
    assert "history of your shell" not in machine.run("keys", "set", "zai", stdin=KEY).err
    assert "history of your shell" not in machine.run("keys", "set", "OPENAI_API_KEY", "-", stdin=KEY).err
    machine.run("keys", "remove", "ZAI_API_KEYS").fails(
        2, "no key of ZAI_API_KEYS", "stored are: OPENAI_API_KEY, ZAI_API_KEY"
    )
    done = machine.run("keys", "remove", "ZAI")
    assert (done.status, done.out) == (0, "")
    assert "ZAI_API_KEY is removed" in done.err
    assert [row["name"] for row in machine.run("keys", "list", "--json").json()] == ["OPENAI_API_KEY"]
    assert KEY in (machine.config / "keys.json").read_text()
    env = {"OPENAI_API_KEY": "sk-other-0123456789"}
    assert "still holds a key" in machine.run("keys", "remove", "OPENAI_API_KEY", env=env).err
    assert KEY not in (machine.config / "keys.json").read_text()
    assert (machine.config / "keys.json").stat().st_mode & 0o777 == 0o600
    machine.run("keys", "remove", "OPENAI_API_KEY").fails(2, "no key of OPENAI_API_KEY is stored")


def test_a_wrong_name_gets_a_suggestion_and_no_list(machine: Machine) -> None:
    for name, words in (
        ("openia", ["did you mean openai?"]),
        ("glm-4.7", ["a model of zai", "use zai"]),
        ("qqqqqq", ["cnllm models list"]),
    ):
        for command in (("set", name, KEY), ("test", name)):
            done = machine.run("keys", *command)
            done.fails(2, f"{name} is neither", *words)
            assert len(done.err) < 200
    secret = "sk-proj-0123456789abcdefghijklmnop"
    assert secret not in machine.run("keys", "set", secret).err


@pytest.mark.usefixtures("small_builtin")
def test_one_cheap_request(machine: Machine) -> None:
    with Server([http(200, whole(content="OK"))]) as peer:
        prepare(machine, peer.url)
        machine.env["HOME_TEST_KEY"] = KEY
        done = machine.run("keys", "test", "home")
        assert done.status == 0, done.err
        assert "HOME_TEST_KEY works: home/cheap answered" in done.out
        assert "12 in" in done.out
        row = machine.run("keys", "test", "HOME_TEST_KEY", "--json").json()
        assert (row["works"], row["status"], row["model"], row["name"]) == (True, 200, "cheap", "HOME_TEST_KEY")
        assert machine.run("keys", "test", "home", "-m", "home/dear", "--json").json()["model"] == "dear"
        machine.run("keys", "test", "home", "-m", "glm-4.7").fails(2, "home is not the key of zai/glm-4.7")
    assert [len(peer.received), peer.received[2].json()["model"]] == [3, "dear"]
    body = peer.received[0].json()
    assert body["model"] == "cheap"
    assert body["max_tokens"] <= 16
    assert body["thinking"] == "off"
    assert f"Bearer {KEY}" in peer.received[0].head


def test_what_the_endpoint_said(machine: Machine) -> None:
    for status, works, words in (
        (
            401,
            False,
            ["HOME_TEST_KEY does not work", "home said: HTTP 401: no such key", "cnllm keys set HOME_TEST_KEY"],
        ),
        (402, False, ["does not work", "no such key"]),
        (429, None, ["nothing is known about HOME_TEST_KEY", "HTTP 429"]),
        (500, None, ["nothing is known", "no such key"]),
    ):
        body = json.dumps({"error": {"message": f"no such key {KEY}", "code": str(status)}}).encode()
        with Server([http(status, body)]) as peer:
            prepare(machine, peer.url)
            machine.env["HOME_TEST_KEY"] = KEY
            done = machine.run("keys", "test", "home")
            done.fails(1, *words)
            assert KEY not in done.err
            done = machine.run("keys", "test", "home", "--json")
            assert (done.status, done.json()["works"], done.json()["status"]) == (1, works, status)
            assert KEY not in done.out
        assert len(peer.received) == 2  # one request each, no retry
    prepare(machine, "http://127.0.0.1:9/v1")
    machine.run("keys", "test", "home").fails(1, "nothing is known about HOME_TEST_KEY")


def test_no_key_and_no_model(machine: Machine) -> None:
    prepare(machine, "https://example.invalid/v1")
    done = machine.run("keys", "test", "home")
    done.fails(2, "none of HOME_TEST_KEY, HOME_OTHER_KEY is set", "cnllm keys set HOME_TEST_KEY")
    assert "--simulate" not in done.err
    machine.run("keys", "test", "UNHEARD_KEY").fails(2, "no provider takes UNHEARD_KEY", "-m")


def test_a_refused_key_of_a_server_of_your_own_has_a_hint_that_works(machine: Machine) -> None:
    """`keys test` knows no key of openai-compatible, so the hint does not name it."""
    body = json.dumps({"error": {"message": "no such key"}}).encode()
    with Server([http(401, body)]) as peer:
        args = ("call", "-m", "openai-compatible/x", "--base-url", peer.url, "--key-env", "MY_KEY", "Hi")
        done = machine.run(*args, env={"MY_KEY": KEY})
    done.fails(1, "no such key", "check the key that --key-env gave")
    assert "keys test" not in done.err


def test_a_model_that_an_endpoint_does_not_know_gets_no_retired_one(machine: Machine) -> None:
    body = json.dumps({"error": {"message": "no model is called olds"}}).encode()
    with Server([http(404, body)]) as peer:
        prepare(machine, peer.url)
        file = machine.config / "providers.toml"
        file.write_text(file.read_text() + '[models."home/old-2"]\n')
        machine.env["HOME_TEST_KEY"] = KEY
        done = machine.run("call", "-m", "home/olds", "Hi")
    done.fails(1, "no model is called olds", "did you mean home/old-2?")


def test_a_variable_that_holds_no_key_is_named(machine: Machine) -> None:
    """An example that was pasted with its … is a wrong key, and neither a fault of the network nor of the endpoint."""
    prepare(machine, "https://example.invalid/v1")
    for value in ("…", "sk-\u200b0123456789", "sk-0123\t456789"):
        env = {"HOME_TEST_KEY": value}
        for args in (("-m", "home/cheap", "Hi"), ("keys", "test", "home")):
            done = machine.run(*args, env=env)
            done.fails(2, "HOME_TEST_KEY is set, but it is no key", "cnllm keys set HOME_TEST_KEY")
            assert value not in done.err.replace("=…", "")


@pytest.mark.usefixtures("small_builtin")
def test_a_key_in_the_place_of_a_name_is_not_printed(machine: Machine) -> None:
    for secret in ("AKIA0123456789ABCDEF", "sk-0123456789abcdef0123", "0123456789abcdef.AbCdEfGh1234"):
        for args in (("test", secret), ("remove", secret), ("set", secret, "x"), ("set", secret)):
            done = machine.run("keys", *args, stdin="")
            done.fails(2, "that")
            assert secret not in done.out + done.err
    assert machine.run("keys", "set", "MY_2ND_GATEWAY_KEY", "0123456789").status == 0
    for command in ("test", "remove"):
        machine.run("keys", command, "").fails(2, "''")


@pytest.mark.usefixtures("small_builtin")
def test_the_named_variable_is_tested_and_only_where_it_may_go(machine: Machine) -> None:
    with Server([http(200, whole(content="OK"))]) as peer:
        prepare(machine, peer.url)
        machine.env |= {"HOME_TEST_KEY": KEY, "HOME_OTHER_KEY": "sk-second-0123456789"}
        machine.run("keys", "test", "HOME_OTHER_KEY").fails(2, "must not go to http://127.0.0.1")
        del machine.env["HOME_TEST_KEY"]
        assert machine.run("keys", "test", "HOME_OTHER_KEY", "--json").json()["works"] is True
    assert len(peer.received) == 1
    assert "sk-second" in peer.received[0].head


def test_the_name_of_a_variable_keeps_its_capitals(machine: Machine) -> None:
    done = machine.run("keys", "set", "ZAI_API_KEY", stdin="")
    assert (done.status, done.out) == (2, "")
    assert "ZAI_API_KEY: " in done.err


@pytest.mark.parametrize("stdin", [True, False])
@pytest.mark.parametrize(
    "form",
    [
        '"{}"',
        "'{}'\n",
        "“{}”",
        " \t{} \r\n",
        "Bearer {}",
        "Authorization: Bearer {}",
        "export ZAI_API_KEY={}",
        "export ZAI_API_KEY='{}';",
        'ZAI_API_KEY = "{}"',
        'ZHIPU_API_KEY="{}"',
        '"Bearer {}"',
    ],
)
def test_what_is_pasted_around_a_key_is_left_out(machine: Machine, form: str, stdin: bool) -> None:
    pasted = form.format(KEY)
    done = machine.run("keys", "set", "ZAI_API_KEY", *([] if stdin else [pasted]), stdin=pasted if stdin else None)
    assert done.status == 0, done.err
    assert json.loads((machine.config / "keys.json").read_bytes()) == {"ZAI_API_KEY": KEY}
    assert ("what stood around the key is left out" in done.err) == (form.strip() != "{}")
    assert KEY not in done.err


@pytest.mark.parametrize("key", ["QUJDREVGRw==", "ABCDEF=", "sk-a=bcdefghijk", "a'b"])
def test_a_key_of_odd_characters_stays_as_it_is(machine: Machine, key: str) -> None:
    done = machine.run("keys", "set", "ZAI_API_KEY", stdin=key)
    assert done.status == 0, done.err
    assert json.loads((machine.config / "keys.json").read_bytes()) == {"ZAI_API_KEY": key}
    assert "left out" not in done.err


@pytest.mark.usefixtures("small_builtin")
def test_a_stored_key_says_who_reads_it(machine: Machine) -> None:
    assert "it is the key of zai" in machine.run("keys", "set", "ZAI_API_KEY", KEY).err
    assert "did you mean ZAI_API_KEY" in machine.run("keys", "set", "ZIA_API_KEY", KEY).err
    done = machine.run("keys", "set", "SOME_TOKEN", KEY)
    assert (done.status, done.out) == (0, "")
    assert "no provider reads this variable; --key-env SOME_TOKEN sends it" in done.err


def test_the_list_names_the_variables_that_are_set_and_no_value(machine: Machine) -> None:
    machine.run("keys", "set", "ZAI_API_KEY", KEY)
    machine.env |= {"OPENAI_API_KEY": "sk-of-the-environment", "UNRELATED_API_KEY": "sk-unrelated-012345"}
    done = machine.run("keys", "list")
    assert re.search(r"ZAI_API_KEY +this file +zai", done.out)
    assert "OPENAI" not in done.out
    assert "set in the environment: OPENAI_API_KEY, the key of openai" in done.err
    assert "UNRELATED" not in done.err
    for secret in (KEY, "sk-of-the-environment"):
        assert secret not in done.out + done.err
    machine.run("keys", "remove", "zai")
    empty = machine.run("keys", "list")
    assert "no keys are stored" in empty.err
    assert "OPENAI_API_KEY" in empty.err


@pytest.mark.skipif(sys.platform == "win32", reason="there is no terminal of this kind")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_prompt_for_a_key_leaves_the_terminal_as_it_was(
    machine: Machine, number: signal.Signals
) -> None:
    import pty
    import termios

    pid, master = pty.fork()
    if pid == 0:  # the terminal is that of the program, as a shell's is
        command = machine.command("keys", "set", "HOME_TEST_KEY")
        os.execvpe(command[0], command, {**machine.env, "TERM": "xterm"})
    try:
        seen = b""
        while b"HOME_TEST_KEY" not in seen:
            seen += os.read(master, 1024)
        while termios.tcgetattr(master)[3] & termios.ECHO:  # the prompt may stand before the echo is turned off
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        os.kill(pid, number)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == -number
        assert termios.tcgetattr(master)[3] & termios.ECHO
    finally:
        os.close(master)
