"""The files that a release and a host of the project read: versions, citation, changelog, templates."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import cnllm

from .pages import ROOT

TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))


def test_every_file_names_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = re.findall(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert project["version"] == cnllm.__version__ == citation["version"] == changes[0]
    assert citation["license"] == project["license"]
    assert re.search(rf"git tag -s v{re.escape(cnllm.__version__)}`", (ROOT / "docs/develop/release.md").read_text())


def test_the_citation_has_what_the_format_demands() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["title"]
    assert all(author.get("name") or author.get("family-names") for author in citation["authors"])


def test_releases_stand_newest_first() -> None:
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    versions = []
    for head in heads:
        match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+), (\d{4}-\d\d-\d\d|not released)", head)
        assert match, f"CHANGELOG.md: {head}: write VERSION, DATE"
        versions.append(tuple(int(part) for part in match.groups()[:3]))
        assert match[4] != "not released" or len(versions) == 1
    assert versions == sorted(versions, reverse=True)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_template_has_its_head(path: Path) -> None:
    _, head, body = path.read_text(encoding="utf-8").split("---\n", 2)
    assert {"name", "about", "labels"} <= yaml.safe_load(head).keys()
    assert body.strip()


def test_there_is_a_template_for_each_kind_of_issue() -> None:
    assert {path.stem for path in TEMPLATES} == {"bug", "deviation", "new-model"}
    assert "CHANGELOG.md" in (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text(encoding="utf-8")
