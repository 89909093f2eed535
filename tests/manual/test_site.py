"""The site says what is known and unknown of each provider and model; a fact leads to its line and its source."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from home_folders import SHARED_CACHE
from small import small_file

from cnllm import Registry
from cnllm.registry.read import read
from docs.links import broken_links, read_pages
from docs.site import write_site

HOME = """
[providers.home]
title    = "A <b>server</b> at home"
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys     = []

[models."home/deep/id:1?x"]
limits.context = 4096
sources.seen-there = { url = "https://example.org/a?b=1&c=2", seen = 2026-01-02, how = "docs", backs = ["limits"] }
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    own = tmp_path_factory.mktemp("own") / "own.toml"
    own.write_text(HOME)
    builtin = read(small_file(Path(os.environ[SHARED_CACHE]) / "small"), builtin=True)
    document = read(own)
    document.label = "own.toml"
    return Registry([builtin, document])


@pytest.fixture(scope="module")
def site(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, beside those that they lead to."""
    top = tmp_path_factory.mktemp("site")
    for name in ("index.html", "matrix.html"):
        (top / name).write_text("<p>" + "".join(f'<a name="model={name}">' for name in registry.names()))
    write_site(registry, top / "registry")
    return top


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = read_pages(site)
    assert len(pages) > 40
    broken = [(path.relative_to(site), link) for path, link in broken_links(pages) if "matrix.html#" not in link]
    assert broken == []


def test_each_known_fact_has_its_source_and_its_line(site: Path, registry: Registry) -> None:
    page = (site / "registry" / "zai" / "glm-4.7.html").read_text(encoding="utf-8")
    known = page[page.index("<h2>Known") : page.index("<h2>Unknown")]
    fact = next(fact for fact in registry.resolve("zai/glm-4.7").explain() if fact.flag == "price.input")
    (row,) = (row for row in known.split("<tr>") if "<code>price.input</code>" in row)
    assert f"<td>{fact.value}</td>" in row
    assert fact.how is not None
    assert fact.seen is not None
    assert fact.how in row
    assert fact.seen in row
    (line,) = re.findall(r'href="([^"]+#L\d+)"', row)
    file, _, number = line.partition("#L")
    assert f"providers.toml:{number}" == fact.where
    source = (site / "registry" / "zai" / unquote(file)).resolve().read_text(encoding="utf-8")
    (there,) = re.findall(rf'<a id="L{number}".*', source)
    assert "input" in there
    assert "<h2>Unknown" in page
    assert "<code>price.cache_write</code>" in page[page.index("<h2>Unknown") :]


def test_a_json_file_stands_beside_the_page(site: Path, registry: Registry) -> None:
    document = json.loads((site / "registry" / "registry.json").read_text(encoding="utf-8"))
    for name in ("zai/glm-4.7", "home/deep/id:1?x"):
        made = json.loads((site / "registry" / f"{name}.json").read_text(encoding="utf-8"))
        explained = {fact.flag: fact for fact in registry.resolve(name).explain() if fact.value != "unknown"}
        assert set(made["facts"]) == set(explained)
        for flag, fact in explained.items():
            there = made["facts"][flag]
            value = document["values"][there["ref"]] if "ref" in there else there["value"]
            assert value == fact.value, flag
            assert (there["url"], there["line"]) == (fact.source or "unknown", fact.where)
        assert "price.cache_write" in made["unknown"]
        assert not set(made["unknown"]) & set(made["facts"])


def test_a_page_shows_text_as_text(site: Path) -> None:
    provider = (site / "registry" / "home" / "index.html").read_text(encoding="utf-8")
    assert "A &lt;b&gt;server&lt;/b&gt; at home" in provider
    assert "<b>" not in provider
    model = (site / "registry" / "home" / "deep" / "id:1?x.html").read_text(encoding="utf-8")
    assert 'href="https://example.org/a?b=1&amp;c=2"' in model
    assert "<td>4096</td>" in model.replace(",", "")


def test_an_id_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(HOME.replace("deep/id:1?x", "../../out"))
    builtin = tmp_path / "providers.toml"
    builtin.write_text('[protocols.openai-chat]\npath = "/chat/completions"\n')
    with pytest.raises(ValueError, match="leads out"):
        write_site(Registry([read(builtin, builtin=True), read(own)]), tmp_path / "site" / "registry")
    assert list(tmp_path.glob("out*")) == []
