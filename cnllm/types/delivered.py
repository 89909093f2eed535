"""Compare a reply that begins again with what was delivered of it, so that nothing is delivered twice.

A reply that did not come from its own stream ends with events that are built from it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from cnllm.types import (
    BlockEnd,
    CitationAdded,
    Event,
    ExtraAdded,
    Finished,
    NoteAdded,
    ReasoningDelta,
    Reply,
    Restarted,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSeen,
)

__all__ = [
    "Delivered",
    "Delta",
    "DeltaKey",
    "Diverged",
    "RepeatedText",
    "call_events",
    "closing_events",
    "corrected_events",
    "delta_key",
    "delta_of",
    "delta_runs",
    "final_events",
    "is_verdict",
    "text_events",
]


DeltaKey = type[TextDelta] | type[ReasoningDelta] | int
"""The text that a delta continues: that of a type of delta, or the arguments of the call with an index."""


Delta = TextDelta | ReasoningDelta | ToolCallDelta
"""An event with a piece of a text."""


def delta_key(event: Delta) -> DeltaKey:
    """Return the key of the text that an event continues."""
    return event.index if isinstance(event, ToolCallDelta) else type(event)


def delta_of(key: DeltaKey, text: str) -> Delta:
    """Return the delta that continues the text with a key."""
    return ToolCallDelta(key, text) if isinstance(key, int) else key(text)


def delta_runs(events: Iterable[Event]) -> Iterator[tuple[DeltaKey | None, list[Any]]]:
    """Yield neighbours that continue one text, with its key, and other neighbours of one type, with None."""
    for kind, group in groupby(events, type):
        if kind is ToolCallDelta:
            yield from ((index, [*pieces]) for index, pieces in groupby(group, _index))
        else:
            yield kind if kind is TextDelta or kind is ReasoningDelta else None, [*group]


_index = attrgetter("index")


class Diverged(Exception):
    """A reply that begins again differs from what was delivered of it."""


class RepeatedText:
    """A text that a second stream should repeat, and the position up to which it has. Each character is compared once.

    `read` returns the text from a position on; the text may grow. The part before `position` was repeated already.
    """

    def __init__(self, read: Callable[[int], str], position: int = 0) -> None:
        self._read = read
        self._piece, self._at = "", 0  # a piece of the text, and the place in it where the position is
        self.position = position

    @classmethod
    def of(cls, text: str) -> RepeatedText:
        """Return the repeated text for a text that does not grow."""
        return cls(lambda start: text[start:])

    @property
    def is_complete(self) -> bool:
        """Whether all of the text was repeated."""
        return self._at == len(self._piece) and not self._read(self.position)

    def rest(self, text: str) -> str:
        """Return the part of the next text that goes beyond this one. Raises `Diverged` where the two differ."""
        if len(self._piece) - self._at < len(text):
            self._piece, self._at = self._read(self.position), 0
        size = min(len(self._piece) - self._at, len(text))
        if self._piece[self._at : self._at + size] != text[:size]:
            raise Diverged
        self.position += size
        self._at += size
        return text[size:]

    def reread(self) -> None:
        """Read the text again with the next part of the other one: it has changed."""
        self._piece, self._at = "", 0


class Delivered:
    """The delivered part of one reply: its texts, its calls and its sources.

    `rest` returns what is new of each event. After `restart` the reply begins again, and what it repeats is not new.
    """

    def __init__(self) -> None:
        self._pieces: dict[Hashable, list[str]] = {}  # by type of delta, or by index of call
        self._starts: dict[int, ToolCallStart] = {}
        self._once: set[Hashable] = set()  # ends of calls by index, and citations as text with all that they hold
        self._repeats: dict[Hashable, RepeatedText] | None = None
        self._missing_calls: set[int] = set()  # that were delivered, and did not begin again yet

    @classmethod
    def of(cls, reply: Reply) -> Delivered:
        """Return what was delivered where a reply broke off."""
        new = cls()
        for kind, text in ((ReasoningDelta, reply.reasoning), (TextDelta, reply.text)):
            new.add(kind, [text])
        for index, call in enumerate(reply.incomplete):
            new.rest(ToolCallStart(index, call.id, call.name))
        return new

    @property
    def is_first(self) -> bool:
        """Whether the reply did not begin again."""
        return self._repeats is None

    @property
    def has_calls(self) -> bool:
        """Whether a call has begun."""
        return bool(self._starts)

    def has(self, key: Hashable) -> bool:
        """Whether any piece came of the texts with a key: a type of delta, or the index of a call."""
        return key in self._pieces

    def text(self, key: Hashable) -> str:
        """Return the text with a key: a type of delta, or the index of a call."""
        return "".join(self._pieces.get(key, ()))

    def add(self, key: Hashable, texts: Sequence[str]) -> None:
        """Add texts that are delivered, and not compared."""
        self._pieces.setdefault(key, []).extend(texts)

    def restart(self) -> None:
        """Begin again: what was delivered is expected once more."""
        starts = {index for index, start in self._starts.items() if not start.excluded}  # others are left out
        if self._pieces or starts:
            keys = [key for key in self._pieces if type(key) is not int or key in starts]
            self._repeats = {key: RepeatedText.of(self.text(key)) for key in keys}
            self._missing_calls = starts

    def forget(self, event: Event) -> None:
        """Compare no more texts of the kind of an event: all of them are new."""
        if self._repeats is not None and isinstance(event, Delta):
            self._repeats.pop(delta_key(event), None)

    def rest(self, event: Event) -> Event | None:
        """Return the part of an event that is new; None where nothing is.

        Raises `Diverged` for an event that differs, and for the end of a reply that lacks a part of what was delivered.
        """
        match event:
            case TextDelta() | ReasoningDelta() | ToolCallDelta():
                return self._rest_of_delta(event)
            case CitationAdded() | ToolCallEnd():
                key: Hashable = event.index if isinstance(event, ToolCallEnd) else repr(event.citation)
                if key in self._once:
                    return None
                self._once.add(key)
            case ToolCallStart(index=index):
                if index not in self._missing_calls:
                    self._starts[index] = event
                    return event
                if self._starts[index].name != event.name:
                    raise Diverged
                self._missing_calls.discard(index)
                return None
            case Finished():
                if self._missing_calls or not all(text.is_complete for text in (self._repeats or {}).values()):
                    raise Diverged
        return event

    def _rest_of_delta(self, event: Delta) -> Event | None:
        """Return the part of a delta that is new; None where nothing is. Raises `Diverged`."""
        key = delta_key(event)
        if self._repeats is not None and (repeated := self._repeats.get(key)) is not None:
            text = repeated.rest(event.text)
            if not text:
                return None
            event = replace(event, text=text)
        self.add(key, [event.text])
        return event

    def remaining_events(self, reply: Reply) -> list[Event]:
        """Return events for the part of a whole reply that is new.

        Where it does not go on from what was delivered, they are `Restarted` and everything. A call that had begun
        cannot go on.
        """
        reasoning, text = self.text(ReasoningDelta), self.text(TextDelta)
        is_same = reply.reasoning == reasoning if text else reply.reasoning.startswith(reasoning)
        events: list[Event] = []
        if self.has_calls or not is_same or not reply.text.startswith(text):
            events.append(Restarted())
            reasoning = text = ""
        return [*events, *text_events(reply.reasoning[len(reasoning) :], reply.text[len(text) :])]


def text_events(reasoning: str, text: str) -> list[Event]:
    """Return the events of a piece of reasoning and a piece of the answer, where they are not empty."""
    out: list[Event] = [ReasoningDelta(reasoning)] if reasoning else []
    return [*out, TextDelta(text)] if text else out


# ── the end of a reply ───────────────────────────────────────────────────────


def final_events(reply: Reply) -> list[Event]:
    """Return the closing events of a reply that was read elsewhere, with `Finished`."""
    return [*closing_events(reply), Finished(reply.finish, reply.raw_finish)]


def closing_events(reply: Reply) -> list[Event]:
    """Return the closing events without `Finished`."""
    out: list[Event] = []
    calls = reply.tool_calls
    for index, call in enumerate(calls):
        out += call_events(index, call)
    out += map(CitationAdded, reply.citations)
    out += [ExtraAdded(reply.extra)] if reply.extra else []
    out.append(UsageSeen(reply.usage))
    out += [BlockEnd(i, p) for i, p in enumerate(reply.message.parts) if type(p) is not ToolCall]
    out += [ToolCallEnd(index, call) for index, call in enumerate(calls)]
    return out


def call_events(index: int, call: ToolCall) -> list[Event]:
    """Return the events of a whole call, without its end."""
    start = ToolCallStart(index, call.id, call.name, call.excluded, call.seal)
    return [start, ToolCallDelta(index, call.raw)] if call.raw else [start]


def is_verdict(event: Event) -> bool:
    """Whether an event says that the reply ended, or that the answer is invalid."""
    return type(event) is Finished or (type(event) is NoteAdded and event.note.code == "answer-invalid")


def corrected_events(old: Reply, new: Reply, final: list[Event]) -> list[Event]:
    """Return the events of a corrected reply; where the reply stayed the same, its new notes and its end."""
    notes: list[Event] = [NoteAdded(n) for n in new.notes if n not in old.notes or n.code == "answer-invalid"]
    if not any(note.code == "answer-corrected" for note in new.notes):
        return [*notes, *final[-1:]]
    return [*notes, Restarted(), *text_events(new.reasoning, new.text), *final_events(new)]
