"""Read the grammar "named-json": the tool's name before its arguments, or a call or a list, with no end of its own.

    NAME ARGS {"city": "Paris"}
    NAME ID 123456789 ARGS {"city": "Paris"}
    {"name": "NAME", "arguments": {"city": "Paris"}}
    {"name": "NAME", "arguments": {"city": "Paris"}}; {"name": "NAME", "arguments": {"city": "Rome"}}
    [{"name": "NAME", "arguments": {"city": "Paris"}}]

ARGS and ID are words of the rule (its `parts`). The brace or bracket that closes the JSON is the end of the block,
unless a semicolon and another call follow.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cnllm.leaks.grammars import json_calls
from cnllm.leaks.grammars.base import ENOUGH, NAME, MarkupBlock, NotACall, ParsedCall, read_name
from cnllm.schemas.coerce import decode_json

__all__ = ["ends_inside_value", "goes_on", "may_begin", "read"]

_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_OBJECTS = re.compile(r"\s*(?:\[\s{0,64})?\{\s{0,64}\"")
_NEXT = re.compile(r"\s{0,8};\s{0,8}\{\s{0,64}\"")
_NEXT_START = re.compile(r"\s{0,8}(?:;\s{0,8}(?:\{\s{0,64})?)?\Z")
_OBJECTS_START = re.compile(r"\s*(?:\[\s{0,64})?(?:\{\s{0,64})?\Z")


class _Head:
    """The patterns of the text before the arguments, for one pair of words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        arguments, id = map(re.escape, words)
        name = rf"\s{{0,8}}({NAME}?)\s{{0,8}}(?:{id}\s{{0,8}}[\w-]{{1,64}}\s{{0,8}})?(?:{arguments})?\s{{0,8}}"
        self.whole = re.compile(rf"{name}(?=\{{)")
        self.begins = re.compile(rf"\s{{0,8}}{NAME}\s{{0,8}}(?:{id}|{arguments}|\{{\s{{0,64}}[\"}}])")


_head = lru_cache(maxsize=16)(_Head)


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block, and the texts that are no call."""
    text = block.body + block.closer
    if _OBJECTS.match(text):
        return json_calls.read(block.part(text))
    head = _head(block.parts).whole.match(text)
    if head is None:
        raise NotACall("it does not begin with a name")
    try:
        arguments, end = decode_json(text, head.end())
    except ValueError as error:
        raise NotACall(f"it is not JSON: {error}") from None
    if text[end:].strip():
        raise NotACall("more than a call stands in it")
    return [ParsedCall(read_name(head[1], block.tools), arguments)], []


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether the JSON goes on behind the next brace or bracket that closes."""
    if not _OBJECTS.match(body):
        head = _head(words).whole.match(body)
        if head is None:
            return True
        body = body[head.end() :]
    body = _STRING.sub("", body)
    depth = body.count("{") + body.count("[") - body.count("}") - body.count("]")
    return '"' in body or depth != 1


def goes_on(body: str, rest: str) -> bool | None:
    """Whether another call follows the one that ends a body, in a row of them; None if more text is needed."""
    if not body.lstrip().startswith("{"):
        return False
    return True if _NEXT.match(rest) else None if _NEXT_START.match(rest) else False


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether a name, a call or a list of calls begins in the body; None if more text is needed."""
    body = body[:ENOUGH]
    if _OBJECTS.match(body) or _head(words).begins.match(body):
        return True
    if len(body) == ENOUGH:
        return False
    return None if _OBJECTS_START.match(body) or _is_beginning(body, _head(words).words) else False


def _is_beginning(body: str, words: tuple[str, ...]) -> bool:
    """Whether a text is a name, with at most the beginning of a word behind it."""
    rest = body.lstrip()
    name = re.match(NAME, rest)
    tail = rest[name.end() :].lstrip() if name else rest
    return name is not None and (not tail or tail.rstrip() == "{" or any(word.startswith(tail) for word in words))
