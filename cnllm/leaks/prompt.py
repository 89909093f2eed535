"""Find the markup of calls in the prompt: a model that writes it again quotes it.

Two texts are equal for this purpose if they differ only in white space, quotation marks, bars, HTML entities and
JSON escapes. Two calls are equal if their names and arguments are. The prompt is read when the first block is
compared.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cnllm.leaks import grammars
from cnllm.leaks.grammars import ParsedCall
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import Markup, words_of

__all__ = ["PromptTexts", "normalize_quoted"]

_NEAR = 2  # openers before a closer, and closers behind an opener, that may enclose a block
_TRIES = 64  # closers that stand inside the values of one block
_UNESCAPES = 3  # how many times a text may be escaped
_ENTITY = re.compile(r"&(?:#|[A-Za-z])")
_SLASHES = re.compile(r"\\+")
_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_SPACE_ESCAPE = re.compile(r"\\[nrtbf]")
_IGNORED = re.compile(r"[\s\\\"'`“”‘’„‚‟‛«»‹›「」『』《》〈〉｢｣〝〞＂＇*｜|‖▁_\u200b-\u200f\u2060\ufeff]+")
_PREFIX = re.compile(r"^[ \t]*(?:(?:>|#+|//+|\*|[-+]|\|)[ \t]?)+|^[ \t]+", re.MULTILINE)

_PAIRS: Final = "arg-pairs"
_COMMON = (
    Markup(["<tool_call>"], ["</tool_call>"], ["json", "function", _PAIRS]),
    Markup(["<tool_calls>", "```tool_call"], ["</tool_calls>", "```"], ["json", _PAIRS]),
    Markup(["<function="], ["</function>"], ["function"]),
    Markup(["<invoke "], ["</invoke>"], ["invoke"]),
)
"""Rules of common markup: the markup in a prompt may be that of any model."""


class PromptTexts:
    """The texts of the user and of tool results, to compare blocks with. `texts` returns them on the first use."""

    def __init__(
        self, texts: Callable[[], Iterable[str]], rules: Sequence[Markup], tools: Mapping[str, Any] | None
    ) -> None:
        self._texts = texts
        pairs = next((words for rule in rules if (words := words_of(rule, _PAIRS)) and _PAIRS in rule.format), None)
        parts = {_PAIRS: pairs} if pairs else None
        common = [replace(rule, parts=parts) if _PAIRS in rule.format else rule for rule in _COMMON]
        self._rules = rules = [*rules, *common]
        self._tools = tools or {}
        self._blocks: set[str] | None = None
        self._calls: set[bytes] = set()
        openers = [opener for rule in rules for opener in rule.open]
        self._words = {max(re.split("[^A-Za-z]+", opener), key=len) for opener in openers}

    def contains(self, block: str, calls: Sequence[ParsedCall]) -> bool:
        """Whether the prompt contains this block, or a block with the same calls."""
        if self._blocks is None:
            self._blocks = set()
            for text in self._texts():
                self._read(text)
        if calls and self._calls and all(_call_key(call) in self._calls for call in calls):
            return True
        return bool(self._blocks) and normalize_quoted(block) in self._blocks

    def _read(self, text: str) -> None:
        """Collect the blocks of one text, in each form that it may have."""
        assert self._blocks is not None
        if "\\u" not in text and "&#" not in text and not any(word in text for word in self._words):
            return
        forms = dict.fromkeys(_forms(text))
        openers = Markers.copy(tuple(dict.fromkeys(opener for rule in self._rules for opener in rule.open)))
        rules = {opener: rule for rule in reversed(self._rules) for opener in rule.open}
        for form in forms:
            for rule, opener, block in _find_blocks(form, openers, rules):
                try:
                    calls, _ = grammars.read(rule, opener, block, self._tools)
                except grammars.NotACall:
                    continue
                self._calls.update(map(_call_key, calls))
        for normal in {normalize_quoted(text), normalize_quoted(_PREFIX.sub("", _decode_entities(text)))}:
            for rule in self._rules:
                begins, ends = map(normalize_quoted, rule.open), map(normalize_quoted, rule.close)
                self._blocks.update(_segments(normal, begins, ends))


def normalize_quoted(text: str) -> str:
    """Return a text without everything that quoting may change."""
    text = _SLASHES.sub(r"\\", _decode_entities(text))
    text = _UNICODE.sub(lambda match: chr(int(match[1], 16)), text)
    return _IGNORED.sub("", _SPACE_ESCAPE.sub("", text))


def _decode_entities(text: str) -> str:
    """Return a text without HTML entities."""
    for _ in range(_UNESCAPES):
        if _ENTITY.search(text) is None:
            break
        text = html.unescape(text)
    return text


def _forms(text: str) -> Iterator[str]:
    """Yield a text as it is, and without the prefixes and escapes that may have been added."""
    yield text
    text = _decode_entities(text)
    yield text
    yield _PREFIX.sub("", text)
    for _ in range(_UNESCAPES):
        if "\\" not in text:
            return
        text = _unescape_json(text)
        yield text
        yield _PREFIX.sub("", text)


_JSON_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[nrtbf\"\\/'])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def _unescape_json(text: str) -> str:
    """Return a text with its JSON string escapes decoded."""
    return _JSON_ESCAPE.sub(
        lambda match: chr(int(match[1][1:], 16)) if len(match[1]) > 1 else _ESCAPES.get(match[1], match[1]), text
    )


def _find_blocks(text: str, openers: Markers, rules: Mapping[str, Markup]) -> Iterator[tuple[Markup, str, str]]:
    """Yield (rule, opener, block) for each block of a text, wherever it stands."""
    position = 0
    unclosed: set[int] = set()  # rules without a closer in the rest of the text
    while (opening := openers.find(text, position)) is not None:
        start, position, index = opening
        rule, opener = rules[openers.markers[index]], text[start:position]
        if not grammars.may_begin(rule, opener, text[position : position + 256]):
            continue
        closers = Markers.copy(tuple(rule.close))
        closing = None if id(rule) in unclosed else closers.find(text, position)
        if closing is None:
            unclosed.add(id(rule))
        for _ in range(_TRIES):
            if closing is None or not grammars.ends_inside_value(rule, text[start : closing[0]]):
                break
            closing = closers.find(text, closing[1])
        if closing is not None:
            yield rule, opener, text[start : closing[1]]
            position = closing[1]


def _segments(text: str, openers: Iterable[str], closers: Iterable[str]) -> Iterator[str]:
    """Yield the text from an opener to a closer near it, both included."""
    begins = sorted({match.start() for marker in openers if marker for match in re.finditer(re.escape(marker), text)})
    ends = sorted({match.end() for marker in closers if marker for match in re.finditer(re.escape(marker), text)})
    first_end = 0  # the first end behind a begin
    for number, begin in enumerate(begins):
        while first_end < len(ends) and ends[first_end] <= begin:
            first_end += 1
        for end in ends[first_end : first_end + _NEAR]:
            next_begin = number + _NEAR
            if next_begin >= len(begins) or begins[next_begin] > end:
                yield text[begin:end]


def _call_key(call: ParsedCall) -> bytes:
    """Return a value that is the same for two equal calls."""
    return msgspec.json.encode([call.name, call.raw if call.arguments is None else call.arguments], order="sorted")
