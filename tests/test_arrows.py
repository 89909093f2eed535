"""Arrows point one way.

cli → client → engine → wires → values, registry → values, simulator → protocols (the other side of the wires) → values.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "cnllm"

# What each room may import of the others. Values are the modules at the bottom, which import one another at most.
VALUES = {"types", "arguments", "checks", "errors", "flags", "levels", "model", "policy", "messages", "media"}
HELPERS = {"paths", "private", "process", "redact"}
MAY: dict[str, set[str]] = {
    **dict.fromkeys(VALUES, VALUES),
    "paths": {"errors"},
    "process": set(),
    "spellings": set(),
    "redact": {"spellings"},
    "echo": VALUES | {"redact", "spellings"},
    "held": set(),
    "private": set(),
    "veil": {"redact"},
    "keys": VALUES | HELPERS,
    "settings": VALUES,
    "wires": VALUES | {"schemas"},
    "leaks": VALUES | {"process"},
    "protocols": VALUES,
    "tools": VALUES | {"validation"},
    "schemas": set(),
    "validation": {"schemas"},
    "engine": VALUES | {"redact", "wires", "protocols", "leaks", "tools", "validation", "schemas"},
    "registry": VALUES | HELPERS | {"schemas"},
    "simulator": VALUES | {"registry", "protocols", "schemas"},
    "tiers": VALUES | {"keys", "registry"},
    "sentences": VALUES,
    "watchdog": {"process"},
    "watch": VALUES | {"process"},
    "otel": {"watch", "process"},
    "transports": VALUES | {"engine", "process", "watchdog"},
    "transport": VALUES | {"engine", "transports"},
    "secrets": VALUES | HELPERS | {"echo", "engine", "registry", "keys"},
    "cassette": VALUES | HELPERS | {"engine", "transport"},
    "log_mode": VALUES | HELPERS,
    "raw_log": VALUES | HELPERS | {"cassette"},
    "store": VALUES | HELPERS,
    "jobs": VALUES | HELPERS | {"engine", "tools"},
    "runs": VALUES | {"engine", "sentences", "tools", "watch"},
    **dict.fromkeys(("runs_sync", "runs_async"), VALUES | {"engine", "jobs", "runs"}),
    "client_base": VALUES
    | HELPERS
    | {"echo", "engine", "held", "raw_log", "registry", "secrets", "sentences", "settings", "tiers", "veil", "watch"},
    **{
        f"client{kind}": VALUES
        | {
            "cassette",
            "client_base",
            "engine",
            "registry",
            runs,
            "secrets",
            "sentences",
            "simulator",
            "transport",
            "watch",
        }
        for kind, runs in (("", "runs_sync"), ("_async", "runs_async"))
    },
    "sanitizer": VALUES | {"engine", "leaks", "registry"},
    "shortcuts": VALUES | {"engine", "registry", "client", "runs_sync", "sanitizer"},
    "cli": VALUES
    | HELPERS
    | {"engine", "registry", "client", "transport", "cassette", "keys", "simulator", "secrets", "shortcuts", "tiers"}
    | {"log_mode", "sanitizer", "store", "tools"},
    "__main__": {"cli"},
}
MAY["__init__"] = set(MAY)
# The simulator must not be able to agree with a wrong engine by sharing its code.
FORBIDDEN = {"simulator": {"engine", "wires"}, "protocols": {"engine", "wires"}, "wires": {"protocols"}}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The rooms a module imports from, wherever in it the import stands; those for type checkers alone aside."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(n)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for n in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cnllm":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("cnllm.")}
    return found


def test_a_module_imports_only_what_is_below_it() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        here, found = room(path), imports(path)
        more = (found - MAY[here] - {here}) | (found & FORBIDDEN.get(here, set()))
        if more:
            wrong.append(f"{path.relative_to(PACKAGE)} may not import {', '.join(sorted(more))}")
    assert wrong == []


@pytest.mark.parametrize("heavy", ["httpx", "anyio", "pydantic", "jsonschema", "rich"])
def test_the_engine_does_no_input_or_output(heavy: str) -> None:
    for path in [*(PACKAGE / "engine").rglob("*.py"), *(PACKAGE / "wires").rglob("*.py")]:
        names = {
            a.name.split(".")[0]
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Import)
            for a in n.names
        }
        names |= {
            (n.module or "").split(".")[0]
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.ImportFrom)
        }
        assert heavy not in names
        assert not {"socket", "ssl", "os", "subprocess", "threading", "asyncio"} & names
