"""Give a registry file its form: aligned keys in a fixed order, blank lines, section rules, table of contents.

The `sources` of a layer stand on one line where that is short. An inline table on a very long line becomes a table of
its own, because TOML 1.0 cannot wrap one; a list there gets several lines. Patterns and quotations stay whole.

Every value and every comment stays as it is written: a text that would say something else afterwards is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from cnllm.config.toml_text import parse_toml
from cnllm.errors import RegistryError
from cnllm.registry.documents import read_sources
from cnllm.registry.flags import Flags, RegistryFile, Table
from cnllm.registry.toml_lines import items, line_of, read_keys, statements, value_end
from cnllm.registry_files.plain_text import edit_plain, line_changes

__all__ = ["changed_lines", "format_toml", "require_registry"]

_RULE = re.compile(r"# ── (.*?) ─+")
_RULE_WIDTH = 79
_CONTENTS = "# Contents:"
_LAYERS = ("protocols", "families", "providers", "models")
_SECTIONS = tuple(field.encode_name for field in fields(RegistryFile))
_LAST = ("unset", "call", "on", "when", "families", "sources")
_WIDTH = 120
_WIDEST_SOURCES = 180
_LONGEST = 300
_QUOTED = re.compile(r"""\b(?:pattern|unless|body) = [\["']""")
"""Members that stay on their line however long that is: patterns, and refusals that are quoted."""


_SOURCE = re.compile(r'([\w-]+) = \{ url = "(\S+)", seen = ([\d-]+), how = "([a-z]+)"(?:, path = "(\S+)")? \}')


class _Statement(Struct, frozen=True):
    """A blank line, a comment, the head of a table, or a key with its value: `keys` is its dotted path."""

    text: str
    keys: tuple[str, ...] = ()
    is_head: bool = False

    @property
    def is_key(self) -> bool:
        return bool(self.keys) and not self.is_head


def format_toml(text: str, label: str) -> str:
    """Return a valid TOML text of a registry file in its form. Raises `RegistryError` where it would change a value."""
    return edit_plain(text, lambda plain: _format(plain, label))


def require_registry(text: str, label: str) -> None:
    """Raise `RegistryError` for a valid TOML text that is no registry file."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    foreign = next((key for key in parse_toml(plain) if key not in _SECTIONS), None)
    if foreign is not None:
        raise RegistryError(
            f"this is no registry file: it has '{foreign}'",
            file=label,
            line=line_of(plain.encode(), [foreign]),
            hint=f"a registry file has nothing but {', '.join(_SECTIONS)}",
        )


def _format(plain: str, label: str) -> str:
    data = read_sources(parse_toml(plain))
    parts = [part for table in _tables(_statements(plain)) for part in _split(table)]
    tables = [_align(_order([_wrap(one) for one in table])) for table in _with_short_sources(parts)]
    statements = [statement for table in tables for statement in table]
    lines = _with_contents(_space(statements))
    out = "".join(f"{line}\n" for line in lines)
    if _canonical(read_sources(parse_toml(out))) != _canonical(data):
        raise RegistryError("has a form that cannot be kept", file=label, hint="nothing was written")
    return out


def changed_lines(old: str, new: str) -> Iterator[tuple[int, str | None]]:
    """Yield (line, what to write there) for the lines of a text that its form changes; None for a line that moves."""
    before, after = old.splitlines(), new.splitlines()
    for _, start, end, first, last in (code for code in line_changes(before, after) if code[0] != "equal"):
        is_paired = end - start == last - first
        for offset in range(max(end - start, 1)):
            yield min(start + offset, len(before) - 1) + 1, after[first + offset] if is_paired else None


def _canonical(data: dict[str, Any]) -> str:
    """Return data as a text in which the order of keys does not count, but the type of a value does."""
    return json.dumps(data, sort_keys=True, default=repr)


def _statements(text: str) -> Iterator[_Statement]:
    """Yield the statements of a text that tomllib has accepted, with its comments and blank lines."""
    position = 0
    for one in statements(text):
        begin, end = text.rfind("\n", 0, one.begin) + 1, text.find("\n", one.end)
        end = len(text) if end < 0 else end
        yield from (_Statement(line.rstrip()) for line in text[position:begin].split("\n")[:-1])
        position = end + 1
        line = text[one.begin : end].rstrip()
        if not one.is_head:
            line = f"{text[one.begin : one.after_keys].rstrip()} = {text[one.after_keys + 1 : end].strip()}"
        yield _Statement(line, tuple(one.keys), is_head=one.is_head)
    yield from (_Statement(line.rstrip()) for line in text[position:].split("\n"))


def _tables(statements: Iterable[_Statement]) -> Iterator[list[_Statement]]:
    """Yield the head of each table with what follows it; the first list is what stands above all tables."""
    table: list[_Statement] = []
    for statement in statements:
        if statement.is_head:
            yield table
            table = []
        table.append(statement)
    yield table


def _order(table: list[_Statement]) -> list[_Statement]:
    """Return a table with its keys in order, where no comment between them could lose its place."""
    head = table[0] if table and table[0].is_head else None
    if head is None:
        return table
    if head.keys == ("sources",):
        runs = (list(run) for _, run in groupby(map(_short_source, table), lambda statement: statement.is_key))
        return [one for run in runs for one in (sorted(run, key=lambda s: s.keys) if run[0].is_key else run)]
    size = next((n for n, one in enumerate(table[1:]) if not one.is_key), len(table) - 1)
    rest = table[1 + size :]
    if not _is_layer(head.keys) or any(statement.is_key for statement in rest):
        return table
    return [head, *sorted(table[1 : 1 + size], key=lambda s: _ranks().get(s.keys[0], -1)), *rest]


def _short_source(statement: _Statement) -> _Statement:
    """Return a named source that says nothing more than HOW DAY URL PATH as this text."""
    found = _SOURCE.fullmatch(statement.text)
    if not found:
        return statement
    name, url, day, how, path = found.groups()
    return _Statement(f'{name} = "{how} {day} {url}{f" {path}" if path else ""}"', statement.keys)


def _split(table: list[_Statement]) -> list[list[_Statement]]:
    """Return a table, and after it the tables that its very long inline tables become."""
    head = table[0] if table and table[0].is_head and not table[0].text.startswith("[[") else None
    if head is None or head.keys[-1] == "sources":  # of sources that are equally precise, the first counts
        return [table]
    rest: list[_Statement] = []
    tables: list[list[_Statement]] = []
    for one in table:
        longest = _WIDEST_SOURCES if one.keys == ("sources",) and _is_layer(head.keys) else _LONGEST
        inner = _inner_table(head, one) if one.is_key and len(one.text) > longest else []
        tables += _split(inner) if inner else []
        rest += [] if inner else [one]
    if tables:
        last = 1 + max(n for n, one in enumerate(rest) if one.keys)
        tables[-1] += rest[last:]  # the lines before the next table
        rest = rest[:last]
    return [rest, *tables]


def _inner_table(head: _Statement, statement: _Statement) -> list[_Statement]:
    """Return the table that an inline table becomes, with a comment behind it first; nothing for another value."""
    key, _, value = statement.text.partition(" = ")
    if not value.startswith("{") or "\n" in value:
        return []
    members = [value[begin:end] for begin, end in items(value, 0)]
    comment = value[value_end(value, 0) :].strip()
    name = f"{head.text[1 : value_end(head.text, 1)]}.{key}"
    first = _Statement(f"[{name}]{'  ' if comment else ''}{comment}", (*head.keys, *statement.keys), is_head=True)
    return [first, *_statements("\n".join(members))]


def _wrap(statement: _Statement) -> _Statement:
    """Return a statement whose very long lines are broken at the items of a list."""
    lines = statement.text.split("\n")
    if not statement.is_key or max(map(len, lines)) <= _LONGEST or '"""' in statement.text or "'''" in statement.text:
        return statement
    out: list[str] = []
    while lines:
        line = lines.pop(0)
        broken = _short_lines(line) if len(line) > _LONGEST else []
        lines[:0] = broken
        out += [] if broken else [line]
    return _Statement("\n".join(out), statement.keys)


def _short_lines(line: str) -> list[str]:
    """Return the lines of a very long one, broken inside of its list, or of its inline table's longest list."""
    _, start = read_keys(line, 0)
    start += len(line[start:]) - len(line[start:].lstrip(" ="))
    if line[start : start + 1] == "{" and not _QUOTED.search(line):
        lists = [begin + line[begin:end].index(" = ") + 3 for begin, end in items(line, start) if line[end - 1] == "]"]
        start = max(lists, key=lambda begin: value_end(line, begin) - begin, default=start)
    if line[start : start + 1] != "[" or not _is_whole(line[start : value_end(line, start)]):
        return []
    members = [line[begin:end] for begin, end in items(line, start)]
    if len(members) < 2:
        return []
    indent = " " * (len(line) - len(line.lstrip()))
    rows: list[str] = []
    for member in members:
        if rows and member[0] != "{" and len(f"{rows[-1]} {member},") <= _WIDTH:
            rows[-1] += f" {member},"
        else:
            rows.append(f"{indent}  {member},")
    return [line[: start + 1], *rows, indent + line[value_end(line, start) - 1 :]]


def _is_whole(value: str) -> bool:
    """Whether a value ends on its line: a list may go on behind it."""
    try:
        parse_toml(f"value = {value}")
    except ValueError:
        return False
    return True


def _with_short_sources(tables: list[list[_Statement]]) -> list[list[_Statement]]:
    """Return the tables; those of sources that fit on a line are one of the layer that they belong to."""
    owners: dict[tuple[str, ...], list[_Statement]] = {}
    divided = {table[0].keys[:-1] for table in tables if table and table[0].is_head}
    out: list[list[_Statement]] = []
    for table in tables:
        head = table[0].keys if table and table[0].is_head else ()
        owner = owners.get(head[:-1]) if head[-1:] == ("sources",) else None
        keys = [one for one in table if one.is_key]
        line = _short_line(keys)
        size = 1 + max((n for n, one in enumerate(table) if one.is_key), default=0)  # blank lines stand between keys
        has_comment = "#" in "".join(one.text for one in table[:size])
        if owner is None or head in divided or not keys or has_comment or "\n" in line or len(line) > _WIDEST_SOURCES:
            out.append(table)
            if _is_layer(head):
                owners[head] = out[-1] = _with_joined_sources(table)
            continue
        place = 1 + max(n for n, one in enumerate(owner) if one.keys)
        owner.insert(place, _Statement(line, ("sources", *(keys[0].keys if len(keys) == 1 else ()))))
        out[-1] += table[size:]  # the lines before the next table
    return out


def _with_joined_sources(table: list[_Statement]) -> list[_Statement]:
    """Return a layer whose sources that have a line each stand on one, where that is short."""
    own = [one for one in table if one.is_key and one.keys[0] == "sources" and len(one.keys) == 2]
    line = _short_line(own)
    if len(own) < 2 or "\n" in line or "#" in line or len(line) > _WIDEST_SOURCES:
        return table
    start = table.index(own[0])
    rest = [one for one in table if one not in own]
    return [*rest[:start], _Statement(line, ("sources",)), *rest[start:]]


def _short_line(cited: Sequence[_Statement]) -> str:
    """Return the line that has all citations of a layer."""
    texts = [one.text.removeprefix("sources.") for one in cited]
    return f"sources.{texts[0]}" if len(texts) == 1 else f"sources = {{ {', '.join(texts)} }}"


def _is_layer(keys: tuple[str, ...]) -> bool:
    """Whether a head is that of a layer: `providers.NAME`, or `on.WIRE` and `families.NAME` in it."""
    return (
        keys[:1] != ()
        and keys[0] in _LAYERS
        and len(keys) % 2 == 0
        and all(key in ("on", "families") for key in keys[2::2])
    )


@cache
def _ranks() -> dict[str, int]:
    """Return the place of each key of a layer: what it is made from, what it says, and what it takes away."""
    flags = [field.encode_name for field in fields(Flags)]
    names = [field.encode_name for field in fields(Table)]
    first = [name for name in names if name not in flags and name not in _LAST]
    return {name: n for n, name in enumerate([*first, *(f for f in flags if f not in _LAST), *_LAST])}


def _align(table: list[_Statement]) -> list[_Statement]:
    """Return a table whose keys of one line have their values in one column; a dotted key stands for itself.

    Sources stand without columns: a new one moves no other line.
    """
    if table and table[0].is_head and table[0].keys[-1] == "sources":
        return table
    out: list[_Statement] = []
    for is_plain, run in groupby(table, _is_plain):
        statements = list(run)
        width = max(len(statement.text.partition(" = ")[0]) for statement in statements) if is_plain else 0
        for statement in statements:
            key, _, value = statement.text.partition(" = ")
            out.append(_Statement(f"{key:{width}} = {value}", statement.keys) if is_plain else statement)
    return out


def _is_plain(statement: _Statement) -> bool:
    return (
        statement.is_key and len(statement.keys) == 1 and "\n" not in statement.text and " = " not in statement.keys[0]
    )


def _space(statements: list[_Statement]) -> list[str]:
    """Return the lines with rules of one width, and one blank line before each rule, provider, model and family."""
    out: list[str] = []
    for statement in statements:
        line = statement.text
        if rule := _RULE.fullmatch(line):
            line = f"# ── {rule[1]} ".ljust(_RULE_WIDTH, "─")
            _separate(out)
        elif statement.is_head and len(statement.keys) == 2 and statement.keys[0] in _LAYERS:
            _separate(out)
        if line or (out and out[-1]):
            out.append(line)
    while out and not out[-1]:
        out.pop()
    return out


def _separate(lines: list[str]) -> None:
    """Put a blank line before the comment at the end of the lines, unless a rule or nothing stands before it."""
    start = len(lines)
    while start and lines[start - 1].startswith("#") and not _RULE.fullmatch(lines[start - 1]):
        start -= 1
    if start and lines[start - 1] and not _RULE.fullmatch(lines[start - 1]):
        lines.insert(start, "")


def _with_contents(lines: list[str]) -> list[str]:
    """Return the lines with the titles of all rules under the heading of the contents, where the file has one."""
    if _CONTENTS not in lines:
        return lines
    start = lines.index(_CONTENTS) + 1
    end = start
    while end < len(lines) and lines[end].startswith("#   "):
        end += 1
    titles = [f"#   {rule[1]}" for line in lines[end:] if (rule := _RULE.fullmatch(line))]
    return [*lines[:start], *titles, *lines[end:]]
