"""The grammar "arg-pairs": the name of the tool, then a key and a value in tags of their own for each argument.

    NAME
    <KEY>city</KEY><VALUE>Paris</VALUE>

KEY and VALUE are words of the rule (its `parts`): the grammar has none of its own.

A tag may stand between the name and the first key, and tags around a call or around several.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from cnllm.leaks.grammars.base import ENOUGH, NAME, Block, NotOffered, Unreadable, Written, named, own_lines
from cnllm.schemas.coerce import property_schema, typed

__all__ = ["inside", "read", "viable"]

_WORD = r"[\w.:-]{1,64}"


class _Tags:
    """The patterns of one pair of words."""

    def __init__(self, key: str, value: str) -> None:
        key, value = re.escape(key), re.escape(value)
        self.open_key = re.compile(rf"\s*<{key}>")
        self.close_key = re.compile(rf"</{key}>\s*<{value}>")
        self.values = re.compile(rf"<(/?){value}>")
        self.over = re.compile(rf"\s*(?:<{key}>|</(?!{value}>){_WORD}>|\Z)")
        self.wrapper = re.compile(rf"\s*<(?!{key}>)({_WORD})>")
        self.close = re.compile(rf"\s*</({_WORD})>")
        self.closed = re.compile(rf"(?:\s*</{_WORD}>|\s*<{_WORD}>(?:\s*{NAME}\s*(?:<{_WORD}>\s*)?</{_WORD}>)?)*\s*")
        self.name = re.compile(rf"\s*({NAME})\s*(?:<(?!{key}>){_WORD}>\s*)?(?=<|\Z)")
        between = rf"\s*(?:<(?!{key}>){_WORD}>\s*)?"
        begun = rf"(?:\s*<{_WORD}>){{0,3}}\s*"
        self.begins = re.compile(rf"{begun}{NAME}{between}<(?:/|{key}>)")
        self.may_begin = re.compile(rf"{begun}(?:<[\w.:-]{{0,64}}|{NAME}{between}(?:<[\w.:-]{{0,64}})?)?\Z")


@lru_cache(maxsize=16)
def _tags(words: tuple[str, ...]) -> _Tags:
    return _Tags(*words)


def read(block: Block) -> tuple[list[Written], list[str]]:
    """The calls of a block, and the text of what is none."""
    tags = _tags(block.parts)
    text = block.body
    calls: list[Written] = []
    others: list[str] = []
    problem = "there is no call in it"
    unknown: NotOffered | None = None
    around: list[str] = []
    counting = True
    at = 0
    while text[at:].strip():
        start = at
        while wrapper := tags.wrapper.match(text, at):
            around.append(wrapper[1])
            at = wrapper.end()
        name = tags.name.match(text, at)
        if name is None:
            raise Unreadable("it does not begin with a name")
        found, at, counting = _pairs(text, name.end(), tags, counting)
        while around and (close := tags.close.match(text, at)) and close[1] == around[-1]:
            around.pop()
            at = close.end()
        try:
            calls.append(_call(name[1], found, block))
        except NotOffered as error:
            unknown = error
            others.append(text[start:at].strip())
        except Unreadable as error:
            problem = str(error)
            others.append(text[start:at].strip())
    if around:
        raise Unreadable("a tag around a call is not closed")
    if not calls:
        raise unknown or Unreadable(problem)
    return calls, others


def _pairs(text: str, at: int, tags: _Tags, counting: bool) -> tuple[list[tuple[str, str]], int, bool]:
    """(the pairs that begin here, where they end, did the tags inside values come out even?)."""
    out: list[tuple[str, str]] = []
    while opening := tags.open_key.match(text, at):
        middle = tags.close_key.search(text, opening.end())
        if middle is None:
            raise Unreadable("a key has no value")
        end, at, counting = _value(text, middle.end(), tags, counting)
        out.append((text[opening.end() : middle.start()].strip(), text[middle.end() : end]))
    return out, at, counting


def _value(text: str, start: int, tags: _Tags, counting: bool) -> tuple[int, int, bool]:
    """(where a value ends, where what is behind it begins, did the tags come out even?).

    A value may hold the grammar's own tags: those that open in it are counted, and it ends where the grammar goes on.
    Once that does not come out even, tags are no longer counted, so that each is looked at twice at most.
    """
    flat: tuple[int, int] | None = None
    depth = 1
    for tag in tags.values.finditer(text, start):
        if not tag[1]:
            depth += counting
            continue
        goes_on = tags.over.match(text, tag.end()) is not None
        if goes_on and depth == 1:
            return *tag.span(), counting
        flat = flat or (tag.span() if goes_on else None)
        depth -= depth > 1
    if flat is None:
        raise Unreadable("a value is not closed")
    return *flat, False


def _call(name: str, pairs: list[tuple[str, str]], block: Block) -> Written:
    name = named(name, block.tools)
    if not pairs and block.tools and name not in block.tools:
        raise NotOffered(f"no tool is called {name}", [Written(name, {})])
    schema: Any = block.tools.get(name)
    arguments: dict[str, Any] = {}
    for key, value in pairs:
        one = property_schema(schema, key, schema)
        if one is None and ("<" in key or "\n" in key or not key):
            raise Unreadable("what stands for a key is no key")
        arguments[key] = typed(own_lines(value), one, schema)
    return Written(name, arguments)


def inside(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Does the body end where a closer is not one: in a value, or behind what only looked like the end of one?

    Where more values were opened than closed, the last one may hold a block of its own, which this closer ends.
    """
    tags = _tags(words)
    opened = closed = 0
    end = 0
    for tag in tags.values.finditer(body):
        opened, closed = opened + (not tag[1]), closed + bool(tag[1])
        end = tag.end()
    if opened == 0 or tags.closed.fullmatch(body, end) is None or body.endswith(f"<{words[1]}>", 0, end):
        return opened > 0
    return opened > closed and body.count(opener) > sum(map(body.count, closers))


def viable(body: str, words: tuple[str, ...]) -> bool | None:
    """Does a name begin here, and then a pair, or the end?"""
    tags = _tags(words)
    body = body[:ENOUGH]
    if tags.begins.match(body):
        return True
    return None if len(body) < ENOUGH and tags.may_begin.match(body) else False
