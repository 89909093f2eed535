"""Edit a registry file: add a model, set and remove an alias, set the preferred providers.

All other text stays as it is, comments too. The tables of a model go to the end; TOML allows one table of aliases only:
where the file has one, a new alias is a line at its end. The result is parsed and compared with the intended data
before it is written. Where it differs, the file has a form that only its owner can edit, and nothing is written.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from msgspec import Struct

from cnllm.errors import RegistryError
from cnllm.registry.documents import parse
from cnllm.registry.problem import Problem
from cnllm.registry.toml_lines import items, key_lines, statements
from cnllm.registry_files.check import check
from cnllm.registry_files.plain_text import edit_plain
from cnllm.registry_files.set_values import remove_value, set_value
from cnllm.registry_files.updates.patch_file import toml_value
from cnllm.system.files import change_file

__all__ = [
    "Addition",
    "EditedFile",
    "add_model",
    "change_registry_file",
    "is_builtin_kind",
    "remove_alias",
    "set_alias",
    "set_preference",
]


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
    old = _parse(text) or {}
    aliases = {} if addition.alias is None else {addition.alias: addition.name}
    tables = addition.tables() | ({"aliases": aliases} if aliases else {})
    expected = {**old, **{section: {**old.get(section, {}), **new} for section, new in tables.items()}}
    alias_line = tomli_w.dumps(aliases) if aliases and "aliases" in old else ""
    block = tomli_w.dumps(addition.tables() if alias_line else tables)

    def change(plain: str) -> str:
        head = set_value(plain, ["aliases", *aliases], addition.name) if alias_line else plain
        return head + ("\n" if head else "") + block

    error = RegistryError(
        "has a form to which nothing can be added automatically",
        file=label,
        hint=f"add it by hand: {' '.join((alias_line + block).split())}",
    )
    out = _edit(text, expected, change, error)
    line = key_lines(out.removeprefix("\ufeff")).get(f"models\0{addition.name}", 1)
    return EditedFile(out, f"[aliases]\n{alias_line}\n{block}" if alias_line else block, line)


def change_registry_file(path: Path, change: Callable[[str], str], files: Sequence[str] | None = None) -> None:
    """Change the text of a file, "" without one, if the registry finds no new fault in the new one.

    `files` are the loaded files, with or without this one; without them the text, which says what the file did, is not
    checked. Raises `RegistryError` with the first new fault, and what `change_file` raises.
    """

    def write(present: bytes | None) -> bytes | None:
        old = (present or b"").decode()
        text = change(old)
        if text == old:
            return present
        if files is not None:
            _require_no_new_fault(path, text, files)
        return text.encode()

    change_file(path, write, narrow=False)


def _require_no_new_fault(path: Path, text: str, files: Sequence[str]) -> None:
    """Raise `RegistryError` with the first fault that the text adds."""
    handle, candidate = tempfile.mkstemp(dir=path.resolve().parent, prefix=".cnllm-", suffix=".toml")
    try:
        with open(handle, "wb") as file:
            file.write(text.encode())
        _check_candidate(path, candidate, files)
    finally:
        os.unlink(candidate)  # ours: made above


def is_builtin_kind(data: dict[str, Any]) -> bool:
    """Whether a file is the built-in one of a checkout: it describes the wires, which no file of a user's does."""
    return "defaults" in data and "protocols" in data


def _check_candidate(path: Path, candidate: str, files: Sequence[str]) -> None:
    """Raise `RegistryError` with the first fault that the file `candidate` adds in the place of the one at `path`."""
    if is_builtin_kind(parse(Path(candidate).read_bytes(), str(path))):
        new = _new_fault(check([], builtin_file=Path(candidate)), lambda: check([], builtin_file=path))
        if new is not None:
            raise RegistryError(new.message, file=str(path), line=new.line, hint="nothing was written")
        return
    is_this = [Path(file).resolve() == path.resolve() for file in files]
    existing = [file for file in files if Path(file).exists()]
    candidates = [candidate if is_same else file for file, is_same in zip(files, is_this, strict=True)]
    new = _new_fault(check(candidates if any(is_this) else [*candidates, candidate]), lambda: check(existing))
    if new is not None:
        file = str(path) if new.file == candidate else new.file
        raise RegistryError(new.message, file=file, hint="nothing was written")


