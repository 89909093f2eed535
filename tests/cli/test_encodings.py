"""Consoles of other encodings, and files whose lines end as on Windows: the same answers, or an error that says why."""

from __future__ import annotations

import json
import subprocess

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
