"""Read the grammar "arg-pairs": the tool's name, then tags for the key and the value of each argument.

    NAME
    <KEY>city</KEY><VALUE>Paris</VALUE>

KEY and VALUE are words of the rule (its `parts`): the grammar has none of its own. Three parts are tokens instead, that
before a key, that before its value and that behind it. In place of all pairs the arguments may be one JSON object. It
may stand in brackets, and the tag of the name may end before it or behind it.

A tag may stand between the name and the first key, and tags around a call or around several. Between a key and its
value an element may name the type of the value; the schema of the tool takes precedence.
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
    NotOffered,
    ParsedCall,
    ValuePatterns,
    object_of,
    read_name,
    stops_in_value,
    strip_own_lines,
    value_end,
)
from cnllm.leaks.grammars.json_calls import ends_in_string
from cnllm.leaks.markers import BARS, spelling_pattern
from cnllm.schemas.coerce import coerce, decode_json, property_schema

__all__ = ["ends_inside_value", "is_certain", "is_open", "may_begin", "read"]

_WORD = r"(?!\|)[\w.:|-]{1,64}"
_BEFORE_OBJECT = r"(?:>\s{0,8})?(?:[(\[]\s{0,8})?"
_AFTER_OBJECT = re.compile(r"\s*[)\]]?\s*>?\s*(?=<|\Z)")


class _PairPatterns(ValuePatterns):
    """The patterns of one pair of words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        if len(words) == 2:
            key, value = (rf"{re.escape(word)}\s{{0,2}}" for word in words)
            open_key, open_value, close_value, closer = f"<{key}>", f"<{value}>", f"</{value}>", r"<\s{0,2}/"
            type_name = rf"(?:(?!{open_value})<{_WORD}>\s*([^<>]{{1,64}})</{_WORD}>\s*)?"
            close_key = rf"</{key}>\s*{type_name}"
        else:
            open_key, open_value, close_value = map(spelling_pattern, words)
            close_key, closer = "()", rf"<\s{{0,2}}[{re.escape(BARS)}]"
        after_name = close_key.replace("([", "(?:[")
        between = rf"\s*(?:(?!{open_key})<{_WORD}>\s*)?"
        openers = rf"(?:\s*<{_WORD}>){{0,3}}\s*"
        pair = rf"{open_key}[^<>]{{1,256}}{after_name}{open_value}"

        def compiled(pattern: str) -> re.Pattern[str]:
            return re.compile(pattern, re.IGNORECASE)

        self.open_key = compiled(rf"\s*{open_key}")
        self.close_key = compiled(close_key + open_value)
        self.values = compiled(rf"(({open_key}[^<>]{{1,256}}{after_name})?{open_value})|{close_value}")
        next_call = rf"(?!{open_key}|{open_value})<{_WORD}>\s*{NAME}{between}{pair}"
        self.value_end = compiled(rf"\s*(?:{open_key}|(?!{close_value})</{_WORD}>|{next_call}|\Z)")
        self.wrapper = compiled(rf"\s*(?!{open_key})<({_WORD})>")
        self.close = compiled(rf"\s*</({_WORD})>")
        self.call_end = compiled(rf"(?!{close_value})</{_WORD}>\s*\Z")
        self.block_tail = compiled(rf"(?:\s*</{_WORD}>|\s*<{_WORD}>(?:\s*{NAME}\s*(?:<{_WORD}>\s*)?</{_WORD}>)?)*\s*")
        self.name = compiled(rf"\s*({NAME})\s*(?:(?!{open_key})<{_WORD}>\s*)?(?:(?=<|\Z)|{_BEFORE_OBJECT}(?=\{{))")
        self.json = compiled(rf"{openers}{NAME}{between}{_BEFORE_OBJECT}\{{\s{{0,64}}[\"}}]")
        self.pair = compiled(rf"{openers}{NAME}{between}{pair}")
        self.begins = compiled(rf"{self.json.pattern}|{openers}{NAME}{between}(?:{closer}|{pair})")
        tag = r"<(?:/?[\w.:|-]{0,64}\s{0,2})"
        after_type = rf"(?:</[\w.:|-]{{0,64}}(?:>\s*(?:{tag})?)?|<)?"
        value_tag = rf"{tag}(?:>[^<>]{{0,64}}{after_type})?"
        after_key = rf"{open_key}[^<>]{{0,256}}(?:</[\w.:|-]{{0,64}}\s{{0,2}}(?:>\s*(?:{value_tag})?)?|<)?"
        object_start = rf"{_BEFORE_OBJECT}(?:\{{\s{{0,64}})?"
        self.may_begin = compiled(rf"{openers}(?:{tag}|{NAME}{between}(?:{tag}|{after_key}|{object_start})?)?\Z")


