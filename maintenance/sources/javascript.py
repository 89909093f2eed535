"""Read the literals of objects and lists in JavaScript and TypeScript text, also minified, without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["Unreadable", "literal", "literals"]

_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.S)
_NUMBER = re.compile(r"[-+]?(?:0[xX][\da-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?)")
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\'((?:[^\'\\\n]|\\.)*)\'|`((?:[^`\\$]|\\.|\$(?!\{))*)`', re.S)
_ESCAPE = re.compile(r"\\(u\{[\da-fA-F]+\}|u[\da-fA-F]{4}|x[\da-fA-F]{2}|.)", re.S)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_WORDS = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None, "Infinity": None}
_BEGIN = re.compile(r"(?:=|\bdefault|\breturn|\()\s*(?=[\[{])")
_TYPE = re.compile(r"(?:as|satisfies)\s+[\w$.]+(?:<[^<>]*>)?(?:\[\])*")
_CLOSE = {"(": ")", "[": "]", "{": "}"}
_DEEPEST = 60


class Unreadable(ValueError):
    """Text that is no literal."""


def literals(text: str, start: str = "") -> Iterator[Any]:
    """Yield the objects and lists that are assigned, returned or passed, or that follow each match of `start`."""
    place = 0
    begin = re.compile(start) if start else _BEGIN
    while found := begin.search(text, place):
        place = found.end()
        try:
            value, place = _value(text, place, 0)
        except Unreadable:
            continue
        if isinstance(value, dict | list) and value:
            yield value


def literal(text: str) -> Any:
    """Return the value of one literal. Raises `Unreadable`."""
    return _value(text, 0, 0)[0]


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    """Return the value of an expression, None where it is not a literal, and the place of what ends it."""
    if depth > _DEEPEST:
        raise Unreadable("too deep")
    at = _skip(text, at)
    value: Any = None
    char = text[at : at + 1]
    if char == "{":
        value, at = _object(text, at, depth)
    elif char == "[":
        value, at = _list(text, at, "]", depth)
    elif found := _STRING.match(text, at):
        value, at = _unescaped(next(g for g in found.groups() if g is not None)), found.end()
    elif text.startswith(("!0", "!1"), at):
        value, at = text[at + 1] == "0", at + 2
    elif (found := _NUMBER.match(text, at)) and (number := _number(found[0])) is not None:
        value, at = number, found.end()
    elif found := _NAME.match(text, at):
        value, at = _WORDS.get(found[0]), found.end()
        if found[0] not in _WORDS and text[_skip(text, at) : _skip(text, at) + 1] == "(":
            value, at = _list(text, _skip(text, at), ")", depth)  # a call: its arguments
            value = value[0] if len(value) == 1 else value
    return _rest(text, at, value, depth)


def _rest(text: str, at: int, value: Any, depth: int) -> tuple[Any, int]:
    """Read on to the end of an expression: a product of numbers is computed, all else makes it no literal."""
    while True:
        at = _skip(text, at)
        char = text[at : at + 1]
        if char in ("", ",", "}", "]", ")", ";", "\n"):
            return value, at
        if char == "*" and isinstance(value, int | float) and (found := _NUMBER.match(text, _skip(text, at + 1))):
            value, at = value * (_number(found[0]) or 0), found.end()
        elif word := _TYPE.match(text, at):
            at = word.end()  # a type of TypeScript
            if text[at : at + 1] == "":
                return value, at
        elif isinstance(value, dict | list) and depth == 0:
            return value, at  # whatever is done with it afterwards
        elif isinstance(value, dict | list) and char == ".":
            at = _past(text, at)  # a method of a list: its items are still literals
        else:
            value, at = None, _past(text, at)


def _past(text: str, at: int) -> int:
    """Return the place behind one token, or behind a whole bracket."""
    if found := _STRING.match(text, at) or _NAME.match(text, at) or _NUMBER.match(text, at):
        return found.end() if found.end() > at else at + 1
    if text[at] not in _CLOSE:
        return at + 1
    stack = [_CLOSE[text[at]]]
    at += 1
    while stack:
        at = _skip(text, at)
        if at >= len(text):
            raise Unreadable("a bracket is not closed")
        char = text[at]
        if char in _CLOSE:
            stack.append(_CLOSE[char])
            at += 1
        elif char == stack[-1]:
            stack.pop()
            at += 1
        elif char in ")]}":
            raise Unreadable("a bracket is closed by another one")
        elif found := _STRING.match(text, at):
            at = found.end()
        else:
            at += 1
    return at


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    """Return an object and the place behind it. Methods, spreads and computed keys are left out."""
    out: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        key: str | None = None
        if text.startswith("...", at):
            _, at = _value(text, at + 3, depth + 1)
        elif text[at : at + 1] == "[":
            at = _past(text, at)
        elif found := _STRING.match(text, at):
            key, at = _unescaped(next(g for g in found.groups() if g is not None)), found.end()
        elif found := _NAME.match(text, at) or _NUMBER.match(text, at):
            key, at = found[0], found.end()
        else:
            raise Unreadable(f"no key at {at}")
        at = _skip(text, at)
        if text[at : at + 1] == ":":
            value, at = _value(text, at + 1, depth + 1)
            if key is not None:
                out[key] = value
        while text[at : at + 1] not in (",", "}"):
            if at >= len(text) or text[at] in ")];":
                raise Unreadable(f"an object is not closed at {at}")
            at = _skip(text, _past(text, at))  # a method
        if text[at] == ",":
            at = _skip(text, at + 1)
    return out, at + 1


def _list(text: str, at: int, end: str, depth: int) -> tuple[list[Any], int]:
    """Return a list and the place behind it."""
    out: list[Any] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != end:
        if text.startswith("...", at):
            at += 3
        value, at = _value(text, at, depth + 1)
        out.append(value)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != end:
            raise Unreadable(f"a list is not closed at {at}")
    return out, at + 1


def _skip(text: str, at: int) -> int:
    """Return the place of what follows white space and comments."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _number(word: str) -> int | float | None:
    """Return a number."""
    word = word.replace("_", "")
    try:
        return int(word, 0) if re.fullmatch(r"[-+]?(?:0[xX].*|0|[1-9]\d*)", word) else float(word)
    except ValueError:
        return None


def _unescaped(text: str) -> str:
    """Return a string without its escapes."""

    def character(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "ux" and len(code) > 1:
            return chr(min(int(code[1:].strip("{}"), 16), 0x10FFFF))
        return _ESCAPES.get(code, code)

    if "\\" not in text:
        return text
    text = _ESCAPE.sub(character, text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two escapes may be one character
