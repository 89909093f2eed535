"""Find tool calls in a streamed text and remove the certain ones from it.

The filter holds back only three things: text that could still become a marker, an open block, and the text behind a
block that may show that the block is quoted. Text before a block passes at once. The time is linear in the text:
compiled literals skip plain text and half-markers, and a block is read once (twice when another one begins inside
it). After `_PATIENCE` openers without a call the rest of the text passes unread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cnllm.leaks import grammars
from cnllm.leaks.candidates import BlockResult, Candidate
from cnllm.leaks.grammars import ParsedCall
from cnllm.leaks.grammars.base import is_plausible_name
from cnllm.leaks.lone import LOOKAHEAD, is_bare, joining_space, lone_end, lone_markers
from cnllm.leaks.markers import Markers
from cnllm.leaks.quoting import QuoteTracker
from cnllm.registry.flags import Leak

__all__ = ["BlockResult", "LeakFilter"]

_PATIENCE = 256  # openers without a call, before the text is taken for a text about markers
_WINDOW = 8192  # characters that are searched at once
_MAX_INNER_CLOSERS = 64  # closers inside a value, before the filter gives a block up


class LeakFilter:
    """The filter for one channel of a reply: the answer or the reasoning.

    `delivered`: the pieces of text that it let through. `tools`: the functions that were offered, name → JSON Schema
    of the parameters, or None where none were. `deliver` takes text that is certain, `report` takes the result of a
    block. With `trims` the white space behind a block is removed with it. `quotes` tells whether the prompt contains
    a block, which is a quotation then. With `last` such a block is a call all the same if it stands alone on its
    lines at the end of the text.

    In the answer (`trims`) the filter also removes calls of tools that were not offered, and markers that stand
    alone.
    """

    __slots__ = (
        "_block",
        "_closers",
        "_deliver",
        "_delivered",
        "_failures",
        "_follows_tick",
        "_gap",
        "_last",
        "_leak",
        "_lone_markers",
        "_markers",
        "_opener",
        "_pending",
        "_queue",
        "_quotes",
        "_reads_markdown",
        "_report",
        "_rules",
        "_tools",
        "_tracker",
        "_tries",
        "_trims",
    )

    def __init__(
        self,
        rules: Sequence[Leak],
        tools: Mapping[str, Any] | None,
        delivered: list[str],
        deliver: Callable[[str], None],
        report: Callable[[BlockResult], None],
        *,
        trims: bool,
        quotes: Callable[[str, Sequence[ParsedCall]], bool] | None = None,
        last: bool = False,
    ) -> None:
        self._quotes = quotes
        self._last = last
        self._follows_tick = False  # a backtick stands before the block
        self._reads_markdown = False  # the Markdown is read: a block has begun
        self._queue: deque[Candidate | BlockResult | str] = deque()  # undecided blocks, and the text behind them
        self._trims = trims
        self._rules = {opener: rule for rule in reversed(rules) for opener in rule.open}
        self._markers = Markers.copy(tuple(self._rules))
        self._lone_markers = Markers.copy(lone_markers(rules)) if trims else self._markers
        self._tools = tools
        self._deliver = deliver
        self._report = report
        self._tracker = QuoteTracker(delivered)
        self._delivered = delivered
        self._pending = ""
        self._gap: str | None = None  # white space behind a block that was removed
        self._failures = 0
        self._leak: Leak | None = None
        self._opener = ""
        self._closers = self._markers
        self._block: list[str] = []
        self._tries = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held back, so that text without a marker can skip the filter."""
        return not self._pending and self._leak is None and self._gap is None and not self._queue

    def before_pack(self, start: int) -> None:
        """Prepare for joining the pieces of the text from `start` on into one."""
        self._tracker.before_pack(start)

    def feed(self, text: str) -> None:
        """Read more text of the channel."""
        for start in range(0, len(text), _WINDOW):  # the rest of the text is copied at each marker
            rest, self._pending = self._pending + text[start : start + _WINDOW], ""
            while rest:
                rest = self._read_outside(rest) if self._leak is None else self._read_inside(rest)

    def release(self) -> None:
        """Let the beginning of a marker through when the part of the reply that contains it ends."""
        if self._leak is None and self._pending and self._lone_markers.find(self._pending) is None:
            pending, self._pending = self._pending, ""
            self._pass_text(pending)

    def close(self, *, proven: bool = True) -> None:
        """End the channel: pass the text that was held back, and report an open block as incomplete.

        `proven`: the reply is known to be complete.
        """
        pending, self._pending = self._pending, ""
        if self._leak is None:
            self._close_outside(pending, proven)
        else:
            raw, leak, opener = "".join([*self._block, pending]), self._leak, self._opener
            self._reset()
            if self._trims and is_bare(raw, opener, leak) and (proven or leak.then == "strip"):
                self._strip_lone(raw)
            else:
                self._reject(raw, leak, "it is not complete")
        if self._queue:
            self._tracker.close()
            self._drain(at_end=True)

    def _pass_text(self, text: str, markdown: str | None = None) -> None:
        """Let text through, behind the undecided blocks. `markdown`: the text for the Markdown reader, if another."""
        if not self._reads_markdown:
            self._deliver_text(text)
            return
        self._tracker.read()
        self._tracker.feed(text if markdown is None else markdown)
        self._queue.append(text)
        self._drain()

    def _drain(self, *, at_end: bool = False) -> None:
        """Let through everything in the queue that is decided."""
        queue = self._queue
        while queue:
            item = queue[0]
            result = item.decide(self._tracker.prose, self._last, at_end) if isinstance(item, Candidate) else item
            if result is None:
                return
            queue.popleft()
            if isinstance(result, str):
                self._deliver_text(result)
            else:
                self._emit(result)
        self._tracker.skip()

    def _emit(self, result: BlockResult) -> None:
        """Deliver or report a block that is decided."""
        if result.remove:
            self._gap = "" if self._trims else None
            self._report(result)
            return
        if result.problem:
            self._report(result)
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
            text = joining_space(self._delivered, gap) + rest
        self._deliver(text)

    # ── outside a block ───────────────────────────────────────────────────────

    def _read_outside(self, text: str) -> str:
        """Read text outside of a block. Return the rest that is not read yet."""
        match = self._lone_markers.find(text) if self._failures < _PATIENCE else None
        pending = self._lone_markers.pending_length(text) if self._failures < _PATIENCE else 0
        if match is None or len(text) - pending <= match[0]:  # no marker, or one that could still become a longer one
            if len(text) > pending:
                self._pass_text(text[: len(text) - pending])
            self._pending = text[len(text) - pending :]
            return ""
        start, end, index = match
        if start:
            self._pass_text(text[:start])
        opener = text[start:end]
        leak = self._rules.get(self._lone_markers.markers[index])
        begins = leak is not None and grammars.may_begin(leak, opener, text[end : end + LOOKAHEAD])
        if begins is None and len(text) - end >= LOOKAHEAD:
            begins = False
        if begins is None:
            self._pending = text[start:]
            return ""
        if not begins and self._trims and "`" not in opener:
            self._reads_markdown = True
            self._tracker.read()
            careful = leak is not None and leak.then != "strip"
            lone = lone_end(text, end, careful, self._tracker, self._lone_markers, self._rules)
            if lone is None:
                self._pending = text[start:]
                return ""
            if lone:
                self._strip_lone(text[start:lone])
                return text[lone:]
        if leak is None or not begins or self._is_quoted():
            if not begins and leak is not None:
                self._count_failure()
            self._pass_text(opener)
            return text[end:]
        self._leak, self._opener, self._block, self._tries = leak, opener, [opener], 0
        self._closers = Markers.copy(tuple(leak.close))
        self._follows_tick = self._tracker.follows_tick and "`" not in opener
        return text[end:]

    def _is_quoted(self) -> bool:
        """Whether the block at this place belongs to code or to a block quote that continues behind it."""
        self._reads_markdown = True
        self._tracker.read()
        return self._tracker.is_quoted and not self._tracker.is_quoted_by_line

    # ── markers alone ─────────────────────────────────────────────────────────

    def _close_outside(self, pending: str, proven: bool) -> None:
        """Handle the text that is held back outside of a block at the end."""
        match = self._lone_markers.find(pending) if self._trims and self._failures < _PATIENCE else None
        leak = None if match is None else self._rules.get(self._lone_markers.markers[match[2]])
        certain = proven or (leak is not None and leak.then == "strip")
        if match is None or match[0] or not certain:
            if pending:
                self._pass_text(pending)
            return
        opener = pending[: match[1]]
        self._reads_markdown = True
        self._tracker.read()
        if leak is None and self._tracker.line.prose:
            self._pass_text(pending)
        elif leak is None or is_bare(pending, opener, leak):
            self._strip_lone(pending)
        elif leak.then == "strip" and not self._is_quoted():
            self._reject(pending, leak, "it is not complete")
        else:
            self._pass_text(pending)

    def _strip_lone(self, raw: str) -> None:
        """Remove markers that begin and end nothing, unless they are quoted."""
        if self._tracker.follows_tick or self._is_quoted():
            self._pass_text(raw)
            return
        result = BlockResult(raw, [], "it is not a whole call")
        self._queue.append(Candidate(result, self._tracker.add_block(), self._tracker.prose, False, ()))
        self._drain()

    # ── inside one ────────────────────────────────────────────────────────────

    def _read_inside(self, text: str) -> str:
        """Read text inside a block. Return the rest behind the block."""
        assert self._leak is not None
        start = 0
        if self._follows_tick and (tick := text.find("`")) >= 0:
            match = self._closers.find(text)
            if match is None or tick < match[0]:  # a code span ends in it: the text describes how a call begins
                raw = "".join([*self._block, text[:tick]])
                self._reset()
                self._pass_text(raw)
                return text[tick:]
        while match := self._closers.find(text, start):
            if self._tries < _MAX_INNER_CLOSERS and grammars.ends_inside_value(
                self._leak, "".join([*self._block, text[: match[0]]])
            ):
                self._tries += 1
                start = match[1]
                continue
            if len(text) == match[1] and self._closers.pending_length(text) > len(text) - match[0]:
                break  # it could become a longer marker
            raw = "".join([*self._block, text[: match[1]]])
            leak, opener = self._leak, self._opener
            self._reset()
            self._complete_block(raw, leak, opener)
            return text[match[1] :]
        pending = self._closers.pending_length(text[start:])
        self._block.append(text[: len(text) - pending])
        self._pending = text[len(text) - pending :]
        return ""

    def _reset(self) -> None:
        """Forget the open block."""
        self._leak, self._opener, self._block = None, "", []

    def _complete_block(self, raw: str, leak: Leak, opener: str) -> None:
        """Handle a block from opener to closer: a call, markup to remove, or text."""
        problem = self._accept(raw, leak, opener)
        if problem is None:
            return
        start = self._markers.last_start(raw)
        if start > 0 and (match := self._markers.find(raw, start)):  # the opener was text, the call begins later
            inner = self._rules[self._markers.markers[match[2]]]
            if raw[match[0] :].endswith(tuple(inner.close)):
                self._pass_text(raw[: match[0]])
                raw, leak = raw[match[0] :], inner
                if self._is_quoted():
                    self._pass_text(raw)
                    return
                problem = self._accept(raw, inner, raw[: match[1] - match[0]])
        if problem is not None:
            self._reject(raw, leak, problem)

    def _accept(self, raw: str, leak: Leak, opener: str) -> str | None:
        """Remove a block from the text if it is certain; else return the reason."""
        try:
            calls, others = grammars.read(leak, opener, raw, self._tools or {})
        except grammars.NotOffered as error:
            if self._trims:
                self._strip_block(raw, opener, error.calls, str(error) if self._tools is not None else "")
                return None
            return str(error)
        except grammars.NotACall as error:
            return str(error)
        problem = "; ".join(f"no call: {piece}" for piece in others)
        if self._tools is None or leak.then != "recover":
            self._strip_block(raw, opener, calls, problem)
            return None
        is_quotation = self._quotes is not None and self._quotes(raw, calls)
        read_calls = calls
        unknown = [call.name for call in calls if call.name not in self._tools]
        lacking = [call.name for call in calls if call.arguments == {} and _has_required(self._tools.get(call.name))]
        calls = [call for call in calls if call.name in self._tools and call.name not in lacking]
        unknown_problem = f"no tool has the name {', '.join(unknown)}" if unknown else ""
        missing_problem = f"a call of {', '.join(lacking)} needs arguments" if lacking else ""
        if not calls:
            if unknown and not lacking and self._trims:
                self._strip_block(raw, opener, read_calls, unknown_problem)
                return None
            return missing_problem or unknown_problem or "there is no call in it"
        problem = "; ".join(filter(None, [problem, unknown_problem, missing_problem]))
        bare_calls = tuple(call.name for call in calls if call.arguments == {})
        result = BlockResult(raw, calls, problem)
        self._queue.append(Candidate(result, self._tracker.add_block(), self._tracker.prose, is_quotation, bare_calls))
        self._drain()
        return None

    def _strip_block(self, raw: str, opener: str, stripped_calls: list[ParsedCall], problem: str) -> None:
        """Remove a block that gives no call from the text, unless it is quoted."""
        is_quotation = self._quotes is not None and self._quotes(raw, stripped_calls)
        # A word between two markers may be a text about them.
        word = raw[len(opener) :].partition("<")[0].strip()
        bare_calls = (word,) if len(stripped_calls) == 1 and raw.count("<") == 2 and is_plausible_name(word) else ()
        result = BlockResult(raw, [], problem, stripped_calls=stripped_calls)
        self._queue.append(Candidate(result, self._tracker.add_block(), self._tracker.prose, is_quotation, bare_calls))
        self._drain()

    def _count_failure(self) -> None:
        """Count an opener without a call; after `_PATIENCE` of them the filter stops searching."""
        self._failures += 1
        if self._failures == _PATIENCE:
            self._report(
                BlockResult("", [], f"{_PATIENCE} markers began no call, the rest is not searched", remove=False)
            )

    def _reject(self, raw: str, leak: Leak, problem: str) -> None:
        """Remove or pass a block that cannot be read, and report the reason."""
        self._count_failure()
        self._tracker.read()
        if leak.then == "strip" and not leak.strict:
            self._queue.append(
                Candidate(BlockResult(raw, [], problem), self._tracker.add_block(), self._tracker.prose, False, ())
            )
        else:
            self._tracker.feed("x")  # nothing in it counts as Markdown
            self._queue += (BlockResult(raw, [], problem, remove=False),)
        self._drain()


def _has_required(schema: Any) -> bool:
    """Whether a tool has a required parameter."""
    return isinstance(schema, Mapping) and bool(schema.get("required"))
