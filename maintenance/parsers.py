"""Report the parsers of inference servers for which no family of `providers.toml` has a grammar.

    python -m maintenance.parsers sglang-0.5.23-cp311-….whl vllm-source-folder

Each argument is a wheel, or a folder with the source, of SGLang or vLLM; nothing of it is installed or run. Models come
with a parser in these servers first, so a new name is markup that will soon leak from some endpoint. What is settled
stands in `parsers.toml`. Exit status 1: there is something new.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["main", "new_parsers", "registered"]

HERE = Path(__file__).resolve().parent
_TABLES = {
    # file in the package → the name of the table of parsers in it, and what the parsers read
    "sglang/srt/function_call/function_call_parser.py": ("ToolCallParserEnum", "tool"),
    "sglang/srt/parser/reasoning_parser.py": ("DetectorMap", "reasoning"),
    "vllm/tool_parsers/__init__.py": ("_TOOL_PARSERS_TO_REGISTER", "tool"),
    "vllm/reasoning/__init__.py": ("_REASONING_PARSERS_TO_REGISTER", "reasoning"),
}


def main() -> int:
    """Print the parsers that are new, one a line, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m maintenance.parsers", description=__doc__)
    parser.add_argument("packages", type=Path, nargs="+")
    found = 0
    for package in parser.parse_args().packages:
        lines = list(new_parsers(package))
        found += len(lines)
        sys.stdout.writelines(f"{package.name}: {line}\n" for line in lines)
    return 1 if found else 0


def new_parsers(package: Path) -> Iterator[str]:
    """Yield "tool parser NAME" or "reasoning parser NAME" for each that is not settled.

    Raises `ValueError` for a package without any table of parsers: its layout has changed.
    """
    settled = tomllib.loads((HERE / "parsers.toml").read_text(encoding="utf-8"))
    tables = list(registered(package))
    if not tables:
        raise ValueError(f"{package.name} has none of {', '.join(_TABLES)}")
    for kind, names in tables:
        for name in names:
            if name not in settled[kind] and name not in settled["none"]:
                yield f"{kind} parser {name}"


def registered(package: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield what a table's parsers read, "tool" or "reasoning", and their names."""
    for path, (table, kind) in _TABLES.items():
        source = _read(package, path)
        if source is not None and (names := _keys(source, table)):
            yield kind, names


def _read(package: Path, path: str) -> str | None:
    """Return a file of a wheel or a folder, None where it is not there."""
    if package.is_dir():
        file = package / path
        return file.read_text(encoding="utf-8") if file.is_file() else None
    with zipfile.ZipFile(package) as wheel:
        return wheel.read(path).decode() if path in wheel.namelist() else None


def _keys(source: str, table: str) -> list[str]:
    """Return the keys of the dict that a name is bound to, in order."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if isinstance(node.value, ast.Dict) and any(isinstance(t, ast.Name) and t.id == table for t in targets):
            return [
                key.value for key in node.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
    return []


if __name__ == "__main__":
    sys.exit(main())
