"""Words that get an input past the first line of a reader: field names, markers, kinds. All from the registry's data
and from what the simulator writes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from .models import covering

__all__ = ["fields", "literals", "marks"]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


@cache
def marks() -> tuple[str, ...]:
    """Return the marks that open, close and divide calls and thinking that are written as text."""
    found: dict[str, None] = {}
    for model in covering():
        flags = model.flags
        for rule in flags.leaks or ():
            for word in (*rule.open, *rule.close, *(rule.parts or ())):
                found[word] = None
        for word in flags.reasoning.tags or ():
            found[word] = None
    grammar = (
        *('<invoke name="search">', "</invoke>", '<parameter name="q">', "</parameter>", "<arg_key>q</arg_key>"),
        *("<arg_value>", "</arg_value>", "<function=search>", "</function>", "<parameter=q>", "search", "get_weather"),
        *('{"name":"search","arguments":{"q":"a"}}', '[{"name":"get_weather","arguments":{}}]', "functions.search:0"),
        *("```", "```json\n", "\n", " ", "q", "null", '"', "'", "{", "}", "[", "]", "<", ">", "</", "|", "｜", "\\"),
    )
    return (*found, *grammar)


@cache
def fields() -> tuple[str, ...]:
    """Return names of fields and words for kinds and ends, of every wire."""
    found: dict[str, None] = {}
    for model in covering():
        flags = msgspec.to_builtins(model.flags)
        for name in ("reasoning", "finish", "usage", "error", "stream", "schema"):
            for word in _strings(flags.get(name)):
                for piece in (word, *word.split(".")):
                    if 0 < len(piece) < 40:
                        found[piece] = None
    return tuple(found)


@cache
def literals() -> tuple[bytes, ...]:
    """Return all of these, as bytes, for the fuzzer's own dictionary."""
    frame = (
        b"data: ",
        b"event: error\n",
        b"\n\n",
        b"\r\n\r\n",
        b"\r",
        b": ping\n\n",
        b"[DONE]",
        b"\xef\xbb\xbf",
        b"null",
    )
    return (*frame, *(word.encode() for word in (*marks(), *fields())))
