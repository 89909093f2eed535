"""Read the grammar "braces": the tool's name, then its arguments in braces, with keys that have no quotes.

    call:NAME{city:QUOTE Paris QUOTE,days:2,units:[QUOTE C QUOTE]}

QUOTE is the word of the rule (its `parts`). Between two of them a text is written as it is. Models forget the word
`call` at times, and never the colon.
"""

from __future__ import annotations

import re
from functools import lru_cache
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
from cnllm.leaks.markers import spelling_pattern
from cnllm.schemas.coerce import coerce, decode_json, property_schema

__all__ = ["ends_inside_value", "may_begin", "read"]

_BEGIN = "call:"
_HEAD = re.compile(rf"\s*(?:call)?:\s{{0,8}}({NAME})\s{{0,8}}(?=\{{)")
_MAY_BEGIN = re.compile(rf"(?:call)?:\s{{0,8}}(?:{NAME}\s{{0,8}})?(?:\{{|\Z)")
_KEY = re.compile(r"([^:{}\[\],]{1,128}):")
_BARE = re.compile(r"[^,{}\[\]]*")
_MAX_DEPTH = 32
_CLOSERS = {"{": "}", "[": "]"}


@lru_cache(maxsize=16)
def _quote(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of the quote."""
    return re.compile(spelling_pattern(words[0]), re.IGNORECASE)


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block, and the texts that are no call."""
    text = block.body
    calls: list[ParsedCall] = []
    position = 0
    while text[position:].strip():
        head = _HEAD.match(text, position)
        if head is None:
            raise NotACall("it does not begin with a call")
        name = read_name(head[1], block.tools)
        reader = _ValueReader(text, _quote(block.parts), block.tools.get(name))
        arguments, position = reader.container(head.end(), 0)
        calls.append(ParsedCall(name, arguments))
    return calls, []


class _ValueReader:
    """A reader of the values of one call. `schema` is that of the tool's parameters."""

    def __init__(self, text: str, quote: re.Pattern[str], schema: Any) -> None:
        self._text = text
        self._quote = quote
        self._schema = schema

    def container(self, start: int, depth: int) -> tuple[Any, int]:
        """Return (the object or list at a position, its end). Raises `NotACall`."""
        if depth > _MAX_DEPTH:
            raise NotACall("too deeply nested")
        closer = _CLOSERS[self._text[start]]

        def item(position: int) -> tuple[tuple[str, Any], int]:
            key, position = self._key(position) if closer == "}" else ("", position)
            value, position = self._value(key, position, depth)
            return (key, value), position

        items, end = read_items(self._text, start + 1, closer, item)
        return object_of(items) if closer == "}" else [value for _, value in items], end

    def _key(self, position: int) -> tuple[str, int]:
        """Return (a key, the start of its value)."""
        if quoted := self._read_quoted(position):
            key, position = quoted
            position = skip_space(self._text, position)
            if self._text.startswith(":", position):
                return key, skip_space(self._text, position + 1)
        elif match := _KEY.match(self._text, position):
            return match[1].strip(), skip_space(self._text, match.end())
        raise NotACall("the text in the place of a key is not a key")

    def _read_quoted(self, position: int) -> tuple[str, int] | None:
        """Return (a text between quotes, its end); None where no quote stands at a position."""
        opening = self._quote.match(self._text, position)
        if opening is None:
            return None
        closing = self._quote.search(self._text, opening.end())
        if closing is None:
            raise NotACall("a value is not closed")
        return self._text[opening.end() : closing.start()], closing.end()

    def _value(self, key: str, position: int, depth: int) -> tuple[Any, int]:
        """Return (the value at a position, its end)."""
        if quoted := self._read_quoted(position):
            return quoted
        if self._text[position : position + 1] in _CLOSERS:
            return self.container(position, depth + 1)
        match = _BARE.match(self._text, position)
        bare = match[0].strip() if match else ""
        if not bare:
            raise NotACall("an argument has no value")
        return self._bare(key, bare, depth), position if match is None else match.end()

    def _bare(self, key: str, text: str, depth: int) -> Any:
        """Return a value without quotes: of the type that the schema states, or of JSON, or the text."""
        schema = property_schema(self._schema, key, self._schema) if depth == 0 else None
        if schema is not None:
            return coerce(text, schema, self._schema)
        try:
            value, end = decode_json(text)
        except ValueError:
            return text
        return text if text[end:] else value


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether the body ends between two quotes, so that the closer behind it is text."""
    return sum(1 for _ in _quote(words).finditer(body)) % 2 == 1


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether a call begins in the body; None if more text is needed."""
    text = body[:ENOUGH].lstrip()
    match = _MAY_BEGIN.match(text)
    if match is not None and match[0].endswith("{"):
        return True
    is_open = match is not None or _BEGIN.startswith(text)
    return None if is_open and len(body) < ENOUGH else False
