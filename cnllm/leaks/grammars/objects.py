"""The grammar "json": a call is a JSON object with its name and its arguments; or a list, or a row, of such."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cnllm.leaks.grammars.base import ENOUGH, MarkupBlock, NotACall, ParsedCall, read_name
from cnllm.schemas.coerce import decode_json

__all__ = ["ends_in_string", "inside", "read", "strip_fence", "viable"]

_FENCE = "```"
_MOST = 10_000  # objects of a block that are read: what has more was not written for a tool
_ARGUMENTS = ("arguments", "parameters")
_BESIDE = {"name", "function", "type", "id", "index", *_ARGUMENTS}
_SEPARATORS = re.compile(r"[\s,]*")
_BEGINS = re.compile(r"(?:`{3}[a-z]{0,16}\s{1,8})?(?:\[\s*)?\{\s*[\"}]")
_MAY_BEGIN = re.compile(r"(?:`{1,3}\Z|`{3}[a-z]{0,16}\s{0,8}\Z)|(?:`{3}[a-z]{0,16}\s{1,8})?(?:\[\s*)?(?:\{\s*)?\Z")


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """The calls of a block, and the text of what is none."""
    calls: list[ParsedCall] = []
    others: list[str] = []
    reason = "there is no call in it"
    for number, (text, value, problem) in enumerate(_values(strip_fence(block.body))):
        if number == _MOST:
            raise NotACall(f"it has more than {_MOST} objects")
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
    """A text without the code fence around it."""
    text = text.strip()
    if not text.startswith(_FENCE):
        return text
    _, _, text = text.partition("\n")
    return text.rstrip().removesuffix(_FENCE).rstrip()


def _values(text: str) -> Iterator[tuple[str, Any, str]]:
    """(text, value, problem) of the objects of a list or of a row."""
    if text[:1] == "[" and text[-1:] == "]":
        text = text[1:-1]
    at = _end(text, 0)
    while at < len(text):
        try:
            value, end = decode_json(text, at)
        except ValueError as error:
            yield text[at:], None, f"it is not JSON: {error}"
            return
        yield text[at:end], value, ""
        at = _end(text, end)


def _end(text: str, at: int) -> int:
    """Past spaces and commas."""
    found = _SEPARATORS.match(text, at)
    return found.end() if found else at


def _calls(value: Any, block: MarkupBlock) -> list[ParsedCall]:
    if type(value) is dict and list(value) == ["tool_calls"] and type(value["tool_calls"]) is list:
        return [_call(one, block) for one in value["tool_calls"]]
    return [_call(value, block)]


def _call(value: Any, block: MarkupBlock) -> ParsedCall:
    if type(value) is not dict:
        raise NotACall("it is not an object")
    function = value.get("function")
    if type(function) is dict:
        if set(value) - _BESIDE:
            raise NotACall("it has members that no call has")
        value = function
    name = value.get("name")
    if name is None and type(function) is str:
        name = function
    if type(name) is not str:
        raise NotACall("it names no tool")
    name = read_name(name, block.tools)
    if block.strict and _describes(value):
        raise NotACall("it describes a tool and calls none")
    given = next((value[key] for key in _ARGUMENTS if key in value), None)
    if not any(key in value for key in _ARGUMENTS) and set(value) - _BESIDE:
        raise NotACall("it has no arguments, and members that no call has")
    if given is None:
        return ParsedCall(name, {})
    if type(given) is str:
        given = _decoded(given)
    if type(given) is not dict:
        raise NotACall("its arguments are not an object")
    return ParsedCall(name, given)


def _describes(value: dict[str, Any]) -> bool:
    """Whether an object is no call for certain, but what a tool is like: it has other members, or a schema."""
    given = next((value[key] for key in _ARGUMENTS if key in value), None)
    schema = type(given) is dict and given.get("type") == "object" and type(given.get("properties")) is dict
    return given is None or bool(schema) or bool(set(value) - _BESIDE)


def _decoded(text: str) -> Any:
    """Arguments that were written as a string of JSON."""
    text = text.strip()
    if text in ("", "null"):
        return {}
    try:
        value, end = decode_json(text)
    except ValueError:
        return None
    return None if text[end:].strip() else value


def ends_in_string(text: str) -> bool:
    """Does a text of JSON end inside a string? Only counted, so that it costs next to nothing."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    return text.count('"') % 2 == 1


def inside(opener: str, body: str) -> bool:
    """Does the body end where a closer is not one?"""
    return ends_in_string(body) or (opener.startswith(_FENCE) and not body.strip())


def viable(body: str) -> bool | None:
    """Does a call, or a list of calls, begin here?"""
    body = body[:ENOUGH].lstrip()
    if _BEGINS.match(body):
        return True
    return None if len(body) < ENOUGH and _MAY_BEGIN.match(body) else False
