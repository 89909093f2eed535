"""Read tool calls in the grammars that models write: pure functions over the text of one block.

Each module is one grammar and has the name of its form. A block is read whole. Its calls are those that are certain;
everything else is returned as text. All functions take time linear in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cnllm.leaks.grammars import braces, channels, elements, named_json, objects, pairs, sections, tagged
from cnllm.leaks.grammars.base import MarkupBlock, NotACall, NotOffered, ParsedCall
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import words_of
from cnllm.registry.flags import Leak

__all__ = ["NotACall", "NotOffered", "ParsedCall", "ends_inside_value", "may_begin", "read"]


def read(
    leak: Leak, opener: str, block: str, tools: Mapping[str, Mapping[str, Any] | None]
) -> tuple[list[ParsedCall], list[str]]:
    """Return (calls, texts that are no call) of a complete block, with its opener and closer.

    `opener` is as written; `tools`: name → JSON Schema of the parameters, empty or None where it is not known. The
    grammars of the rule are tried in order, up to the first one that finds a call. Raises `NotACall` with the reason
    if none does, `NotOffered` if a grammar finds calls, but of no tool in `tools`.
    """
    text = block.rstrip()
    closer = _closer(leak, opener, text)
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


def ends_inside_value(leak: Leak, block: str) -> bool:
    """Whether `block`, which ends before a closer, ends inside a value, so that this closer is text.

    The function counts the grammar's own tags or quotes, so that it stays linear in the block. It can be wrong where
    the tags or quotes in the values are not balanced: a block that ends too early is unreadable, one that does not
    end is cut off at the end of the text, and both stay text.
    """
    match = Markers.copy(tuple(leak.open)).find(block)
    opener = block[: match[1]] if match and match[0] == 0 else ""
    body = block[len(opener) :]
    for grammar in leak.format:
        if _may_begin(leak, grammar, opener, body) is False:
            continue
        parts = _parts(leak, grammar)
        if grammar == "json":
            return objects.ends_inside_value(opener, body)
        if grammar in tagged.WORDS:
            return tagged.ends_inside_value(opener, block, parts)
        if grammar == "arg-pairs":
            return pairs.ends_inside_value(opener, body, parts, leak.close)
        if grammar == "channels":
            return channels.ends_inside_value(body, parts)
        if grammar == "braces":
            return braces.ends_inside_value(body, parts)
        if grammar == "named-json":
            return named_json.ends_inside_value(body, parts)
        return (
            sections.ends_inside_value(block, parts)
            if grammar == "sections"
            else elements.ends_inside_value(opener, body)
        )
    return False


def may_begin(leak: Leak, opener: str, body: str) -> bool | None:
    """Whether the text behind an opener begins as the grammar does; None if more text is needed.

    After 200 characters the answer is never None.
    """
    answers = [_may_begin(leak, grammar, opener, body) for grammar in leak.format]
    return True if True in answers else None if None in answers else False


def _may_begin(leak: Leak, grammar: str, opener: str, body: str) -> bool | None:
    """Whether a text begins as one grammar does; None if more text is needed."""
    parts = _parts(leak, grammar)
    if grammar == "json":
        return objects.may_begin(body)
    if grammar in tagged.WORDS:
        return tagged.may_begin(opener, body, parts)
    if grammar == "arg-pairs":
        return pairs.may_begin(body, parts) if len(parts) == 2 else False  # without its words there are no such tags
    if grammar == "channels":
        return channels.may_begin(body, parts) if len(parts) == 3 else False
    if grammar == "braces":
        return braces.may_begin(body) if len(parts) == 1 else False
    if grammar == "named-json":
        return named_json.may_begin(body, parts) if len(parts) == 2 else False
    return sections.may_begin(opener, body, parts) if grammar == "sections" else elements.may_begin(opener, body)


def _read(grammar: str, block: MarkupBlock) -> tuple[list[ParsedCall], list[str]]:
    """Read a block by one grammar."""
    if grammar == "json":
        return objects.read(block)
    if grammar in tagged.WORDS:
        return tagged.read(block, lenient=grammar == "function")
    if grammar == "arg-pairs":
        return pairs.read(block)
    if grammar == "channels":
        return channels.read(block)
    if grammar == "braces":
        return braces.read(block)
    if grammar == "named-json":
        return named_json.read(block)
    return sections.read(block) if grammar == "sections" else elements.read(block)


def _parts(leak: Leak, grammar: str) -> tuple[str, ...]:
    """Return the words of a grammar: those of the rule if they fit, else the words of the grammar itself."""
    rule_words = tuple(words_of(leak, grammar))
    words = tagged.WORDS.get(grammar)
    if words is None:
        return rule_words
    return rule_words if len(rule_words) == len(words) else words


def _closer(leak: Leak, opener: str, text: str) -> str:
    """Return the closer at the end of a block. Raises `NotACall` if there is none."""
    closers = Markers.copy(tuple(leak.close))
    start = max(len(opener), len(text) - closers.longest)
    while (match := closers.find(text, start)) is not None:
        if match[1] == len(text):
            return text[match[0] :]
        start = match[0] + 1
    raise NotACall("it is not complete")
