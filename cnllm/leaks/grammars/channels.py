"""Read the grammar "channels": tags with attributes, each between an opening, a closing and a separating token.

    OPEN tools SEP
    OPEN call tool="NAME" index="1" SEP
    OPEN argument key="city" type="string" SEP Paris CLOSE argument SEP
    CLOSE call SEP
    OPEN call tool="NAME" index="2" SEP
    OPEN json type="object" SEP {"city": "Paris"} CLOSE json SEP
    CLOSE call SEP
    CLOSE tools SEP

The tokens are the words of the rule (its `parts`). The value of a string is written as it is, any other value as JSON.
A call may stand without the section around it: its opening tag is the opener of the block then. A call whose end was
lost ends where the next one begins, or with the section.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from cnllm.leaks.grammars.base import (
    ENOUGH,
    MarkupBlock,
    NotACall,
    ParsedCall,
    ValuePatterns,
    may_be_parameter,
    object_of,
    read_name,
    skip_space,
    stops_in_value,
    value_end,
)
from cnllm.leaks.markers import Markers, spelling_pattern
from cnllm.schemas.coerce import coerce, decode_json, property_schema

__all__ = ["ends_inside_value", "is_closed", "may_begin", "read"]

_ATTRIBUTES = r"((?:\s{1,8}\w{1,32}=\"[^\"]{0,256}\"){1,8})\s{0,8}"
_ATTRIBUTES_SO_FAR = re.compile(r"(?:\w{1,32}=\"[^\"]{0,256}\"\s{0,8}){0,8}(?:\w{1,32}(?:=(?:\"[^\"]{0,256})?)?)?")
_ATTRIBUTE = re.compile(r"(\w{1,32})=\"([^\"]{0,256})\"")


class _ChannelPatterns(ValuePatterns):
    """The patterns of one set of tokens."""

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self.call_start = Markers.copy((f"{tokens[0]}call",))
        self.separator = Markers.copy(tokens[2:])
        opening, closing, separator = map(spelling_pattern, tokens)
        argument = rf"{opening}argument{_ATTRIBUTES}{separator}"
        json = rf"{opening}json(?:\s[^<>]{{0,256}})?{separator}"
        self.call = re.compile(rf"\s*{opening}call{_ATTRIBUTES}{separator}", re.IGNORECASE)
        self.call_end = re.compile(rf"\s*(?:{closing}call{separator}|(?={opening}call\s)|\Z)", re.IGNORECASE)
        self.json = re.compile(rf"\s*{json}", re.IGNORECASE)
        self.json_end = re.compile(rf"\s*{closing}json{separator}", re.IGNORECASE)
        self.argument = re.compile(rf"\s*{argument}", re.IGNORECASE)
        self.argument_end = re.compile(rf"\s*{closing}argument{separator}", re.IGNORECASE)
        self.values = re.compile(rf"({argument}|{json})|{closing}(?:argument|json){separator}", re.IGNORECASE)
        self.value_end = re.compile(rf"\s*(?:{opening}(?:argument|call)\s|{closing}call{separator}|\Z)", re.IGNORECASE)
        self.last_end = re.compile(rf"{closing}call{separator}\s*\Z", re.IGNORECASE)
        self.block_tail = re.compile(
            rf"(?:\s*(?:{closing}call|{opening}call{_ATTRIBUTES}){separator})*\s*", re.IGNORECASE
        )


_tags = lru_cache(maxsize=16)(_ChannelPatterns)


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block, and the texts that are no call."""
    tags = _tags(block.parts)
    is_bare = tags.call_start.find(block.opener) is not None
    text = block.text if is_bare else block.body
    calls: list[ParsedCall] = []
    is_balanced = True
    position = 0
    while text[position:].strip():
        head = tags.call.match(text, position)
        if head is None:
            raise NotACall("it does not begin with a call")
        name = _attributes(head[1]).get("tool", "")
        if (whole := _json_block(text, head.end(), tags)) is not None:
            arguments, position = whole
        else:
            schema = block.tools.get(read_name(name, block.tools))
            arguments, position, is_balanced = _arguments(text, head.end(), tags, schema, is_balanced=is_balanced)
        end = tags.call_end.match(text, position)
        if end is None:
            raise NotACall("a call is not closed")
        calls.append(ParsedCall(read_name(name, block.tools), arguments))
        position = end.end()
    return calls, []


def _attributes(text: str) -> dict[str, str]:
    """Return the attributes of a tag."""
    return {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in _ATTRIBUTE.findall(text)}


def _arguments(
    text: str, position: int, tags: _ChannelPatterns, schema: Any, *, is_balanced: bool
) -> tuple[dict[str, Any], int, bool]:
    """Return (the arguments that begin at a position, their end, whether the tags inside values are balanced)."""
    out: list[tuple[str, Any]] = []

    def is_parameter(tag: re.Match[str]) -> bool:
        key = _attributes(tag[1]).get("key")
        return key is not None and may_be_parameter(schema, key)

    while head := tags.argument.match(text, position):
        attributes = _attributes(head[1])
        if "key" not in attributes:
            raise NotACall("an argument has no key")
        key, kind = attributes["key"], attributes.get("type")
        if kind not in (None, "string") and (found := _json_value(text, head.end(), tags.argument_end)) is not None:
            argument, position = found
            out.append((key, argument))
            continue
        end, position, is_balanced = value_end(text, head.end(), tags, is_parameter, is_balanced=is_balanced)
        value = text[head.end() : end]
        out.append((key, coerce(value, property_schema(schema, key, schema), schema) if kind is None else value))
    return object_of(out), position, is_balanced


def _json_value(text: str, start: int, end: re.Pattern[str]) -> tuple[Any, int] | None:
    """Return (the JSON at a position, the end of its closing tag); None where none stands there."""
    try:
        value, stop = decode_json(text, skip_space(text, start))
    except ValueError:
        return None
    closing = end.match(text, stop)
    return None if closing is None else (value, closing.end())


def _json_block(text: str, start: int, tags: _ChannelPatterns) -> tuple[dict[str, Any], int] | None:
    """Return (the arguments of a call that are one JSON object, their end); None where they are written one by one."""
    opening = tags.json.match(text, start)
    found = None if opening is None else _json_value(text, opening.end(), tags.json_end)
    if opening is not None and (found is None or type(found[0]) is not dict):
        raise NotACall("the arguments are not a JSON object")
    return found


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether the body ends inside a value, so that the closer behind it is text."""
    tags = _tags(words)
    return stops_in_value(opener, body, closers, tags)


def is_closed(body: str, tokens: tuple[str, ...]) -> bool:
    """Whether the last call of a section that has no end is whole. If not, more arguments might have come."""
    return _tags(tokens).last_end.search(body, max(0, len(body) - ENOUGH)) is not None


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether a call begins in the body, or in the opener; None if more text is needed."""
    tags = _tags(words)
    text = body[:ENOUGH].lstrip()
    if tags.call_start.find(opener) is not None:
        if tags.call.match(opener + body):
            return True
        certain = text[: len(text) - tags.separator.pending_length(text)]
        return None if len(body) < ENOUGH and _ATTRIBUTES_SO_FAR.fullmatch(certain) else False
    if (match := tags.call_start.find(text)) is not None and match[0] == 0:
        return True
    return None if len(body) < ENOUGH and tags.call_start.pending_length(text) == len(text) else False
