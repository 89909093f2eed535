"""Read the grammar "recipient": the tool stands before the marker that begins its arguments, each in a tag.

    NAME BEGIN <parameter name="p">v</parameter>

BEGIN is a word of the rule (its `parts`). The parameters are read as those of "invoke".
"""

from __future__ import annotations

import re

from cnllm.leaks.grammars import invoke
from cnllm.leaks.grammars.base import ENOUGH, NAME, MarkupBlock, NotACall, ParsedCall
from cnllm.leaks.markers import Markers

__all__ = ["ends_inside_value", "may_begin", "read"]

_RECIPIENT = re.compile(NAME)
_NAMESPACE = re.compile(r"\s*<\s{0,2}([\w.-]{1,64}:)")
_NEXT = re.compile(r"(?<![>\s])\n(?=<\s{0,2}((?:[\w.-]{1,64}:)?parameter)\s)")
_IS_CLOSED = re.compile(r"\A<[^<>]*>\s*\Z|</\s{0,2}(?:[\w.-]{1,64}:)?parameter\s{0,4}>\s*\Z")
_WORDS = invoke.WORDS["invoke"]


def read(block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Return the call of a block. A parameter may lack its end where the next one begins on a line of its own."""
    text = _as_invoke(block.body, block.parts)
    if text is None:
        raise NotACall("it does not begin with a name")
    if not _IS_CLOSED.search(text):
        raise NotACall("a parameter is not closed")
    tag = text[1 : text.index(" ")]
    return invoke.read(MarkupBlock("", f"{text}</{tag}>", "", _WORDS, block.tools), lenient=True)


def _as_invoke(body: str, words: tuple[str, ...]) -> str | None:
    """Return a block with the tool in a tag before its parameters, without the end; None where no call begins."""
    name = _RECIPIENT.match(body)
    begin = Markers.copy(words).match(body, name.end()) if name else None
    if name is None or begin is None:
        return None
    parameters = body[begin[1] :]
    namespace = _NAMESPACE.match(parameters)
    return f'<{namespace[1] if namespace else ""}{_WORDS[0]} name="{name[0]}">{parameters}'


def ends_inside_value(opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
    """Whether a block ends inside a value, so that the closer behind it is text."""
    text = _as_invoke(body, words)
    if text is None:
        return False
    closed = _NEXT.sub(r"\n</\1>\n", text)  # models forget the tag before the next parameter, which begins a line
    return all(invoke.ends_inside_value("", each, _WORDS, closers) for each in (text, closed))


def may_begin(opener: str, body: str, words: tuple[str, ...]) -> bool | None:
    """Whether a name and the marker behind it begin in the body; None if more text is needed."""
    text = body[:ENOUGH]
    name = _RECIPIENT.match(text)
    if name is None:
        return False if text else None
    markers = Markers.copy(words)
    if markers.match(text, name.end()) is not None:
        return True
    is_open = name.end() == len(text) or markers.is_beginning(text, name.end())
    return None if is_open and len(body) < ENOUGH else False
