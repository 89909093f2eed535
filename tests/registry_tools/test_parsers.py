"""The script that compares the parsers of inference servers with our grammars."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path

import pytest
from builtin import written

from maintenance.parsers import HERE, new_parsers

SOURCE = 'ToolCallParserEnum: dict[str, type] = {\n    "glm47": A,\n    "brand-new": B,\n}\n'
PLACE = "sglang/srt/function_call/function_call_parser.py"


def test_what_is_new_is_reported_from_a_folder_and_from_a_wheel(tmp_path: Path) -> None:
    file = tmp_path / "source" / PLACE
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    assert list(new_parsers(tmp_path / "source")) == ["tool parser brand-new"]
    wheel = tmp_path / "sglang.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(PLACE, SOURCE)
    assert list(new_parsers(wheel)) == ["tool parser brand-new"]


def test_a_layout_that_has_changed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has none of"):
        list(new_parsers(tmp_path))


def test_every_settled_parser_has_a_family_that_reads_it() -> None:
    settled = tomllib.loads((HERE / "parsers.toml").read_text(encoding="utf-8"))
    families = written()["families"]
    for name, family in settled["tool"].items():
        assert families[family].get("leaks"), name
    for name, family in settled["reasoning"].items():
        assert families[family].get("reasoning", {}).get("tags"), name
