"""Read tool calls in the grammars that models write: pure functions over the text of one block.

Each module is one grammar and has the name of its form. A block is read whole. Its calls are those that are certain;
everything else is returned as text. All functions take time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from cnllm.leaks.grammars import (
    arg_pairs,
    braces,
    channels,
    element,
    invoke,
    json_calls,
    named_json,
    pythonic,
    recipient,
    sections,
)
from cnllm.leaks.grammars.base import (
    ENOUGH,
    NAME,
    MarkupBlock,
    NotACall,
    NotOffered,
    ParsedCall,
    is_plausible_name,
)
from cnllm.leaks.grammars.json_calls import JsonScan
from cnllm.leaks.grammars.tags import opener_prefix
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import Markup, words_of

__all__ = [
    "JsonScan",
    "NotACall",
    "ParsedCall",
    "complete_block",
    "ends_inside_value",
    "goes_on",
    "has_begun",
    "is_certain",
    "is_own_tag",
    "json_scan",
    "may_be_whole",
    "may_begin",
    "read",
    "read_whole",
]


class _Grammar(Protocol):
    """The functions of one grammar: its module. They take the opener, the text behind it and the rule's words."""

    def read(self, block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
        """Return the calls of a block, and the texts that are no call."""

    def may_begin(self, opener: str, body: str, words: tuple[str, ...]) -> bool | None:
        """Whether a call begins; None if more text is needed."""

    def ends_inside_value(self, opener: str, body: str, words: tuple[str, ...], closers: list[str]) -> bool:
        """Whether the text ends inside a value."""


_GRAMMARS: dict[str, _Grammar] = {
    "json": json_calls,
    "invoke": invoke,
    "function": invoke,
    "arg-pairs": arg_pairs,
    "channels": channels,
    "braces": braces,
    "named-json": named_json,
    "pythonic": pythonic,
    "sections": sections,
    "element": element,
    "recipient": recipient,
}
_CERTAIN = {"invoke": invoke.is_certain, "function": invoke.is_certain, "arg-pairs": arg_pairs.is_certain}
_WORDS = {"arg-pairs": (2, 3), "channels": (3,), "braces": (1,), "named-json": (2,), "recipient": (1,)}
"""The numbers of words that a rule may name for a grammar: it must name as many."""


# What names the tool of the first call of an answer. A key that no call has matches, too, with no name.
_FIRST_KEY = r"name\"\s*:\s*\"([^\"]*)\"|(?!(?:name|type|function|arguments|parameters)\")()\w*\""
_NAMES = {
    "json": re.compile(rf"(?:\[\s*)?\{{\s*\"(?:{_FIRST_KEY})"),
    "pythonic": re.compile(rf"\[?\s*({NAME})\s*\("),
}


def read(
    leak: Markup, opener: str, block: str, tools: Mapping[str, Mapping[str, Any] | None]
) -> tuple[list[ParsedCall], list[str]]:
    """Return (calls, texts that are no call) of a complete block, with its opener and closer.

    `opener` is as written; `tools`: name → JSON Schema of the parameters, empty or None where it is not known. The
    grammars of the rule are tried in order, up to the first one that finds a call. Raises `NotACall` with the reason
    if none does, `NotOffered` if a grammar finds calls, but of no tool in `tools`.
    """
    text = block.rstrip()
    if not (closer := _closer(leak, opener, text)):
        raise NotACall("it is not complete")
    reason = ""
    not_offered: NotOffered | None = None
    for grammar in leak.format:
        body = text[len(opener) : len(text) - len(closer)]
        parsed_block = MarkupBlock(opener, body, closer, _parts(leak, grammar), tools, leak.strict)
        if _may_begin(leak, grammar, opener, parsed_block.body + closer) is False:
            reason = reason or "it does not begin like a call"
            continue
        try:
            return _read(grammar, parsed_block)
        except NotOffered as error:
            not_offered = not_offered or error
        except NotACall as error:
            reason = str(error)
    raise not_offered or NotACall(reason)


def _read(name: str, block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Read a block by one grammar. A parameter of a `function` may lack its closing tag. Raises `NotACall`."""
    calls, others = invoke.read(block, lenient=True) if name == "function" else _GRAMMARS[name].read(block)
    if not calls:
        raise NotACall("there is no call in it")
    return calls, others


def may_be_whole(leak: Markup, head: str, tools: Mapping[str, Any]) -> bool:
    """Whether an answer that begins with `head` may be a call as a whole, of one of the `tools`.

    After 200 characters the answer does not change.
    """
    head = head.lstrip()[:ENOUGH]
    if not head.startswith(tuple(leak.open)):
        return False
    for name in leak.format:
        if _may_begin(leak, name, "", head) is not False:
            called = _NAMES[name].match(head)
            return called is None or (called[1] or "") in tools
    return False


def read_whole(leak: Markup, text: str, tools: Mapping[str, Mapping[str, Any] | None]) -> list[ParsedCall]:
    """Return the calls of an answer that holds nothing else. Raises `NotACall` where it is no such answer."""
    text = text.strip()
    if not (text.startswith(tuple(leak.open)) and text.endswith(tuple(leak.close))):
        raise NotACall("it is not complete")
    reason = ""
    for name in leak.format:
        try:
            calls, others = _read(name, MarkupBlock("", text, "", _parts(leak, name), tools, True))
        except NotACall as error:
            reason = str(error)
            continue
        if not others and all(call.name in tools and call.arguments is not None for call in calls):
            return calls
        reason = "something in it is not a call of a tool that was offered"
    raise NotACall(reason)


def complete_block(leak: Markup, opener: str, block: str, tools: Mapping[str, Mapping[str, Any] | None]) -> str | None:
    """Return a block at the end of a text with the closer that it lacks; None if its body is not complete.

    A server that uses the closer as a stop text removes it, or leaves the beginning of it.
    """
    if leak.format == ["named-json"]:
        return None  # its closer is a part of the JSON
    block = block[: len(block) - Markers.copy(tuple(leak.close)).pending_length(block)]
    if _closer(leak, opener, block.rstrip()):
        return None  # it is closed in the middle of a value
    if ends_inside_value(leak, block.rstrip()):
        return None  # the value may be cut off
    body = block[len(opener) :].strip()
    if "channels" in leak.format and not channels.is_closed(body, _parts(leak, "channels")):
        return None
    if body[-1:] not in (">", "}", "]", ")", "`") and not is_plausible_name(body):
        return None
    inner = next(
        (invoke.missing_end(block, opener, _parts(leak, name)) for name in leak.format if name in invoke.WORDS), ""
    )
    for end in dict.fromkeys(["", inner]):
        for closer in leak.close:
            if closer == end:
                continue
            try:
                read(leak, opener, block + end + closer, tools)
            except NotACall as error:
                if not error.calls:
                    continue
            return block + end + closer
    return None


def has_begun(leak: Markup, opener: str, block: str) -> bool:
    """Whether a block ends right behind the beginning of a call or of an argument: more than a closer is missing.

    A `<` at the end of an open call may begin a closer, and the next argument as well.
    """
    rest = len(block) - Markers.copy(tuple(leak.close)).pending_length(block)
    goes_on = block[rest:].strip() != "" and "/" not in block[rest:]
    for name in leak.format:
        words = _parts(leak, name)
        if name == "sections" and sections.has_begun(block, words):
            return True
        if name in invoke.WORDS and (
            invoke.has_begun(block, opener, words) or (goes_on and invoke.is_open(block[:rest], opener, words))
        ):
            return True
        if name == "arg-pairs" and goes_on and _may_begin(leak, name, opener, block[len(opener) : rest]) is not False:
            return arg_pairs.is_open(block[len(opener) : rest], words)
    return False


def is_certain(leak: Markup, opener: str, block: str) -> bool:
    """Whether a block that cannot be read was meant as a call: a fence is, by its word, and elements need not be."""
    body = block[len(opener) :]
    names = [n for n in leak.format if n != "element" and _may_begin(leak, n, opener, body) is not False]
    return "`" in opener or any(
        name not in _CERTAIN or _CERTAIN[name](opener, body, _parts(leak, name)) for name in names
    )


def is_own_tag(leak: Markup, opener: str, head: str) -> bool:
    """Whether the tag behind `head`, the beginning of a block, is the one that names the tool of its first call."""
    between = head[len(opener) :].strip()
    return not invoke.WORDS.keys().isdisjoint(leak.format) and between in ("", opener_prefix(opener))


def json_scan(leak: Markup, opener: str, body: str) -> JsonScan | None:
    """Return a reader that tells where a block that begins so cannot go on; None if its text may be anything."""
    alive = [name for name in leak.format if _may_begin(leak, name, opener, body) is not False]
    return JsonScan() if alive == ["json"] and "`" not in opener else None


def ends_inside_value(leak: Markup, block: str) -> bool:
    """Whether `block`, which ends before a closer, ends inside a value, so that this closer is text.

    The function counts the grammar's own tags or quotes, so that it stays linear in the block. It can be wrong where
    the tags or quotes in the values are not balanced: a block that ends too early is unreadable, one that does not
    end is cut off at the end of the text, and both stay text.
    """
    match = Markers.copy(tuple(leak.open)).find(block)
    opener = block[: match[1]] if match and match[0] == 0 else ""
    body = block[len(opener) :]
    for grammar in leak.format:
        if _may_begin(leak, grammar, opener, body) is not False:
            return _GRAMMARS[grammar].ends_inside_value(opener, body, _parts(leak, grammar), leak.close)
    return False


def goes_on(leak: Markup, opener: str, block: str, rest: str) -> bool | None:
    """Whether the block that ends before `rest` goes on there with another call; None if more text is needed."""
    return named_json.goes_on(block[len(opener) :], rest) if leak.format == ["named-json"] else False


def may_begin(leak: Markup, opener: str, body: str) -> bool | None:
    """Whether the text behind an opener begins as the grammar does; None if more text is needed.

    After 200 characters the answer is never None.
    """
    answers = [_may_begin(leak, grammar, opener, body) for grammar in leak.format]
    return True if True in answers else None if None in answers else False


def _may_begin(leak: Markup, name: str, opener: str, body: str) -> bool | None:
    """Whether a text begins as one grammar does; None if more text is needed."""
    parts = _parts(leak, name)
    if len(parts) not in _WORDS.get(name, (len(parts),)):
        return False  # without its words it has no markers
    return _GRAMMARS[name].may_begin(opener, body, parts)


def _parts(leak: Markup, grammar: str) -> tuple[str, ...]:
    """Return the words of a grammar: those of the rule if they fit, else the words of the grammar itself."""
    rule_words = tuple(words_of(leak, grammar))
    words = invoke.WORDS.get(grammar)
    if words is None:
        return rule_words
    return rule_words if len(rule_words) == len(words) else words


def _closer(leak: Markup, opener: str, text: str) -> str:
    """Return the closer at the end of a block; "" if there is none."""
    closers = Markers.copy(tuple(leak.close))
    start = max(len(opener), len(text) - closers.longest)
    while (match := closers.find(text, start)) is not None:
        if match[1] == len(text):
            return text[match[0] :]
        start = match[0] + 1
    return ""
