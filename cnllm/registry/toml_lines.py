"""Find the line number of each key path of a TOML text.

`tomllib` checks the syntax and returns the values, but not their lines. This scanner reads a text that tomllib has
accepted, and only looks for the lines where keys are set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from msgspec import Struct

__all__ = ["Lines", "Statement", "decode", "items", "key_lines", "line_of", "read_keys", "statements", "value_end"]

Lines = dict[str, int]
"""Path → line, from 1. The keys of a path are joined by NUL, because a key may hold any other character."""

_KEY = re.compile(r"""\s*("(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_-]+)\s*""")
_SKIPPED = re.compile(r"(?:\s+|#[^\n]*)*")


def read_keys(text: str, position: int) -> tuple[list[str], int]:
    """Return the dotted key that starts at `position`, and the position of its end."""
    keys: list[str] = []
    while match := _KEY.match(text, position):
        key = match[1]
        keys.append(_unquote(key) if key[0] in "\"'" else key)
        position = match.end()
        if text[position : position + 1] != ".":
            break
        position += 1
    return keys, position


def _unquote(key: str) -> str:
    """Return a key without quotes."""
    if key[0] == "'" or "\\" not in key:
        return key[1:-1]
    import tomllib

    return str(tomllib.loads(f"k = {key}")["k"])


def decode(text: bytes) -> str:
    """Return the text of a file, with newlines as TOML counts them, without the mark that some editors put first."""
    return text.decode().removeprefix("\ufeff").replace("\r\n", "\n")


_HEADER = re.compile(rb"[ \t]*\[[^\[]")


def line_of(text: bytes, path: list[str]) -> int | None:
    """Return the line of a key in a valid TOML text, or of the nearest table around it.

    Decodes and reads only the tables it needs.
    """
    best = (0, False, 0)  # length of the match, whether a line names it, that line (negative)
    name = path[1] if len(path) > 1 else path[0]
    for begin, header in () if _has_multiline_strings(text) else _headers(text, name.encode()):
        keys, end = read_keys(header, header.index("[") + 1)
        shared = min(len(keys), len(path))
        after = header[end:]
        if keys[:shared] != path[:shared] or after[:1] != "]" or after[1:].strip()[:1] not in ("", "#"):
            continue
        if len(keys) > len(path):
            best = max(best, (shared, False, 0))
            continue
        start = text.count(b"\n", 0, begin)
        table = text[begin:].partition(b"\n[")[0]  # a key behind a value with such a line is found below
        table_lines = key_lines(decode(table), until=path)
        for length in range(len(path), len(keys) - 1, -1):
            line = table_lines.get("\0".join(path[:length]))
            if line is not None:
                best = max(best, (length, True, -start - line))
                break
    if best[1] and (best[0] == len(path) or _is_inline_value(text, -best[2])):
        return -best[2]
    lines = key_lines(decode(text))  # the text has a form that the fast search does not know
    return next((lines[k] for n in range(len(path), 0, -1) if (k := "\0".join(path[:n])) in lines), None)


def _headers(text: bytes, name: bytes) -> Iterator[tuple[int, str]]:
    """Yield the beginning and the text of each line that is a table's header and holds the name."""
    position = text.find(name)
    while position >= 0:
        begin, end = text.rfind(b"\n", 0, position) + 1, text.find(b"\n", position)
        end = end if end >= 0 else len(text)
        if _HEADER.match(text, begin, end):
            yield begin, decode(text[begin:end])
        position = text.find(name, end + 1)  # from the next line on: a name may be empty


def _has_multiline_strings(text: bytes) -> bool:
    """Whether strings span several lines: they may hold text that looks like a header."""
    double = text.split(b'"""')
    between = chain(double[1::2], text.split(b"'''")[1::2])
    return any(part.endswith(b"\\") for part in double[:-1]) or any(b"\n" in part for part in between)


def _is_inline_value(text: bytes, number: int) -> bool:
    """Whether a line sets a key to an inline table or array, which cannot be extended elsewhere."""
    line = decode(text.split(b"\n", number)[number - 1])
    _, position = read_keys(line, 0)
    return line[position : position + 1] == "=" and line[position + 1 :].lstrip()[:1] in ("{", "[")


class Statement(Struct, frozen=True):
    """The head of a table, or a key with its value: where it begins, where its keys end, where it ends, its keys."""

    begin: int
    after_keys: int
    end: int
    keys: list[str]
    is_head: bool
    is_array: bool


def statements(text: str, begin: int = 0) -> Iterator[Statement]:
    """Yield the statements of a valid TOML text from a position on, without the comments behind and between them."""
    position = begin
    while (skipped := _SKIPPED.match(text, position)) is not None and (start := skipped.end()) < len(text):
        if is_head := text[start] == "[":
            is_array = text.startswith("[[", start)
            keys, after_keys = read_keys(text, start + 1 + is_array)
            position = after_keys + 1 + is_array
        else:
            is_array = False
            keys, after_keys = read_keys(text, start)
            position = value_end(text, after_keys + 1)
        yield Statement(start, after_keys, position, keys, is_head, is_array)


def key_lines(text: str, *, until: list[str] | None = None) -> Lines:
    """Return the line of each table and key of a valid TOML text. A table in an array has its index in the path.

    A table that no line names has the line where it is first needed. With `until` only the first table is read, as far
    as this key.
    """
    lines: Lines = {}
    implied: Lines = {}
    counts: dict[str, int] = {}
    table: list[str] = []
    number, position = 1, 0
    for one in statements(text):
        number, position = number + text.count("\n", position, one.begin), one.begin
        if not one.is_head:
            path = list(table)
            for key in one.keys:
                path.append(key)
                lines.setdefault("\0".join(path), number)
                if path == until:
                    return lines
            continue
        if until is not None and number > 1:
            break
        table = _numbered_path(one.keys, counts)
        if one.is_array:
            name = "\0".join(table)
            counts[name] = counts.get(name, -1) + 1
            table = [*table, str(counts[name])]
        for length in range(1, len(table)):
            implied.setdefault("\0".join(table[:length]), number)
        lines.setdefault("\0".join(table), number)
    return {**implied, **lines}


def _numbered_path(keys: list[str], counts: dict[str, int]) -> list[str]:
    """Return a table's path, with the index of the newest element for each array of tables in it."""
    path: list[str] = []
    for index, key in enumerate(keys):
        path.append(key)
        count = counts.get("\0".join(path))
        if count is not None and index < len(keys) - 1:
            path.append(str(count))
    return path


_PART = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{},\n]', re.DOTALL
)


def value_end(text: str, position: int) -> int:
    """Return the end of the value that starts at `position`: a comma, a bracket or the end of the line follows."""
    depth = 0
    for part in _PART.finditer(text, position):
        mark = part[0][0]
        if mark in "[{":
            depth += 1
        elif (mark in "]}" and not depth) or (mark in ",#\n" and not depth):
            return position + len(text[position : part.start()].rstrip())
        elif mark in "]}":
            depth -= 1
    return len(text.rstrip())


def items(text: str, position: int) -> Iterator[tuple[int, int]]:
    """Yield the beginning and end of each item of the list or inline table whose bracket is at `position`."""
    position += 1
    while True:
        while part := _SPACE.match(text, position):
            position = part.end()
        if text[position : position + 1] in ("]", "}", ""):
            return
        keys, equals = read_keys(text, position)
        is_member = keys and text[equals : equals + 1] == "="
        end = value_end(text, equals + 1 if is_member else position)
        yield position, end
        position = end


_SPACE = re.compile(r"(?:[\s,]|#[^\n]*)+")
