"""Finds what a model wrote as a tool call in a text that streams, and takes it out when it is certain.

Only what could still become a marker is held back, an open block, and behind a block what may show that it is quoted;
text before a block goes past at once. The time is linear in the text: plain text and half-markers are passed over by
compiled literals, a block is read once (twice when another begins inside it), and after `_PATIENCE` openers that led
nowhere the rest is text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.leaks import grammars
from cnllm.leaks.grammars import ParsedCall
from cnllm.leaks.grammars.base import is_plausible_name
from cnllm.leaks.lone import is_bare, joining_space, lone_markers
from cnllm.leaks.markers import Markers
from cnllm.leaks.quoting import InlineBlock, QuoteTracker
from cnllm.registry.flags import Leak

__all__ = ["BlockResult", "LeakFilter"]

_PATIENCE = 256  # openers that led nowhere, before markers are taken for what the text is about
_WINDOW = 8192  # characters that are looked at together
_SOON = 256  # characters behind an opener that must tell whether a block begins
_TRIES = 64  # closers that stand inside a value, before a block is given up


class BlockResult(Struct, frozen=True):
    """A block: as written, what it comes to, and what of it is no call, with the reason. `taken`: out of the text.

    Without `raw` it is the rest of the text, in which nothing is looked for any more. `wanted` are the calls in a block
    that is taken out and comes to none.
    """

    raw: str
    calls: list[ParsedCall]
    problem: str = ""
    taken: bool = True
    wanted: list[ParsedCall] = []


class _Candidate(Struct, frozen=True):
    """A block that is a call, or markup to take out, unless it is quoted."""

    found: BlockResult
    atom: InlineBlock
    prose: int  # how much prose came before it
    quotation: bool  # the prompt holds it
    alone: tuple[str, ...]  # tools that are called only by a block on lines of its own


class LeakFilter:
    """One channel of a reply (the answer, or the thinking). `said` is where its text gathers.

    `tools`: the functions that were offered, name → JSON Schema of the parameters, or None where none were. `deliver`
    takes text that is certain, `found` what was a block; with `trims` the white space behind a block goes with it.
    `holds` tells whether the prompt holds a block, which is a quotation then; with `last` it is a call all the same
    where it stands alone on its lines at the end of the text.

    In the answer (`trims`) a call of a tool that was not offered is taken out, and a marker that stands alone.
    """

    __slots__ = (
        "_block",
        "_closers",
        "_dead",
        "_deliver",
        "_found",
        "_gap",
        "_held",
        "_holds",
        "_last",
        "_leak",
        "_markers",
        "_opener",
        "_place",
        "_queue",
        "_reads",
        "_rules",
        "_said",
        "_strays",
        "_ticked",
        "_tools",
        "_tries",
        "_trims",
    )

    def __init__(
        self,
        rules: Sequence[Leak],
        tools: Mapping[str, Any] | None,
        said: list[str],
        deliver: Callable[[str], None],
        found: Callable[[BlockResult], None],
        *,
        trims: bool,
        holds: Callable[[str, Sequence[ParsedCall]], bool] | None = None,
        last: bool = False,
    ) -> None:
        self._holds = holds
        self._last = last
        self._ticked = False  # a tick stands before the block
        self._reads = False  # the place is followed: a block has begun
        self._queue: deque[_Candidate | BlockResult | str] = deque()  # what waits: a block, and the text behind it
        self._trims = trims
        self._rules = {opener: rule for rule in reversed(rules) for opener in rule.open}
        self._markers = Markers.copy(tuple(self._rules))
        self._strays = Markers.copy(lone_markers(rules)) if trims else self._markers
        self._tools = tools
        self._deliver = deliver
        self._found = found
        self._place = QuoteTracker(said)
        self._said = said
        self._held = ""
        self._gap: str | None = None  # white space behind a block that was taken out
        self._dead = 0
        self._leak: Leak | None = None
        self._opener = ""
        self._closers = self._markers
        self._block: list[str] = []
        self._tries = 0

    @property
    def is_idle(self) -> bool:
        """Is nothing held back, so that text in which no marker may begin can go past?"""
        return not self._held and self._leak is None and self._gap is None and not self._queue

    def before_pack(self, start: int) -> None:
        """The pieces of the text from `start` on are about to become one."""
        self._place.before_pack(start)

    def feed(self, text: str) -> None:
        """More of the channel's text."""
        for at in range(0, len(text), _WINDOW):  # what is left of a text is copied at each marker
            rest, self._held = self._held + text[at : at + _WINDOW], ""
            while rest:
                rest = self._outside(rest) if self._leak is None else self._inside(rest)

    def release(self) -> None:
        """Let the beginning of a marker through, because the part of the reply that it belongs to is over."""
        if self._leak is None and self._held and self._strays.find(self._held) is None:
            held, self._held = self._held, ""
            self._pass(held)

    def close(self, *, proven: bool = True) -> None:
        """The channel is over: what was held back is text, an open block was cut off. `proven`: and that was all."""
        held, self._held = self._held, ""
        if self._leak is None:
            self._rest(held, proven)
        else:
            raw, leak, opener = "".join([*self._block, held]), self._leak, self._opener
            self._reset()
            if self._trims and is_bare(raw, opener, leak) and (proven or leak.then == "strip"):
                self._alone(raw)
            else:
                self._unusable(raw, leak, "it is not complete")
        if self._queue:
            self._place.close()
            self._settle(over=True)

    def _pass(self, text: str, seen: str | None = None) -> None:
        """Let text through, behind what waits. `seen`: what it is for the place, where it is something else."""
        if not self._reads:
            self._let(text)
            return
        self._place.read()
        self._place.feed(text if seen is None else seen)
        self._queue.append(text)
        self._settle()

    def _settle(self, *, over: bool = False) -> None:
        """Let go what waits, as far as it is decided."""
        queue = self._queue
        while queue:
            first = queue[0]
            found = self._decided(first, over) if isinstance(first, _Candidate) else first
            if found is None:
                return
            queue.popleft()
            if isinstance(found, str):
                self._let(found)
            else:
                self._emit(found)
        self._place.skip()

    def _decided(self, block: _Candidate, over: bool) -> BlockResult | None:
        """What becomes of a block; None while that is not known."""
        found, line = block.found, block.atom.line
        if block.atom.quoted is None:
            return None
        if block.atom.quoted:
            return msgspec.structs.replace(found, calls=[], problem="", taken=False)
        if block.quotation:
            more = line.prose or self._place.prose != block.prose
            if self._last and not more and not over:
                return None
            if not self._last or more:
                problem = "the user's text or the result of a tool holds it"
                return msgspec.structs.replace(found, calls=[], problem=problem, taken=False)
        if block.alone and line.middle:
            problem = f"a call of {', '.join(block.alone)} without arguments stands in the middle of a sentence"
            calls = [call for call in found.calls if call.arguments != {}]
            return msgspec.structs.replace(found, calls=calls, problem=problem, taken=bool(calls))
        return found if over or line.over or not block.alone else None

    def _emit(self, found: BlockResult) -> None:
        """Hand on a block that is decided."""
        if found.taken:
            self._gap = "" if self._trims else None
            self._found(found)
            return
        if found.problem:
            self._found(found)
        self._let(found.raw)

    def _let(self, text: str) -> None:
        """Let text through. White space that stood around a block counts once."""
        if self._gap is not None:
            rest = text.lstrip()
            gap = self._gap + text[: len(text) - len(rest)]
            if not rest:
                self._gap = gap
                return
            self._gap = None
            text = joining_space(self._said, gap) + rest
        self._deliver(text)

    # ── outside a block ──────────────────────────────────────────────────────

    def _outside(self, text: str) -> str:
        """Take what is certain off the front; return what is left to look at."""
        found = self._strays.find(text) if self._dead < _PATIENCE else None
        keep = self._strays.pending_length(text) if self._dead < _PATIENCE else 0
        if found is None or len(text) - keep <= found[0]:  # none, or one that could become another still
            if len(text) > keep:
                self._pass(text[: len(text) - keep])
            self._held = text[len(text) - keep :]
            return ""
        at, end, which = found
        if at:
            self._pass(text[:at])
        opener = text[at:end]
        leak = self._rules.get(self._strays.markers[which])
        begins = leak is not None and grammars.viable(leak, opener, text[end : end + _SOON])
        if begins is None and len(text) - end >= _SOON:
            begins = False
        if begins is None:
            self._held = text[at:]
            return ""
        if not begins and self._trims and "`" not in opener:
            lone = self._lone(text, end, leak is not None and leak.then != "strip")
            if lone is None:
                self._held = text[at:]
                return ""
            if lone:
                self._alone(text[at:lone])
                return text[lone:]
        if leak is None or not begins or self._quoted():
            if not begins and leak is not None:
                self._nowhere()
            self._pass(opener)
            return text[end:]
        self._leak, self._opener, self._block, self._tries = leak, opener, [opener], 0
        self._closers = Markers.copy(tuple(leak.close))
        self._ticked = self._place.follows_tick and "`" not in opener
        return text[end:]

    def _quoted(self) -> bool:
        """Whether the block that stands here is part of code or of a block quote, which go on with it."""
        self._reads = True
        self._place.read()
        return self._place.is_quoted and not self._place.is_quoted_by_line

    # ── markers alone ────────────────────────────────────────────────────────

    def _lone(self, text: str, end: int, careful: bool) -> int | None:
        """Where markers that stand alone end, if the one that ends at `end` does: 0 if not, None while nobody knows.

        Alone is alone on its lines; where it is `careful`, with no text behind it.
        """
        self._reads = True
        self._place.read()
        if self._place.follows_tick:
            return 0
        while True:
            over = end
            while over < len(text) and text[over] in " \t":
                over += 1
            if over - end >= _SOON:
                return 0
            found = self._strays.find(text, over) if over < len(text) else None
            if found is None or found[0] != over:
                break
            if (leak := self._rules.get(self._strays.markers[found[2]])) is not None:
                begins = grammars.viable(leak, text[over : found[1]], text[found[1] : found[1] + _SOON])
                if begins is None and len(text) - found[1] < _SOON:
                    return None
                if begins:
                    return 0 if self._place.line.prose else end
            end = found[1]
        rest = text[over:]
        if self._strays.pending_length(rest) == len(rest):  # nothing, or what may become a marker
            return None
        if not self._place.line.prose and not careful:
            return end if rest[0] == "\n" else 0
        return None if rest.isspace() and len(rest) < _SOON else 0

    def _rest(self, held: str, proven: bool) -> None:
        """The last that was held back outside of a block."""
        found = self._strays.find(held) if self._trims and self._dead < _PATIENCE else None
        leak = None if found is None else self._rules.get(self._strays.markers[found[2]])
        certain = proven or (leak is not None and leak.then == "strip")
        if found is None or found[0] or not certain:
            if held:
                self._pass(held)
            return
        opener = held[: found[1]]
        self._reads = True
        self._place.read()
        if leak is None and self._place.line.prose:
            self._pass(held)
        elif leak is None or is_bare(held, opener, leak):
            self._alone(held)
        elif leak.then == "strip" and not self._quoted():
            self._unusable(held, leak, "it is not complete")
        else:
            self._pass(held)

    def _alone(self, raw: str) -> None:
        """Take markers out that begin and end nothing, unless they are quoted."""
        if self._place.follows_tick or self._quoted():
            self._pass(raw)
            return
        found = BlockResult(raw, [], "it is no whole call")
        self._queue.append(_Candidate(found, self._place.add_block(), self._place.prose, False, ()))
        self._settle()

    # ── inside one ───────────────────────────────────────────────────────────

    def _inside(self, text: str) -> str:
        assert self._leak is not None
        at = 0
        if self._ticked and (tick := text.find("`")) >= 0:
            found = self._closers.find(text)
            if found is None or tick < found[0]:  # a span of code ends in it: it is talk about how a call begins
                raw = "".join([*self._block, text[:tick]])
                self._reset()
                self._pass(raw)
                return text[tick:]
        while found := self._closers.find(text, at):
            if self._tries < _TRIES and grammars.inside(self._leak, "".join([*self._block, text[: found[0]]])):
                self._tries += 1
                at = found[1]
                continue
            if len(text) == found[1] and self._closers.pending_length(text) > len(text) - found[0]:
                break  # it could be a longer one
            raw = "".join([*self._block, text[: found[1]]])
            leak, opener = self._leak, self._opener
            self._reset()
            self._complete(raw, leak, opener)
            return text[found[1] :]
        keep = self._closers.pending_length(text[at:])
        self._block.append(text[: len(text) - keep])
        self._held = text[len(text) - keep :]
        return ""

    def _reset(self) -> None:
        self._leak, self._opener, self._block = None, "", []

    def _complete(self, raw: str, leak: Leak, opener: str) -> None:
        """A block from opener to closer: a call, markup to take out, or text."""
        problem = self._take(raw, leak, opener)
        if problem is None:
            return
        start = self._markers.last_start(raw)
        if start > 0 and (found := self._markers.find(raw, start)):  # the opener was talk, the call begins later
            inner = self._rules[self._markers.markers[found[2]]]
            if raw[found[0] :].endswith(tuple(inner.close)):
                self._pass(raw[: found[0]])
                raw, leak = raw[found[0] :], inner
                if self._quoted():
                    self._pass(raw)
                    return
                problem = self._take(raw, inner, raw[: found[1] - found[0]])
        if problem is not None:
            self._unusable(raw, leak, problem)

    def _take(self, raw: str, leak: Leak, opener: str) -> str | None:
        """Take a block out of the text if it is certain; else why it is not."""
        try:
            calls, rest = grammars.read(leak, opener, raw, self._tools or {})
        except grammars.NotOffered as error:
            if self._trims:
                self._strip(raw, opener, error.calls, str(error) if self._tools is not None else "")
                return None
            return str(error)
        except grammars.NotACall as error:
            return str(error)
        problem = "; ".join(f"no call: {piece}" for piece in rest)
        if self._tools is None or leak.then != "recover":
            self._strip(raw, opener, calls, problem)
            return None
        quotation = self._holds is not None and self._holds(raw, calls)
        wanted = calls
        unknown = [call.name for call in calls if call.name not in self._tools]
        lacking = [call.name for call in calls if call.arguments == {} and _required(self._tools.get(call.name))]
        calls = [call for call in calls if call.name in self._tools and call.name not in lacking]
        unnamed = f"no tool is called {', '.join(unknown)}" if unknown else ""
        bare = f"a call of {', '.join(lacking)} needs arguments" if lacking else ""
        if not calls:
            if unknown and not lacking and self._trims:
                self._strip(raw, opener, wanted, unnamed)
                return None
            return bare or unnamed or "no call is in it"
        problem = "; ".join(filter(None, [problem, unnamed, bare]))
        alone = tuple(call.name for call in calls if call.arguments == {})
        found = BlockResult(raw, calls, problem)
        self._queue.append(_Candidate(found, self._place.add_block(), self._place.prose, quotation, alone))
        self._settle()
        return None

    def _strip(self, raw: str, opener: str, wanted: list[ParsedCall], problem: str) -> None:
        """Take a block out of the text that comes to no call, unless it is quoted."""
        quotation = self._holds is not None and self._holds(raw, wanted)
        # A word between two markers may be talk about them.
        word = raw[len(opener) :].partition("<")[0].strip()
        alone = (word,) if len(wanted) == 1 and raw.count("<") == 2 and is_plausible_name(word) else ()
        found = BlockResult(raw, [], problem, wanted=wanted)
        self._queue.append(_Candidate(found, self._place.add_block(), self._place.prose, quotation, alone))
        self._settle()

    def _nowhere(self) -> None:
        """An opener led nowhere; after many, none is looked for."""
        self._dead += 1
        if self._dead == _PATIENCE:
            self._found(BlockResult("", [], f"{_PATIENCE} markers began no call, no more is looked for", taken=False))

    def _unusable(self, raw: str, leak: Leak, problem: str) -> None:
        self._nowhere()
        self._place.read()
        if leak.then == "strip" and not leak.strict:
            self._queue.append(
                _Candidate(BlockResult(raw, [], problem), self._place.add_block(), self._place.prose, False, ())
            )
        else:
            self._place.feed("x")  # nothing in it counts as Markdown
            self._queue += (BlockResult(raw, [], problem, taken=False),)
        self._settle()


def _required(schema: Any) -> bool:
    """Whether a tool has a parameter that must be given."""
    return isinstance(schema, Mapping) and bool(schema.get("required"))
