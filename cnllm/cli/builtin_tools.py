"""Define the built-in tools. They change nothing, start nothing and reach no network."""

from __future__ import annotations

import ast
import datetime
import math
import operator
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cnllm.system.files import open_below
from cnllm.tools import Tool, tool

__all__ = ["SAFE", "calc", "read", "time"]

_MAX_TEXT = 100_000  # characters of a file
_MAX_DIGITS = 2_000  # of a whole number: a longer one is useless, and takes too long to compute
_MAX_EXPRESSION = 1_000  # characters of an expression
_MAX_PLACES = 400  # of `round`: a float has no more on either side of its point

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_NAMES = {"pi": math.pi, "e": math.e}


def _round(number: float, places: Any = None) -> int | float:
    """Round as Python does, but to no more places than a number can have: Python would compute all of them."""
    if places is None:
        return round(number)
    if type(places) is not int:
        raise ValueError("round takes a whole number of places")
    limit = _MAX_DIGITS if type(number) is int else _MAX_PLACES
    return round(number, max(-limit - 1, min(limit, places)))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": _round,
    "min": min,
    "max": max,
    **{name: getattr(math, name) for name in ("sqrt", "exp", "log", "log10", "log2", "sin", "cos", "tan", "atan")},
    **{name: getattr(math, name) for name in ("floor", "ceil", "radians", "degrees")},
}


# The descriptions, which the model reads, are no docstrings: `python -OO` removes those.
@tool(description="The current date, time and day of the week.")
def time(
    zone: Annotated[str | None, "An IANA time zone such as Asia/Shanghai; left out: this machine's."] = None,
) -> str:
    if zone is None:
        now = datetime.datetime.now().astimezone()
    else:
        from zoneinfo import ZoneInfo

        try:
            now = datetime.datetime.now(ZoneInfo(zone))
        except (LookupError, ValueError, OSError):
            raise ValueError(f"there is no time zone {zone!r}") from None
    return f"{now.isoformat(timespec='seconds')} {now:%A}"


@tool(description="Compute an arithmetic expression: + - * / // % **, brackets, pi, e, and common functions.")
def calc(expression: Annotated[str, "For example: (2 + 3) * sqrt(16) / 7 ** 2"]) -> int | float:
    if len(expression) > _MAX_EXPRESSION:
        raise ValueError("the expression is too long")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is not an arithmetic expression") from None
    except OverflowError:
        raise ValueError("the number is too large") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except TypeError as error:  # a function with too few values, or too many
        raise ValueError(str(error)) from None


def _value(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=value) if type(value) in (int, float):
            return _check_number(value)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _check_number(_UNARY[type(op)](_value(operand)))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _check_number(_BINARY[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _check_number(_FUNCTIONS[name](*map(_value, args)))
    raise ValueError(f"{ast.unparse(node)!r} is not arithmetic")


def _power(base: int | float, exponent: int | float) -> int | float:
    if type(base) is int and type(exponent) is int and abs(base) > 1:
        digits = abs(exponent) * math.log10(abs(base))
        if digits > _MAX_DIGITS:
            raise ValueError("the number is too large")
    return _check_number(base**exponent)


def _check_number(value: Any) -> int | float:
    if type(value) not in (int, float):
        raise ValueError("the result is not a real number")
    if type(value) is int and value.bit_length() > _MAX_DIGITS * 3.33:
        raise ValueError("the number is too large")
    if type(value) is float and not math.isfinite(value):
        raise ValueError("the number is too large")
    return value  # type: ignore[no-any-return]


@tool(
    description="Read a text file below the current folder. Hidden files and folders are not read, and links are not "
    "followed."
)
def read(path: Annotated[str, "Below the current folder, such as docs/notes.txt"]) -> str:
    parts = _parts_below(path)
    descriptor = open_below(path, parts)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"there is no file {path}")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(4 * _MAX_TEXT + 4)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if b"\0" in data:
        raise ValueError(f"{path} is not text")
    text = data.decode("utf-8-sig", "replace")
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}\n[cut off after {_MAX_TEXT} characters]"


def _parts_below(path: str) -> tuple[str, ...]:
    """Return the components of a path below the current folder. Raise `ValueError` for a path that leads elsewhere."""
    if "\0" in path:
        raise ValueError("a path has no NUL character")
    root = os.getcwd()
    normal = Path(os.path.normpath(os.path.join(root, path)))  # links are not followed, so `a/..` is no more than `.`
    if not normal.is_relative_to(root):
        raise ValueError(f"{path} is not below the current folder")
    parts = normal.relative_to(root).parts
    if not parts:
        raise ValueError(f"there is no file {path}")
    if any(part.startswith(".") for part in parts):
        raise ValueError(f"{path} is hidden, and hidden files are not read")
    return parts


SAFE: dict[str, Tool] = {"time": time, "calc": calc, "read": read}
"""The built-in tools by name. The command line and the model use the same names."""
