"""The source of the package, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cnllm

__all__ = ["calls", "nodes"]


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Each module's path below the package → all nodes of its syntax tree."""
    package = Path(cnllm.__file__).parent
    paths = sorted(package.rglob("*.py"))
    return {
        path.relative_to(package).as_posix(): list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for path in paths
    }


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Yield (module, name of the function, call) of every call in the package."""
    for module, inside in nodes().items():
        for node in inside:
            if isinstance(node, ast.Call):
                yield module, getattr(node.func, "attr", None) or getattr(node.func, "id", ""), node
