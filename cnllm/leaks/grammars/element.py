"""Read elements, one tag for each argument (`<city>Paris</city>`), and the grammar "element".

In the grammar "element" the tool is a tag, too: the call is an element with the tool's name, or it is the elements
`name` and `arguments`.

Inside a value, tags are text, unless the schema declares an object or an array, or the tags have a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Set
from functools import lru_cache
from typing import Any

from cnllm.leaks.grammars.base import (
    ENOUGH,
    MarkupBlock,
    NotACall,
    NotOffered,
    ParsedCall,
    json_object,
    read_name,
    skip_space,
    strip_own_lines,
)
from cnllm.leaks.grammars.tags import opener_prefix, prefix_pattern
from cnllm.schemas.coerce import allowed_types, coerce, item_schema, property_schema

__all__ = ["ends_inside_value", "is_unclosed", "may_begin", "read", "wrapped_arguments"]

_KEY = r"[\w.:-]{1,128}"
_ITEM = "item"
_ARGUMENTS = ("arguments", "parameters")
_WRAPPERS = ("tool_call", "tool_calls", "function_calls", "function_call", "invoke")
"""Elements that wrap a call and do not name it."""
_MAX_DEPTH = 32
_BEGINS = re.compile(rf"\s*<\s{{0,2}}(/?)\s{{0,2}}({_KEY})\s{{0,2}}>")
_MAY_BEGIN = re.compile(rf"\s*(?:<\s{{0,2}}(?:/?\s{{0,2}}{_KEY}\s{{0,2}}|/\s{{0,2}})?)?\Z")


@lru_cache(maxsize=64)
def _pattern(prefix: str) -> re.Pattern[str]:
    """Return the pattern of a tag behind a prefix."""
    return re.compile(rf"{prefix_pattern(prefix)}<\s{{0,2}}(/?)\s{{0,2}}({_KEY})\s{{0,2}}>", re.IGNORECASE)


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the calls of a block, and the texts that are no call.

    Either the opener names the tool, or the block wraps several calls. Raises `NotOffered` if no tool of the block
    was offered.
    """
    prefix = opener_prefix(block.opener)
    opening = _pattern(prefix).match(block.opener.lstrip())
    tool = next((name for name in (opening[2], opening[2].lower()) if name in block.tools), None) if opening else None
    if tool is not None:
        return [ParsedCall(tool, read_arguments(block.body, block.tools[tool], prefix))], []
    children = _split(block.body, prefix) or []
    members = dict(children)
    is_named = "name" in members and len(members) == len(children) <= 2
    if is_named and set(members) <= {"name", *_ARGUMENTS}:
        name = read_name(members.pop("name"), block.tools)
        arguments = wrapped_arguments(next(iter(members.values()), ""), block.tools.get(name), prefix)
        return [ParsedCall(name, arguments)], []
    calls: list[ParsedCall] = []
    others: list[str] = []
    for name, inner in children:
        if name in block.tools:
            calls.append(ParsedCall(name, read_arguments(inner, block.tools[name], prefix)))
        else:
            others.append(f"{prefix}<{name}>{inner}{prefix}</{name}>")
    if not calls:
        raise NotOffered("it names no tool that was offered", _unknown_call(opening, children, block, prefix))
    return calls, others


def _unknown_call(
    opening: re.Match[str] | None, children: list[tuple[str, str]], block: MarkupBlock, prefix: str
) -> list[ParsedCall]:
    """Return the call of an unknown tool, as far as it is readable: the tool is the one element that holds others."""
    outer = opening[2] if opening is not None and opening[2].lower() not in _WRAPPERS else ""
    name, body = children[0] if len(children) == 1 else ("", "")
    if not name or (outer and not _split(body, prefix)):
        name, body = outer, block.body
    elif body.strip() and not _split(body, prefix):
        return []
    if not name:
        return []
    try:
        return [ParsedCall(name, read_arguments(body, None, prefix))]
    except NotACall:
        return []


def wrapped_arguments(text: str, schema: Any, prefix: str) -> dict[str, Any]:
    """Return the arguments in an element of their own: a JSON object, elements, or nothing."""
    text = text.strip()
    if not text:
        return {}
    arguments = json_object(text)
    return read_arguments(text, schema, prefix) if arguments is None else arguments


