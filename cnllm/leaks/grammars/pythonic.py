"""Read the grammar "pythonic": calls of functions as Python writes them, in a list or alone.

    [NAME(city="Paris", days=2), NAME(units=["C"], exact=True)]

Without the list a line may stand for each call, and a fence of Python around all of them.

Only literals are values. Nothing of it is run.
"""

from __future__ import annotations

import re
from typing import Any

from cnllm.leaks.grammars.base import (
    ENOUGH,
    NAME,
    MarkupBlock,
    NotACall,
    ParsedCall,
    object_of,
    read_items,
    read_name,
    skip_space,
)
from cnllm.schemas.coerce import finite_number

__all__ = ["ends_inside_value", "may_begin", "read"]

_HEAD = re.compile(rf"\s*({NAME})\s{{0,8}}\(\s*")
_MAY_BEGIN = re.compile(rf"\[?\s{{0,64}}(?:{NAME}\s{{0,8}}(?:\(|\Z)|\Z)")
_FENCE = re.compile(r"```(?:python)?[ \t]{0,8}\n")
_FENCE_END = "```"
_FENCE_START = "```python"
_KEY = re.compile(r"([^\W\d][\w.-]{0,127})\s{0,8}=\s*")
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*(\"|\Z)|'(?:[^'\\]|\\.)*('|\Z)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]{0,400}\.?[\d_]{0,400}|\.\d{1,400})(?:[eE][-+]?\d{1,4})?")
_WORD = re.compile(r"[^\W\d]\w{0,16}")
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ESCAPE = re.compile(r"\\(?:\n|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "/": "/"}
_CLOSERS = {"[": "]", "(": ")", "{": "}"}
_MAX_DEPTH = 32


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block. Text beside them is no call, so that the whole block is none."""
    text = block.body.strip()
    if (fence := _FENCE.match(text)) is not None and text.endswith(_FENCE_END, fence.end()):
        text = text[fence.end() : -len(_FENCE_END)].strip()
    if text[:1] == "[" and text[-1:] == "]":
        text = text[1:-1]
    calls: list[ParsedCall] = []
    position = 0
    while position < len(text):
        head = _HEAD.match(text, position)
        if head is None:
            raise NotACall("it does not begin with a call")
        arguments, position = _arguments(text, head.end())
        calls.append(ParsedCall(read_name(head[1], block.tools), arguments))
        end, position = position, skip_space(text, position)
        if position < len(text):
            if text[position] in ",;":
                position = skip_space(text, position + 1)
            elif "\n" not in text[end:position]:
                raise NotACall("there is text behind a call")
    return calls, []


def _arguments(text: str, position: int) -> tuple[dict[str, Any], int]:
    """Return (the arguments that begin at a position, the position behind their bracket)."""

    def argument(position: int) -> tuple[tuple[str, Any], int]:
        key = _KEY.match(text, position)
        if key is None:
            raise NotACall("an argument has no name")
        value, position = _value(text, key.end(), 0)
        return (key[1], value), position

    items, end = read_items(text, position, ")", argument)
    return object_of(items), end


def _value(text: str, position: int, depth: int) -> tuple[Any, int]:
    """Return (the literal at a position, its end). Raises `NotACall` for anything else."""
    if depth > _MAX_DEPTH:
        raise NotACall("too deeply nested")
    if (closer := _CLOSERS.get(text[position : position + 1])) is not None:
        return _container(text, position, closer, depth)
    if (match := _STRING.match(text, position)) is not None:
        if not (match[1] or match[2]):
            raise NotACall("a text is not closed")
        return _unescape(match[0][1:-1]), match.end()
    if (match := _NUMBER.match(text, position)) is not None:
        digits = match[0].replace("_", "")
        try:
            return (finite_number(digits) if re.search(r"[.eE]", digits) else int(digits)), match.end()
        except ValueError:
            raise NotACall("it has a number that is none") from None
    if (match := _WORD.match(text, position)) is not None and match[0] in _WORDS:
        return _WORDS[match[0]], match.end()
    raise NotACall("a value is not a literal")


def _container(text: str, position: int, closer: str, depth: int) -> tuple[Any, int]:
    """Return (the list, tuple, dict or set at a position, its end). JSON has no set: it is a list."""

    def member(position: int) -> tuple[tuple[Any, ...], int]:
        key, position = _value(text, position, depth + 1)
        after = skip_space(text, position)
        if not text.startswith(":", after):
            return (key,), position
        if type(key) is not str:
            raise NotACall("a key is not text")
        value, position = _value(text, skip_space(text, after + 1), depth + 1)
        return (key, value), position

    if closer == "}":
        members, end = read_items(text, position + 1, closer, member)
        sizes = {len(member) for member in members}
        if len(sizes) > 1:
            raise NotACall("a key has no value")
        return ([member[0] for member in members] if sizes == {1} else dict(members)), end
    return read_items(text, position + 1, closer, lambda start: _value(text, start, depth + 1))


def _unescape(text: str) -> str:
    """Return a text with its escapes decoded; an unknown one stays as it is written."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is not None:
        number = int(code, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else match[0]
    return "" if match[4] is None else _ESCAPES.get(match[4], match[0])


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether the body ends inside a text, so that the closer behind it is a part of that text."""
    last = next(reversed(list(_STRING.finditer(body))), None)
    return last is not None and last.end() == len(body) and not (last[1] or last[2])


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether a call begins in the body; None if more text is needed."""
    text = body[:ENOUGH].lstrip()
    if (fence := _FENCE.match(text)) is not None:
        text = text[fence.end() :].lstrip()
    elif text and _FENCE_START.startswith(text.rstrip()):
        return None if len(body) < ENOUGH else False
    match = _MAY_BEGIN.match(text)
    if match is None:
        return False
    return True if match[0].endswith("(") else None if len(body) < ENOUGH else False
