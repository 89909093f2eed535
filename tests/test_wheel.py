"""What pip installs: few packages, no hooks into other programs, and no version kept out without a reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from cnllm.config.distribution import NAME
from docs.generate.dependencies import closure, licence

ROOT = Path(__file__).parent.parent
MOST_PACKAGES = 20
FREE = re.compile(r"(MIT|BSD(-[23]-Clause)?|Apache-2\.0|PSF-2\.0|MPL-2\.0|ISC)$")


def test_few_packages_come_along_and_each_states_a_free_licence() -> None:
    found = closure()
    assert len(found) <= MOST_PACKAGES, sorted(found)
    assert {name: licence(name) for name in found if not FREE.fullmatch(licence(name))} == {}


def test_a_ceiling_of_a_version_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    assert [each for each in project["dependencies"] if re.search(r"<|==|~=", each)] == []
    extras, _, _ = text.partition("\ndev = [")
    lines = [line for line in extras.splitlines() if re.search(r"[\w.]<\d|==\d|~=\d|,<", line)]
    assert [line for line in lines if not re.search(r"\] # \w", line)] == []


def test_an_adapter_is_short_and_stands_alone() -> None:
    folders = sorted(path.parent for path in (ROOT / "adapters").glob("*/pyproject.toml"))
    page = (ROOT / "adapters" / "README.md").read_text(encoding="utf-8")
    for folder in folders:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["name"] == folder.name
        assert NAME in project["dependencies"]
        assert f"({folder.name}/README.md)" in page
        assert (folder / project["readme"]).is_file()
        assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.glob("*.py")) < 150
        assert list((folder / "tests").glob("test_*.py"))
    assert folders


def test_no_program_but_our_own_finds_an_entry_point() -> None:
    """A plugin of pytest or of another host would be loaded there by everybody who has installed the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "entry-points" not in project
    assert "gui-scripts" not in project
    assert not list((ROOT / "cnllm").rglob("*.pth"))
