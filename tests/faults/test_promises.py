"""The page of promises: each names tests that there are, and quotes figures that were measured.

`pytest --update` writes the figures.
"""

from __future__ import annotations

import ast
import re
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


def test_the_figures_are_those_that_were_measured(update: bool) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    now, tail = rest.split(END)
    if update:
        PAGE.write_text(head + BEGIN + figures() + END + tail, encoding="utf-8")
    else:
        assert now == figures(), "pytest --update -n 0 writes it"


def test_cnllm_did_not_lie_where_it_was_measured() -> None:
    """The page may be made anew by anyone; what it says of cnllm is a promise."""
    lines = [line.split(" | ") for line in results().splitlines()]
    of_cuts = [cells for cells in lines if cells[0] in ("| cnllm", "| cnllm[fast]")]
    assert len(of_cuts) == 2
    for _, error, *others in of_cuts:
        assert int(error) > 0
        assert [cell.strip(" |") for cell in others] == ["0"] * 5
