"""The cookbook: one program a page, short and whole, and every page in its index. The blocks run as all others do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .pages import ROOT, blocks

PAGES = sorted(path for path in (ROOT / "docs" / "cookbook").glob("*.md") if path.stem != "index")


def test_there_are_twenty_programs_and_the_index_has_them_all() -> None:
    index = (ROOT / "docs" / "cookbook" / "index.md").read_text(encoding="utf-8").split()
    assert len(PAGES) >= 20
    assert [path.stem for path in PAGES if index.count(path.stem) != 1] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_one_short_program_with_its_output(path: Path) -> None:
    found = list(blocks(path.read_text(encoding="utf-8")))
    (program,) = [block for block in found if block.kind == "python"]
    assert program.why is None
    assert 10 <= program.code.count("\n") <= 40
    assert any(isinstance(node, ast.Import) for node in ast.parse(program.code).body), "it imports what it uses"
    assert {block.kind for block in found if block.why is None} & {"text", "after"}, "nothing says what it does"


SITES = {"zhipuai/": "", "zai/": "", "moonshotai-cn/": "moonshotai/", "CNY": "USD"}
CAP = re.compile(r"(?<=max_cost=\")0\.\d+|(?<=report\.cost <= )0\.\d+")


def without_site(code: str) -> str:
    """Return a program without what follows from the site of its models: their provider, the currency, and a cap."""
    for site, other in SITES.items():
        code = code.replace(site, other)
    return CAP.sub("0", code)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_in_chinese_has_the_same_program(path: Path) -> None:
    """Its comments are translated, and its models are those of the sites in China."""
    chinese = ROOT / "docs" / "zh" / "cookbook" / path.name
    pairs = zip(*(blocks(page.read_text(encoding="utf-8")) for page in (path, chinese)), strict=True)
    for english, translated in pairs:
        assert (english.kind, english.why) == (translated.kind, translated.why)
        if english.kind == "python":
            assert ast.dump(ast.parse(without_site(english.code))) == ast.dump(ast.parse(without_site(translated.code)))
        else:
            assert without_site(english.code) == without_site(translated.code)
