"""`models matrix --html`: one page that needs nothing else and believes nothing it shows."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cnllm import Registry
from cnllm.cli import matrix

from .support import Machine

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\\\"'&"
MODELS = f"""limits = {{ context = 65_536, output = 4096 }}
price = {{ currency = "CNY", input = 2, output = 8.5, cached = 0.5, cached_by_mark = 0.25 }}
input = ["text", "image"]
reasoning.mode = "always"
status = {{ is = "retired", since = 2026-01-02, released = 2099-01-02, use = "home/<b>" }}
[models."home/m".sources]
docs = {{ url = "https://example.org/?a=1&b=<2>", seen = 2026-11-20, how = "docs", backs = ["limits"] }}
code = {{ url = "some/project:a/file.py@0123abc", seen = 2026-11-20, how = "code", backs = ["input"] }}
evil = {{ url = "javascript:alert(3)", seen = 2026-11-20, how = "docs", backs = ["reasoning"] }}
[models."home/<b>"]
title = "{EVIL}"
price = {{ currency = "{EVIL}", input = 1, output = 1 }}
input = ["{EVIL}"]
[models."home/first"]
status = {{ released = 2099-01-03 }}
[models."home/second"]
"""
MOST_BYTES = 300_000
NUMBERS = ["status.released", "limits.context", "limits.input", "limits.output", "price.input", "price.output"]


class Page(HTMLParser):
    """The page as a browser would take it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.text: list[str] = []
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        if tag == "script":
            self.scripts.append((given, ""))
        self._open = tag

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._open != "style":
            self.text.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag == self._open else self._open

    def block(self, id: str) -> str:
        """A block of data."""
        (text,) = [text for given, text in self.scripts if given.get("id") == id]
        return text

    def models(self) -> dict[str, dict[str, Any]]:
        """Every model of the list, in its order, with the capabilities by name."""
        data = json.loads(self.block("data"))
        columns = data["models"]
        values = {True: "1", False: "0", None: "?"}
        states = {letter: value for value, letter in values.items()}
        models = {}
        for row in zip(*columns.values(), strict=True):
            model = dict(zip(columns, row, strict=True))
            vendor, title = data["vendors"][model["vendor"]]
            letters = data["states"][model["states"]]
            model["vendor"], model["currency"] = title, data["currencies"][model["currency"]]
            model["can"] = {kind: states[x] for (kind, _), x in zip(data["kinds"], letters, strict=True)}
            models[f"{vendor}/{model['id']}"] = model
        return models

    def details(self, name: str) -> dict[str, Any]:
        """The page of one model, with its facts by flag or capability: (flag, value, source)."""
        data = json.loads(zlib.decompress(base64.b64decode(self.block("packed"))))
        kinds = [kind for kind, _ in json.loads(self.block("data"))["kinds"]]
        model = data["models"][list(self.models()).index(name)]
        wire, endpoint, keys, numbers, issues, prices, use, since, levels = model
        facts = {}
        for label, number in zip([*kinds, *data["numbers"]], numbers, strict=True):
            if number >= 0:
                flag, value, source = data["facts"][number]
                facts[label] = (flag, value, data["sources"][source])
        return {
            "wire": data["texts"][wire],
            "endpoint": data["texts"][endpoint],
            "keys": [data["texts"][key] for key in keys],
            "facts": facts,
            "issues": [(data["texts"][text], data["sources"][source]) for text, source in issues],
            "chinese": [data["chinese"][str(text)] for text, _ in issues],
            "prices": prices,
            "use": use,
            "since": since,
            "levels": levels,
        }


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


@pytest.fixture(scope="module")
def parsed(page: str) -> Page:
    return Page(page)


def test_every_model_is_there_with_what_the_list_says(machine: Machine, parsed: Page) -> None:
    rows = {row["name"]: row for row in machine.run("models", "list", "--all", "--json").json()}
    models = parsed.models()
    assert set(models) == set(rows)
    for name, row in rows.items():
        model, price = models[name], row["price"] or {}
        assert model["can"] == row["capabilities"]
        assert (model["context"], model["output"]) == (row["context"], row["output"])
        assert (model["input"], model["reply"]) == (price.get("input"), price.get("output"))
        assert (model["status"] == 2) is (row["status"] == "retired")
        assert (model["short"] or []) == row["short"]


def test_the_newest_models_of_the_matrix_stand_first(parsed: Page) -> None:
    names, days = list(parsed.models()), [model["released"] for model in parsed.models().values()]
    assert names[:2] == ["home/first", "home/m"]
    dated = [day for day in days if day is not None]
    assert dated == sorted(dated, reverse=True)
    assert days[len(dated) :] == [None] * (len(days) - len(dated)), "a model without a day stands at the end"


def test_the_head_has_title_date_version_and_numbers(machine: Machine, parsed: Page) -> None:
    text = " ".join(" ".join(parsed.text).split())
    current = [model for model in parsed.models().values() if model["status"] != 2]
    assert "What each model can do" in text
    vendors = {model["vendor"] for model in current}
    registry = Registry.load(str(machine.config / "providers.toml"))
    assert f"Of {len(registry.names()):,} models and {len(registry.providers)} providers in the registry" in text
    assert f"{len(current):,} models of {len(vendors)} providers are current" in text
    stamp = re.search(r"Data of (\d{4}-\d\d-\d\d) · registry (\S+)", text)
    assert stamp is not None
    path = machine.run("registry", "path")
    assert stamp[2] in path.out + path.err
    sources = json.loads(zlib.decompress(base64.b64decode(parsed.block("packed"))))["sources"]
    assert stamp[1] >= max(seen for _, _, seen, _ in sources), "the last day on which a source was read"


