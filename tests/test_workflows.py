"""The workflows hold no step of their own: they call scripts that a person can run, and have few rights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="they belong to the repository")
SMALL = re.compile(r"python3 -m venv \.venv|\.venv/bin/pip install |mkdir upload && cp ")


def jobs(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"])


def test_there_are_three() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "data.yml", "release.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_step_is_a_script_of_the_repository_or_an_action_at_a_commit(path: Path) -> None:
    for name, job in jobs(path).items():
        assert job["timeout-minutes"], name
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step
            else:
                script = re.match(r"(?:python )?(\.ci/[\w-]+)", step["run"])
                assert script or SMALL.match(step["run"]), step
                assert script is None or (ROOT / script[1]).stat().st_mode & 0o100, step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_right_to_write_has_a_reason(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    for line in text.splitlines():
        assert not re.search(r": write\b", line) or re.search(r": write # \w", line), line
        assert "uses:" not in line or re.search(r"@[0-9a-f]{40} # v\d", line), line


def test_the_pythons_of_ci_are_those_of_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    said = re.findall(r"Python :: (3\.\d+)", text)
    assert jobs(ROOT / ".github/workflows/ci.yml")["portable"]["strategy"]["matrix"]["python"] == said
    long = re.search(r"for version in ([\d. ]+);", (ROOT / ".ci/long").read_text(encoding="utf-8"))
    assert long
    assert ["3.11", *long[1].split()] == said  # .ci/run has the first


def test_the_release_runs_each_step_of_its_script() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    steps = re.findall(r"^  (\w+)\)$", (ROOT / ".ci/release").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(steps) - {"data", "adapters"} == set(re.findall(r"\.ci/release (\w+)", text))
