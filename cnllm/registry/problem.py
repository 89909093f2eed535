"""A fault of a registry file, the words in which it is described, and the corrected line."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from cnllm.errors import RegistryError

__all__ = [
    "TYPE_WORDS",
    "Problem",
    "ValueProblem",
    "corrected_key",
    "corrected_line",
    "corrected_value",
    "did_you_mean",
    "dotted_path",
    "expected_type",
    "problem_from_error",
    "suggested_word",
    "write_hint",
]


_WRITE = "write: "

TYPE_WORDS: dict[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "a table",
}
"""The types of values, in words."""

_LITERAL = r"""("(?:\\.|[^"\\])*"|'[^']*'|\[[^\]]*\]|[^\s,}\]#]+)"""


class Problem(Struct, frozen=True):
    """A fault of a registry file. `severity` is "error" (the file is refused) or "warning".

    `corrected` is what to write instead, "" where that is not known.
    """

    file: str
    line: int | None
    message: str
    severity: Literal["error", "warning"] = "error"
    corrected: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


def problem_from_error(error: RegistryError, label: str) -> Problem:
    """Return an error about a registry file as a problem; `label` is the file where the error names none."""
    prefix = f"{error.file}:{error.line}: " if error.line else f"{error.file}: "
    corrected = (error.hint or "").removeprefix(_WRITE) if (error.hint or "").startswith(_WRITE) else ""
    return Problem(error.file or label, error.line, error.message.removeprefix(prefix), corrected=corrected)


def write_hint(corrected: str) -> str:
    """Return the hint that shows a corrected line."""
    return _WRITE + corrected


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return the most similar of the right words as a question, or ""."""
    import difflib

    matches = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f". Did you mean '{matches[0]}'?" if matches else ""


def dotted_path(path: list[str]) -> str:
    """Return a path of keys with dots between them; a key with a slash, a dot or a plus sign is in quotes."""
    return ".".join(f'"{k}"' if "/" in k or "." in k or "+" in k else k for k in path)


class ValueProblem(Struct, frozen=True):
    """The path of a value, what is wrong with it, and, where that is known, the value or the line that was meant."""

    path: list[str]
    message: str
    meant: Any = None
    corrected: str = ""


# ── the corrected line ───────────────────────────────────────────────────────


def expected_type(kind: Any) -> str:
    """Return a type of a flag in words, "" for one that has none."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return expected_type(args[0])
    if origin is list:
        return "a list"
    if origin is dict:
        return "a table"
    if origin in (types.UnionType, typing.Union):
        words = [expected_type(arg) for arg in args if arg is not type(None)]
        return " or ".join(words) if all(words) else ""
    return "a table" if isinstance(kind, type) and issubclass(kind, Struct) else TYPE_WORDS.get(kind, "")


def corrected_value(value: Any, kind: Any) -> Any:
    """Return the value that was probably meant; None where that is not known."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return corrected_value(value, args[0])
    if origin is list and type(value) is str:
        return [value]
    if kind is str and type(value) is list and len(value) == 1 and type(value[0]) is str:
        return value[0]
    if kind is str and type(value) in (int, float):
        return str(value)
    if kind in (int, float) and type(value) is str:
        return _number(value, whole=kind is int)
    if kind is bool and type(value) is str:
        return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(value.casefold())
    if origin is Literal and type(value) is str:
        return suggested_word(did_you_mean(value, [str(arg) for arg in args])) or None
    return None


def corrected_line(lines: Sequence[str], line: int | None, key: str, value: Any) -> str:
    """Return a line of a file with another value for a key; "" where the value is not found in it."""
    if value is None:
        return ""
    new = json.dumps(value, ensure_ascii=False)
    return _replace(lines, line, rf"""(?<![\w-])(["']?{re.escape(key)}["']?\s*=\s*){_LITERAL}""", new)


def corrected_key(lines: Sequence[str], line: int | None, key: str, new: str) -> str:
    """Return a line of a file with another key, or another name in the head of a table; "" where it is not there."""
    return _replace(lines, line, rf"""(?<![\w-])()["']?{re.escape(key)}["']?(?=\s*[=.\]])""", new) if new else ""


def _replace(lines: Sequence[str], line: int | None, pattern: str, new: str) -> str:
    """Return a line in which a text stands behind the first group of a pattern; "" where the pattern is not found."""
    if line is None:
        return ""
    fixed, count = re.subn(pattern, lambda match: match[1] + new, lines[line - 1], count=1)
    return fixed.strip() if count else ""


def suggested_word(sentence: str) -> str:
    """Return the word that a sentence of `did_you_mean` suggests; "" where it suggests none."""
    match = re.search(r"Did you mean '([^']+)'\?$", sentence)
    return match[1] if match else ""


def _number(text: str, *, whole: bool) -> int | float | None:
    plain = text.replace("_", "").replace(",", "").strip()
    factor = {"k": 1000, "m": 1_000_000}.get(plain[-1:].casefold(), 1)
    try:
        number = float(plain[:-1] if factor > 1 else plain) * factor
    except ValueError:
        return None
    if whole or number.is_integer():
        return int(number) if number.is_integer() else None
    return number
