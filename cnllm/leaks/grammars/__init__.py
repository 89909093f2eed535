"""The grammars in which models write tool calls: pure functions over the text of one block.

Each module is a grammar, named by its form. A block is read whole, and the calls in it are those that are certain;
what is not certain is handed back as the text it is. All of it takes time linear in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cnllm.leaks.grammars import elements, objects, pairs, sections, tagged
from cnllm.leaks.grammars.base import Block, NotOffered, Unreadable, Written
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import words_of
from cnllm.registry.flags import Leak

__all__ = ["NotOffered", "Unreadable", "Written", "inside", "read", "viable"]


def read(
    leak: Leak, opener: str, block: str, tools: Mapping[str, Mapping[str, Any] | None]
) -> tuple[list[Written], list[str]]:
    """(calls, text of what in it is no call) of a complete block, from its opener to its closer, both included.

    `opener` is as written; `tools`: name → JSON Schema of the parameters, empty or None where it is not known. The
    grammars of the rule are tried in order, and the first that finds a call has read it. Raises Unreadable, with the
    reason, when none does; NotOffered when what one finds calls no tool of `tools`.
    """
    text = block.rstrip()
    closer = _closer(leak, opener, text)
    reason = ""
    others: NotOffered | None = None
    for format in leak.format:
        body = text[len(opener) : len(text) - len(closer)]
        whole = Block(opener, body, closer, _parts(leak, format), tools, leak.strict)
        if _viable(leak, format, opener, whole.body + closer) is False:
            reason = reason or "it does not begin as a call does"
            continue
        try:
            return _read(format, whole)
        except NotOffered as error:
            others = others or error
        except Unreadable as error:
            reason = str(error)
    raise others or Unreadable(reason)


def inside(leak: Leak, block: str) -> bool:
    """Is the end of `block`, which stops right before a closer, still inside a value, so that this closer is text?

    It tells by counting the grammar's own tags or quotes, so that it stays linear in the block. Where those in the
    values do not come out even it can be wrong: a block that ends too early is unreadable, one that does not end is cut
    off at the end of the text, and either is text.
    """
    found = Markers.of(tuple(leak.open)).find(block)
    opener = block[: found[1]] if found and found[0] == 0 else ""
    body = block[len(opener) :]
    for format in leak.format:
        if _viable(leak, format, opener, body) is False:
            continue
        parts = _parts(leak, format)
        if format == "json":
            return objects.inside(opener, body)
        if format in tagged.WORDS:
            return tagged.inside(opener, block, parts)
        if format == "arg-pairs":
            return pairs.inside(opener, body, parts, leak.close)
        return sections.inside(block, parts) if format == "sections" else elements.inside(opener, body)
    return False


def viable(leak: Leak, opener: str, body: str) -> bool | None:
    """Does what follows an opener (so far) begin as the grammar does? None: more is needed to tell.

    After 200 characters it is told, whatever follows.
    """
    told = [_viable(leak, format, opener, body) for format in leak.format]
    return True if True in told else None if None in told else False


def _viable(leak: Leak, format: str, opener: str, body: str) -> bool | None:
    parts = _parts(leak, format)
    if format == "json":
        return objects.viable(body)
    if format in tagged.WORDS:
        return tagged.viable(opener, body, parts)
    if format == "arg-pairs":
        return pairs.viable(body, parts) if len(parts) == 2 else False  # a rule names its words, or means no such tags
    return sections.viable(opener, body, parts) if format == "sections" else elements.viable(opener, body)


def _read(format: str, block: Block) -> tuple[list[Written], list[str]]:
    if format == "json":
        return objects.read(block)
    if format in tagged.WORDS:
        return tagged.read(block, lenient=format == "function")
    if format == "arg-pairs":
        return pairs.read(block)
    return sections.read(block) if format == "sections" else elements.read(block)


def _parts(leak: Leak, format: str) -> tuple[str, ...]:
    """Return the words of a grammar: those of the rule where they fit, else the ones that name the grammar."""
    given = tuple(words_of(leak, format))
    words = tagged.WORDS.get(format)
    if words is None:
        return given
    return given if len(given) == len(words) else words


def _closer(leak: Leak, opener: str, text: str) -> str:
    """The closer that a block ends with. Raises Unreadable where it has none."""
    closers = Markers.of(tuple(leak.close))
    at = max(len(opener), len(text) - closers.longest)
    while (found := closers.find(text, at)) is not None:
        if found[1] == len(text):
            return text[found[0] :]
        at = found[0] + 1
    raise Unreadable("it is not complete")
