"""Docstrings, comments, messages, help and pages follow the rules of `tests/language/rules.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cnllm.cli.language.catalogue import read_catalogue

from . import texts
from .check import (
    Finding,
    allowed,
    chinese_findings,
    first_line_findings,
    name_findings,
    rules,
    sentence_findings,
    word_findings,
)
from .texts import ROOT, Definition, Text, page_texts, python_file

CODE = ("cnllm", "docs/generate", "maintenance", "benchmarks", "fuzz")


def pages() -> Iterator[Path]:
    """Yield the pages that people write, in English. Generated pages come from code, which is checked itself."""
    yield from (*sorted(ROOT.glob("*.md")), *sorted((ROOT / ".github").rglob("*.md")))
    yield from (ROOT / "benchmarks" / "README.md", ROOT / "fuzz" / "README.md")
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if path.parent.name != "zh" and "<!-- Written by" not in path.read_text(encoding="utf-8")[:200]:
            yield path


GLOSSARY = ROOT / "docs" / "zh" / "explanation" / "glossary.md"
CHINESE_CODE = ("vendors_zh.py", "wires.py")  # of docs/generate


def chinese_texts() -> Iterator[Text]:
    """Yield the texts in Chinese: pages, the catalogue of messages, the matrix, and what builds the generated pages."""
    pages = [ROOT / "README.zh-CN.md", *sorted((ROOT / "docs" / "zh").rglob("*.md"))]
    for path in pages:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield Text(path.relative_to(ROOT).as_posix(), number, "page", line)
    for path in sorted((ROOT / "cnllm" / "cli" / "language").glob("zh_*.po")):
        for entry in read_catalogue(path.read_text(encoding="utf-8")):
            yield Text(path.name, 0, "string", entry.translation)
    matrix = ROOT / "cnllm" / "cli" / "matrix" / "texts.json"
    for name, text in json.loads(matrix.read_text(encoding="utf-8"))["zh"].items():
        yield Text("texts.json", 0, "string", f"{name}: {text}")
    for name in CHINESE_CODE:
        yield from python_file(ROOT / "docs" / "generate" / name).texts


def report(findings: Iterator[Finding] | list[Finding]) -> list[str]:
    """Return the findings that no exception allows, one a line."""
    return [str(finding) for finding in findings if not allowed(finding)]


@pytest.mark.parametrize("folder", CODE)
def test_code_reads_as_the_rules_say(folder: str) -> None:
    found: list[str] = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        read = python_file(path)
        found += report([*word_findings(read.texts), *sentence_findings(read.texts)])
        found += report(first_line_findings(read.definitions))
        if folder == "cnllm":
            found += report(name_findings(read.definitions))
    assert found == []


@pytest.mark.parametrize("path", list(pages()), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_reads_as_the_rules_say(path: Path) -> None:
    read = list(page_texts(path))
    assert report([*word_findings(read), *sentence_findings(read)]) == []


def test_chinese_texts_use_one_word_for_a_thing() -> None:
    found = [one for one in chinese_findings(chinese_texts()) if one.file != GLOSSARY.relative_to(ROOT).as_posix()]
    assert list(map(str, found)) == []


def test_the_chinese_rules_find_their_words_and_the_glossary_has_the_right_ones() -> None:
    glossary = GLOSSARY.read_text(encoding="utf-8")
    assert {"思考", "思考强度", "思考预算", "配置项", "接口", "响应", "模拟", "短名"} <= set(
        re.findall(r"^\| \*\*(.+?)\*\*", glossary, re.MULTILINE)
    )
    for text in ("每次回答都推理", "注册表的标志", "思考程度", "编造的回答", "接口没有应答", "可听音频", "从不说谎"):
        assert list(chinese_findings([Text("a.md", 1, "page", text)])), text
    for text in ("推理模型", "每次回答都思考", "注册表配置项", "数据发布包", "货币单位"):
        assert not list(chinese_findings([Text("a.md", 1, "page", text)])), text


def test_names_are_nouns_and_verbs() -> None:
    assert list(name_findings([Definition("a.py", 1, "function", "_told", None)]))
    assert not list(name_findings([Definition("a.py", 1, "function", "tell", None)]))


@pytest.mark.long
def test_every_exception_is_used_and_has_a_reason() -> None:
    used = set()
    for folder in CODE:
        for path in (ROOT / folder).rglob("*.py"):
            read = python_file(path)
            used |= {
                (one["file"], one["found"])
                for finding in [*first_line_findings(read.definitions), *name_findings(read.definitions)]
                for one in rules()["exceptions"]
                if allowed(finding) and finding.file.endswith(one["file"])
            }
    assert used == {(one["file"], one["found"]) for one in rules()["exceptions"]}
    assert all(one["reason"] for one in rules()["exceptions"])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("You can simply call it.", "filler"),
        ("It leverages a seamless API.", "advertising"),
        ("Please set the key.", "please"),
        ("Thus the call ends.", "old words"),
        ("It waits for ever.", "for ever"),
        ("The tag is not read any more.", "any more"),
        ("All but for the key is there.", "but for"),
        ("For whoever runs it.", "whoever"),
        ("It has no second thoughts.", "riddle"),
        ("It ends. So does the call.", "inversion"),
        ("What came before is kept.", "headless clause"),
        ("It makes what came of what the client sent.", "chain of what"),
    ],
)
def test_each_rule_finds_its_words(text: str, rule: str) -> None:
    assert rule in {finding.rule for finding in word_findings([Text("a.md", 1, "page", text)])}


def test_every_rule_has_an_example_above() -> None:
    marks = test_each_rule_finds_its_words.pytestmark  # type: ignore[attr-defined]
    assert {rule for _, rule in marks[0].args[1]} == {rule["name"] for rule in rules()["rules"]}


@pytest.mark.parametrize(
    "text",
    [
        "What does it cost?",
        "It is there for every model.",
        "Say what is wrong, and what to do next.",
        "Any more bytes end it.",
    ],
)
def test_good_sentences_pass(text: str) -> None:
    assert list(word_findings([Text("a.md", 1, "page", text)])) == []


def test_a_long_sentence_is_found() -> None:
    words = "word " * (rules()["longest_sentence"] + 1)
    assert len(list(sentence_findings([Text("a.py", 1, "docstring", f"{words}.")]))) == 1
    assert not list(sentence_findings([Text("a.py", 1, "docstring", f"{words[:100]}. {words[100:]}.")]))


@pytest.mark.parametrize(
    ("kind", "docstring", "is_good"),
    [
        ("function", "Return the reply.", True),
        ("function", "Whether it is whole.", True),
        ("function", "The reply.", False),
        ("function", "Returns the reply.", False),
        ("function", "Is it whole?", False),
        ("class", "A reply.", True),
        ("class", "What came back.", False),
        ("property", "The reply.", True),
        ("help", "Saved options.", True),
        ("module", "How it works.", False),
        ("function", None, True),
    ],
)
def test_the_first_line_of_a_docstring(kind: str, docstring: str | None, is_good: bool) -> None:
    assert (not list(first_line_findings([Definition("a.py", 1, kind, "f", docstring)]))) is is_good


def test_texts_are_found_where_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "ROOT", tmp_path)
    code = tmp_path / "a.py"
    code.write_text('"""One two three."""\n\nx = f"four # five {1} six"  # seven eight\n', encoding="utf-8")
    found = [(text.line, text.kind, text.text) for text in python_file(code).texts]
    assert found == [
        (1, "docstring", "One two three."),
        (3, "string", "four # five … six"),
        (3, "comment", "seven eight"),
    ]
    page = tmp_path / "a.md"
    page.write_text(
        "# Head\n\nOne `two`\nthree.\n\n```sh\nsimply\n```\n\n- item [link](x)\n\n| a | b c |\n", encoding="utf-8"
    )
    assert [(text.line, text.text) for text in page_texts(page)] == [
        (1, "Head"),
        (3, "One code three."),
        (10, "item link"),
        (12, "a"),
        (12, "b c"),
    ]
