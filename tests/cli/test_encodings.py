"""Consoles of other encodings, and files whose lines end as on Windows: the same answers, or an error that says why."""

from __future__ import annotations

import base64
import json
import os
import subprocess

import httpx
import pytest

from .support import Machine

CALL = ("call", "-m", "glm-4.7", "--simulate", "--reasoning", "off", "天空 €")
NO_LOCALE = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["cp936", "cp1252", "ascii", "utf-8"])
def test_a_console_shows_what_it_can_and_escapes_the_rest(machine: Machine, encoding: str) -> None:
    env = {"PYTHONIOENCODING": encoding}
    done = subprocess.run(machine.command(*CALL), env={**machine.env, **env}, capture_output=True, check=False)
    assert done.returncode == 0
    shown = done.stdout.decode(encoding) + done.stderr.decode(encoding)
    for char in "天":
        code = f"\\u{ord(char):04x}"
        assert (char in shown) != (code in shown)
    assert ("天" in shown) == (encoding in ("cp936", "utf-8"))


def test_a_text_in_utf8_needs_no_locale(machine: Machine) -> None:
    done = machine.run(*CALL, env=NO_LOCALE)
    assert done.status == 0, done.err
    assert "天空 €" in done.out


@pytest.mark.usefixtures("server", "small_builtin")
def test_files_may_have_lines_that_end_as_on_windows(machine: Machine) -> None:
    own = machine.config / "providers.toml"
    own.write_bytes(own.read_bytes().replace(b"\n", b"\r\n"))
    prompt = machine.file("prompt.txt", "Why?\r\nSay it.\r\n")
    assert machine.run("call", "-m", "home/m", "-f", prompt, "hi").out == "Hello\n"
    rows = {
        "in.jsonl": '{"id": "a", "prompt": "one"}\r\n{"id": "b", "prompt": "two"}\r\n',
        "in.csv": "id,prompt\r\na,one\r\nb,two\r\n",
        "in.txt": "one\r\ntwo\r\n",
    }
    for name, text in rows.items():
        out = machine.home / f"{name}.out"
        machine.run("batch", machine.file(name, text), "-m", "glm-4.7", "-o", str(out), "--no-log", "--simulate")
        replies = [json.loads(line)["reply"] for line in out.read_bytes().splitlines()]
        assert sorted(word for word in ("one", "two") if any(f'"{word}"' in str(reply) for reply in replies)) == [
            "one",
            "two",
        ]
        assert b"\r" not in out.read_bytes()


MARK = b"\xef\xbb\xbf"  # some editors on Windows begin a file with it


@pytest.mark.parametrize("mark", [b"", MARK])
def test_files_of_keys_may_be_written_as_on_windows(machine: Machine, mark: bytes) -> None:
    machine.run("keys", "set", "ZAI_API_KEY", stdin=mark + b"sk-one-0123456789\r\n")
    file = machine.config / "keys.json"
    assert json.loads(file.read_bytes()) == {"ZAI_API_KEY": "sk-one-0123456789"}
    file.write_bytes(mark + b'{\r\n  "ZAI_API_KEY": "sk-two-0123456789\\r\\n"\r\n}\r\n')
    done = machine.run("call", "-m", "glm-4.7", "--curl", "hi")
    assert done.status == 0, done.err
    machine.run("keys", "set", "HOME_KEY", "sk-three-0123456789")
    stored = machine.run("keys", "list", "--json").json()
    assert [(key["name"], key["used"]) for key in stored] == [("HOME_KEY", "file"), ("ZAI_API_KEY", "file")]


@pytest.mark.parametrize("mark", [b"", MARK])
def test_small_files_of_settings_may_be_written_as_on_windows(machine: Machine, mark: bytes) -> None:
    machine.config.mkdir(parents=True, exist_ok=True)
    machine.data.mkdir(parents=True, exist_ok=True)
    (machine.config / "default-model").write_bytes(mark + b"glm-4.7\r\n")
    (machine.data / "logging").write_bytes(mark + b"off\r\n")
    done = machine.run("--simulate", "hi")
    assert done.status == 0, done.err
    assert "glm-4.7" in done.err
    assert machine.run("logs", "list", "--json").json() == []


@pytest.mark.parametrize("mark", [b"", MARK])
def test_a_gateway_takes_files_that_were_written_as_on_windows(machine: Machine, mark: bytes) -> None:
    keys = machine.file("clients.txt", mark + b"sk-first-0123456789\r\n# a comment\r\nsk-slow-0123456789 --rpm 1\r\n")
    machine.config.mkdir(mode=0o700, parents=True, exist_ok=True)
    seals = machine.config / "serve.keys"
    seals.write_bytes(mark + b"# one key\r\n" + base64.urlsafe_b64encode(bytes(32)).rstrip(b"=") + b"\r\n")
    seals.chmod(0o600)
    gateway = machine.start("serve", "--simulate", "--json", "--keys-file", keys)
    try:
        assert gateway.stdout is not None
        url = json.loads(gateway.stdout.readline())["url"]
        for key, statuses in (("sk-first-0123456789", [200, 200]), ("sk-slow-0123456789", [200, 429])):
            headers = {"authorization": f"Bearer {key}"}
            body = {"model": "glm-4.7", "messages": [{"role": "user", "content": "hi"}]}
            sent = [httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers) for _ in statuses]
            assert [response.status_code for response in sent] == statuses
    finally:
        gateway.terminate()
        gateway.communicate()


@pytest.mark.parametrize("name", [b"caf\xc3\xa9", b"caf\xe9"])
@pytest.mark.parametrize("locale", [{}, NO_LOCALE])
def test_a_path_for_a_program_has_the_bytes_of_its_name(machine: Machine, name: bytes, locale: dict[str, str]) -> None:
    """They need not be UTF-8, and a program opens no other name."""
    folder = os.fsencode(machine.home) + b"/" + name
    try:
        os.mkdir(folder, 0o700)
    except OSError:
        pytest.skip("names are UTF-8 here")
    with open(folder + b"/one.toml", "wb"):
        pass
    env = {**machine.env, **locale, "CNLLM_PROVIDERS": os.fsdecode(folder + b"/one.toml")}
    env |= {"CNLLM_DATA_DIR": os.fsdecode(folder), "CNLLM_CONFIG_DIR": os.fsdecode(folder)}
    for args, last in (
        (["logs", "path"], b"conversations.db"),
        (["keys", "path"], b"keys.json"),
        (["templates", "path"], b"templates"),
        (["registry", "path"], b"one.toml"),
    ):
        done = subprocess.run(machine.command(*args), env=env, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == folder + b"/" + last
    paths = subprocess.run(machine.command("registry", "path", "--json"), env=env, capture_output=True, check=True)
    assert json.loads(paths.stdout)[-1] == env["CNLLM_PROVIDERS"] or locale
