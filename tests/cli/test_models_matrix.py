"""`models matrix --html`: one page that needs nothing else and believes nothing it shows."""

from __future__ import annotations

import json
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from .support import Machine

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\\\"'&"
MODELS = f"""limits = {{ context = 65_536, output = 4096 }}
price = {{ currency = "CNY", input = 2, output = 8.5 }}
input = ["text", "image"]
reasoning.mode = "always"
status = {{ is = "retired", since = 2026-01-02, use = "home/<b>" }}
[models."home/m".sources]
docs = {{ url = "https://example.org/?a=1&b=<2>", seen = 2026-11-20, how = "docs", backs = ["limits", "input"] }}
evil = {{ url = "javascript:alert(3)", seen = 2026-11-20, how = "docs", backs = ["reasoning"] }}
[models."home/<b>"]
title = "{EVIL}"
price = {{ currency = "{EVIL}", input = 1, output = 1 }}
input = ["{EVIL}"]
"""


class Page(HTMLParser):
    """The page as a browser would take it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.rows: list[list[tuple[dict[str, str], str]]] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.heads: list[str] = []
        self._open = ""
        self._body = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        self._body |= tag == "tbody"
        if tag == "tr" and self._body:
            self.rows.append([])
        if tag in ("td", "th") and self._body:
            self.rows[-1].append((given, ""))
        if tag == "th" and "data-c" in given:
            self.heads.append("")
        if tag == "script":
            self.scripts.append((given, ""))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._body &= tag != "tbody"

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._body and self.rows and self.rows[-1]:
            given, text = self.rows[-1][-1]
            self.rows[-1][-1] = (given, text + data)
        elif self.heads:
            self.heads[-1] += data


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One for all tests: a page takes seconds."""
    made = Machine(tmp_path_factory.mktemp("machine"))
    made.overlay("http://127.0.0.1:9/v1", MODELS)
    return made


@pytest.fixture(scope="module")
def page(machine: Machine) -> str:
    file = machine.home / "matrix.html"
    done = machine.run("models", "matrix", "--html", str(file))
    assert (done.status, done.out) == (0, ""), done.err
    assert f"models are in {file}" in done.err
    return file.read_text(encoding="utf-8")


def data(page: Page) -> dict[str, list[list[object]]]:
    (text,) = [text for given, text in page.scripts if given.get("id") == "data"]
    found: dict[str, list[list[object]]] = json.loads(text)
    return found


def cells(page: Page, id: str) -> dict[str, tuple[dict[str, str], str]]:
    """A model's cells by column."""
    columns = [column["name"] for column in data(page)["columns"]]  # type: ignore[call-overload]
    (row,) = [row for row in page.rows if row[0][1].startswith(id)]
    return dict(zip(columns, row, strict=True))


def test_every_model_is_a_row_and_every_capability_a_column(machine: Machine, page: str) -> None:
    rows = machine.run("models", "list", "--all", "--json").json()
    parsed = Page(page)
    assert len(parsed.rows) == len(rows)
    assert {len(row) for row in parsed.rows} == {1 + len(rows[0]["capabilities"]) + 4}
    marks = {True: ("y", "✓"), False: ("n", "✕"), None: ("u", "?")}
    columns = [column["name"] for column in data(parsed)["columns"]]  # type: ignore[call-overload]
    for row, model in zip(parsed.rows, rows, strict=True):
        shown = dict(zip(columns, row, strict=True))
        for name, value in model["capabilities"].items():
            given, text = shown[name]
            mark, sign = marks[value]
            assert (mark in given["class"].split(), text) == (True, sign)
            assert ("data-f" in given) is (value is not None)


def test_a_cell_tells_its_fact_and_source(page: str) -> None:
    parsed = Page(page)
    said, shown = data(parsed), cells(parsed, "m ")
    flag, value, layer, where, source = said["facts"][int(shown["context"][0]["data-f"])]
    assert (flag, value, layer) == ("limits.context", "65536", "models.home/m")
    assert str(where).endswith("providers.toml:7")
    assert said["sources"][source] == ["https://example.org/?a=1&b=<2>", "2026-11-20", "docs"]  # type: ignore[call-overload]
    assert shown["context"][1] == "65,536"
    assert shown["out"][1].strip() == "8.5 CNY"
    assert said["facts"][int(shown["reasoning-off"][0]["data-f"])][0] == "reasoning.mode"
    assert "data-f" not in shown["schema"][0]
    head = next(row[0] for row in parsed.rows if row[0][1].startswith("m "))
    assert "retired since 2026-01-02, use home/<b>" in head[0]["data-note"]


def test_nothing_is_fetched_from_elsewhere(page: str) -> None:
    parsed = Page(page)
    for tag, given in parsed.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base"), (tag, given)
        assert "src" not in given
        assert given.get("href", "data:,") == "data:,"
        assert not [name for name in given if name.startswith("on")]
    policy = next(
        given["content"] for tag, given in parsed.tags if given.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    style = page.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style


def test_what_a_file_says_is_shown_and_not_obeyed(page: str) -> None:
    parsed = Page(page)
    assert [given.get("type", "") for given, _ in parsed.scripts] == ["application/json", ""]
    assert "alert(1)" not in parsed.scripts[1][1]
    assert "<script>alert" not in page
    head = cells(parsed, "<b>")["model"]
    assert head[0]["data-note"].startswith("</script><script>alert(1)</script>")
    assert cells(parsed, "<b>")["out"][0]["data-u"].startswith("</script>")
    block = next(text for given, text in parsed.scripts if given.get("id") == "data")
    assert not set("<>&") & set(block)
    assert "link.href = source" in parsed.scripts[1][1]
    assert r"/^https?:\/\//.test(source)" in parsed.scripts[1][1], "a javascript: source is no link"


def test_the_page_goes_to_stdout_on_demand(machine: Machine, page: str) -> None:
    done = machine.run("models", "matrix", "--html", "-", process=True)
    assert (done.status, done.out, done.err) == (0, page, ""), "the same each time, in every process"


@pytest.mark.usefixtures("small_builtin")
def test_where_the_page_cannot_go(machine: Machine) -> None:
    machine.run("models", "matrix").fails(2, "--html")
    machine.run("models", "matrix", "--html", str(machine.home / "none" / "x.html")).fails(
        2, "x.html", "cannot be written"
    )


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_the_script_is_javascript(machine: Machine, page: str) -> None:
    script = machine.file("page.js", Page(page).scripts[1][1])
    subprocess.run(["node", "--check", script], check=True, capture_output=True)
