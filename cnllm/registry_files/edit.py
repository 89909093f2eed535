"""Edit a registry file: add a model, set and remove an alias, set the preferred providers.

All other text stays as it is, comments too. The tables of a model go to the end; TOML allows one table of aliases only:
where the file has one, a new alias is a line at its end. The result is parsed and compared with the intended data
before it is written. Where it differs, the file has a form that only its owner can edit, and nothing is written.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from msgspec import Struct

from cnllm.config.toml_text import parse_toml
from cnllm.errors import RegistryError
from cnllm.registry.documents import parse
from cnllm.registry.problem import Problem
from cnllm.registry.resolver import registry_spelling
from cnllm.registry.toml_lines import key_lines
from cnllm.registry_files.check import check
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
        faults = [p for p in check([], builtin_file=Path(candidate)) if p.severity == "error"]
        old_messages = {problem.message for problem in check([], builtin_file=path)} if faults else set()
        for fault in faults:
            if fault.message not in old_messages:
                raise RegistryError(fault.message, file=str(path), line=fault.line, hint="nothing was written")
        return
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


_STRING = r'"(?:\\.|[^"\\])*"|\'[^\']*\''
_VALUE = re.compile(rf"^((?:\s|[^=\"'#]|{_STRING})*?=\s*)({_STRING})(.*)$", re.DOTALL)
_HEADER = re.compile(r"\s*\[")
_DIRECTIVE = re.compile(r"#[:!]")
_ITEM = re.compile(rf"#[^\n]*|({_STRING})|\]")


def set_alias(text: str, alias: str, target: str, label: str) -> str:
    """Return the text with this alias, and without another spelling of it. Raise `RegistryError` where impossible."""
    data = parse(text.encode(), label)
    aliases: dict[str, str] = data.get("aliases", {})
    spelling = registry_spelling(aliases, alias)
    expected = {**data, "aliases": {**aliases, spelling or alias: target}}
    by_hand = f"set it by hand, under [aliases]: {_line(alias, target)}"
    return _edit(text, expected, label, by_hand, lambda lines: _put_alias(lines, spelling, alias, target))


def remove_alias(text: str, alias: str, label: str) -> str:
    """Return the text without this alias, in whatever case it is written. Raise `RegistryError` where impossible."""
    data = parse(text.encode(), label)
    spelling = registry_spelling(data.get("aliases", {}), alias)
    if spelling is None:  # another process was faster
        return text
    expected = {**data, "aliases": {key: value for key, value in data["aliases"].items() if key != spelling}}

    def remove(lines: list[str]) -> None:
        del lines[_number(lines, ["aliases", spelling])]

    return _edit(text, expected, label, f"remove {spelling} by hand", remove)


def set_preference(text: str, providers: Sequence[str], label: str) -> str:
    """Return the text with these preferred providers, best first. Raise `RegistryError` where that is impossible."""
    data = parse(text.encode(), label)
    expected = {**data, "prefer": list(providers)}
    line = _line("prefer", list(providers))

    def change(lines: list[str]) -> None:
        if "prefer" in data:
            _reorder(lines, data["prefer"], providers)
        else:
            position = _top_position(lines)
            lines[position:position] = [line] if position == len(lines) else [line, ""]

    return _edit(text, expected, label, f"write it by hand, before the first table: {line}", change)


# ── text ─────────────────────────────────────────────────────────────────────
def _edit(text: str, expected: dict[str, Any], label: str, by_hand: str, change: Callable[[list[str]], None]) -> str:
    """Change the lines of a text, and check that the result holds the expected data and nothing else."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    try:
        change(lines)
        result = newline.join([*"\n".join(lines).split("\n"), ""])
        valid = _without_empty(parse(result.encode(), label)) == _without_empty(expected)
    except (RegistryError, _UnknownFormError):
        valid = False
    if not valid:
        raise RegistryError("has a form that cannot be edited automatically", file=label, hint=by_hand)
    return result


class _UnknownFormError(Exception):
    """The text has a form that this module does not edit."""


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data; an empty table of aliases is the same as none."""
    return {key: value for key, value in data.items() if key != "aliases" or value}


def _line(key: str, value: Any) -> str:
    """Return one line of TOML."""
    if isinstance(value, list):
        items = ", ".join(_line("x", item).partition(" = ")[2] for item in value)
        return f"{key} = [{items}]"
    return tomli_w.dumps({key: value}).rstrip("\n")


def _number(lines: list[str], path: list[str]) -> int:
    """Return the index of the line that sets a key."""
    number = key_lines("\n".join(lines)).get("\0".join(path))
    if number is None:
        raise _UnknownFormError
    return number - 1


def _put_alias(lines: list[str], spelling: str | None, alias: str, target: str) -> None:
    value = _line("x", target).partition(" = ")[2]
    if spelling is not None:
        number = _number(lines, ["aliases", spelling])
        match = _VALUE.match(lines[number])
        if match is None:
            raise _UnknownFormError
        lines[number] = f"{match[1]}{value}{match[3]}"
        return
    numbers = key_lines("\n".join(lines))
    inside = [number for path, number in numbers.items() if path.split("\0")[0] == "aliases"]
    if inside:
        last = max(inside)
        head = "aliases." if _is_dotted(lines[last - 1]) else ""
        lines.insert(last, head + _line(alias, target))
    else:
        lines += [*([""] if lines else []), "[aliases]", _line(alias, target)]


def _is_dotted(line: str) -> bool:
    """Whether a line sets an alias outside of its table, as in `aliases.name = …`."""
    return re.match(r"\s*[\"']?aliases[\"']?\s*\.", line) is not None


def _top_position(lines: list[str]) -> int:
    """Return the index before the first table and the comment that belongs to it. Directives stay at the top."""
    first = next((index for index, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    while first > 0 and lines[first - 1].lstrip().startswith("#") and not _DIRECTIVE.match(lines[first - 1]):
        first -= 1
    return first


def _reorder(lines: list[str], old: list[str], new: Sequence[str]) -> None:
    """Change the list of preferred providers: take names out, and put new ones at its front. Keep its comments."""
    number = _number(lines, ["prefer"])
    count = next(n for n in range(len(new) + 1) if _is_subsequence(new[n:], old))
    front, tail = new[:count], new[count:]
    text = "\n".join(lines[number:])
    start = text.index("[") + 1
    spans = []
    for match in _ITEM.finditer(text, start):
        if match[0] == "]":
            break
        if match[1]:
            spans.append(match.span())
    if len(spans) != len(old):
        raise _UnknownFormError
    gone = [span for span, name in zip(spans, old, strict=True) if name not in tail]
    for begin, end in reversed(gone):
        after = re.compile(r"[ \t]*,?[ \t]*").match(text, end)
        assert after is not None
        text = text[:begin] + text[after.end() :]
    items = "".join(_line("x", name).partition(" = ")[2] + ", " for name in front)
    if not tail:
        items = items.removesuffix(", ")
    lines[number:] = (text[:start] + items + text[start:]).split("\n")
    lines[number] = re.sub(r",[ \t]+\]", "]", lines[number], count=1)


def _is_subsequence(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether a list holds these items in this order."""
    rest = iter(whole)
    return all(item in rest for item in part)
