"""Elements: a tag for each argument (`<city>Paris</city>`), and the grammar "element", where the tool is one too.

There the call is an element with the tool's name, or the elements `name` and `arguments`.

Inside a value, tags are text, unless the schema says that it is an object or an array, or a prefix marks them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from cnllm.leaks.grammars.base import ENOUGH, MarkupBlock, NotACall, NotOffered, ParsedCall, read_name, strip_own_lines
from cnllm.leaks.grammars.tags import opener_prefix
from cnllm.schemas.coerce import allowed_types, coerce, decode_json, item_schema, property_schema

__all__ = ["inside", "is_unclosed", "read", "read_arguments", "viable"]

_KEY = r"[\w.:-]{1,128}"
_ITEM = "item"
_ARGUMENTS = ("arguments", "parameters")
_AROUND = ("tool_call", "tool_calls", "function_calls", "function_call", "invoke")
"""Elements that stand around a call and do not name it."""
_DEEP = 32
_SPACE = re.compile(r"\s*")
_BEGINS = re.compile(rf"\s*<(/?)({_KEY})\s{{0,2}}>")
_MAY_BEGIN = re.compile(rf"\s*(?:<(?:/?{_KEY}\s{{0,2}}|/)?)?\Z")


@lru_cache(maxsize=64)
def _pattern(prefix: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(prefix)}<(/?)({_KEY})\s{{0,2}}>")


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """The call of a block whose opener names the tool, or the calls in a wrapper. The tools must have been offered."""
    prefix = opener_prefix(block.opener)
    opening = _pattern(prefix).match(block.opener.lstrip())
    if opening is not None and opening[2] in block.tools:
        return [ParsedCall(opening[2], read_arguments(block.body, block.tools[opening[2]], prefix))], []
    children = _split(block.body, prefix) or []
    said = dict(children)
    if len(said) == len(children) and "name" in said and len(said) <= 2 and set(said) <= {"name", *_ARGUMENTS}:
        name = read_name(said.pop("name"), block.tools)
        return [ParsedCall(name, _given(next(iter(said.values()), ""), block.tools.get(name), prefix))], []
    calls: list[ParsedCall] = []
    others: list[str] = []
    for name, inner in children:
        if name in block.tools:
            calls.append(ParsedCall(name, read_arguments(inner, block.tools[name], prefix)))
        else:
            others.append(f"{prefix}<{name}>{inner}{prefix}</{name}>")
    if not calls:
        raise NotOffered("it names no tool that was offered", _unknown(opening, children, block, prefix))
    return calls, others


def _unknown(
    opening: re.Match[str] | None, children: list[tuple[str, str]], block: MarkupBlock, prefix: str
) -> list[ParsedCall]:
    """The call of a tool that nobody knows, as well as it can be told: the one element that holds others is it."""
    outer = opening[2] if opening is not None and opening[2] not in _AROUND else ""
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
        return [ParsedCall(name, {})]


def _given(text: str, schema: Any, prefix: str) -> dict[str, Any]:
    """The arguments in an element of their own: a JSON object, elements, or nothing."""
    text = text.strip()
    if not text:
        return {}
    try:
        value, end = decode_json(text)
    except ValueError:
        return read_arguments(text, schema, prefix)
    if type(value) is not dict or text[end:].strip():
        raise NotACall("its arguments are not an object")
    return value


def read_arguments(text: str, schema: Any, prefix: str) -> dict[str, Any]:
    """The arguments of a call that has an element for each."""
    children = _split(text, prefix)
    if children is None:
        raise NotACall("its arguments are neither parameters nor elements")
    return _object(children, schema, schema, prefix, 0)


def _split(text: str, prefix: str) -> list[tuple[str, str]] | None:
    """(name, text) of each element of a text; None where it is something else than elements."""
    tags = list(_pattern(prefix).finditer(text))
    out: list[tuple[str, str]] = []
    at = end = 0
    while at < len(tags):
        opening = tags[at]
        if opening[1] or text[end : opening.start()].strip():
            return None
        depth = 1
        for place in range(at + 1, len(tags)):
            tag = tags[place]
            if tag[2] != opening[2]:
                continue
            if not tag[1]:
                depth += 1
            elif depth > 1:
                depth -= 1
            elif prefix or _goes_on(text, tags, place):
                out.append((opening[2], text[opening.end() : tag.start()]))
                at, end = place + 1, tag.end()
                break
        else:
            return None
    return None if text[end:].strip() else out


def _goes_on(text: str, tags: list[re.Match[str]], at: int) -> bool:
    """Behind an element stands the next one or nothing; else its closing tag is text."""
    following = tags[at + 1] if at + 1 < len(tags) else None
    if text[tags[at].end() : following.start() if following else len(text)].strip():
        return False
    return following is None or not following[1]


def _object(children: list[tuple[str, str]], schema: Any, root: Any, prefix: str, depth: int) -> dict[str, Any]:
    """Elements as members; several of one name are an array."""
    found: dict[str, list[str]] = {}
    for name, inner in children:
        found.setdefault(name, []).append(inner)
    out: dict[str, Any] = {}
    for name, texts in found.items():
        one = property_schema(schema, name, root)
        if len(texts) == 1:
            out[name] = _value(texts[0], one, root, prefix, depth + 1)
        else:
            each = item_schema(one, root)
            out[name] = [_value(text, each, root, prefix, depth + 1) for text in texts]
    return out


def _value(text: str, schema: Any, root: Any, prefix: str, depth: int) -> Any:
    """What an element holds: an object, an array, or text."""
    if depth > _DEEP:
        raise NotACall("it is too deeply nested")
    allowed = allowed_types(schema, root)
    children: list[tuple[str, str]] | None = None
    if allowed & {"object", "array"} or (prefix and not allowed):
        children = _split(text, prefix)
    if not children:
        return coerce(strip_own_lines(text), schema, root)
    names = {name for name, _ in children}
    if "object" not in allowed and ("array" in allowed or names == {_ITEM}):
        each = item_schema(schema, root)
        return [_value(inner, each, root, prefix, depth + 1) for _, inner in children]
    return _object(children, schema, root, prefix, depth)


def is_unclosed(text: str, prefix: str) -> bool:
    """Is the last element of a text still open?"""
    at = 0
    while (start := _SPACE.match(text, at)) and (opening := _pattern(prefix).match(text, start.end())):
        if opening[1]:
            return False
        close = f"{prefix}</{opening[2]}>"
        at = text.find(close, opening.end())
        if at < 0:
            return True
        at += len(close)
    return False


def inside(opener: str, body: str) -> bool:
    """Does the body end where a closer is not one?"""
    return is_unclosed(body, opener_prefix(opener))


def viable(opener: str, body: str) -> bool | None:
    """Does an element begin here, or end the one that the opener began?"""
    begun = _BEGINS.match(body[:ENOUGH])
    if begun:
        return not begun[1] or f"<{begun[2]}>" in opener
    return None if len(body) < ENOUGH and _MAY_BEGIN.match(body) else False
