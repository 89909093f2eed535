"""Collect what people read: docstrings, comments, strings of the program, and the prose of pages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import msgspec

__all__ = ["ROOT", "Definition", "Text", "definitions", "page_texts", "python_texts"]

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
    """A function, a class, a module or a parameter, with its docstring. `kind` says which."""

    file: str
    line: int
    kind: str
    name: str
    docstring: str | None


def python_texts(path: Path) -> Iterator[Text]:
    """Yield the docstrings, the comments and all strings of several words of a Python file."""
    file, source = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    documented = {id(node.value): node for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = _string(node)
        if text and id(node) not in inside:
            yield Text(file, node.lineno, "docstring" if id(node) in documented else "string", text)  # type: ignore[attr-defined]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(file, token.start[0], "comment", token.string.lstrip("#: "))


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
    return text if len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 and " " in text else ""


def definitions(path: Path) -> Iterator[Definition]:
    """Yield what a Python file defines: the module, its classes, its functions and their parameters."""
    file = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield Definition(file, 1, "module", path.stem, ast.get_docstring(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield Definition(file, node.lineno, "class", node.name, ast.get_docstring(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Definition(file, node.lineno, _kind(node), node.name, ast.get_docstring(node))
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    yield Definition(file, argument.lineno, "parameter", argument.arg, None)


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
