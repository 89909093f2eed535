"""The tables of docs/migrate: the right column runs against the simulator, and so does the left one where it can.

Rows are evaluated after the blocks of their page, in its names. `name=value` is an option: `before` and `after`, which
a page defines, call with it. Of the packages that are not installed, the names are compared with migrate_names.toml.
"""

from __future__ import annotations

import ast
import asyncio
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .pages import ROOT, blocks
from .shell import Failed, execute
from .test_code_blocks import Endpoints, Page, endpoints  # noqa: F401 - a fixture

FOLDERS = (ROOT / "docs" / "migrate", ROOT / "docs" / "zh" / "migrate")
PAGES = sorted(path for folder in FOLDERS for path in folder.glob("*.md") if path.stem != "index")
NAMES = tomllib.loads((Path(__file__).parent / "migrate_names.toml").read_text(encoding="utf-8"))
REFERENCE = (ROOT / "schemas" / "providers.schema.json").read_text(encoding="utf-8") + "".join(
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("reference/options.md", "how-to/deployment.md")
)


class Row(NamedTuple):
    """The code of a row's left and right cell."""

    line: int
    left: list[str]
    right: list[str]


def rows(text: str) -> Iterator[Row]:
    """Yield the rows of the tables, without their heads."""
    head = True
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("|"):
            head = True
        elif line.startswith("|---"):
            head = False
        elif not head:
            left, right, *_ = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split(" | "))
            yield Row(number, left, right)


def option(code: str) -> bool:
    """Whether code is an option or some: `name=value`."""
    try:
        call = ast.parse(f"f({code})", mode="eval").body
    except SyntaxError:
        return False
    return isinstance(call, ast.Call) and bool(call.keywords) and not call.args


def value(code: str, names: dict[str, Any], caller: str) -> Any:
    """Return what code of a cell gives: an expression, or a call with an option."""
    result = names[caller](**eval(f"dict({code})", names)) if option(code) else eval(code, names)
    if not isinstance(result, type) and callable(getattr(result, "close", None)):
        names.setdefault("opened", []).append(result)
    return result


def is_python(code: str, names: dict[str, Any]) -> bool:
    root = re.match(r"[A-Za-z_]\w*(?=[.(])", code)
    return option(code) or (root is not None and root[0] in names)


def words(code: str) -> set[str]:
    """Return the names of a package that code uses: functions, attributes, options of calls and of commands."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        try:
            tree = ast.parse(f"f({code})")
        except SyntaxError:
            first, *rest = shlex.split(code)
            if first not in ("llm", "litellm"):
                return {code}
            commands = itertools.takewhile(re.compile("[a-z]+$").match, rest[:2])
            return {*commands, *(word for word in rest if re.fullmatch("-[a-zA-Z]|--[a-z-]+", word))}
    nodes = list(ast.walk(tree))
    found = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    found |= {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    return found | ({code} if code.isidentifier() else set())


@pytest.mark.long
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_cell_runs(
    path: Path,
    endpoints: Endpoints,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = path.read_text(encoding="utf-8")
    page = Page(path, tmp_path, endpoints, monkeypatch)
    ran = 0
    try:
        for block in blocks(text):
            if block.why is None:
                page.run(block)
        for row in rows(text):
            try:
                ran += run_row(row, page.names, path.stem == "from-openai")
            except Exception as error:
                raise Failed(f"{path.name}:{row.line}: {type(error).__name__}: {error}") from error
    finally:
        for opened in page.names.get("opened", ()):
            if hasattr(opened, "__enter__"):
                opened.close()
            else:
                asyncio.run(opened.close())
        page.close()
    assert ran >= 12


def run_row(row: Row, names: dict[str, Any], run_left: bool) -> int:
    """Run the cells of a row. Return how many pieces of code ran."""
    given = [value(code, names, "before") for code in row.left if run_left and is_python(code, names)]
    assert len(given) == len(row.left) or not run_left, "the left cell is no code"
    taken: list[Any] = []
    for place, code in enumerate(row.right):
        if is_python(code, names):
            taken.append(value(code, names, "after"))
        elif place == 0 and code.startswith("cnllm "):
            taken.append(execute(code))
        elif place == 0 and len(row.left):
            assert code.strip("[]").split(".")[-1] in REFERENCE, f"{code} is in no reference"
    same = bool(given and taken) and type(given[0]) is type(taken[0]) and isinstance(given[0], str | int)
    if same and not row.left[0].endswith(".id"):
        assert given[0] == taken[0], f"{given[0]!r}, but {taken[0]!r}"
    return len(taken)


@pytest.mark.parametrize("path", [path for path in PAGES if path.stem in NAMES], ids=lambda path: path.stem)
def test_the_left_column_has_names_of_the_package(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    code = [(row.line, code) for row in rows(text) for code in row.left]
    code += [(block.line, block.code) for block in blocks(text) if block.kind == "python" and block.why is not None]
    own = {"print"}
    unknown = {(line, word) for line, piece in code for word in words(piece) - own - set(NAMES[path.stem]["names"])}
    assert unknown == set()
