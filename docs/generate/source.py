"""The source of the package, and the calls in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cnllm

__all__ = ["calls", "texts"]


@cache
def texts() -> dict[str, str]:
    """Return the source of each module by its path below the package."""
    package = Path(cnllm.__file__).parent
    paths = sorted(package.rglob("*.py"))
    return {path.relative_to(package).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(texts()[module])


def calls(pattern: str) -> Iterator[tuple[str, str, ast.Call]]:
    """Yield (module, name of the function, call) of the calls in each module whose source holds a pattern."""
    for module, text in texts().items():
        if re.search(pattern, text):
            for node in ast.walk(_tree(module)):
                if isinstance(node, ast.Call):
                    yield module, str(getattr(node.func, "attr", "") or getattr(node.func, "id", "")), node
