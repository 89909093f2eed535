"""A model added to a registry file: its tables at the end, everything that was there left as it is.

TOML allows one table of aliases only: where the file has one, the new alias is a line at its end. The result is parsed
before it is written, and is what the file said and what was added, or it is refused.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
from msgspec import Struct

from cnllm.config import private_files
from cnllm.errors import RegistryError
from cnllm.registry.check import Problem, check
from cnllm.registry.toml_lines import key_lines

__all__ = ["Addition", "EditedFile", "add_model", "replace_file"]


class Addition(Struct, frozen=True, kw_only=True):
    """A model to describe; `base_url` and `keys` describe a provider that is not there yet. None is unknown."""

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
        """ "provider/id"."""
        return f"{self.provider}/{self.id}"

    def tables(self) -> dict[str, Any]:
        """What is to be added, as a registry file says it; the alias apart."""
        out: dict[str, Any] = {}
        if self.base_url is not None:
            provider = {"title": self.provider, "protocol": self.protocol, "base_url": self.base_url}
            out["providers"] = {self.provider: provider | {"keys": list(self.keys)}}
        model: dict[str, Any] = {}
        limits = {"context": self.context, "output": self.output}
        if known := {key: value for key, value in limits.items() if value is not None}:
            model["limits"] = known
        if self.reasoning is not None:
            model["reasoning"] = {"mode": self.reasoning}
        return out | {"models": {self.name: model}}


class EditedFile(Struct, frozen=True):
    """A file's new text, the part of it that is new, and the line at which the model stands."""

    text: str
    added: str
    line: int


def add_model(text: str, addition: Addition, shown: str) -> EditedFile:
    """The text of a registry file with a model added. Raises `RegistryError` where nothing can be added to it."""
    newline = "\r\n" if "\r\n" in text else "\n"
    old = _parsed(text)
    tables = addition.tables()
    aliases = {} if addition.alias is None else {addition.alias: addition.name}
    meant = _with(old, tables | ({"aliases": aliases} if aliases else {}))
    head, inserted = text, ""
    if aliases and "aliases" in (old or {}):
        inserted = tomli_w.dumps(aliases)
        head = _inserted(text, inserted.replace("\n", newline), newline)
    elif aliases:
        tables |= {"aliases": aliases}
    block = tomli_w.dumps(tables)
    gap = "" if not head else newline if head.endswith("\n") else 2 * newline
    out = head + gap + block.replace("\n", newline)
    if _parsed(out) != meant:
        raise RegistryError(
            "is written in a way that nothing can be added to it here",
            file=shown,
            hint=f"add it by hand: {' '.join((inserted + block).split())}",
        )
    line = key_lines(out.replace("\r\n", "\n")).get(f"models\0{addition.name}", 1)
    return EditedFile(out, f"[aliases]\n{inserted}\n{block}" if inserted else block, line)


def replace_file(path: Path, text: str, others: Sequence[str]) -> None:
    """Puts a text in the place of a file, in one step, if the registry finds nothing new to say against it.

    `others` are the files in force, this one among them or not. Raises `RegistryError` with the first new fault.
    """
    target = path.resolve()
    private_files.make_private_folder(target.parent, narrow=False)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".cnllm-", suffix=".toml")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        _demand_sound(path, name, others)
        os.chmod(name, target.stat().st_mode & 0o777 if target.exists() else 0o644)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _demand_sound(path: Path, candidate: str, others: Sequence[str]) -> None:
    same = [Path(other).resolve() == path.resolve() for other in others]
    there = [other for other in others if Path(other).exists()]
    then = [candidate if mine else other for other, mine in zip(others, same, strict=True)]
    faults = [p for p in check(then if any(same) else [*then, candidate]) if p.severity == "error"]
    known = {problem.message for problem in check(there)} if faults else set()
    for fault in faults:
        if fault.message not in known:
            raise _refused(fault, candidate, path)


def _refused(problem: Problem, candidate: str, path: Path) -> RegistryError:
    file = str(path) if problem.file == candidate else problem.file
    return RegistryError(problem.message, file=file, hint="nothing was written")


def _inserted(text: str, line: str, newline: str) -> str:
    """The text with a line after the last alias, or after the head of their table."""
    places = key_lines(text.replace("\r\n", "\n"))
    last = max(number for key, number in places.items() if key.split("\0")[0] == "aliases")
    lines = text.splitlines(keepends=True)
    before = "".join(lines[:last])
    return before + ("" if before.endswith("\n") else newline) + line + "".join(lines[last:])


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError:
        return None


def _with(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Sections of tables by name, laid together; `new` has none that `old` has."""
    out = dict(old or {})
    for section, tables in new.items():
        out[section] = {**out.get(section, {}), **tables}
    return out
