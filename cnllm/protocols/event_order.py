"""Put the events of a reply in the order in which the protocols write them: each part ends before the next one begins.

Some endpoints end a part after the next one has begun. The seal of the part, which such an endpoint wants back, is then
known only at the end of the stream. Calls wait for the seal, so that it stands in their own block. Text does not wait,
because a reader sees it: its part ends without the seal, and a seal that comes later is written in its own block.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import cast

import msgspec
from msgspec.structs import replace

from cnllm.types import (
    BlockEnd,
    Citation,
    CitationAdded,
    Event,
    ExtraAdded,
    Finish,
    Finished,
    Media,
    NoteAdded,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Restarted,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSeen,
)
from cnllm.types.delivered import Delivered, DeltaKey, Diverged
from cnllm.types.lenient_json import JsonPieces, decode_arguments

__all__ = ["EventOrder", "TextJoiner", "citations_by_part", "join_texts", "reply_events"]

_ASIDE = (UsageSeen, NoteAdded, CitationAdded, ExtraAdded)
"""The events that wait for no part."""
_KINDS: dict[type, type] = {TextDelta: Text, ReasoningDelta: Reasoning}
_DELTAS: dict[type, type[TextDelta] | type[ReasoningDelta]] = {Text: TextDelta, Reasoning: ReasoningDelta}


def citations_by_part(
    parts: Sequence[Part], citations: Sequence[Citation], length: int
) -> Iterator[tuple[Part, int, list[Citation]]]:
    """Yield each part with the place where it begins in an answer of a length, and with its sources.

    A text has the sources of pieces that begin in it, and the last text all that are left.
    """
    ends = [*accumulate(len(part.text) if type(part) is Text else 0 for part in parts)]
    last = bisect_left(ends, length or 1)
    own: list[list[Citation]] = [[] for _ in parts]
    for citation in citations:
        place = last if citation.start is None else min(bisect_right(ends, citation.start), last)
        if place < len(own):
            own[place].append(citation)
    yield from zip(parts, [0, *ends], own, strict=False)


class EventOrder:
    """A buffer between a reply's events and an encoder.

    With `whole_calls` the encoder writes calls when they are complete: later parts wait for them. With `one_block` it
    writes one part after the other: what follows a call waits until the call's arguments can be read. `seal` is
    called for each part of reasoning and each call when it ends, and returns the part to write; then calls need not
    wait. What a reply that begins again repeats is left out. A text that differs is written whole, because a reader
    would rather see both than lose one; with `strict` it raises `Diverged`.
    """

    def __init__(
        self,
        *,
        whole_calls: bool = False,
        one_block: bool = False,
        seal: Callable[[Part], Part] | None = None,
        strict: bool = False,
    ) -> None:
        self._strict = strict
        self._whole_calls = whole_calls
        self._one_block = one_block
        self._seal = seal
        self._kind: type | None = None  # of the open part
        self._is_ordered = False  # whether a part ended before the next one began
        self._count = 0  # parts that ended
        self._pieces: list[str] = []  # of the open part
        self._delivered = Delivered()  # also what waits
        self._seals: list[object] = []  # that were delivered
        self._held: list[Event] = []
        self._calls: list[int] = []  # that began, and were not delivered if they are written whole
        self._ended_calls: dict[int, Event] = {}
        self._arguments: dict[int, JsonPieces] = {}  # of the calls that were delivered
        self._readable: dict[int, tuple[int, bool | None]] = {}  # how many of these were read, and whether they can be
        self._has_unread = False  # whether a call ended with arguments that cannot be read

    def feed(self, event: Event) -> list[Event]:
        """Return the events to write now."""
        kind = type(event)
        if kind is Restarted:
            out = [] if self._strict else self.flush()
            self._delivered.restart()
            return out
        try:
            new = self._delivered.rest(event)
        except Diverged:
            if self._strict:
                raise
            new = self._different(event)
        return [] if new is None else self._feed(new, kind)

    def require_whole(self) -> None:
        """Raise `Diverged` where a reply that began again has not repeated all that was delivered."""
        self._delivered.rest(Finished("stop", None))

    @property
    def has_text(self) -> bool:
        """Whether text of the answer was written."""
        return self._delivered.has(TextDelta)

    @property
    def text_size(self) -> int:
        """Return the number of characters of the answer so far."""
        return len(self._delivered.text(TextDelta))

    def continue_with(self, key: DeltaKey, texts: list[str]) -> bool:
        """Whether deltas go out as they are, because they continue the open part, or a call that has begun."""
        if self._held or not self._delivered.is_first:
            return False
        if isinstance(key, int):
            if (arguments := self._arguments.get(key)) is None:
                return False
            arguments.pieces += texts
        elif self._kind is _KINDS[key]:
            self._pieces += texts
        else:
            return False
        self._delivered.add(key, texts)
        return True

    def _feed(self, event: Event, kind: type) -> list[Event]:
        """Return the events to write now, for one that is new."""
        if not self._held:
            if self._kind is not None and _KINDS.get(kind) is self._kind:
                # The test of the kind is the quick one; mypy cannot follow it.
                self._pieces.append(event.text)  # type: ignore[union-attr]
                return [event]
        elif kind is Finished:
            return [*self.flush(cast(Finished, event).finish), *self._take(event)]
        elif kind in _ASIDE:
            return [event]
        elif not self._resolves(event):
            self._held.append(event)
            return []
        if not self._fits(event):
            self._held.append(event)
            return []
        out = self._take(event)
        if self._held and self._kind is None and not self._waits_for_calls:
            out += self._release()
        return out

    def _different(self, event: Event) -> Event | None:
        """Return an event that differs from what was delivered, as it is written: the whole text, and no call twice."""
        self._delivered.forget(event)
        return (
            None if type(event) is ToolCallStart else event if type(event) is Finished else self._delivered.rest(event)
        )

    def flush(self, finish: Finish | None = None) -> list[Event]:
        """Return the events that wait, because no more come.

        With `one_block` what follows a call that is not whole waits on: a reader would take the call for a whole one,
        unless the reply ended at a limit.
        """
        out: list[Event] = []
        while self._held and not (self._one_block and self._waits_for_calls and not self._may_go_on(finish)):
            out += self._end_without_seal() if self._kind is not None else []
            self._calls = []
            out += self._release()
        return out

    def _may_go_on(self, finish: Finish | None) -> bool:
        """Whether something may follow a call that is not whole in a reply that ended so."""
        return finish in ("length", "content_filter") or (finish in ("stop", "tool_calls") and not self._has_unread)

    @property
    def _waits_for_calls(self) -> bool:
        """Whether calls must be complete before anything else is written."""
        if not self._calls or self._whole_calls:
            return bool(self._calls)
        return self._one_block and not all(map(self._is_readable, self._calls))

    def _is_readable(self, index: int) -> bool:
        """Whether the arguments of a call can be read. Those that have ended and cannot are not looked at again."""
        arguments, (count, is_readable) = self._arguments[index], self._readable.get(index, (0, None))
        if is_readable is not False and "".join(arguments.pieces[count:]).strip():
            is_readable = decode_arguments("".join(arguments.pieces))[0] is not None if arguments.has_ended() else None
            self._readable[index] = len(arguments.pieces), is_readable
        return is_readable is True

    def _resolves(self, event: Event) -> bool:
        """Whether an event ends what the waiting events wait for."""
        if isinstance(event, BlockEnd) and isinstance(event.part, Text | Reasoning):
            return type(event.part) is self._kind and event.part.text.startswith("".join(self._pieces))
        if isinstance(event, ToolCallDelta | ToolCallEnd):
            return self._waits_for_calls and event.index in self._calls
        return False

    def _fits(self, event: Event) -> bool:
        """Whether an event can be written now."""
        match event:
            case TextDelta() | ReasoningDelta():
                is_next = self._kind in (None, _KINDS[type(event)]) or not self._is_ordered
                return is_next and not self._waits_for_calls
            case ToolCallStart():
                needs_seal = self._is_ordered or (self._kind is Reasoning and self._seal is None)
                waits = self._one_block and self._waits_for_calls
                return (self._kind is None or not needs_seal) and not waits
            case BlockEnd():
                return self._kind in (None, type(event.part)) and not self._waits_for_calls
        return True

    def _take(self, event: Event) -> list[Event]:
        """Return the events to write for one that fits."""
        match event:
            case TextDelta() | ReasoningDelta():
                kind = _KINDS[type(event)]
                out = [] if self._kind in (None, kind) else self._end_without_seal()
                self._kind = kind
                self._pieces.append(event.text)
                return [*out, event]
            case ToolCallStart(index=index):
                out = [] if self._kind is None else self._end_without_seal()
                self._calls.append(index)
                self._arguments[index] = JsonPieces()
                return [*out, event]
            case ToolCallDelta(index=index) if index in self._arguments:
                self._arguments[index].pieces.append(event.text)
            case ToolCallEnd(index=index, call=call):
                if self._seal is not None:
                    event = ToolCallEnd(index, cast(ToolCall, self._seal(call)))
                if index in self._calls and self._whole_calls:
                    self._ended_calls[index] = event
                    return self._complete_calls()
                if self._one_block and call.arguments is None and call.raw:
                    self._has_unread = True
                elif index in self._calls:
                    self._calls.remove(index)
            case BlockEnd():
                self._is_ordered = self._is_ordered or self._kind is type(event.part)
                return self._end(event)
            case Finished():  # a call that does not end keeps the later ones waiting
                ended, self._ended_calls = self._ended_calls, {}
                return [*(ended[index] for index in sorted(ended)), event]
        return [event]

    def _end_without_seal(self) -> list[Event]:
        """Return the end of the open part, whose seal is not known."""
        part: Part = Reasoning("") if self._kind is Reasoning else Text("")
        return [self._end_part(self._count, replace(part, text=self._close()))]

    def _complete_calls(self) -> list[Event]:
        """Return the ends of calls in the order in which the calls began."""
        out: list[Event] = []
        while self._calls and self._calls[0] in self._ended_calls:
            out.append(self._ended_calls.pop(self._calls.pop(0)))
        return out

    def _end(self, event: BlockEnd) -> list[Event]:
        """Return the end of a part with the text that its deltas had."""
        part = event.part
        if not isinstance(part, Text | Reasoning):
            return [event]
        if self._kind is type(part):
            text = self._close()
            return [self._end_part(event.index, part if part.text == text else replace(part, text=text))]
        kind = _DELTAS[type(part)]
        if part.text and part.text not in self._delivered.text(kind):  # it came in no deltas
            self._delivered.add(kind, [part.text])
            return [kind(part.text), self._end_part(event.index, part)]
        if part.text and (part.seal is None or part.seal in self._seals):
            return []  # a part that has ended already
        return [self._end_part(event.index, replace(part, text="") if part.text else part)]

    def _end_part(self, index: int, part: Part) -> BlockEnd:
        """Return the end of a part."""
        self._count += 1
        if part.seal is not None:
            self._seals.append(part.seal)
        return BlockEnd(index, self._seal(part) if self._seal is not None and type(part) is Reasoning else part)

    def _close(self) -> str:
        """Close the open part, and return its text."""
        text = "".join(self._pieces)
        self._kind, self._pieces = None, []
        return text

    def _release(self) -> list[Event]:
        """Return the waiting events that can be written now."""
        events, self._held = self._held, []
        return [ready for event in events for ready in self._feed(event, type(event))]


def join_texts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return parts with one text in place of texts that follow each other."""
    out: list[Part] = []
    for part in parts:
        if out and type(part) is type(out[-1]) is Text:
            part = replace(part, text=cast(Text, out.pop()).text + part.text)
        out.append(part)
    return tuple(out)


