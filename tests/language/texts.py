"""Collect what people read: docstrings, comments, strings of the program, and the prose of pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = ["ROOT", "Definition", "Source", "Text", "page_texts", "python_file"]

ROOT = Path(__file__).parents[2]

_PLACEHOLDER = "…"
_CODE = re.compile(r"``[^`]+``|`[^`]+`")
_FENCE = re.compile(r"^(`{3,}|:{3,})[^\n]*\n.*?^\1 *$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^ *(?:[-*+]|\d+\.|#+|>|:) +|^\|", re.MULTILINE)


class Text(msgspec.Struct, frozen=True):
    """Text in a file. `kind` is docstring, comment, string or page."""

    file: str
    line: int
    kind: str
    text: str


class Definition(msgspec.Struct, frozen=True):
    """A function, a class or a module, with its docstring. `kind` says which."""

    file: str
    line: int
    kind: str
    name: str
    docstring: str | None


class Source(NamedTuple):
    """The docstrings, the comments and all strings of several words of a Python file, and what it defines."""

    texts: tuple[Text, ...]
    definitions: tuple[Definition, ...]


@cache
def python_file(path: Path) -> Source:
    """Read a Python file: its tree is built and walked once, which is most of the work."""
    file, source = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    texts: list[Text] = []
    found = [Definition(file, 1, "module", path.stem, ast.get_docstring(tree))]
    documented: set[int] = set()
    inside: set[int] = set()
    strings: list[ast.Constant | ast.JoinedStr] = []
    for node in _walk(tree):
        match node:
            case ast.Expr():
                documented.add(id(node.value))
            case ast.JoinedStr():
                inside.update(map(id, node.values))
                strings.append(node)
            case ast.Constant(value=str() | bytes()):
                strings.append(node)
            case ast.ClassDef():
                found.append(Definition(file, node.lineno, "class", node.name, ast.get_docstring(node)))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.append(Definition(file, node.lineno, _kind(node), node.name, ast.get_docstring(node)))
    for one in strings:
        text = _string(one)
        if text and id(one) not in inside:
            texts.append(Text(file, one.lineno, "docstring" if id(one) in documented else "string", text))
    return Source((*texts, *_comments(file, source, strings)), tuple(found))


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, as `ast.walk` does, without those that only say how a name is used."""
    nodes = [tree]
    for node in nodes:
        yield node
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                nodes += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST) and field not in ("ctx", "op"):
                nodes.append(value)


def _comments(file: str, source: str, strings: Iterable[ast.Constant | ast.JoinedStr]) -> Iterator[Text]:
    """Yield the comments: from each # on that stands in no string."""
    spans = sorted(((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0)) for one in strings)
    for number, line in enumerate(source.split("\n"), 1):
        for match in re.finditer("#", line):
            place = number, len(line[: match.start()].encode())
            if not any(start <= place < end for start, end in spans if start[0] <= number <= end[0]):
                yield Text(file, number, "comment", line[match.start() :].lstrip("#: "))
                break


def _string(node: ast.AST) -> str:
    """Return the text of a string of three words or more; "" for any other node."""
    text = ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        text = "".join(
            part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else _PLACEHOLDER
            for part in node.values
        )
    return text if " " in text and len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 else ""


def _kind(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return `property`; `help` for a command or a tool, whose docstring users or models read; or `function`."""
    decorators = " ".join(ast.unparse(one) for one in node.decorator_list)
    if "property" in decorators:
        return "property"
    return "help" if re.search(r"\b(command|group|tool)\b", decorators) else "function"


def page_texts(path: Path) -> Iterator[Text]:
    """Yield the paragraphs, list items and cells of a page, without its code, comments and addresses."""
    file, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for hidden in (_COMMENT, _FENCE):
        text = hidden.sub(lambda match: "\n" * match[0].count("\n"), text)
    text = _CODE.sub(lambda match: "code" + "\n" * match[0].count("\n"), _LINK.sub(r"\1", text))
    line = 1
    for block in re.split(r"(\n\s*\n)", text):
        start = 0
        for item in [*_ITEM.finditer(block), None]:
            end = item.start() if item else len(block)
            for cell in block[start:end].split("|"):
                if cell.strip(" -\n"):
                    yield Text(file, line + block.count("\n", 0, start), "page", " ".join(cell.split()))
            start = item.end() if item else end
        line += block.count("\n")