def _new_fault(problems: Sequence[Problem], before: Callable[[], Sequence[Problem]]) -> Problem | None:
    """Return the first error that was not there before; the old file is checked only where there is one."""
    faults = [problem for problem in problems if problem.severity == "error"]
    old_messages = {problem.message for problem in before()} if faults else set()
    return next((fault for fault in faults if fault.message not in old_messages), None)


def _parse(text: str) -> dict[str, Any] | None:
    """Parse the text of a registry file; None where it is invalid."""
    try:
        return parse(text.encode(), "")
    except RegistryError:
        return None


_HEADER = re.compile(r"\s*\[")
_DIRECTIVE = re.compile(r"#[:!]")
_COMMA = re.compile(r"^[ \t]*,?[ \t]*")


def set_alias(text: str, alias: str, target: str, label: str) -> str:
    """Return the text with this alias, and without another spelling of it. Raise `RegistryError` where impossible."""
    data = parse(text.encode(), label)
    aliases: dict[str, str] = data.get("aliases", {})
    key = _spelling(aliases, alias) or alias
    expected = {**data, "aliases": {**aliases, key: target}}
    return _edit(text, expected, lambda plain: set_value(plain, ["aliases", key], target), _no_edit(label))


def remove_alias(text: str, alias: str, label: str) -> str:
    """Return the text without this alias, in whatever case it is written. Raise `RegistryError` where impossible."""
    data = parse(text.encode(), label)
    key = _spelling(data.get("aliases", {}), alias)
    if key is None:  # another process was faster
        return text
    expected = {**data, "aliases": {name: value for name, value in data["aliases"].items() if name != key}}
    return _edit(text, expected, lambda plain: remove_value(plain, ["aliases", key]), _no_edit(label))


def _spelling(aliases: Collection[str], alias: str) -> str | None:
    """Return an alias as the file writes it, whatever its case; None where it has none."""
    if alias in aliases:
        return alias
    folded = alias.casefold()
    return next((known for known in aliases if known.casefold() == folded), None)


def set_preference(text: str, providers: Sequence[str], label: str) -> str:
    """Return the text with these preferred providers, best first. Raise `RegistryError` where that is impossible."""
    data = parse(text.encode(), label)

    def change(plain: str) -> str:
        if "prefer" in data:
            return _reorder(plain, data["prefer"], providers)
        lines = plain.splitlines(keepends=True)
        position = _top_position(lines)
        gap = "\n" if lines[position:] else ""
        return "".join([*lines[:position], "prefer = " + toml_value(list(providers)) + "\n" + gap, *lines[position:]])

    return _edit(text, {**data, "prefer": list(providers)}, change, _no_edit(label))


# ── text ─────────────────────────────────────────────────────────────────────
def _edit(text: str, expected: dict[str, Any], change: Callable[[str], str], error: RegistryError) -> str:
    """Change a text, and check that the result holds the expected data and nothing else. Raise the error otherwise."""

    def change_and_check(plain: str) -> str:
        result = change(plain if plain.endswith("\n") or not plain else plain + "\n")
        found = _parse(result)
        if found is None or _without_empty(found) != _without_empty(expected):
            raise error
        return result

    return edit_plain(text, change_and_check)


def _no_edit(label: str) -> RegistryError:
    return RegistryError("has a form that cannot be edited automatically", file=label, hint="edit it by hand")


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data; an empty table of aliases is the same as none."""
    return {key: value for key, value in data.items() if key != "aliases" or value}


def _top_position(lines: Sequence[str]) -> int:
    """Return the index before the first table and the comment that belongs to it. Directives stay at the top."""
    first = next((index for index, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    while first > 0 and lines[first - 1].lstrip().startswith("#") and not _DIRECTIVE.match(lines[first - 1]):
        first -= 1
    return first


def _reorder(text: str, old: Sequence[str], new: Sequence[str]) -> str:
    """Change the list of preferred providers: take names out, and put new ones at its front. Keep its comments."""
    count = next(n for n in range(len(new) + 1) if [name for name in old if name in new[n:]] == [*new[n:]])
    front, tail = new[:count], new[count:]
    start = text.index("[", next(one.after_keys for one in statements(text) if one.keys == ["prefer"]))
    for (begin, end), name in reversed(list(zip(items(text, start), old, strict=True))):
        if name not in tail:
            text = text[:begin] + _COMMA.sub("", text[end:], count=1)
    added = "".join(f"{toml_value(name)}, " for name in front)
    return text[: start + 1] + (added if tail else added.removesuffix(", ")) + text[start + 1 :]
