"""Key path → line number of a TOML text.

`tomllib` proves the syntax and gives the values but not where they stand; this scanner reads a text that tomllib has
accepted, and only looks for the places where keys are set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["Lines", "key_lines", "line_of"]

Lines = dict[str, int]
"""Path → line, 1-based. The keys of a path are joined by NUL, since any other character may be in a key."""

_KEY = re.compile(r"""\s*("(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_-]+)\s*""")
_TOKEN = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#|[\[\]{}]')


def _keys(text: str, at: int) -> tuple[list[str], int]:
    """The dotted key that starts at `at`, and where it ends."""
    keys: list[str] = []
    while found := _KEY.match(text, at):
        key = found[1]
        keys.append(_unquote(key) if key[0] in "\"'" else key)
        at = found.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    return keys, at


def _unquote(key: str) -> str:
    if key[0] == "'" or "\\" not in key:
        return key[1:-1]
    import tomllib

    return str(tomllib.loads(f"k = {key}")["k"])


_HEADER = re.compile(r"^[ \t]*\[[^\n\[].*$", re.MULTILINE)


def line_of(text: str, path: list[str]) -> int | None:
    """The line of a key in a valid TOML text, or of the nearest table around it; reads only the tables it needs."""
    best: tuple[int, bool, int] | None = None  # how much of the path, said outright?, line (the first: negative)
    marks = path[1] if len(path) > 1 else path[0]
    for header in () if _long(text) else _HEADER.finditer(text):
        if marks not in header[0]:
            continue
        keys, end = _keys(text, header.start() + header[0].index("[") + 1)
        shared = min(len(keys), len(path))
        after = header[0][end - header.start() :]
        if keys[:shared] != path[:shared] or after[:1] != "]" or after[1:].strip()[:1] not in ("", "#"):
            continue
        start = text.count("\n", 0, header.start())
        if len(keys) > len(path):
            best = max(best or (0, False, 0), (shared, False, -start - 1))
            continue
        inside = key_lines(text, header.start(), first=True)
        for length in range(len(path), len(keys) - 1, -1):
            line = inside.get("\0".join(path[:length]))
            if line is not None:
                best = max(best or (0, False, 0), (length, True, -start - line))
                break
    if best is not None and best[1] and (best[0] == len(path) or _closed(text, -best[2])):
        return -best[2]
    lines = key_lines(text)  # written in a way that the short cut does not know
    return next((lines[k] for n in range(len(path), 0, -1) if (k := "\0".join(path[:n])) in lines), None)


def _long(text: str) -> bool:
    """May strings go over several lines? They may hold what looks like a header."""
    between = (part for quote in ('"""', "'''") for part in text.split(quote)[1::2])
    return '\\"""' in text or any("\n" in part for part in between)


def _lines(text: str, at: int) -> Iterator[str]:
    """One by one, for a table is a few lines of thousands."""
    while (end := text.find("\n", at)) >= 0:
        yield text[at:end]
        at = end + 1
    yield text[at:]


def _closed(text: str, number: int) -> bool:
    """Does a line set a key to what nothing can be added to elsewhere, an inline table or array?"""
    line = text.split("\n", number)[number - 1]
    _, at = _keys(line, 0)
    return line[at : at + 1] == "=" and line[at + 1 :].lstrip()[:1] in ("{", "[")


def key_lines(text: str, begin: int = 0, *, first: bool = False) -> Lines:
    """Where each table and key of a valid TOML text stands; tables in an array have their number in the path.

    A table that no line names itself stands where it is first needed. `begin`: from this character on, whose line
    is the first. `first`: only the table that stands there.
    """
    lines: Lines = {}
    implied: Lines = {}
    counts: dict[str, int] = {}
    table: list[str] = []
    depth = 0
    quote = ""
    for number, line in enumerate(_lines(text, begin), 1):
        at = 0
        if not quote and depth == 0:
            stripped = line.lstrip()
            if not stripped or stripped[0] == "#":
                continue
            if stripped[0] == "[":
                if first and number > 1:
                    break
                many = stripped.startswith("[[")
                keys, _ = _keys(line, line.index("[") + (2 if many else 1))
                table = _numbered(keys, counts)
                if many:
                    name = "\0".join(table)
                    counts[name] = counts.get(name, -1) + 1
                    table = [*table, str(counts[name])]
                for length in range(1, len(table)):
                    implied.setdefault("\0".join(table[:length]), number)
                lines.setdefault("\0".join(table), number)
                continue
            keys, at = _keys(line, 0)
            path = list(table)
            for key in keys:
                path.append(key)
                lines.setdefault("\0".join(path), number)
        depth, quote = _rest(line, at, depth, quote)
    return {**implied, **lines}


def _numbered(keys: list[str], counts: dict[str, int]) -> list[str]:
    """A table's path with the number of the newest element wherever it passes through an array of tables."""
    path: list[str] = []
    for place, key in enumerate(keys):
        path.append(key)
        count = counts.get("\0".join(path))
        if count is not None and place < len(keys) - 1:
            path.append(str(count))
    return path


def _rest(line: str, at: int, depth: int, quote: str) -> tuple[int, str]:
    """Brackets and long strings left open at the end of a line, read from `at`."""
    while True:
        if quote:
            end = line.find(quote, at)
            while quote == '"""' and end > 0 and _escaped(line, end):
                end = line.find(quote, end + 1)
            if end < 0:
                return depth, quote
            at = end + 3
            while at < end + 5 and line[at : at + 1] == quote[0]:  # one or two quotes may end the string itself
                at += 1
            quote = ""
        token = _TOKEN.search(line, at)
        if token is None:
            return depth, ""
        at = token.end()
        match token[0]:
            case "#":
                return depth, ""
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case '"""' | "'''" as opened:
                quote = opened


def _escaped(line: str, at: int) -> bool:
    slashes = 0
    while at > slashes and line[at - 1 - slashes] == "\\":
        slashes += 1
    return slashes % 2 == 1
