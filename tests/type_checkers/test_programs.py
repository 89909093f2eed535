"""The types of the API, as mypy and pyright see them.

Each program in `wrong` is refused where it says so and nowhere else; each program in `right` is accepted. One run of
each checker reads all programs. Both are strict.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MARK = "# refused"

Place = tuple[str, int]


def marked() -> set[Place]:
    """Return the marked lines of all programs."""
    return {
        (f"{path.parent.name}/{path.name}", number)
        for path in HERE.glob("*/*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MARK in line
    }


def mypy() -> dict[Place, str]:
    """Return the lines that mypy refuses, with its words."""
    cache = ROOT / ".mypy_cache" / "programs"  # a second run takes a tenth of the time
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--output=json", "--python-executable"]
    command = [sys.executable, "-m", "mypy", *options, sys.executable, "right", "wrong"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {(one["file"], one["line"]): one["message"] for one in found if one["severity"] == "error"}


def pyright() -> dict[Place, str]:
    """Return the lines that pyright refuses, with its words."""
    options = ["--outputjson", f"--pythonpath={sys.executable}", "--project", str(HERE / "pyrightconfig.json")]
    command = [sys.executable, "-m", "pyright", *options]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] >= len(list(HERE.glob("*/*.py")))
    return {
        ("/".join(Path(one["file"]).parts[-2:]), one["range"]["start"]["line"] + 1): one["message"]
        for one in found["generalDiagnostics"]
    }


@pytest.mark.parametrize("checker", [mypy, pytest.param(pyright, marks=pytest.mark.long)])
def test_wrong_programs_are_refused_at_the_marked_line_and_right_ones_accepted(
    checker: Callable[[], dict[Place, str]],
) -> None:
    refused, wanted = checker(), marked()
    assert {place: text for place, text in refused.items() if place not in wanted} == {}
    assert sorted(wanted - refused.keys()) == []


def test_each_wrong_program_has_one_marked_line_and_no_right_one_has_any() -> None:
    names = [name for name, _ in marked()]
    assert sorted(names) == sorted(f"wrong/{path.name}" for path in (HERE / "wrong").glob("*.py"))
    assert len(names) >= 30
    assert len(list((HERE / "right").glob("*.py"))) >= 30
