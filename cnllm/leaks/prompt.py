"""The markup of calls that the prompt holds: what a model writes of it is a quotation.

Two texts are the same here if they differ in white space, quotation marks, bars, HTML entities and the escapes of JSON
alone; and two calls, if their names and arguments are equal. The prompt is read when the first block is compared.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cnllm.leaks import grammars
from cnllm.leaks.grammars import Written
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import words_of
from cnllm.registry.flags import Leak

__all__ = ["Prompt"]

_NEAR = 2  # openers before a closer, and closers behind an opener, between which a block is looked for
_TRIES = 64  # closers that stand inside the values of one block
_UNESCAPES = 3  # how often text may have been escaped
_ENTITY = re.compile(r"&(?:#|[A-Za-z])")
_SLASHES = re.compile(r"\\+")
_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_SPACE_ESCAPE = re.compile(r"\\[nrtbf]")
_DROPPED = re.compile(r"[\s\\\"'`“”‘’„‚‟‛«»‹›「」『』《》〈〉｢｣〝〞＂＇*｜|‖▁_\u200b-\u200f\u2060\ufeff]+")
_PREFIX = re.compile(r"^[ \t]*(?:(?:>|#+|//+|\*|[-+]|\|)[ \t]?)+|^[ \t]+", re.MULTILINE)

_PAIRS: Final = "arg-pairs"
_COMMON = (
    Leak(["<tool_call>"], ["</tool_call>"], ["json", "function", _PAIRS]),
    Leak(["<tool_calls>", "```tool_call"], ["</tool_calls>", "```"], ["json", _PAIRS]),
    Leak(["<function="], ["</function>"], ["function"]),
    Leak(["<invoke "], ["</invoke>"], ["invoke"]),
)
"""What stands in a prompt may have been written for any model."""


class Prompt:
    """What the user and the results of tools said, to compare blocks with. `texts` gives it when it is asked for."""

    __slots__ = ("_blocks", "_calls", "_rules", "_texts", "_tools", "_words")

    def __init__(
        self, texts: Callable[[], Iterable[str]], rules: Sequence[Leak], tools: Mapping[str, Any] | None
    ) -> None:
        self._texts = texts
        pairs = next((words for rule in rules if (words := words_of(rule, _PAIRS)) and _PAIRS in rule.format), None)
        known = {_PAIRS: pairs} if pairs else None
        common = [replace(rule, parts=known) if _PAIRS in rule.format else rule for rule in _COMMON]
        self._rules = rules = [*rules, *common]
        self._tools = tools or {}
        self._blocks: set[str] | None = None
        self._calls: set[bytes] = set()
        openers = [opener for rule in rules for opener in rule.open]
        self._words = {max(re.split("[^A-Za-z]+", opener), key=len) for opener in openers}

    def holds(self, block: str, calls: Sequence[Written]) -> bool:
        """Whether the prompt holds this block, or a block with the same calls."""
        if self._blocks is None:
            self._blocks = set()
            for text in self._texts():
                self._read(text)
        if calls and self._calls and all(_key(call) in self._calls for call in calls):
            return True
        return bool(self._blocks) and bare(block) in self._blocks

    def _read(self, text: str) -> None:
        """Gather the blocks of one text, in each of the forms that it may stand in."""
        assert self._blocks is not None
        if "\\u" not in text and "&#" not in text and not any(word in text for word in self._words):
            return
        forms = dict.fromkeys(_forms(text))
        openers = Markers.of(tuple(dict.fromkeys(opener for rule in self._rules for opener in rule.open)))
        rules = {opener: rule for rule in reversed(self._rules) for opener in rule.open}
        for form in forms:
            for rule, opener, block in _found(form, openers, rules):
                try:
                    calls, _ = grammars.read(rule, opener, block, self._tools)
                except grammars.Unreadable:
                    continue
                self._calls.update(map(_key, calls))
        for without in {bare(text), bare(_PREFIX.sub("", _decoded(text)))}:
            for rule in self._rules:
                self._blocks.update(_segments(without, [bare(o) for o in rule.open], [bare(c) for c in rule.close]))


def bare(text: str) -> str:
    """A text without all that quoting changes."""
    text = _SLASHES.sub(r"\\", _decoded(text))
    text = _UNICODE.sub(lambda found: chr(int(found[1], 16)), text)
    return _DROPPED.sub("", _SPACE_ESCAPE.sub("", text))


def _decoded(text: str) -> str:
    """A text without HTML entities."""
    for _ in range(_UNESCAPES):
        if _ENTITY.search(text) is None:
            break
        text = html.unescape(text)
    return text


def _forms(text: str) -> Iterator[str]:
    """A text as it is, and without what may have been put around or into it."""
    yield text
    text = _decoded(text)
    yield text
    yield _PREFIX.sub("", text)
    for _ in range(_UNESCAPES):
        if "\\" not in text:
            return
        text = _unescaped(text)
        yield text
        yield _PREFIX.sub("", text)


_JSON_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[nrtbf\"\\/'])")
_MEANS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def _unescaped(text: str) -> str:
    """A text as if it had been a string of JSON."""
    return _JSON_ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _MEANS.get(found[1], found[1]), text
    )


def _found(text: str, openers: Markers, rules: Mapping[str, Leak]) -> Iterator[tuple[Leak, str, str]]:
    """(rule, opener, block) of each block of a text, wherever it stands."""
    at = 0
    unclosed: set[int] = set()  # rules of which no closer follows
    while (opening := openers.find(text, at)) is not None:
        start, at, which = opening
        rule, opener = rules[openers.markers[which]], text[start:at]
        if not grammars.viable(rule, opener, text[at : at + 256]):
            continue
        closers = Markers.of(tuple(rule.close))
        closing = None if id(rule) in unclosed else closers.find(text, at)
        if closing is None:
            unclosed.add(id(rule))
        for _ in range(_TRIES):
            if closing is None or not grammars.inside(rule, text[start : closing[0]]):
                break
            closing = closers.find(text, closing[1])
        if closing is not None:
            yield rule, opener, text[start : closing[1]]
            at = closing[1]


def _segments(text: str, openers: Sequence[str], closers: Sequence[str]) -> Iterator[str]:
    """What stands between an opener and a closer near it, both included."""
    begins = sorted({found.start() for one in openers if one for found in re.finditer(re.escape(one), text)})
    ends = sorted({found.end() for one in closers if one for found in re.finditer(re.escape(one), text)})
    behind = 0  # the first end behind a begin
    for number, begin in enumerate(begins):
        while behind < len(ends) and ends[behind] <= begin:
            behind += 1
        for end in ends[behind : behind + _NEAR]:
            after = number + _NEAR
            if after >= len(begins) or begins[after] > end:
                yield text[begin:end]


def _key(call: Written) -> bytes:
    """What two calls that say the same have in common."""
    return msgspec.json.encode([call.name, call.raw if call.arguments is None else call.arguments], order="sorted")
