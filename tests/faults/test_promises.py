"""The page of promises and README: promises name tests that there are, and both quote figures that were measured.

`pytest --update` writes the figures.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "promises.md"
RESULTS = ROOT / "benchmarks" / "faults" / "RESULTS.md"
BEGIN, END = "<!-- faults -->\n", "<!-- /faults -->"


def promises() -> list[tuple[str, list[str]]]:
    """Each promise, and the tests that it names."""
    section = PAGE.read_text(encoding="utf-8").split("\n## ")[0]
    rows = re.findall(r"^\| (?!promise|-)(.+?) \| (`tests/.+?) \|$", section, re.MULTILINE)
    return [(said, re.findall(r"`(tests/[^`]+)`", held)) for said, held in rows]


def test_every_test_that_a_promise_names_is_there() -> None:
    found = promises()
    assert len(found) >= 10
    for said, held in found:
        assert held, said
        for name in held:
            file, _, function = name.partition("::")
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert function in functions, f"{said}: {name}"


def results() -> str:
    """The page, where it is: source archives have no benchmarks."""
    if not RESULTS.is_file():
        pytest.skip("benchmarks/faults/RESULTS.md is not here")
    return RESULTS.read_text(encoding="utf-8")


def figures() -> str:
    """The table of clean cuts and the sums of the named faults, as measured."""
    text = results()
    cuts, _, faults = text.partition("## ")[2].partition("\n## ")
    head, *tables = cuts.split("\n\n")
    return f"{head}:\n\n{tables[1]}\n\n{faults.split(chr(10))[0]}:\n\n{faults.rstrip().split(chr(10) * 2)[-1]}\n"


def summary() -> str:
    """The five lines of README: of both tables what a caller would not notice."""
    tables = [rows(part) for part in results().split("\n\n") if part.startswith("| ")]
    cuts = {row[0]: row for row in tables[0]}
    words = {row[0]: row[1:] for row in tables[-1]}
    clients = [name for name in words["of 36 faults"] if "[" not in name]
    column = dict(zip(words["of 36 faults"], range(len(clients) + 1), strict=True))
    lines = [
        ["", *clients],
        ["---"] * (len(clients) + 1),
        ["400 streams that were cut: presented as whole", *(cuts[name][3] for name in clients)],
        ["… with half a tool call handed out", *(cuts[name][6] for name in clients)],
        ["36 other faults: presented as whole", *(words["lie"][column[name]] for name in clients)],
        ["… hangs", *(words["hang"][column[name]] for name in clients)],
        ["… an exception that is not the client's own", *(words["untyped"][column[name]] for name in clients)],
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows(table: str) -> list[list[str]]:
    """The cells of a Markdown table, its first row too."""
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.strip().splitlines()]
    return [lines[0], *lines[2:]]


@pytest.mark.parametrize(("page", "text"), [(PAGE, figures), (ROOT / "README.md", summary)], ids=["promises", "README"])
def test_the_figures_are_those_that_were_measured(page: Path, text: Callable[[], str], update: bool) -> None:
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    now, tail = rest.split(END)
    if update:
        page.write_text(head + BEGIN + text() + END + tail, encoding="utf-8")
    else:
        assert now == text(), "pytest --update -n 0 writes it"


def test_cnllm_did_not_lie_where_it_was_measured() -> None:
    """The page may be made anew by anyone; what it says of cnllm is a promise."""
    lines = [line.split(" | ") for line in results().splitlines()]
    of_cuts = [cells for cells in lines if cells[0] in ("| cnllm", "| cnllm[fast]")]
    assert len(of_cuts) == 2
    for _, error, *others in of_cuts:
        assert int(error) > 0
        assert [cell.strip(" |") for cell in others] == ["0"] * 5
