"""Read which rooms of the package import which: a room is a folder, or a module that stands alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cnllm.protocols import _MODULES

__all__ = ["PACKAGE", "WIRES", "file_of", "files", "imported_names", "room", "room_imports"]

PACKAGE = Path(__file__).parents[2] / "cnllm"

WIRES = frozenset(f"protocols/{folder}" for folder in _MODULES.values())
"""The folders of the wires: a room each."""

_SPLIT = frozenset(["engine", "cli", "gateway"])
# Folders whose folders are rooms of their own. What lies beside these in engine/ is, too.


def room(module: str) -> str:
    """Return the room of a file of the package, which is named by its path without `.py`."""
    parts = module.removesuffix("/__init__").split("/")
    if parts[0] == "protocols":
        return "/".join(parts[:2]) if f"protocols/{parts[-1]}" in WIRES or len(parts) > 2 else "protocols"
    if parts[0] in _SPLIT and len(parts) > 1:
        lone = len(parts) == 2 and (PACKAGE / f"{module}.py").exists()
        return parts[0] if lone and parts[0] != "engine" else "/".join(parts[:2])
    return parts[0]


@cache
def files() -> dict[str, set[str]]:
    """Return the modules that each file of the package imports, in functions and for type checkers too."""
    return {
        path.relative_to(PACKAGE).with_suffix("").as_posix(): {file_of(name) for name in imported_names(path)}
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != PACKAGE / "__init__.py"
    }


@cache
def room_imports() -> dict[str, set[str]]:
    """Return the other rooms that each room imports. The top level is no room: it repeats names of others."""
    found: dict[str, set[str]] = {}
    for module, others in files().items():
        here = room(module)
        found.setdefault(here, set()).update({room(other) for other in others} - {here, "__init__"})
    return found


def imported_names(path: Path) -> list[str]:
    """List the dotted names of the package that a file imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: list[str] = []
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cnllm":
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.split(".")[0] == "cnllm"]
    return names


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a module, those in functions too. Expressions, the larger part of a tree, have none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()) if not isinstance(node, ast.expr) else ():
            yield inner
            yield from _statements(inner)


def file_of(name: str) -> str:
    """Return the file that a dotted name is in: `cnllm.types.Text` is in `types/__init__`."""
    parts = name.split(".")[1:]
    while parts:
        place = PACKAGE.joinpath(*parts)
        if place.with_suffix(".py").exists():
            return "/".join(parts)
        if (place / "__init__.py").exists():
            return "/".join([*parts, "__init__"])
        parts.pop()
    return "__init__"  # a name of the top level
