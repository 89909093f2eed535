"""Parse TOML 1.0 on every Python: from 3.15 on, tomllib also reads TOML 1.1, which earlier ones refuse."""

from __future__ import annotations

import re
import sys
import tomllib
from typing import Any

__all__ = ["find_newer_syntax", "parse_toml"]

_STRING = r'"""(?:\\.|[^\\])*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:\\.|[^"\\])*"|\'[^\']*\''
_SKIP = rf"(?P<string>{_STRING})|#[^\n]*"
_TIME = r"(?P<time>(?<![-+:\d.])\d\d:\d\d(?![\d:]))"
_OUTSIDE = re.compile(rf"{_SKIP}|{_TIME}|\{{", re.DOTALL)
_INSIDE = re.compile(rf"{_SKIP}|{_TIME}|(?P<comma>,[ \t]*\}})|[\[\]{{}}\n]", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML 1.0, with `\\n` at the end of lines. Raise `tomllib.TOMLDecodeError`, TOML 1.1 included."""
    data = tomllib.loads(text)
    if sys.version_info >= (3, 15) and (found := find_newer_syntax(text)) is not None:
        raise tomllib.TOMLDecodeError(found[0], text, found[1])
    return data


def find_newer_syntax(text: str) -> tuple[str, int] | None:
    """Return what only TOML 1.1 has in a text that is valid TOML 1.1, and its position; None for TOML 1.0."""
    position = 0
    open_brackets: list[str] = []  # from the first inline table on
    while match := (_INSIDE if open_brackets else _OUTSIDE).search(text, position):
        position = match.end()
        sign = match[0]
        match match.lastgroup:
            case "string":
                if sign[0] == '"' and "\\" in sign:
                    for escape in _ESCAPE.finditer(sign):
                        if escape[1] in "ex":
                            return f"the escape \\{escape[1]} is not of TOML 1.0", match.start() + escape.start()
            case "time":
                return "a time without seconds is not of TOML 1.0", match.start()
            case "comma":
                return "a comma before the end of an inline table is not of TOML 1.0", match.start()
            case _ if sign == "\n":
                if open_brackets[-1] == "{":
                    return "a line break in an inline table is not of TOML 1.0", match.start()
            case _ if sign in "{[":
                open_brackets.append(sign)
            case _ if sign in "}]":
                open_brackets.pop()
    return None