def test_a_model_has_facts_with_sources_and_links(parsed: Page) -> None:
    model = parsed.details("home/m")
    docs = ["https://example.org/?a=1&b=<2>", "=", "2026-11-20", "docs"]
    code = ["some/project:a/file.py@0123abc", "https://github.com/some/project/tree/0123abc/a/file.py"]
    assert model["facts"]["limits.context"] == ("limits.context", "65536", docs)
    assert model["facts"]["images"] == ("input", "text image", [*code, "2026-11-20", "code"])
    assert model["facts"]["reasoning-off"][0] == "reasoning.mode"
    assert model["facts"]["reasoning-off"][2][:2] == ["javascript:alert(3)", ""], "no link"
    assert "schema" not in model["facts"]
    assert model["prices"] == [["cached", "", 0.5], ["cached_by_mark", "", 0.25]]
    assert (model["use"], model["since"]) == ("home/<b>", "2026-01-02")
    assert model["endpoint"] == "http://127.0.0.1:9/v1/chat/completions"


def test_a_model_has_its_known_issues(machine: Machine, parsed: Page) -> None:
    for name in ("home/m", "zai/glm-4.7", "anthropic/claude-haiku-5-5"):
        issues = machine.run("models", "show", name, "--issues", "--json").json()
        assert [text for text, _ in parsed.details(name)["issues"]] == [issue["text"] for issue in issues]
        assert all(re.search(r"[\u4e00-\u9fff]", text) for text in parsed.details(name)["chinese"])
        assert [source[0] for _, source in parsed.details(name)["issues"]] == [i["source"] or "" for i in issues]
        assert parsed.models()[name]["quirks"] == len(issues)


def test_the_page_is_small(page: str) -> None:
    assert len(page.encode()) < MOST_BYTES


def test_nothing_is_fetched_from_elsewhere(page: str, parsed: Page) -> None:
    for tag, given in parsed.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base"), (tag, given)
        assert "src" not in given
        assert given.get("href", "#").startswith(("#", "data:,"))
        assert not [name for name in given if name.startswith("on")]
    policy = next(
        given["content"] for tag, given in parsed.tags if given.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    style = page.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style


def test_what_a_file_says_is_shown_and_not_obeyed(page: str, parsed: Page) -> None:
    kinds = [given.get("type", "") for given, _ in parsed.scripts]
    assert kinds == ["application/json", "application/json", "", "text/plain"]
    assert "alert(1)" not in parsed.scripts[2][1]
    assert "<script>alert" not in page
    assert parsed.models()["home/<b>"]["currency"].startswith("</script>")
    assert parsed.models()["home/<b>"]["title"].startswith("</script>")
    for id in ("data", "texts", "packed"):
        assert not set("<>&") & set(parsed.block(id)), id
    script = parsed.scripts[2][1]
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in script, "text goes in as text"
    assert r"/^https?:\/\//.test(source.link)" in script, "a javascript: source is no link"


def test_both_languages_have_every_text(parsed: Page) -> None:
    texts = json.loads(parsed.block("texts"))
    assert set(texts["en"]) == set(texts["zh"])
    kinds = {kind for kind, _ in json.loads(parsed.block("data"))["kinds"]}
    assert kinds == set(texts["en"]["kind"]) == set(texts["zh"]["kind"])
    for tag, given in parsed.tags:
        for name in ("data-t", "data-t-label", "data-t-placeholder"):
            assert given.get(name, "title") in texts["en"], (tag, given)


@pytest.mark.long
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
def test_the_script_is_javascript(machine: Machine, parsed: Page) -> None:
    script = machine.file("page.js", parsed.scripts[2][1])
    subprocess.run(["node", "--check", script], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_a_search_lists_the_exact_name_first_and_sources_have_titles(machine: Machine, parsed: Page) -> None:
    blocks = {id: parsed.block(id) for id in ("data", "texts")}
    folder = Path(matrix.__file__).parent
    files = "".join(
        (folder / name).read_text(encoding="utf-8") for name in ("data.js", "words.js", "list.js", "model.js")
    )
    sources = [
        ["https://docs.z.ai/guides/a", "=", "docs"],
        ["https://www.npmjs.com/package/opencode-linux-x64/v/1.18.34", "=", "catalogue"],
        ["https://www.npmjs.com/package/@earendil-works/pi-ai/v/1.5.2", "=", "catalogue"],
        ["anomalyco/models.dev@f3fc692", "https://github.com/anomalyco/models.dev/tree/f3fc692", "catalogue"],
        ["some/project#12", "https://github.com/some/project/issues/12", "issue"],
    ]
    script = machine.file(
        "search.js",
        f"const blocks = {json.dumps(blocks)}, sources = {json.dumps(sources)};\n"
        "globalThis.document = {getElementById: id => ({textContent: blocks[id]})};\n"
        f"{files}\n"
        "const found = ['GLM-4.7', 'deepseek-flash', 'kimi-k3'].map(q => "
        "{ view.q = q; return exactFirst(inOrder(models.filter(fits))).map(model => model.name); });\n"
        "const whole = ([text, link, how]) => ({text, link: link === '=' ? text : link, how});\n"
        "const titles = sources.map(whole).map(sourceTitle);\n"
        "console.log(JSON.stringify([found, titles]));\n",
    )
    done = subprocess.run(["node", script], check=True, capture_output=True, text=True)
    (glm, deepseek, kimi), titles = json.loads(done.stdout)
    assert glm[0] == "zai/glm-4.7"
    assert deepseek[0] == "deepseek/deepseek-flash"
    assert kimi[0] in ("moonshotai/kimi-k3", "moonshotai-cn/kimi-k3")
    assert titles == [
        "Documentation: docs.z.ai",
        "Public list: opencode",
        "Public list: pi-ai",
        "Public list: models.dev",
        "Users' report: some/project#12",
    ]
