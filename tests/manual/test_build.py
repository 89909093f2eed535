"""The manual builds without a warning and without a network, and README leads into it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.links import broken_links, external_links, read_pages

from .pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the manual, where no proxy leads anywhere, and return its folder."""
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason="the manual is built where cnllm-client[docs] is installed")
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "docs", str(folder)]
    done = subprocess.run(build, cwd=ROOT, env={**os.environ, **nowhere}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.mark.long
def test_the_manual_builds_without_a_warning_and_without_a_network(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    for name in ("tutorial/getting-started", "reference/flags", "explanation/glossary", "develop/contributing"):
        assert f'href="{name}.html"' in first
    matrix = (site / "matrix.html").read_text(encoding="utf-8")
    assert 'href="matrix.html"' in first
    assert 'href="index.html" data-t="manual"' in matrix, "and back"
    remote = re.findall(r'<(?:link|script|img)[^>]+(?:href|src)="((?:https?:)?//[^"]+)', first)
    assert remote == [], "a page of the manual loads nothing from elsewhere"


@pytest.mark.long
def test_the_chinese_manual_is_chinese_in_its_sidebar_and_its_search(site: Path) -> None:
    page = (site / "zh" / "how-to" / "reasoning.html").read_text(encoding="utf-8")
    assert '<html class="no-js" lang="zh-CN"' in page
    assert 'placeholder="搜索"' in page
    assert 'href="../../index.html" lang="en">English<' in page
    assert 'href="../../reference/flags.html">配置项<' in page, "a link to an English page leads into the other build"
    index = (site / "zh" / "searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(index.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))["terms"]
    assert {"思考", "强度"} <= terms.keys(), "words of two characters are found"
    assert any("思考强度" in term for term in terms), "and longer ones within a term"
    english = (site / "how-to" / "reasoning.html").read_text(encoding="utf-8")
    assert 'href="../zh/index.html" lang="zh-CN">中文<' in english
    assert "国内厂商" not in english, "the sidebar has no Chinese pages"


@pytest.mark.long
def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    pages = read_pages(site)
    assert len(pages) > 150
    assert [f"{path.relative_to(site)}: {link}" for path, link in broken_links(pages)] == []
    for link in external_links(pages):  # not fetched
        assert re.match(r"https://[\w.-]+\.\w+(/|$)", link), link


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="b.html#there">b</a> <a href="#here">a</a> <img src="c.svg">'
    )
    (tmp_path / "b.html").write_text(
        '<a href="a.html#here">a</a> <a href="a.html#gone">a</a> <a href="https://x.org/">x</a>'
    )
    pages = read_pages(tmp_path)
    assert [(path.name, link) for path, link in broken_links(pages)] == [
        ("a.html", "b.html#there"),
        ("a.html", "c.svg"),
        ("b.html", "a.html#gone"),
    ]
    assert list(external_links(pages)) == ["https://x.org/"]


def test_readme_and_the_pages_beside_it_link_what_there_is() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "ROADMAP.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (ROOT / target).exists(), f"{name}: {target}"


@pytest.mark.parametrize("section", ["tutorial", "how-to", "explanation", "reference"])
def test_the_first_page_of_a_section_says_what_each_page_is_for(section: str) -> None:
    folder = ROOT / "docs" / section
    text = (folder / "index.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted(folder.glob("*.md")) if f"]({path.name})" not in text] == ["index.md"]


def test_readme_is_short() -> None:
    text = (ROOT / "README.md").read_bytes()
    assert len(text.splitlines()) <= 150
    assert len(text) <= 8_000


def test_the_figures_of_readme_are_those_of_the_registry() -> None:
    from docs.generate.builtin import registry

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    providers, models = re.findall(r"\*\*(\d+) providers, more than ([\d,]+) models\*\*", text)[0]
    assert int(providers) == len(registry().providers)
    assert 0 <= len(registry().names()) - int(models.replace(",", "")) < 1_000


def test_every_file_that_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    made = ("NAME", "build/", "results.json")
    for name in re.findall(r"`((?:cnllm|tests|docs|schemas|benchmarks|fuzz|\.ci)/[\w./-]*)`", text):
        assert any(word in name for word in made) or (ROOT / name).exists() or (ROOT / f"{name}.py").exists(), name


def test_what_contributing_names_in_a_module_is_there() -> None:
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)
    named = [(file, name) for file, text in rows for name in re.findall(r"`([A-Za-z_]\w+)`", text)]
    assert ("cnllm/protocols/__init__.py", "_MODULES") in named
    for file, name in named:
        if "NAME" not in file:
            assert re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8")), f"{file}: {name}"