def read_arguments(text: str, schema: Any, prefix: str) -> dict[str, Any]:
    """Return the arguments of a call that has an element for each."""
    children = _split(text, prefix)
    if children is None:
        raise NotACall("its arguments are neither parameters nor elements")
    return _object(children, schema, schema, prefix, 0)


def _split(text: str, prefix: str) -> list[tuple[str, str]] | None:
    """Return (name, text) of each element of a text; None if the text holds something else."""
    tags = list(_pattern(prefix).finditer(text))
    out: list[tuple[str, str]] = []
    index = end = 0
    while index < len(tags):
        opening = tags[index]
        if opening[1] or text[end : opening.start()].strip():
            return None
        depth = 1
        for close_index in range(index + 1, len(tags)):
            tag = tags[close_index]
            if tag[2].lower() != opening[2].lower():
                continue
            if not tag[1]:
                depth += 1
            elif depth > 1:
                depth -= 1
            elif prefix or _is_followed(text, tags, close_index):
                out.append((opening[2], text[opening.end() : tag.start()]))
                index, end = close_index + 1, tag.end()
                break
        else:
            return None
    return None if text[end:].strip() else out


def _is_followed(text: str, tags: list[re.Match[str]], index: int) -> bool:
    """Whether the next element or the end follows an element. If not, its closing tag is text."""
    following = tags[index + 1] if index + 1 < len(tags) else None
    if text[tags[index].end() : following.start() if following else len(text)].strip():
        return False
    return following is None or not following[1]


def _object(children: list[tuple[str, str]], schema: Any, root: Any, prefix: str, depth: int) -> dict[str, Any]:
    """Return elements as members of an object; several elements of one name are an array."""
    texts_by_name: dict[str, list[str]] = {}
    for name, inner in children:
        texts_by_name.setdefault(name, []).append(inner)
    out: dict[str, Any] = {}
    for name, texts in texts_by_name.items():
        member_schema = property_schema(schema, name, root)
        if len(texts) == 1:
            out[name] = _value(texts[0], member_schema, root, prefix, depth + 1)
        else:
            items = item_schema(member_schema, root)
            out[name] = [_value(text, items, root, prefix, depth + 1) for text in texts]
    return out


def _value(text: str, schema: Any, root: Any, prefix: str, depth: int) -> Any:
    """Return the content of an element: an object, an array, or text."""
    if depth > _MAX_DEPTH:
        raise NotACall("it is too deeply nested")
    allowed = allowed_types(schema, root)
    children: list[tuple[str, str]] | None = None
    if allowed & {"object", "array"} or (prefix and not allowed):
        children = _split(text, prefix)
    if not children:
        empty = _empty_value(allowed) if not text.strip() else None
        # With a prefix nothing but the value stands between the tags.
        return coerce(text if prefix else strip_own_lines(text), schema, root) if empty is None else empty
    names = {name for name, _ in children}
    if "object" not in allowed and ("array" in allowed or names == {_ITEM}):
        items = item_schema(schema, root)
        return [_value(inner, items, root, prefix, depth + 1) for _, inner in children]
    return _object(children, schema, root, prefix, depth)


def _empty_value(allowed: Set[str]) -> list[Any] | dict[str, Any] | None:
    """Return what an element without content is by the types of its schema; None where that is a text."""
    return None if "string" in allowed else [] if "array" in allowed else {} if "object" in allowed else None


def is_unclosed(text: str, prefix: str) -> bool:
    """Whether the last element of a text is still open."""
    position = 0
    while opening := _pattern(prefix).match(text, skip_space(text, position)):
        if opening[1]:
            return False
        name = opening[2].lower()
        tags = _pattern(prefix).finditer(text, opening.end())
        position = next((tag.end() for tag in tags if tag[1] and tag[2].lower() == name), -1)
        if position < 0:
            return True
    return False


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether the body ends inside a value, so that the closer behind it is text."""
    return is_unclosed(body, opener_prefix(opener))


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether an element begins in the body, or ends the one that the opener began; None if more text is needed."""
    tag = _BEGINS.match(body[:ENOUGH])
    if tag:
        return not tag[1] or f"<{tag[2]}".lower() in opener.lower()
    return None if len(body) < ENOUGH and _MAY_BEGIN.match(body) else False
