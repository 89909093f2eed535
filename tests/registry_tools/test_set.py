"""`registry set` and `registry why`: a value, its citation and its source, each in its place, and nothing else."""

from __future__ import annotations

import datetime
import difflib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st
from program import Completed, completed

from cnllm.registry.read import builtin_path
from cnllm.registry_files.set_values import Reading, remove_value, set_facts, set_value
from cnllm.registry_files.toml_format import format_toml

URL = "https://docs.example.org/guides/pricing.md"
FILE = """# mine
[providers.home]   # beside the desk
title    = "Home"
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys     = []

[models."home/m"]
limits = { context = 204_800, output = 131_072 }  # as the card says
price  = { currency = "USD", input = 0.60, output = 2.20 }
tools.supported = true
sources = { list = ["limits", "price"], card = { backs = ["tools"], how = "inferred" } }
[models."home/m".reasoning]
mode = "toggle"

# another one
[models."home/n"]
limits = { context = 1_000 }

[sources]
card = { url = "https://example.org/card", seen = 2026-11-01, how = "docs" }
list = { url = "https://example.org/list", seen = 2026-11-01, how = "code" }
"""
TODAY = datetime.date(2026, 11, 26)
M = ["models", "home/m"]


def changed(old: str, new: str) -> list[str]:
    """The lines that differ, without places."""
    found = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return [line for line in found if line[:2] not in ("--", "++", "@@")]


def test_a_value_its_citation_and_its_source_are_three_lines() -> None:
    out = set_facts(FILE, M, {"price.input": 0.7}, Reading(URL, TODAY), "f")
    assert changed(FILE, out) == [
        '-price  = { currency = "USD", input = 0.60, output = 2.20 }',
        '+price  = { currency = "USD", input = 0.7, output = 2.20 }',
        '-sources = { list = ["limits", "price"], card = { backs = ["tools"], how = "inferred" } }',
        '+sources = { list = ["limits", "price.currency", "price.output"], '
        'card = { backs = ["tools"], how = "inferred" }, '
        'example-pricing = "price.input" }',
        f'+example-pricing = "docs 2026-11-26 {URL}"',
    ]


@each(
    "source, name",
    [
        ("https://github.com/owner/some-list/releases/tag/2.1.1", "some-list-2-1-1"),
        ("owner/tool#6303", "tool-6303"),
        ("https://github.com/owner/tool/issues/12", "tool-12"),
        ("owner/tool:data/prices.json@0123abc", "tool-prices"),
        ("https://www.npmjs.com/package/@scope/prices/v/1.2.3", "prices"),
        ("https://pypi.org/project/some-prices/0.0.5", "some-prices"),
        ("https://example.org", "example"),
    ],
)
def test_a_source_is_named_after_what_it_is(source: str, name: str) -> None:
    out = set_facts(FILE, M, {"price.input": 0.7}, Reading(source, TODAY), "f")
    assert tomllib.loads(out)["sources"][name].split()[2] == source


def test_a_source_that_never_changes_keeps_its_day() -> None:
    fixed = FILE.replace("https://example.org/card", "https://www.npmjs.com/package/prices/v/1.2.3")
    out = set_facts(fixed, ["models", "home/n"], {"limits.output": 65_536}, Reading("card", TODAY), "f")
    assert tomllib.loads(out)["models"]["home/n"]["sources"] == {"card": "limits.output"}


def test_a_source_of_the_file_is_cited_by_its_name() -> None:
    """Whether by its name or its address; the day of a later reading stands with the citation."""
    for source in ("card", "https://example.org/card"):
        reading = Reading(source, TODAY, "issue", quote="as it says")
        out = set_facts(FILE, ["models", "home/n"], {"limits.output": 65_536}, reading, "f")
        table = tomllib.loads(out)["models"]["home/n"]
        assert table["limits"] == {"context": 1000, "output": 65_536}
        more = {"quote": "as it says", "seen": TODAY, "how": "issue"}
        assert table["sources"] == {"card": {"backs": ["limits.output"], **more}}
        assert "output = 65_536" in out, "numbers are written as in the rest of the file"
        assert tomllib.loads(out)["sources"] == tomllib.loads(FILE)["sources"]


def test_a_model_goes_behind_a_value_of_several_lines_with_comments_in_it() -> None:
    text = '[providers.a]\nkeys = [\n# the one of the team\n  "K",\n]\n# below\n\n[aliases]\n'
    out = set_value(text, ["models", "a/m", "id"], "m")
    assert changed(text, out) == ["+", '+[models."a/m"]', '+id = "m"']
    assert tomllib.loads(out)["providers"] == {"a": {"keys": ["K"]}}


def test_a_file_in_its_form_keeps_it() -> None:
    text = format_toml(FILE, "f")
    for flag, value in (("price.input", 0.7), ("reasoning.default", "on"), ("tool_choice.otherwise", "error")):
        out = set_facts(text, M, {flag: value}, Reading(URL, TODAY), "f")
        assert format_toml(out, "f") == out


PATHS = st.sampled_from(
    [
        [*M, "limits", "output"],
        [*M, "limits", "input"],
        [*M, "tools", "supported"],
        [*M, "tools", "strict"],
        [*M, "reasoning", "mode"],
        [*M, "reasoning", "on", "set", "x"],
        [*M, "input"],
        [*M, "sources", "list"],
        ["models", "home/new", "limits", "context"],
        ["models", "other/x", "input"],
        ["providers", "home", "keys"],
        ["providers", "home", "on", "gemini", "supported"],
        ["sources", "page"],
    ]
)
VALUES = st.one_of(st.integers(0, 10**6), st.booleans(), st.text(max_size=5), st.lists(st.sampled_from("ab")))


