"""The pictures of faults and benchmarks show the figures that were measured, and no picture loads anything.

`tests/manual/test_reference.py` checks that all pictures are current.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

import pytest

from docs.generate import PICTURES, faults
from docs.generate.shades import dark_only

from .pages import ROOT

TEXTS = {file.stem: file.read_text(encoding="utf-8") for file in PICTURES}


@pytest.mark.parametrize("name", TEXTS)
def test_a_picture_is_valid_has_a_title_and_loads_nothing(name: str) -> None:
    text = TEXTS[name]
    root = ElementTree.fromstring(text)
    assert root.findtext("{http://www.w3.org/2000/svg}title")
    drawn = re.sub(r"(<text[^>]*>)[^<]*", r"\1", text)  # words load nothing
    assert set(re.findall(r"https?://[^\"' )<]+", drawn)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|@font-face|<script|<image|href", text)
    assert "prefers-color-scheme" not in text, "the page chooses the picture"


def test_light_and_dark_say_the_same() -> None:
    words = {name: re.findall(r"<text[^>]*>([^<]*)<", text) for name, text in TEXTS.items()}
    for name in (name.removesuffix("-light") for name in words if name.endswith("-light")):
        assert words[f"{name}-light"] == words[f"{name}-dark"]
        assert TEXTS[f"{name}-light"] != TEXTS[f"{name}-dark"]


def test_the_table_of_faults_has_the_sums_that_were_measured() -> None:
    text = (ROOT / "benchmarks" / "faults" / "RESULTS.md").read_text(encoding="utf-8")
    table = faults.read_table(text)
    sums = re.findall(r"^\| (whole|error|told|lie|untyped|hang) \| ([\d |]+) \|$", text, re.MULTILINE)
    for number, client in enumerate(table.clients):
        counted = Counter(cells[number].split(",")[0] for _, cells in table.rows)
        assert {word: counted[word] for word, _ in sums} == {
            word: int(row.split(" | ")[number]) for word, row in sums
        }, client
    shown = re.findall(r"<text[^>]*>([^<]*)<", TEXTS["faults-light"])
    assert shown.count("hang") == sum("hang" in cells for _, row in table.rows for cells in row)


def test_a_page_without_figures_is_an_error() -> None:
    with pytest.raises(ValueError, match="no table of faults"):
        faults.read_table("# Nothing\n")
    with pytest.raises(ValueError, match="no colors for a dark page"):
        dark_only("<svg/>")