class TextJoiner:
    """A buffer that makes one text of those that follow each other in a stream: the end of a text waits."""

    def __init__(self) -> None:
        self._pieces: list[str] = []  # that ended
        self._end: tuple[int, Text] | None = None  # the index and the last piece of the text whose end waits
        self._fewer = 0  # ends so far

    def feed(self, event: Event) -> list[Event]:
        """Return the events in place of one."""
        match event:
            case TextDelta():
                self._end = None
            case BlockEnd(part=Text() as part):
                self._fewer += bool(self._pieces)
                self._pieces.append(part.text)
                self._end = event.index - self._fewer, part
                return []
            case UsageSeen() | NoteAdded() | CitationAdded() | ExtraAdded():
                pass
            case _:
                ends: list[Event] = []
                if self._end is not None:
                    index, part = self._end
                    ends = [BlockEnd(index, replace(part, text="".join(self._pieces)))]
                self._end, self._pieces = None, []
                if type(event) is BlockEnd:
                    event = replace(event, index=event.index - self._fewer)
                elif type(event) is Restarted:
                    self._fewer = 0
                return [*ends, event]
        return [event]


def reply_events(reply: Reply, split: Callable[[str], Sequence[str]] = lambda text: (text,)) -> Iterator[Event]:
    """Yield the events of a whole reply, without `Finished`; `split` makes pieces of texts and of arguments."""
    calls = 0
    if refusal := reply.extra.get("refusal"):  # it says what the texts are
        yield ExtraAdded({"refusal": refusal})
    parts = citations_by_part(reply.message.parts, reply.citations, len(reply.text))
    for index, (part, _, citations) in enumerate(parts):
        match part:
            case Text() | Reasoning():
                if part.text:
                    yield from map(TextDelta if type(part) is Text else ReasoningDelta, split(part.text))
                yield from map(CitationAdded, citations)
                yield BlockEnd(index, part)
            case ToolCall():
                yield ToolCallStart(calls, part.id, part.name, part.excluded, part.seal)
                arguments = part.raw or msgspec.json.encode(part.arguments or {}).decode()
                yield from (ToolCallDelta(calls, text) for text in split(arguments))
                yield ToolCallEnd(calls, part)
                calls += 1
            case Opaque() | Media():
                yield BlockEnd(index, part)
    if reply.extra:
        yield ExtraAdded(reply.extra)
    yield UsageSeen(reply.usage)
    yield from map(NoteAdded, reply.notes)
