"""`models list` on a terminal: grouped by provider, within its width, page by page, without retired models."""

from __future__ import annotations

import re
import shutil
import sys

import pexpect
import pytest

from cnllm.cli.output.terminal import display_width

from .support import Machine


def screen(machine: Machine, *args: str, rows: int = 24, columns: int = 80, **env: str) -> str:
    """What a terminal of this size gets."""
    command = ["-m", "cnllm", "models", "list", *args]
    child = pexpect.spawn(
        sys.executable,
        command,
        env={**machine.env, "TERM": "xterm-256color", **env},
        encoding="utf-8",
        dimensions=(rows, columns),
        timeout=30,
    )
    text: str = child.read()
    child.close()
    assert child.exitstatus == 0, text
    return text.replace("\r\n", "\n")


@pytest.mark.parametrize(("columns", "lang"), [(80, "C.UTF-8"), (80, "zh_CN.UTF-8"), (100, "C.UTF-8")])
def test_every_line_fits_and_every_id_is_whole(machine: Machine, columns: int, lang: str) -> None:
    text = screen(machine, "--all", columns=columns, PAGER="cat", LANG=lang)
    lines = text.splitlines()
    assert [line for line in lines if display_width(line) > columns] == []
    provider, names = "", set()
    for line in lines[1:]:
        if line and not line.startswith(" "):
            provider = line
        elif line.startswith("  ") and not line.startswith("   "):
            names.add(f"{provider}/{line.split()[0]}")
    listed = {row["name"] for row in machine.run("models", "list", "--all", "--json").json()}
    assert listed == {name for name in names if name in listed}, "an id was cut, or its provider stands elsewhere"


@pytest.mark.usefixtures("small_builtin")
def test_retired_models_are_left_out_and_counted(machine: Machine) -> None:
    every = machine.run("models", "list", "--all", "--json").json()
    current = machine.run("models", "list", "--json").json()
    retired = [row["name"] for row in every if row["status"] == "retired"]
    assert retired
    assert [row["name"] for row in every if row["status"] != "retired"] == [row["name"] for row in current]
    done = machine.run("models", "list")
    assert f"{len(current)} models; {len(retired)} more are retired: --all" in done.err
    assert retired[0] not in re.split(r"\s", done.out)
    one = machine.run("models", "list", retired[0])
    assert one.status == 0
    assert retired[0] not in re.split(r"\s", one.out)  # others whose names contain it may be listed
    assert "1 more are retired: --all" in one.err or "more are retired" in one.err


def test_a_short_list_is_printed_at_once(machine: Machine) -> None:
    text = screen(machine, "glm-4.7", "--provider", "zai", PAGER="false")
    assert re.search(r"^zai\n  glm-4\.7 +205K +text +toggle +0\.6/2\.2 USD$", text, re.MULTILINE), text


@pytest.mark.skipif(shutil.which("head") is None, reason="there is no program to page with")
def test_a_long_list_goes_through_the_pager(machine: Machine) -> None:
    text = screen(machine, PAGER="head -n 3")
    assert text.startswith("MODEL ")
    assert len(text.splitlines()) < 10


@pytest.mark.skipif(shutil.which("env") is None, reason="there is no program that shows its environment")
def test_less_is_told_that_the_text_is_utf_8(machine: Machine) -> None:
    assert "LESSCHARSET=utf-8\n" in screen(machine, PAGER="env", PYTHONUTF8="1")
    assert "LESSCHARSET=latin1\n" in screen(machine, PAGER="env", PYTHONUTF8="1", LESSCHARSET="latin1")
