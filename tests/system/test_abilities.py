"""What systems do in different ways stands in `cnllm/system`, and nowhere else."""

from __future__ import annotations

import ast
import re
from itertools import chain
from pathlib import Path

from docs.generate.rooms import PACKAGE

from .no_posix import MODULES, NAMES

ALLOWED = {
    "schemas/grammar": "a program of its own, which imports nothing of the package",
}
OTHER = {
    "os": {"name", "kill", "getppid", "execv", "execve", "execvp", "supports_dir_fd", "set_blocking", "umask"},
    "select": {"select"},
}
METHODS = {"add_signal_handler", "remove_signal_handler"}
_HOMES = "|".join({*NAMES, *OTHER})
WORDS = re.compile(
    rf"\b(?:{'|'.join([*MODULES, *METHODS, 'msvcrt', 'winreg'])})\b|(?:has|get)attr\((?:{_HOMES}),"
    rf"|from (?:{_HOMES}) import|\b(?:{_HOMES})\.(?:{'|'.join(chain(*NAMES.values(), *OTHER.values()))})\b"
)
"""In files without any of these nothing is found, and a look at each of their nodes takes seconds."""


def _uses(path: Path) -> list[str]:
    """Return the names of POSIX that a file uses, as `module.name`."""
    text = path.read_text(encoding="utf-8")
    if not WORDS.search(text):
        return []
    names = {module: {*names, *OTHER.get(module, ())} for module, names in NAMES.items()}
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [f"{node.value.id}.{node.attr}"] if node.attr in names.get(node.value.id, ()) else []
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            found.append(node.attr)
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in {*MODULES, "msvcrt", "winreg"}]
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module] if node.module in MODULES else []
            found += [f"{node.module}.{a.name}" for a in node.names if a.name in names.get(node.module, ())]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            module, name = [*node.args, None, None][:2]
            if isinstance(module, ast.Name) and isinstance(name, ast.Constant):
                found += [f"{module.id}.{name.value!s}"] if name.value in names.get(module.id, ()) else []
    return found


def test_only_the_two_homes_use_what_systems_do_in_different_ways() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        if not module.startswith("system/") and module not in ALLOWED and (uses := _uses(path)):
            found[module] = uses
    assert found == {}
    assert len(_uses(PACKAGE / "system" / "files.py")) > 5  # so that an empty list above says something
    assert len(_uses(PACKAGE / "system" / "processes.py")) > 20
