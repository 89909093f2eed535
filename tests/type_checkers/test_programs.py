"""The types of the API, as mypy and pyright see them.

Each program in `wrong` is refused where it says so and nowhere else; each program in `right` is accepted. Both checkers
are strict. mypy reads them in its run over the checkout, where a marked line that it does not refuse has a comment
`type: ignore` too many, which is an error. pyright reads them here, and ignores those comments.
"""

from __future__ import annotations

import json
import subprocess
import sys
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


@pytest.mark.long
def test_wrong_programs_are_refused_at_the_marked_line_and_right_ones_accepted() -> None:
    refused, wanted = pyright(), marked()
    assert {place: text for place, text in refused.items() if place not in wanted} == {}
    assert sorted(wanted - refused.keys()) == []


def test_each_wrong_program_has_one_marked_line_and_no_right_one_has_any() -> None:
    names = [name for name, _ in marked()]
    assert sorted(names) == sorted(f"wrong/{path.name}" for path in (HERE / "wrong").glob("[!_]*.py"))
    assert all("# type: ignore  # refused" in (HERE / name).read_text() for name in names)
    assert len(names) >= 30
    assert len(list((HERE / "right").glob("*.py"))) >= 30
