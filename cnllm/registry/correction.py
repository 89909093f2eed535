"""Write the corrected line for a value of a wrong type, and say in words which type was expected."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from cnllm.registry.problem import did_you_mean

__all__ = ["corrected_key", "corrected_line", "corrected_value", "expected_type", "suggested_word"]

_TYPES: dict[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "a table",
}
_LITERAL = r"""("(?:\\.|[^"\\])*"|'[^']*'|\[[^\]]*\]|[^\s,}\]#]+)"""


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
    return "a table" if isinstance(kind, type) and issubclass(kind, Struct) else _TYPES.get(kind, "")


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
    if line is None or value is None:
        return ""
    text = lines[line - 1]
    pattern = re.compile(rf"""((?<![\w-])["']?{re.escape(key)}["']?\s*=\s*){_LITERAL}""")
    new = json.dumps(value, ensure_ascii=False)
    fixed, count = pattern.subn(lambda match: match[1] + new, text, count=1)
    return fixed.strip() if count else ""


def corrected_key(lines: Sequence[str], line: int | None, key: str, new: str) -> str:
    """Return a line of a file with another key, or another name in the head of a table; "" where it is not there."""
    if line is None or not new:
        return ""
    text = lines[line - 1]
    pattern = re.compile(rf"""(?<![\w-])["']?{re.escape(key)}["']?(?=\s*[=.\]])""")
    fixed, count = pattern.subn(lambda match: new, text, count=1)
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
