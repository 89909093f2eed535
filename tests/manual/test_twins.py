"""Each page of the Chinese manual translates its English page as it is now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs import twins
from docs.twins import ROOT, Twin

FOUND = list(twins.twins())


@pytest.mark.parametrize("twin", FOUND, ids=lambda twin: twin.page.relative_to(ROOT).as_posix())
def test_a_page_is_not_behind_its_twin(twin: Twin) -> None:
    page, original = twin.page.relative_to(ROOT), twin.original.relative_to(ROOT)
    assert twin.is_current, (
        f"{original} is not the text that {page} translates: compare them, bring {page} up to date, "
        f"then run: python -m docs.twins {page}"
    )


def test_readme_and_every_tutorial_are_there_in_chinese() -> None:
    tutorials = {ROOT / "README.md", *(ROOT / "docs" / "tutorial").glob("*.md")}
    assert tutorials <= {twin.original for twin in FOUND}


def test_a_change_of_the_english_page_is_seen_and_a_mark_settles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs" / "zh" / "how-to").mkdir(parents=True)
    (tmp_path / "docs" / "how-to").mkdir()
    for name in ("README.md", "README.zh-CN.md", "docs/how-to/a.md", "docs/zh/how-to/a.md"):
        (tmp_path / name).write_text("# A\n", encoding="utf-8")
    monkeypatch.setattr(twins, "ROOT", tmp_path)
    assert [twin.is_current for twin in twins.twins()] == [False, False]
    for twin in twins.twins():
        twins.mark(twin)
    assert [twin.is_current for twin in twins.twins()] == [True, True]
    (tmp_path / "docs/how-to/a.md").write_text("# B\n", encoding="utf-8")
    assert [twin.is_current for twin in twins.twins()] == [True, False]
    twins.mark(list(twins.twins())[1])
    assert [twin.is_current for twin in twins.twins()] == [True, True]


def test_the_command_names_what_to_do() -> None:
    command = [sys.executable, "-m", "docs.twins"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).returncode == 0
    wrong = subprocess.run([*command, "README.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (wrong.returncode, "README.md: no page" in wrong.stderr) == (2, True)
