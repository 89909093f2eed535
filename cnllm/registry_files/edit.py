"""Add a model to a registry file: its tables go to the end, and the present text stays as it is.

TOML allows one table of aliases only: where the file has one, the new alias is a line at its end. The result is parsed
before it is written. It is refused unless it holds exactly the file's data and the addition.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from msgspec import Struct

from cnllm.config import private_files
from cnllm.config.toml_text import parse_toml
from cnllm.errors import RegistryError
from cnllm.registry.problem import Problem
from cnllm.registry.toml_lines import key_lines
from cnllm.registry_files.check import check

__all__ = ["Addition", "EditedFile", "add_model", "change_registry_file"]


class Addition(Struct, frozen=True, kw_only=True):
    """A model to add. `base_url` and `keys` describe a provider that the registry does not have yet.

    None means unknown.
    """

    provider: str
    id: str
    protocol: str
    base_url: str | None = None
    keys: tuple[str, ...] = ()
    context: int | None = None
    output: int | None = None
    reasoning: str | None = None
    alias: str | None = None

    @property
    def name(self) -> str:
        """Return "provider/id"."""
        return f"{self.provider}/{self.id}"

    def tables(self) -> dict[str, Any]:
        """Return the tables to add in the form of a registry file, without the alias."""
        out: dict[str, Any] = {}
        if self.base_url is not None:
            provider = {"title": self.provider, "protocol": self.protocol, "base_url": self.base_url}
            out["providers"] = {self.provider: provider | {"keys": list(self.keys)}}
        model: dict[str, Any] = {}
        values = {"context": self.context, "output": self.output}
        if limits := {key: value for key, value in values.items() if value is not None}:
            model["limits"] = limits
        if self.reasoning is not None:
            model["reasoning"] = {"mode": self.reasoning}
        return out | {"models": {self.name: model}}


class EditedFile(Struct, frozen=True):
    """The new text of a file, the added part of it, and the line of the model."""

    text: str
    added: str
    line: int


def add_model(text: str, addition: Addition, label: str) -> EditedFile:
    """Return the text of a registry file with a model added. Raises `RegistryError` where that is impossible."""
    newline = "\r\n" if "\r\n" in text else "\n"
    old = _parse(text)
    tables = addition.tables()
    aliases = {} if addition.alias is None else {addition.alias: addition.name}
    expected = _join_sections(old, tables | ({"aliases": aliases} if aliases else {}))
    head, alias_line = text, ""
    if aliases and "aliases" in (old or {}):
        alias_line = tomli_w.dumps(aliases)
        head = _insert_alias(text, alias_line.replace("\n", newline), newline)
    elif aliases:
        tables |= {"aliases": aliases}
    block = tomli_w.dumps(tables)
    gap = "" if not head else newline if head.endswith("\n") else 2 * newline
    out = head + gap + block.replace("\n", newline)
    if _parse(out) != expected:
        raise RegistryError(
            "has a form to which nothing can be added automatically",
            file=label,
            hint=f"add it by hand: {' '.join((alias_line + block).split())}",
        )
    line = key_lines(out.replace("\r\n", "\n")).get(f"models\0{addition.name}", 1)
    return EditedFile(out, f"[aliases]\n{alias_line}\n{block}" if alias_line else block, line)


def change_registry_file(path: Path, change: Callable[[str], str], files: Sequence[str] | None = None) -> None:
    """Change the text of a file, "" without one, if the registry finds no new fault in the new one.

    `files` are the loaded files, with or without this one; without them the text, which says what the file did, is not
    checked. Raises `RegistryError` with the first new fault, and what `private_files.change_file` raises.
    """

    def write(present: bytes | None) -> bytes | None:
        old = (present or b"").decode()
        text = change(old)
        if text == old:
            return present
        if files is not None:
            _require_no_new_fault(path, text, files)
        return text.encode()

    private_files.change_file(path, write, narrow=False)


def _require_no_new_fault(path: Path, text: str, files: Sequence[str]) -> None:
    """Raise `RegistryError` with the first fault that the text adds."""
    handle, candidate = tempfile.mkstemp(dir=path.resolve().parent, prefix=".cnllm-", suffix=".toml")
    try:
        with open(handle, "wb") as file:
            file.write(text.encode())
        _check_candidate(path, candidate, files)
    finally:
        os.unlink(candidate)  # ours: made above


def _check_candidate(path: Path, candidate: str, files: Sequence[str]) -> None:
    """Raise `RegistryError` with the first fault that the file `candidate` adds in the place of the one at `path`."""
    is_this = [Path(file).resolve() == path.resolve() for file in files]
    existing = [file for file in files if Path(file).exists()]
    candidates = [candidate if is_same else file for file, is_same in zip(files, is_this, strict=True)]
    faults = [p for p in check(candidates if any(is_this) else [*candidates, candidate]) if p.severity == "error"]
    old_messages = {problem.message for problem in check(existing)} if faults else set()
    for fault in faults:
        if fault.message not in old_messages:
            raise _fault_error(fault, candidate, path)


def _fault_error(problem: Problem, candidate: str, path: Path) -> RegistryError:
    """Return the error for a fault."""
    file = str(path) if problem.file == candidate else problem.file
    return RegistryError(problem.message, file=file, hint="nothing was written")


def _insert_alias(text: str, line: str, newline: str) -> str:
    """Return the text with a line after the last alias, or after the header of the table of aliases."""
    numbers = key_lines(text.replace("\r\n", "\n"))
    last = max(number for key, number in numbers.items() if key.split("\0")[0] == "aliases")
    lines = text.splitlines(keepends=True)
    before = "".join(lines[:last])
    return before + ("" if before.endswith("\n") else newline) + line + "".join(lines[last:])


def _parse(text: str) -> dict[str, Any] | None:
    """Parse a TOML text; None where it is invalid."""
    try:
        return parse_toml(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError:
        return None


def _join_sections(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Join sections of tables by name; `new` has no table that `old` has."""
    out = dict(old or {})
    for section, tables in new.items():
        out[section] = {**out.get(section, {}), **tables}
    return out
