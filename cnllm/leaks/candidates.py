"""Decide what becomes of a block of markup: a call, markup to remove, or text.

`read_block` reads the calls of a block. `FilterOutput` lets text and blocks through in their order: a block that may be
quoted is decided by the text behind it, and everything behind it waits for that.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.leaks import grammars
from cnllm.leaks.grammars import ParsedCall
from cnllm.leaks.grammars.base import is_plausible_name
from cnllm.leaks.grammars.tags import opener_prefix
from cnllm.leaks.lone import LOOKBEHIND, joining_space
from cnllm.leaks.quoting import InlineBlock, QuoteTracker
from cnllm.leaks.rules import Markup

__all__ = ["BlockResult", "FilterOutput", "read_block"]

_MAX_SKIPPED = 1024  # texts
_MARKED = {"channels", "sections"}  # grammars with tokens of their own around the arguments
_NO_ARGUMENTS = re.compile(r"\{\s*\}")  # arguments that are written, although there are none


class BlockResult(Struct, frozen=True):
    """The result for one block: its text, its calls, and the reason why something in it is no call.

    `remove`: the block is removed from the text. Without `raw` the result stands for the rest of the text, which is
    no longer searched. `stripped_calls` are the calls of a block that is removed and gives no call. `is_tag`: it is a
    tag of reasoning that ends nothing. `is_reasoning`: `raw` stood between tags of reasoning.
    """

    raw: str
    calls: list[ParsedCall]
    problem: str = ""
    remove: bool = True
    stripped_calls: list[ParsedCall] = []
    is_tag: bool = False
    is_reasoning: bool = False


class BlockReading(Struct, frozen=True):
    """The calls of a block that can be read, and its result, which may be text with the reason.

    `bare_calls` are tools without arguments: only a block on lines of its own calls them.
    """

    result: BlockResult
    read_calls: list[ParsedCall]
    bare_calls: tuple[str, ...] = ()


def read_block(
    leak: Markup, opener: str, raw: str, block: str, tools: Mapping[str, Any] | None, *, trims: bool
) -> BlockReading | str:
    """Read a block; return the reason where it cannot be read. `block` is `raw` with the closer that it may lack.

    `tools` are those that were offered, None where none were. With `trims` calls of other tools are removed.
    """
    try:
        calls, others = grammars.read(leak, opener, block, tools or {})
    except grammars.NotACall as error:
        if trims and error.calls:
            return _strip_block(raw, block, opener, error.calls, str(error) if tools is not None else "")
        return str(error)
    problem = "; ".join(f"no call: {piece}" for piece in others)
    if tools is None or leak.then != "recover":
        return _strip_block(raw, block, opener, calls, problem)
    unknown = [call.name for call in calls if call.name not in tools]
    lacking = [call.name for call in calls if call.arguments == {} and (tools.get(call.name) or {}).get("required")]
    known = [call for call in calls if call.name in tools and call.name not in lacking]
    unknown_problem = f"no tool has the name {', '.join(unknown)}" if unknown else ""
    missing_problem = f"a call of {', '.join(lacking)} needs arguments" if lacking else ""
    if known:
        problem = "; ".join(filter(None, [problem, unknown_problem, missing_problem]))
        # A block that marks its arguments, or holds some for another call, does more than name a tool.
        is_marked = not _MARKED.isdisjoint(leak.format) or opener_prefix(opener) != ""
        is_bare = not is_marked and not any(call.arguments for call in known)
        bare_calls = tuple(call.name for call in known if call.arguments == {}) if is_bare else ()
        return BlockReading(BlockResult(raw, known, problem), calls, bare_calls)
    if unknown and not lacking and trims:
        return _strip_block(raw, block, opener, calls, unknown_problem)
    reason = missing_problem or unknown_problem or "there is no call in it"
    return BlockReading(BlockResult(raw, [], reason, remove=False), calls)


def _strip_block(raw: str, block: str, opener: str, calls: list[ParsedCall], problem: str) -> BlockReading:
    """Return the reading of a block that gives no call and is removed."""
    # A word between two markers may be a text about them.
    word = raw[len(opener) :].partition("<")[0].strip()
    bare_calls = (word,) if len(calls) == 1 and block.count("<") == 2 and is_plausible_name(word) else ()
    return BlockReading(BlockResult(raw, [], problem, stripped_calls=calls), calls, bare_calls)


class Candidate(Struct, frozen=True):
    """A block that is a call, or markup to remove, unless it is quoted."""

    result: BlockResult
    place_in_text: InlineBlock
    prose: int  # pieces of prose before it
    is_quotation: bool  # the prompt contains it
    bare_calls: tuple[str, ...]  # tools without arguments: only a block on lines of its own calls them

    def decide(self, prose: int, *, call_at_end: bool, at_end: bool) -> BlockResult | None:
        """Return the final result of a block; None while it is not known.

        `prose`: pieces of prose up to now. With `call_at_end` a quotation is a call if it stands alone at the end of
        the text. `at_end`: the text has ended.
        """
        result, line = self.result, self.place_in_text.line
        if self.place_in_text.is_quoted is None:
            return None
        if self.place_in_text.is_quoted:
            return msgspec.structs.replace(result, calls=[], problem="", remove=False)
        if self.is_quotation:
            continues = line.prose or prose != self.prose
            if call_at_end and not continues and not at_end:
                return None
            if not call_at_end or continues:
                problem = "the user's text or the result of a tool contains it"
                return msgspec.structs.replace(result, calls=[], problem=problem, remove=False)
        if self.bare_calls and line.middle:
            problem = f"a call of {', '.join(self.bare_calls)} without arguments stands in the middle of a sentence"
            calls = [call for call in result.calls if call.arguments != {}]
            return msgspec.structs.replace(result, calls=calls, problem=problem, remove=bool(calls))
        return result if at_end or line.is_complete or not self.bare_calls else None


class FilterOutput:
    """Holds what a filter lets through, in order: text, and the results of blocks. Behind an undecided block all waits.

    `before` is the text that passed before. With `trims` the white space behind a block is removed with it. With `last`
    a quotation is a call if it stands alone at the end of the text. `tracker` knows what is code and quotation.
    """

    def __init__(self, before: str, *, trims: bool, last: bool) -> None:
        self._trims = trims
        self._last = last
        self.tracker = QuoteTracker(before)
        self._reads_markdown = False  # a marker was found
        self._before = before[-LOOKBEHIND:]  # the end of the text that was let through
        self._skipped: list[str] = []  # texts that passed by since then
        self._queue: deque[Candidate | BlockResult | str] = deque()  # undecided blocks, and the text behind them
        self._gap: str | None = None  # white space behind a block that was removed
        self.follows_block = False
        """Whether nothing but white space has come since a block that is removed, unless it turns out to be quoted."""
        self._out: list[str | BlockResult] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return self._gap is None and not self._queue

    def take(self) -> list[str | BlockResult]:
        """Return what was let through since the last time."""
        out, self._out = self._out, []
        return out

    def skip(self, texts: Sequence[str]) -> None:
        """Take note of texts that pass by, while nothing waits."""
        self._skipped += texts
        if len(self._skipped) > _MAX_SKIPPED:
            self._read_skipped()

    def _read_skipped(self) -> None:
        """Remember what counts of the texts that passed by."""
        text, self._skipped = "".join(self._skipped), []
        self.follows_block = self.follows_block and not text.strip()
        self.tracker.add(text)
        self._before = (self._before + text[-LOOKBEHIND:])[-LOOKBEHIND:]

    def read_markdown(self) -> None:
        """Read the Markdown of the text from now on: it decides whether a marker is quoted."""
        if self._skipped:
            self._read_skipped()
        self._reads_markdown = True
        self.tracker.read()

    def add_text(self, text: str) -> None:
        """Let text through, behind the undecided blocks."""
        if self._skipped:
            self._read_skipped()
        self.follows_block = self.follows_block and not text.strip()
        if not self._reads_markdown:
            self.tracker.add(text)
            self._deliver_text(text)
            return
        self.tracker.read()
        self.tracker.feed(text)
        self._queue.append(text)
        self._drain()

    def add(self, result: BlockResult) -> None:
        """Let a result through, behind the undecided blocks."""
        self.follows_block = False
        self._queue.append(result)
        self._drain()

    def add_candidate(self, result: BlockResult, bare_calls: Sequence[str] = (), *, is_quotation: bool = False) -> None:
        """Let the result of a block through that may be quoted here."""
        self.follows_block = True
        raw = result.raw.strip()
        place = self.tracker.add_block(is_word="\n" not in raw and _NO_ARGUMENTS.search(raw) is None)
        self._queue.append(Candidate(result, place, self.tracker.prose, is_quotation, tuple(bare_calls)))
        self._drain()

    def report(self, result: BlockResult) -> None:
        """Let a result through at once."""
        self._out.append(result)

    def close(self) -> None:
        """Decide about all that waits: the text has ended."""
        if self._queue:
            self.tracker.close()
            self._drain(at_end=True)

    def _drain(self, *, at_end: bool = False) -> None:
        """Let through everything in the queue that is decided."""
        queue = self._queue
        while queue:
            result: Candidate | BlockResult | str | None = queue[0]
            if isinstance(result, Candidate):
                result = result.decide(self.tracker.prose, call_at_end=self._last, at_end=at_end)
            if result is None:
                return
            queue.popleft()
            if isinstance(result, str):
                self._deliver_text(result)
            else:
                self._emit(result)

    def _emit(self, result: BlockResult) -> None:
        """Deliver or report a block that is decided."""
        if result.remove:
            self._gap = (self._gap or "") if self._trims else None
            if result.raw:
                self._out.append(result)
            return
        if result.problem:
            self._out.append(result)
        self._deliver_text(result.raw)

    def _deliver_text(self, text: str) -> None:
        """Deliver text. White space on both sides of a block counts once."""
        if self._gap is not None:
            rest = text.lstrip()
            gap = self._gap + text[: len(text) - len(rest)]
            if not rest:
                self._gap = gap
                return
            self._gap = None
            text = joining_space(self._before, gap) + rest
        if text:
            self._before = (self._before + text[-LOOKBEHIND:])[-LOOKBEHIND:]
            self._out.append(text)
