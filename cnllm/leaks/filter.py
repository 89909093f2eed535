"""Find the markup of calls and of reasoning in a streamed text, and decide what becomes of it.

One rule decides about every marker, in this order:

1. A marker in code, in a block quote or in another quotation is text.
2. A tag of reasoning: the text behind it, up to its closing tag, is reasoning. A closing tag alone is removed.
3. An opener, what its grammar allows, and a closer are a block: a call, or markup to remove. At the end of the text
   the closer may be missing, because servers use it as a stop text.
4. Where the grammar allows no more of what follows, the opener is text, and the text passes at once. So it is with a
   block that is not complete at the end, unless the reply was cut off.
5. Any other marker is removed where it stands alone on a line, or at either end of the text; in a sentence it stays.
   One that begins as a word does is text.

The filter holds back only text that could still become a marker, an open block, and the text behind a block that may
show that the block is quoted. The time is linear in the text: compiled literals skip plain text, a block is read
again at most twice, and after `_PATIENCE` openers without a call no more of them are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from cnllm.leaks import grammars
from cnllm.leaks.candidates import BlockResult, FilterOutput, read_block
from cnllm.leaks.grammars import JsonScan, ParsedCall
from cnllm.leaks.inline import InlineLine
from cnllm.leaks.lone import LOOKAHEAD, TagRun, is_mentioned, tag_end
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import Markup, filter_markers

__all__ = ["BlockResult", "LeakFilter"]

_PATIENCE = 256  # openers without a call, before the text is taken for a text about markers
_WINDOW = 32768  # characters that are searched at once
_MAX_INNER_CLOSERS = 64  # closers inside a value, before the filter gives a block up


class _OpenBlock(Struct, eq=False):
    """A block whose end has not come. `pieces` are its text so far, of a `size`; a backtick may stand before it.

    `first_closer` is the end of the first closer that was taken for a part of a value, `row_end` that of the last call
    in a row of them, `tries` counts both.
    """

    leak: Markup
    opener: str
    closers: Markers
    scan: JsonScan | None
    follows_tick: bool
    pieces: list[str]
    size: int
    first_closer: int = 0
    row_end: int = 0
    tries: int = 0

    def add(self, text: str, end: int) -> str:
        """Add the beginning of a text; return its rest."""
        self.pieces.append(text[:end])
        self.size += end
        return text[end:]


class LeakFilter:
    """The filter for one channel of a reply: the answer or the reasoning.

    `tools`: the functions that were offered, name → JSON Schema of the parameters, or None where none were. `before`:
    the text that passed before the filter was needed; `skip` adds more of it later. The other methods return text that
    is certain, and the results of blocks. With `trims` the white space behind a block is removed with it. `quotes`
    tells whether the prompt contains a block, which is a quotation then. With `last` such a block is a call all the
    same if it stands alone on its lines at the end of the text.

    In the answer (`trims`) the filter also removes calls of tools that were not offered, and markers that stand
    alone. `tags` are pairs of an opening and a closing tag of reasoning; what stands between them is reasoning.
    """

    def __init__(
        self,
        rules: Sequence[Markup],
        tools: Mapping[str, Any] | None,
        before: str = "",
        *,
        trims: bool,
        tags: Sequence[str] = (),
        quotes: Callable[[str, Sequence[ParsedCall]], bool] | None = None,
        last: bool = False,
    ) -> None:
        self._quotes = quotes
        self._trims = trims
        self._rules = {opener: rule for rule in reversed(rules) for opener in rule.open}
        self._openers = tuple(self._rules)
        # The opening tags with the closing tags of their blocks; a closing tag has none.
        self._tags: dict[str, tuple[str, ...]] = dict.fromkeys(filter(None, tags), ())
        for opening, closing in zip(tags[::2], tags[1::2], strict=True):
            if opening:
                self._tags[opening] = (*self._tags[opening], closing)
        markers = filter_markers(rules, tags) if trims else self._openers
        self._markers = Markers.copy(markers) if markers else None
        self._tools = tools
        self._output = FilterOutput(before, trims=trims, last=last)
        self._tracker = self._output.tracker
        self._run = TagRun()
        self._fed = self._unread = 0  # characters that were fed, and those of them in `_input`
        self._input: list[tuple[str, bool]] = []  # text to read, last piece first, and whether blocks may begin in it
        self._pending = self._head = ""  # text that may begin a marker, and text before it that begins none
        self._failures = 0
        self._is_plain = False  # the next marker begins no block
        self._refused_end = 0  # markers before it are text: they belong to a block that was given up
        self._text_openers: dict[str, InlineLine] = {}  # the closers of openers that are text → the line of the opener
        self._text_closers: tuple[str, ...] = ()  # the end tags of the last start tag that is text
        self._is_cut = False
        self._ends: Markers | None = None  # the closing tags of the reasoning that is open
        self._open: _OpenBlock | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held back, so that text without a marker can skip the filter."""
        return self._open is None and self._ends is None and not self._pending and self._output.is_idle

    @property
    def pending(self) -> str:
        """The text that may begin a marker, where nothing else is held back."""
        return "" if self._open is not None or self._ends is not None or not self._output.is_idle else self._pending

    def skip(self, texts: Sequence[str]) -> None:
        """Take note of texts in which no marker begins; the first begins with what is pending."""
        self._pending = ""
        self._output.skip(texts)

    def feed(self, text: str, head: str = "") -> list[str | BlockResult]:
        """Read more text. `head` stands before it, no marker begins there, and it begins with what is pending."""
        if head:
            self._head, self._pending = head, ""
        self._fed += len(text)
        self._read_next(text)
        self._read(final=False)
        return self._output.take()

    def release(self) -> list[str | BlockResult]:
        """Let the beginning of a marker through when the part of the reply that contains it ends."""
        pending, markers = self._pending, self._markers
        if self._open is not None or not pending:
            return []
        if self._ends is not None:
            self._pending = ""
            self._think(pending)
        elif markers is None or markers.find(pending) is None:
            self._pending = ""
            self._output.add_text(pending)
        return self._output.take()

    def close(self, *, is_cut: bool = False) -> list[str | BlockResult]:
        """End the channel, and decide about all that was held back. `is_cut`: the reply is known to be incomplete."""
        self._is_cut = is_cut
        self._read_next("")
        self._read(final=True)
        self._output.close()
        return self._output.take()

    # ── reading ───────────────────────────────────────────────────────────────

    def _read_next(self, text: str, *, blocks: bool = True) -> None:
        """Read a text before all other text that waits. `blocks`: a block may begin in it."""
        self._unread += len(text)
        if len(text) <= _WINDOW:
            self._input.append((text, blocks))
            return
        starts = range(0, len(text), _WINDOW)  # the rest of a window is copied at each marker
        self._input += [(text[start : start + _WINDOW], blocks) for start in reversed(starts)]

    def _refuse(self, text: str, size: int, *, blocks: bool = True) -> None:
        """Read a text next of which the markers in the first `size` characters are text."""
        self._read_next(text, blocks=blocks)
        self._refused_end = self._fed - self._unread + size

    def _position(self, rest: str) -> int:
        """Return the position in the channel of a text that is the next to be read."""
        return self._fed - self._unread - len(rest)

    def _read(self, *, final: bool) -> None:
        """Read all text that waits."""
        while self._input:
            text, blocks = self._input.pop()
            self._unread -= len(text)
            rest, self._pending = self._pending + text, ""
            while rest:
                if self._ends is not None:
                    rest = self._read_reasoning(rest, final=final and not self._input)
                elif self._open is not None:
                    rest = self._read_inside(self._open, rest, final=final and not self._input)
                else:
                    rest = self._read_outside(rest, blocks=blocks, final=final and not self._input)
            if final and self._open is not None and not self._input:
                self._end_block(self._open)

    # ── outside a block ───────────────────────────────────────────────────────

    def _read_outside(self, text: str, *, blocks: bool, final: bool) -> str:
        """Read text outside of a block. Return the rest that is not read yet."""
        markers, head, self._head = self._markers, self._head, ""
        if markers is None:
            self._output.add_text(head + text)
            return ""
        match = markers.find(text)
        is_far = match is not None and match[0] < len(text) - markers.longest  # from the end
        pending = 0 if final or is_far else markers.pending_length(text)
        if match is None or len(text) - pending <= match[0]:  # it could still become a longer one
            if head or len(text) > pending:
                self._output.add_text(head + text[: len(text) - pending])
            self._pending = text[len(text) - pending :]
            self._is_plain = self._is_plain or (match is not None and not blocks)
            return ""
        start, end, index = match
        if head or start:
            self._output.add_text(head + text[:start])
            text, end = text[start:], end - start
        self._output.read_markdown()
        marker = markers.markers[index]
        if marker in self._tags:
            stays = self._is_tag_text(text, end, final=final)
            if stays is not None:
                return self._read_tag(marker, text, end, is_text=stays)
        else:
            is_refused = self._position(text) < self._refused_end
            self._is_plain = self._is_plain or is_refused or not blocks
            begins = not self._is_plain and self._begins(marker, text, end, final=final)
            if begins and not self._is_quoted():
                self._is_plain = False
                self._open_block(self._rules[marker], text, end)
                return text[end:]
            is_text = begins is True or is_refused
            alone = None if begins is None else self._alone_end(markers, index, text, end, is_text=is_text, final=final)
            if alone is not None:
                self._is_plain = False
                if alone:
                    self._output.add_candidate(BlockResult(text[:alone], [], "it is not a whole call"))
                    return text[alone:]
                if marker in self._rules:
                    self._text_openers.update(dict.fromkeys(self._rules[marker].close, self._tracker.line))
                    self._count_failure()
                self._output.add_text(text[:end])
                return text[end:]
        self._pending = text
        return ""

    def _begins(self, marker: str, text: str, end: int, *, final: bool) -> bool | None:
        """Whether a block begins at the marker that ends at `end`; None if more text is needed."""
        leak = self._rules.get(marker)
        if leak is None:
            return False
        body = text[end : end + LOOKAHEAD]
        opener = text[:end]
        begins = grammars.may_begin(leak, opener.lstrip() if "`" in opener else opener, body)
        if begins is False and self._trims and "`" in marker and not leak.strict and not self._tracker.line.prose:
            line, newline, _ = body.partition("\n")  # a fence with this word on its first line holds nothing else
            begins = False if line.strip() else True if newline else None
        if begins is None and (final or len(text) - end >= LOOKAHEAD):
            return final
        return begins

    def _is_quoted(self) -> bool:
        """Whether the marker at this place belongs to code or to a block quote that continues behind it."""
        return self._tracker.is_quoted and not self._tracker.is_quoted_by_line

    # ── tags of reasoning ─────────────────────────────────────────────────────

    def _is_tag_text(self, text: str, end: int, *, final: bool) -> bool | None:
        """Whether the tag that ends at `end` is text, because it is in code or quoted; None if more text is needed."""
        tracker = self._tracker
        if tracker.follows_tick or tracker.is_quoted or tracker.is_in_element:
            return True
        return is_mentioned(tracker.near, text[end:], tracker.open_ticks, final=final)

    def _read_tag(self, tag: str, text: str, end: int, *, is_text: bool) -> str:
        """Read a tag at the start of a text. Return the text behind it."""
        closing = self._tags[tag]
        if is_text or (not closing and tag in self._text_closers):
            if not (self._tracker.follows_tick or self._tracker.is_quoted):
                self._text_closers = closing
            self._output.add_text(text[:end])
            return text[end:]
        if closing:
            self._ends = Markers.copy(closing)
            self._output.add(BlockResult("", []))  # the white space around it counts once
        else:
            self._output.add(BlockResult(text[:end], [], "it closes nothing", is_tag=True))
        return text[end:]

    def _read_reasoning(self, text: str, *, final: bool) -> str:
        """Read text between tags of reasoning. Return the rest behind them."""
        assert self._ends is not None
        match = self._ends.find(text)
        if match is None:
            pending = 0 if final else self._ends.pending_length(text)
            self._think(text[: len(text) - pending])
            self._pending = text[len(text) - pending :]
            return ""
        self._think(text[: match[0]])
        self._ends = None
        return text[match[1] :]

    def _think(self, text: str) -> None:
        """Deliver text that stands between tags of reasoning."""
        if text:
            self._output.report(BlockResult(text, [], is_reasoning=True))

    # ── markers alone ─────────────────────────────────────────────────────────

    def _alone_end(
        self, markers: Markers, index: int, text: str, end: int, *, is_text: bool, final: bool
    ) -> int | None:
        """Return the end of the marker, or of its tag, if it is to be removed; 0 if it stays, None if unknown."""
        marker, tracker = markers.markers[index], self._tracker
        is_text = is_text or self._text_openers.get(marker) is tracker.line
        is_word = marker[0].isalnum()  # of the answer, perhaps
        if is_text or is_word or not self._trims or tracker.follows_tick or self._is_quoted():
            return 0
        if "`" in marker:
            return end if final and not text[end:].strip() and not self._is_cut else 0
        stop = tag_end(text, 0, end, final=final)
        is_behind = not tracker.prose or self._output.follows_block  # at the start of the text, or right behind a block
        if not stop or (is_behind and marker not in self._rules):
            return stop

        def begins_block(text: str, match: tuple[int, int, int]) -> bool | None:
            start, end, index = match
            begins = self._begins(markers.markers[index], text[start:], end - start, final=False)
            return False if final and begins is None else begins

        offset, prose = self._position(text), tracker.line.prose
        alone = self._run.stands_alone(text, stop, offset, markers, begins_block, prose=prose, final=final)
        return None if alone is None else stop if alone else 0

    # ── inside one ────────────────────────────────────────────────────────────

    def _open_block(self, leak: Markup, text: str, end: int) -> None:
        """Begin a block with its opener."""
        scan = grammars.json_scan(leak, text[:end], text[end : end + LOOKAHEAD])
        follows_tick = self._tracker.follows_tick and "`" not in text[:end]
        ends = leak.close if scan is None else [*leak.close, *leak.open]  # behind JSON the next block may begin
        self._open = _OpenBlock(leak, text[:end], Markers.copy(tuple(ends)), scan, follows_tick, [text[:end]], end)

    def _read_inside(self, block: _OpenBlock, text: str, *, final: bool) -> str:
        """Read text inside a block. Return the rest behind the block."""
        leak, opener, closers, scan = block.leak, block.opener, block.closers, block.scan
        start = scanned = 0
        if block.follows_tick and (tick := text.find("`")) >= 0:
            match = closers.find(text)
            if match is None or tick < match[0]:  # a code span ends in it: the text describes how a call begins
                self._open = None
                self._output.add_text("".join([*block.pieces, text[:tick]]))
                return text[tick:]
        while match := closers.find(text, start):
            if not final and len(text) == match[1] and closers.pending_length(text) > len(text) - match[0]:
                break  # it could become a longer marker
            if scan is None:
                is_value = block.tries < _MAX_INNER_CLOSERS and grammars.ends_inside_value(
                    leak, "".join([*block.pieces, text[: match[0]]])
                )
            else:
                if not scan.fits(text[scanned : match[0]]):
                    self._give_up(block, text)
                    return ""
                scanned, is_value = match[0], scan.in_string
                if match[2] >= len(leak.close):  # the next block may begin, and the closer was lost
                    if is_value:
                        start = match[1]
                        continue
                    follows = scan.is_between and self._begins(
                        closers.markers[match[2]], text[match[0] :], match[1] - match[0], final=final
                    )
                    if follows is None:
                        self._pending = block.add(text, match[0])
                    elif follows:
                        raw = "".join([*block.pieces, text[: match[0]]])
                        self._split_block(block, raw + text[match[0] :], len(raw), closer=leak.close[0])
                    else:
                        self._give_up(block, text)
                    return ""
            if is_value:
                block.tries += 1
                block.first_closer = block.first_closer or block.size + match[1]
                start = match[1]
                continue
            raw = "".join([*block.pieces, text[: match[1]]])
            goes_on = block.tries < _MAX_INNER_CLOSERS and grammars.goes_on(leak, opener, raw, text[match[1] :])
            if goes_on:
                block.tries += 1
                block.row_end = block.size + match[1]
                start = match[1]
                continue
            if goes_on is None and not final:
                self._pending = block.add(text, match[0])
                return ""
            self._split_block(block, raw + text[match[1] :], len(raw))
            return ""
        certain = len(text) - closers.pending_length(text[start:])
        if scan is not None and not scan.fits(text[scanned:certain]):
            self._give_up(block, text)
            return ""
        self._pending = block.add(text, len(text) if final else certain)
        return ""

    def _split_block(self, block: _OpenBlock, text: str, end: int, *, blocks: bool = True, closer: str = "") -> None:
        """Decide about the open block, which ends in a text at `end`, and read on behind it. It may lack its closer."""
        self._open = None
        self._read_next(text[end:], blocks=blocks)
        self._complete_block(text[:end], text[:end] + closer, block.leak, block.opener)

    def _give_up(self, block: _OpenBlock, text: str) -> None:
        """End the open block before `text`, which its grammar does not allow."""
        raw = "".join([*block.pieces, text])
        self._open = None
        if block.first_closer:  # the marker that seemed to be part of a value was the closer
            self._split_block(block, raw, block.first_closer)
        else:
            self._refuse(raw, len(block.opener))

    def _end_block(self, block: _OpenBlock) -> None:
        """Decide about the block that is open at the end of the text."""
        raw, leak, opener = "".join(block.pieces), block.leak, block.opener
        self._open = None
        if block.row_end:
            self._split_block(block, raw, block.row_end, blocks=False)
            return
        if self._is_cut:
            self._reject(raw, leak, "it is not complete", keeps=leak.then != "strip")
            return
        if (whole := self._completed(leak, opener, raw)) is not None:
            self._complete_block(raw, whole, leak, opener)
        elif block.first_closer and leak.format != ["named-json"]:  # whose closer is a part of the JSON
            self._split_block(block, raw, block.first_closer)
        else:
            self._count_failure()
            if raw[len(opener) :].strip():
                self._output.report(BlockResult(raw, [], "it is not complete", remove=False))
            openers, start = Markers.copy(self._openers), self._later_opener(raw, leak)
            if start > 0 and (match := openers.match(raw, start)) is not None:
                rule = self._rules[openers.markers[match[2]]]
                if self._completed(rule, raw[start : match[1]], raw[start:]) is not None:
                    self._read_next(raw[start:])
                    raw = raw[:start]
            self._refuse(raw, len(raw) if raw[len(opener) :].strip() else 0, blocks=False)

    def _completed(self, leak: Markup, opener: str, block: str) -> str | None:
        """Return a block at the end of the text with the closer that it lacks; None where more may be missing."""
        if self._tools and grammars.has_begun(leak, opener, block):
            return None  # it would be a call with other arguments than were meant
        return grammars.complete_block(leak, opener, block, self._tools or {})

    def _later_opener(self, raw: str, leak: Markup) -> int:
        """Return the start of the last opener in a block; 0 where none follows the first, or where a value holds it."""
        start = max(Markers.copy(self._openers).last_start(raw), 0)
        return 0 if start and grammars.ends_inside_value(leak, raw[:start]) else start

    def _complete_block(self, raw: str, block: str, leak: Markup, opener: str) -> None:
        """Handle a block: a call, markup to remove, or text. `block` is `raw` with the closer that it may lack."""
        found = read_block(leak, opener, raw, block, self._tools, trims=self._trims)
        if not isinstance(found, str):
            if found.result.remove:
                is_quotation = self._quotes is not None and self._quotes(block, found.read_calls)
                self._output.add_candidate(found.result, found.bare_calls, is_quotation=is_quotation)
            else:
                self._reject(raw, leak, found.result.problem, keeps=True)
            return
        start = self._later_opener(raw, leak)
        is_certain = grammars.is_certain(leak, opener, block)
        if is_certain and grammars.is_own_tag(leak, opener, raw[:start]):
            start = 0
        if start > 0 and raw == block:  # the opener was text, a call may begin later
            self._count_failure()
            self._read_next(raw[start:])
            self._refuse(raw[:start], start if raw[len(opener) : start].strip() else 0, blocks=False)
            return
        if raw[len(opener) :].strip() in leak.close:  # nothing stands between them: they are markers alone
            self._refuse(raw, 0, blocks=False)
        elif is_certain:
            self._reject(raw, leak, found, keeps=leak.then != "strip" and self._tools is None)
        else:
            self._refuse(raw, len(opener))

    def _count_failure(self) -> None:
        """Count an opener without a call; after `_PATIENCE` of them the filter looks only for tags of reasoning."""
        self._failures += 1
        if self._failures == _PATIENCE:
            self._markers = Markers.copy(tuple(self._tags)) if self._tags else None
            problem = f"{_PATIENCE} markers began no call, the rest is not searched"
            self._output.report(BlockResult("", [], problem, remove=False))

    def _reject(self, raw: str, leak: Markup, problem: str, *, keeps: bool) -> None:
        """Remove or pass a block that is no call, and report the reason."""
        self._count_failure()
        self._tracker.read()
        if not keeps and not leak.strict:
            self._output.add_candidate(BlockResult(raw, [], problem))
        else:
            self._tracker.feed("x")  # nothing in it counts as Markdown
            self._output.add(BlockResult(raw, [], problem, remove=False))
