"""Read the grammar "json": a call is a JSON object with a name and arguments; a block holds one, a list or a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cnllm.leaks.grammars.base import (
    ENOUGH,
    MarkupBlock,
    NotACall,
    ParsedCall,
    is_plausible_name,
    json_object,
    read_name,
    skip_space,
)
from cnllm.schemas.coerce import decode_json

__all__ = ["JsonScan", "ends_in_string", "ends_inside_value", "may_begin", "read", "strip_fence"]

_FENCE = "```"
_MAX_OBJECTS = 10_000  # objects of a block that are read: a longer block was not written for a tool
_ARGUMENTS = ("arguments", "parameters", "args")
_KEYS = {"name", "tool_name", "tool_call_id", "function", "type", "id", "index", *_ARGUMENTS}
_SEPARATORS = re.compile(r"[\s,;]*")
_BEGINS = re.compile(r"(?:`{3}[a-z]{0,16}\s{1,8})?(?:\[\s*)?\{\s*[\"}]")
_MAY_BEGIN = re.compile(r"(?:`{1,3}\Z|`{3}[a-z]{0,16}\s{0,8}\Z)|(?:`{3}[a-z]{0,16}\s{1,8})?(?:\[\s*)?(?:\{\s*)?\Z")


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block, and the texts that are no call."""
    calls: list[ParsedCall] = []
    others: list[str] = []
    reason = "there is no call in it"
    for number, (text, value, problem) in enumerate(_values(strip_fence(block.body))):
        if number == _MAX_OBJECTS:
            raise NotACall(f"it has more than {_MAX_OBJECTS} objects")
        try:
            if problem:
                raise NotACall(problem)
            calls += _calls(value, block)
        except NotACall as error:
            others.append(text)
            reason = str(error)
    if not calls:
        raise NotACall(reason)
    return calls, others


def strip_fence(text: str) -> str:
    """Return a text without the code fence around it."""
    text = text.strip()
    if not text.startswith(_FENCE):
        return text
    _, _, text = text.partition("\n")
    return text.rstrip().removesuffix(_FENCE).rstrip()


def _values(text: str) -> Iterator[tuple[str, Any, str]]:
    """Yield (text, value, problem) for each object of a list or a row."""
    if text[:1] == "[" and text[-1:] == "]":
        text = text[1:-1]
    start = skip_space(text, 0, _SEPARATORS)
    while start < len(text):
        try:
            value, end = decode_json(text, start)
        except ValueError as error:
            yield text[start:], None, f"it is not JSON: {error}"
            return
        yield text[start:end], value, ""
        start = skip_space(text, end, _SEPARATORS)


def _calls(value: Any, block: MarkupBlock) -> list[ParsedCall]:
    """Return the calls that a value describes."""
    if type(value) is dict and list(value) == ["tool_calls"] and type(value["tool_calls"]) is list:
        return [_call(item, block) for item in value["tool_calls"]]
    return [_call(value, block)]


def _call(value: Any, block: MarkupBlock) -> ParsedCall:
    """Return the call that an object describes. Raises `NotACall`."""
    if type(value) is not dict:
        raise NotACall("it is not an object")
    function = value.get("function")
    if type(function) is dict:
        if set(value) - _KEYS:
            raise NotACall("it has members that no call has")
        value = function
    name = value.get("name", value.get("tool_name"))
    if name is None and type(function) is str:
        name = function
    if name is None and len(value) == 1 and not block.strict and not value.keys() & _KEYS:
        key, arguments = next(iter(value.items()))
        if type(arguments) is dict and (key in block.tools if block.tools else is_plausible_name(key)):
            return ParsedCall(key, arguments)  # {"NAME": {…}}
    if type(name) is not str:
        raise NotACall("it names no tool")
    name = read_name(name, block.tools)
    arguments = next((value[key] for key in _ARGUMENTS if key in value), None)
    if block.strict and _is_definition(value, arguments):
        raise NotACall("it defines a tool and calls none")
    if not any(key in value for key in _ARGUMENTS) and set(value) - _KEYS:
        raise NotACall("it has no arguments, and members that no call has")
    if arguments is None:
        return ParsedCall(name, {})
    if type(arguments) is str:
        text = arguments.strip()
        arguments = {} if text in ("", "null") else json_object(text)
    if type(arguments) is not dict:
        raise NotACall("its arguments are not an object")
    return ParsedCall(name, arguments)


def _is_definition(value: dict[str, Any], arguments: Any) -> bool:
    """Whether an object is probably the definition of a tool: it has other members, a schema, or no arguments."""
    schema = type(arguments) is dict and arguments.get("type") == "object" and type(arguments.get("properties")) is dict
    return arguments is None or bool(schema) or bool(set(value) - _KEYS)


_STRING = re.compile(r"[^\"\\]*")
_BETWEEN_VALUES = re.compile(r"[\s,:\d.eE+\-truefalsn]*")
_BETWEEN_OBJECTS = re.compile(r"[\s,\[\]`]*")
_SPACE = re.compile(r"\s*")


class JsonScan:
    """A reader of growing JSON that tells where no object can follow. It checks characters, not grammar.

    `is_document`: the text is one object or list from its first character on. Otherwise it holds objects.
    """

    def __init__(self, *, is_document: bool = False) -> None:
        self._is_document = is_document
        self._has_begun = is_document  # `may_begin` has read the text before the first object
        self._depth = 0
        self._is_escaped = False
        self.in_string = False

    @property
    def is_between(self) -> bool:
        """Whether the text read so far ends behind an object, outside of any."""
        return self._has_begun and self._depth == 0

    def fits(self, text: str) -> bool:
        """Read more text; return whether JSON may still hold it."""
        position, end = 0, len(text)
        if not self._has_begun:
            position = text.find("{")
            if position < 0:
                return True
            self._has_begun = True
        if self._is_escaped and text:
            position, self._is_escaped = 1, False
        while True:
            outside = _SPACE if self._is_document else _BETWEEN_OBJECTS
            plain = _STRING if self.in_string else _BETWEEN_VALUES if self._depth else outside
            position = skip_space(text, position, plain)
            if position >= end:
                return True
            char = text[position]
            position += 1
            if char == '"' and self._depth:
                self.in_string = not self.in_string
            elif char == "\\" and self.in_string:
                self._is_escaped = position == end
                position += 1
            elif char == "{" or (char == "[" and (self._depth or self._is_document)):
                self._depth += 1
            elif char in "}]" and self._depth:
                self._depth -= 1
            else:
                return False


def ends_in_string(text: str) -> bool:
    """Whether a text of JSON ends inside a string. It only counts quotes, which is cheap."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    return text.count('"') % 2 == 1


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether the body ends inside a value, so that the closer behind it is text."""
    return ends_in_string(body) or (opener.startswith(_FENCE) and not body.strip())


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether a call, or a list of calls, begins in the body; None if more text is needed."""
    body = body[:ENOUGH].lstrip()
    if _BEGINS.match(body):
        return True
    return None if len(body) < ENOUGH and _MAY_BEGIN.match(body) else False
