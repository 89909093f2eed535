"""Completion in the real shells, the man page in the real `man`, and what an editor needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import pexpect
import pytest

from cnllm.cli.app import COMMANDS, root

from .support import Machine

ROOT = Path(__file__).parents[2]
MAN = ROOT / "docs" / "reference" / "cnllm.1"


def installed(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture
def environment(machine: Machine) -> dict[str, str]:
    """An environment in which `cnllm` is a command."""
    folder = machine.home / "bin"
    folder.mkdir(parents=True)
    program = folder / "cnllm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cnllm "$@"\n')
    program.chmod(0o755)
    return {**machine.env, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}


@installed("bash")
@pytest.mark.parametrize("words", ["--model glm-4.7", "--model = glm-4.7"])
def test_bash_completes_models(environment: dict[str, str], words: str) -> None:
    """It passes `--model=x` as three words, and replaces the last."""
    code = """
eval "$(cnllm completion bash)"
function=$(complete -p cnllm | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
COMP_WORDS=(cnllm call "$@")
COMP_CWORD=$(($# + 1))
"$function" cnllm
printf '%s\\n' "${COMPREPLY[@]}"
"""
    command = ["bash", "-c", code, "bash", *words.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "glm-4.7-flash" in done.stdout.splitlines(), done.stderr


def _file_options(command: click.Command, path: list[str]) -> Iterator[list[str]]:
    """The words before each value of a command that is a file."""
    ctx = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None
            yield from _file_options(child, [*path, name])
    for param in command.params:  # `get_params` would keep the option --help as it is in this context
        words = (param.metavar or "").replace(".", "|").split("|")
        if {"FILE", "DIR", "BILL", "IN"} & set(words):
            yield [*path, *(param.opts[:1] if isinstance(param, click.Option) else [])]


@installed("bash")
def test_files_are_completed_wherever_a_value_is_one(environment: dict[str, str]) -> None:
    options = list(_file_options(root, ["cnllm"]))
    assert ["cnllm", "call", "-f"] in options
    code = """
eval "$(cnllm completion bash)"
function=$(complete -p cnllm | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
compopt() { echo "$2"; }
COMP_WORDS=("$@" rep)
COMP_CWORD=$#
"$function" cnllm
"""
    for words in options:
        done = subprocess.run(
            ["bash", "-c", code, "bash", *words], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout in ("default\n", "dirnames\n"), (words, done.stdout, done.stderr)


@pytest.mark.long  # .ci/run installs no such shell
@installed("fish")
@pytest.mark.parametrize("option", ["", "--model="])
def test_fish_completes_models(environment: dict[str, str], option: str) -> None:
    code = f'cnllm completion fish | source; complete -C "cnllm call {option or "--model "}glm-4.7"'
    done = subprocess.run(["fish", "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert f"{option}glm-4.7-flash" in done.stdout.split(), done.stderr


@pytest.mark.long  # .ci/run installs no such shell
@installed("zsh")
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--model glm-4.7-flashx", ["--model", "glm-4.7-flashx"]),
        ("--model=glm-4.7-flashx", ["--model=glm-4.7-flashx"]),
        ("--file=a-rep", ["--file=a-report.txt"]),
    ],
)
def test_zsh_completes_values(environment: dict[str, str], tmp_path: Path, typed: str, words: list[str]) -> None:
    (tmp_path / "a-report.txt").write_text("")
    shell = pexpect.spawn("zsh", ["-f", "-i"], env=environment, encoding="utf-8", timeout=30, cwd=tmp_path)
    shell.sendline("PS1='ready> '; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D")
    shell.sendline('eval "$(cnllm completion zsh)"; echo set""up')
    shell.expect("setup")
    shell.send(f"cnllm call {typed}\t --simul\t")
    shell.expect("--simulate")
    shell.send("\x01print -rl -- \r")  # before the line
    shell.expect_exact("\r\n".join(["", "cnllm", "call", *words, "--simulate", ""]))
    shell.sendline("exit")
    shell.close(force=True)


def test_powershell_gets_values_with_their_help(environment: dict[str, str]) -> None:
    """Its script was never tried in a PowerShell: this is what the script asks."""
    asked = {"_CNLLM_COMPLETE": "powershell_complete", "COMP_WORDS": "cnllm cal", "COMP_WORD": "cal"}
    done = subprocess.run(["cnllm"], env=environment | asked, capture_output=True, text=True, check=True)
    assert done.stdout == f"call\t{COMMANDS['call'][1]}\n"


@installed("man")
def test_man_shows_every_command_and_warns_of_nothing(environment: dict[str, str]) -> None:
    command = ["man", "--warnings", "-E", "UTF-8", "-l", str(MAN)]
    done = subprocess.run(command, env=environment | {"MANWIDTH": "90"}, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    for name, (_, line) in COMMANDS.items():
        assert f"CNLLM {name.upper()}" in done.stdout
        assert " ".join(line.split()[:4]) in " ".join(done.stdout.split())
    assert "--max-tokens" in done.stdout


def test_the_schema_for_editors_has_the_form_that_schemastore_takes() -> None:
    entry = json.loads((ROOT / "schemas" / "schemastore.json").read_text(encoding="utf-8"))
    assert entry.keys() == {"name", "description", "fileMatch", "url"}
    assert all("cnllm" in pattern for pattern in entry["fileMatch"])  # others have a `providers.toml`, too
    schema = json.loads((ROOT / "schemas" / "providers.schema.json").read_text(encoding="utf-8"))
    jsonschema.validators.validator_for(schema).check_schema(schema)