def put(data: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    inner = data
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = value
    return data


@given(st.lists(st.tuples(PATHS, VALUES), min_size=1, max_size=4), st.booleans())
def test_any_edits_change_the_data_and_no_other_line(edits: list[tuple[list[str], Any]], with_end: bool) -> None:
    text = FILE if with_end else FILE.rstrip("\n")
    for path, value in edits:
        out = set_value(text, path, value)
        assert tomllib.loads(out) == put(tomllib.loads(text), path, value)
        assert sum(line.startswith("-") for line in changed(text, out)) <= 1
        text = out
    before = tomllib.loads(text)
    gone = tomllib.loads(remove_value(text, edits[-1][0]))
    inner: Any = before
    for key in edits[-1][0][:-1]:
        inner = inner[key]
    del inner[edits[-1][0][-1]]
    assert without_empty(gone) == without_empty(before)


def without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: inner for key, item in value.items() if (inner := without_empty(item)) != {}}


# ── the commands ─────────────────────────────────────────────────────────────
def run(*args: str) -> Completed:
    return completed(args)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "providers.toml"
    path.write_text(FILE)
    monkeypatch.setenv("CNLLM_PROVIDERS", str(path))
    return path


@pytest.mark.usefixtures("small_builtin")
def test_set_writes_shows_and_is_seen_by_why(file: Path) -> None:
    out = run(
        "registry", "set", "home/m", "price.input=0.7", "reasoning.mode=always", "input=text,image", "--source", URL
    )
    assert out.returncode == 0, out.stderr
    assert '+mode = "always"' in out.stdout
    assert f' {URL}"' in out.stdout
    table = tomllib.loads(file.read_text())["models"]["home/m"]
    assert (table["price"]["input"], table["reasoning"]["mode"], table["input"]) == (0.7, "always", ["text", "image"])
    why = run("registry", "why", "home/m", "price.input")
    line = file.read_text().split("\n").index('price  = { currency = "USD", input = 0.7, output = 2.20 }') + 1
    for words in ("value   0.7", f"{file}:{line}", f"source  {URL}", "how     docs"):
        assert words in why.stdout
    (fact,) = json.loads(run("registry", "why", "home/m", "price.input", "--json").stdout)
    assert (fact["source"], fact["how"], fact["quote"]) == (URL, "docs", None)
    assert "unknown" in run("registry", "why", "home/m", "price.cached").stdout


@pytest.mark.usefixtures("small_builtin")
def test_a_list_may_be_words_with_commas_in_the_table_of_a_mode_or_a_wire_too(file: Path) -> None:
    modes = ("when.tools.tool_choice.allowed=auto,none", "on.anthropic-messages.tools.schema=typed,root-object")
    out = run("registry", "set", "home/m", *modes, "--source", URL)
    assert out.returncode == 0, out.stderr
    table = tomllib.loads(file.read_text())["models"]["home/m"]
    assert table["when"]["tools"]["tool_choice"]["allowed"] == ["auto", "none"]
    assert table["on"]["anthropic-messages"]["tools"]["schema"] == ["typed", "root-object"]


@pytest.mark.usefixtures("small_builtin")
def test_set_refuses_what_check_refuses(file: Path) -> None:
    cases = {
        "limits.output=-5": "limits.output",
        "limits.contxt=5": "Did you mean 'context'?",
        "reasoning.mode=often": "it is one of",
        "limits.output": "is not FLAG=VALUE",
        "status.released=2026-13-01": "a date is written",
        "when.tools.tool_choice.alowed=auto": "Did you mean 'allowed'?",
    }
    for argument, message in cases.items():
        out = run("registry", "set", "home/m", argument, "--source", URL)
        assert out.returncode == 2
        assert message in out.stderr
        assert file.read_text() == FILE
    twice = run("registry", "set", "home/m", "price.input=1", "price.input=2", "--source", URL)
    assert "price.input is given twice" in twice.stderr
    assert "is not an address" in run("registry", "set", "home/m", "limits.output=5", "--source", "somewhere").stderr
    assert "no provider is called hme" in run("registry", "set", "hme/m", "limits.output=5", "--source", URL).stderr
    assert file.read_text() == FILE


@pytest.mark.usefixtures("small_builtin")
def test_the_built_in_file_of_a_checkout_changes_in_place(tmp_path: Path) -> None:
    """Three lines; what would be a fault of the built-in file alone, such as no path in a package, is refused."""
    path = tmp_path / "checkout.toml"
    text = format_toml(builtin_path().read_text(), "f")
    path.write_text(text)
    package = "https://pypi.org/project/some-list/1.0"
    out = run("registry", "set", "zai/glm-4.7", "price.input=0.7", "--source", package, "--in", str(path))
    assert out.returncode == 2
    assert "has no path" in out.stderr
    assert path.read_text() == text
    out = run("registry", "set", "zai/glm-4.7", "price.input=0.7", "--source", URL, "--in", str(path))
    assert out.returncode == 0, out.stderr
    new = path.read_text()
    assert [line[0] for line in changed(text, new)] == ["-", "+", "-", "+", "+"]
    assert format_toml(new, "f") == new
