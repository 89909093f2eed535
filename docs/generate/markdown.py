"""Write pieces of Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

__all__ = ["cell", "code", "prose", "table"]

_CODE = re.compile(r"(`+[^`]*`+)")


def _escaped(text: str) -> str:
    """Return text with Markdown's signs escaped, except in code between backticks."""
    pieces = _CODE.split(text)
    for index in range(0, len(pieces), 2):
        pieces[index] = re.sub(r"([<*\[\]])", r"\\\1", pieces[index])
    return "".join(pieces)


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def code(text: str) -> str:
    """Return a text as code in a cell, or nothing for nothing."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are Markdown already."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def prose(docstring: str | None) -> str:
    """Return a docstring as Markdown: indented lines become code, all else is text."""
    blocks = []
    for block in inspect.cleandoc(docstring or "").split("\n\n"):
        lines = block.splitlines()
        if lines and all(line.startswith("    ") or not line.strip() for line in lines):
            blocks.append("```text\n" + "\n".join(line[4:] for line in lines) + "\n```")
        else:
            blocks.append(_escaped(block))
    return "\n\n".join(blocks).replace("\n```\n\n```text\n", "\n\n")
