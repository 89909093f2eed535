"""Read the grammar "channels": tags with attributes, each between an opening, a closing and a separating token.

    OPEN tools SEP
    OPEN call tool="NAME" index="1" SEP
    OPEN argument key="city" type="string" SEP Paris CLOSE argument SEP
    CLOSE call SEP
    CLOSE tools SEP

The tokens are the words of the rule (its `parts`). The value of a string is written as it is, any other value as JSON.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from cnllm.leaks.grammars.base import ENOUGH, MarkupBlock, NotACall, ParsedCall, read_name, value_end
from cnllm.leaks.markers import Markers, spelling_pattern
from cnllm.schemas.coerce import coerce, decode_json, property_schema

__all__ = ["ends_inside_value", "may_begin", "read"]

_ATTRIBUTES = r"((?:\s{1,8}\w{1,32}=\"[^\"]{0,256}\"){1,8})\s{0,8}"
_SPACE = re.compile(r"\s*")
_ATTRIBUTE = re.compile(r"(\w{1,32})=\"([^\"]{0,256})\"")


class _Tags:
    """The patterns of one set of tokens."""

    def __init__(self, opening: str, closing: str, separator: str) -> None:
        self.call_start = Markers.copy((f"{opening}call",))
        opening, closing, separator = map(spelling_pattern, (opening, closing, separator))
        argument = rf"{opening}argument{_ATTRIBUTES}{separator}"
        self.wrapper = re.compile(rf"\s*{opening}\w{{1,32}}{separator}", re.IGNORECASE)
        self.call = re.compile(rf"\s*{opening}call{_ATTRIBUTES}{separator}", re.IGNORECASE)
        self.call_end = re.compile(rf"\s*{closing}call{separator}", re.IGNORECASE)
        self.argument = re.compile(rf"\s*{argument}", re.IGNORECASE)
        self.argument_end = re.compile(rf"\s*{closing}argument{separator}", re.IGNORECASE)
        self.values = re.compile(rf"({argument})|{closing}argument{separator}", re.IGNORECASE)
        self.value_end = re.compile(rf"\s*(?:{opening}argument\s|{closing}call{separator})", re.IGNORECASE)
        self.block_tail = re.compile(
            rf"(?:\s*(?:{closing}call|{opening}call{_ATTRIBUTES}){separator})*\s*", re.IGNORECASE
        )


@lru_cache(maxsize=16)
def _tags(tokens: tuple[str, ...]) -> _Tags:
    """Return the patterns of a set of tokens."""
    return _Tags(*tokens)


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block, and the texts that are no call."""
    tags = _tags(block.parts)
    text = block.body
    calls: list[ParsedCall] = []
    is_balanced = True
    position = 0
    while text[position:].strip():
        head = tags.call.match(text, position)
        if head is None:
            raise NotACall("it does not begin with a call")
        name = _attributes(head[1]).get("tool", "")
        arguments, position, is_balanced = _arguments(text, head.end(), tags, is_balanced, block.tools.get(name))
        end = tags.call_end.match(text, position)
        if end is None:
            raise NotACall("a call is not closed")
        calls.append(ParsedCall(read_name(name, block.tools), arguments))
        position = end.end()
    if not calls:
        raise NotACall("there is no call in it")
    return calls, []


def _attributes(text: str) -> dict[str, str]:
    """Return the attributes of a tag."""
    return {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in _ATTRIBUTE.findall(text)}


def _arguments(
    text: str, position: int, tags: _Tags, is_balanced: bool, schema: Any
) -> tuple[dict[str, Any], int, bool]:
    """Return (the arguments that begin at a position, their end, whether the tags inside values are balanced)."""
    out: dict[str, Any] = {}
    while head := tags.argument.match(text, position):
        attributes = _attributes(head[1])
        if "key" not in attributes:
            raise NotACall("an argument has no key")
        key, kind = attributes["key"], attributes.get("type")
        if kind not in (None, "string") and (found := _json_value(text, head.end(), tags)) is not None:
            out[key], position = found
            continue
        end, position, is_balanced = value_end(text, head.end(), tags.values, tags.value_end, is_balanced)
        value = text[head.end() : end]
        out[key] = coerce(value, property_schema(schema, key, schema), schema) if kind is None else value
    return out, position, is_balanced


def _json_value(text: str, start: int, tags: _Tags) -> tuple[Any, int] | None:
    """Return (the JSON at a position, the end of its argument); None where none stands there."""
    space = _SPACE.match(text, start)
    try:
        value, end = decode_json(text, space.end() if space else start)
    except ValueError:
        return None
    closing = tags.argument_end.match(text, end)
    return None if closing is None else (value, closing.end())


def ends_inside_value(body: str, tokens: tuple[str, ...]) -> bool:
    """Whether the body ends inside a value, so that the closer behind it is text."""
    tags = _tags(tokens)
    depth, end, is_open = 0, 0, False
    for tag in tags.values.finditer(body):
        is_open = tag[1] is not None
        depth += 1 if is_open else -1
        end = tag.end()
    return end > 0 and (is_open or tags.block_tail.fullmatch(body, end) is None)


def may_begin(body: str, tokens: tuple[str, ...]) -> bool | None:
    """Whether a call begins in the body; None if more text is needed."""
    start = _tags(tokens).call_start
    text = body[:ENOUGH].lstrip()
    if (match := start.find(text)) is not None and match[0] == 0:
        return True
    return None if len(body) < ENOUGH and start.pending_length(text) == len(text) else False