_tags = lru_cache(maxsize=16)(_PairPatterns)


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block, and the texts that are no call. The tag around a call may lack its end."""
    tags = _tags(block.parts)
    text = block.body
    calls: list[ParsedCall] = []
    others: list[str] = []
    problem = NotACall("there is no call in it")
    open_wrappers: list[str] = []
    is_balanced = True
    position = 0
    while text[position:].strip():
        start = position
        while wrapper := tags.wrapper.match(text, position):
            if not start or not _begins_again(wrapper[1], open_wrappers, block.opener):
                open_wrappers.append(wrapper[1].lower())
            position = wrapper.end()
        name = tags.name.match(text, position)
        if name is None:
            raise NotACall("it does not begin with a name")
        arguments: dict[str, Any] | None = None
        pairs: list[tuple[str, str, str]] = []
        if text.startswith("{", name.end()):
            arguments, position = _object(text, name.end())
        else:
            pairs, position, is_balanced = _pairs(text, name.end(), tags, is_balanced=is_balanced)
        while open_wrappers and (close := tags.close.match(text, position)) and close[1].lower() == open_wrappers[-1]:
            open_wrappers.pop()
            position = close.end()
        try:
            call = _call(name[1], pairs, block)
            calls.append(call if arguments is None else ParsedCall(call.name, arguments))
        except NotACall as error:
            problem = error if error.calls or not problem.calls else problem
            others.append(text[start:position].strip())
    if open_wrappers:
        raise NotACall("a tag around a call is not closed")
    if not calls:
        raise problem
    return calls, others


def _begins_again(word: str, open_wrappers: list[str], opener: str) -> bool:
    """Whether the tag around a call begins although the one around the call before it is still open."""
    return word.lower() in open_wrappers[-1:] or (not open_wrappers and opener.strip().lower() == f"<{word}>".lower())


def _object(text: str, position: int) -> tuple[dict[str, Any], int]:
    """Return (the JSON object at a position, its end). Raises `NotACall`."""
    try:
        value, end = decode_json(text, position)
    except ValueError as error:
        raise NotACall(f"its arguments are not JSON: {error}") from None
    after = _AFTER_OBJECT.match(text, end)
    if type(value) is not dict or after is None:
        raise NotACall("its arguments are not one object")
    return value, after.end()


def _pairs(
    text: str, position: int, tags: _PairPatterns, *, is_balanced: bool
) -> tuple[list[tuple[str, str, str]], int, bool]:
    """Return (the pairs that begin at a position, their end, whether the tags inside values are balanced).

    A pair is (key, value, the type that the model names, or "").
    """
    out: list[tuple[str, str, str]] = []
    while opening := tags.open_key.match(text, position):
        middle = tags.close_key.search(text, opening.end())
        if middle is None:
            raise NotACall("a key has no value")
        # A parameter begins with a tag that a key stands before.
        end, position, is_balanced = value_end(
            text, middle.end(), tags, lambda tag: tag[2] is not None, is_balanced=is_balanced
        )
        out.append((text[opening.end() : middle.start()].strip(), text[middle.end() : end], middle[1] or ""))
    return out, position, is_balanced


def _call(name: str, pairs: list[tuple[str, str, str]], block: MarkupBlock) -> ParsedCall:
    """Return a call with its arguments. Raises `NotOffered` or `NotACall`."""
    name = read_name(name, block.tools)
    if not pairs and block.tools and name not in block.tools:
        raise NotOffered(f"no tool has the name {name}", [ParsedCall(name, {})])
    schema: Any = block.tools.get(name)
    arguments: list[tuple[str, Any]] = []
    for key, value, type_name in pairs:
        parameter_schema = property_schema(schema, key, schema)
        if parameter_schema is None and ("<" in key or "\n" in key or not key):
            raise NotACall("the text in the place of a key is not a key")
        if parameter_schema is None and type_name:
            parameter_schema = {"type": type_name.strip().lower()}
        arguments.append((key, coerce(strip_own_lines(value), parameter_schema, schema)))
    return ParsedCall(name, object_of(arguments))


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether the body ends inside a value, or behind a text that only looks like the end of one."""
    tags = _tags(words)
    return ends_in_string(body) if tags.json.match(body) else stops_in_value(opener, body, closers, tags)


def is_certain(opener: str, body: str, words: tuple[str, ...]) -> bool:
    """Whether a name and a pair stand at the start of a body."""
    return _tags(words).pair.match(body) is not None


def is_open(body: str, words: tuple[str, ...]) -> bool:
    """Whether a body ends in a call, where another pair may follow."""
    return _tags(words).call_end.search(body, max(0, len(body) - ENOUGH)) is None


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether a name begins in the body, followed by a pair or the end; None if more text is needed."""
    tags = _tags(words)
    if tags.begins.match(body):
        return True
    return None if tags.may_begin.match(body) else False
