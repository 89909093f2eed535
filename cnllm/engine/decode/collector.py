"""Collect what a reply holds: its parts, calls, sources and notes, and what the endpoint says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cnllm.engine.decode.citations import Citations
from cnllm.engine.decode.parts import Parts
from cnllm.engine.decode.reply_notes import ReplyNotes
from cnllm.engine.decode.tool_calls import CallBuilder, CallCollector
from cnllm.engine.encode.call_rules import CallRules
from cnllm.protocols.call_ids import ReplyIds
from cnllm.protocols.pieces import (
    FINISH_RANKS,
    Annotations,
    CallEnd,
    CitationPiece,
    Counts,
    Details,
    ExtraPiece,
    Fault,
    FinishWord,
    Head,
    Mark,
    PartSeal,
    Piece,
)
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.types import (
    Citation,
    CitationAdded,
    Event,
    ExtraAdded,
    Note,
    NoteAdded,
    ToolCallStart,
    Usage,
    UsageSeen,
)
from cnllm.types.lenient_json import replace_surrogates as _replace_surrogates

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["Collector"]


class Collector:
    """The content of one reply so far.

    `names` are the caller's names of tools by those on the wire, `rules` tell which calls are excluded.
    """

    __slots__ = (
        "_names",
        "_rules",
        "answered",
        "calls",
        "choiceless_chunk",
        "citations",
        "created",
        "ended",
        "extra",
        "fault",
        "finish_kind",
        "finish_word",
        "flags",
        "id",
        "model",
        "notes",
        "parts",
        "raw",
        "refused",
        "reported_model",
        "searches",
        "usage",
        "whole",
    )

    def __init__(
        self,
        model: Model,
        flags: Flags,
        names: dict[str, str],
        rules: CallRules | None,
        ids: ReplyIds | None,
        *,
        ordered: bool,
    ) -> None:
        self.model = model
        self.flags = flags
        self._names = names
        self._rules = rules
        self.parts = Parts(model, flags, ordered=ordered)
        self.calls = CallCollector(ids)
        self.citations = Citations()
        self.notes = ReplyNotes()
        self.usage = Usage()
        self.searches: int | None = None  # web searches so far, where the endpoint reports them
        self.extra: dict[str, Any] = {}
        self.id: str | None = None
        self.reported_model: str | None = None
        self.created: float | None = None
        self.finish_word: str | None = None
        self.finish_kind: str | None = None  # the registry's meaning of the word; None for an unknown word
        self.ended = self.answered = self.refused = False
        self.fault: Any = None
        self.raw: Any = None
        self.choiceless_chunk: Any = None  # a chunk without a choice: all that can be shown of an empty reply
        self.whole = False  # one body, not a stream of fragments

    def add(self, piece: Piece) -> list[Event]:
        """Add a piece that is neither text nor the beginning of a part; return its events."""
        match piece:
            case Head(id, model, created):
                if self.id is None and type(id) is str:
                    self.id = id or None
                if self.reported_model is None and type(model) is str:
                    self.reported_model = model or None
                if self.created is None and type(created) in (int, float):
                    self.created = created or None
            case Mark(fact):
                self.answered = self.answered or fact == "answered"
                self.refused = self.refused or fact == "refused"
                self.ended = self.ended or fact == "ended"
            case FinishWord(word, kind):
                if FINISH_RANKS.get(kind, 0) >= FINISH_RANKS.get(self.finish_kind, 0):  # of several the worst counts
                    self.finish_word, self.finish_kind = word, kind
            case Counts(usage):
                if usage not in (Usage(), self.usage):
                    self.usage = usage
                    return [UsageSeen(usage)]
            case Details(items):
                self.parts.details += _replace_surrogates(items)
            case PartSeal(data, part):
                self.parts.seal(data, part)
            case CallEnd(index, is_whole):
                self.calls.end(index, is_whole)
            case Annotations(data):
                self.parts.annotations.update(_replace_surrogates(data))
            case ExtraPiece(key, value):
                return self._add_extra(key, value)
            case Fault(data):
                self.fault = data if self.fault is None else self.fault
            case Note():
                return self.add_note(piece)
        return []

    def _add_extra(self, key: str, value: Any) -> list[Event]:
        """Add data about the reply without a field of their own."""
        value = _replace_surrogates(value)
        if not value:
            return []
        if key == "logprobs":
            self.extra.setdefault(key, []).extend(value)
        elif self.extra.get(key) == value:
            return []
        else:
            self.extra[key] = value
        return [ExtraAdded({key: value})]

    def add_citation(self, piece: CitationPiece, *, is_placed: bool) -> list[Event]:
        """Add a source of the answer; without `is_placed` positions in the answer do not fit."""
        pair = (piece.url, piece.title)
        url, title = (_replace_surrogates(text) if type(text) is str and text else None for text in pair)
        if url is None and title is None:
            return []
        citation = Citation(url, title, seal=self.parts.seal_of(_replace_surrogates(piece.data)))
        block = None
        if self.parts.is_ordered and (piece.in_part or piece.part is not None):
            block = self.parts.block(piece.part)
        start, end = piece.start, piece.end
        if not is_placed:
            pass
        elif piece.quote is not None:
            self.citations.wait_for_text(replace(citation, start=start, end=end), _replace_surrogates(piece.quote))
            return []
        elif type(start) is int and type(end) is int and 0 <= start < end:
            offset = 0 if block is None else block.start
            citation = replace(citation, start=offset + start, end=offset + end)
        elif block is not None:
            self.citations.wait_for_part(citation, block.start)
            return []
        return [CitationAdded(new) for new in self.citations.add(citation)]

    def add_note(self, note: Note | None) -> list[Event]:
        """Add a note, if there is one; return its event where it is new."""
        return [NoteAdded(note)] if note is not None and self.notes.add(note) else []

    def note(self, code: NoteCode, flag: str, subject: str, did: str, origin: str = "") -> list[Event]:
        """Add a note; return its event where the note is new."""
        return self.add_note(Note(code, flag, subject, did, origin))

    def omitted_notes(self) -> list[Event]:
        """Return an event that counts the notes that are left out, if there are any."""
        return [NoteAdded(note) for note in self.notes.omitted]

    # ── calls ────────────────────────────────────────────────────────────────

    def named(self, events: list[Event]) -> list[Event]:
        """Return events with the callers' names of the tools, and whether a call is excluded."""
        return [self._named_start(event) if type(event) is ToolCallStart else event for event in events]

    def _named_start(self, start: ToolCallStart) -> Event:
        name = self._names.get(start.name, start.name)
        is_excluded = self._rules is not None and self._rules.exclusion(name) is not None
        return ToolCallStart(start.index, start.id, name, is_excluded) if is_excluded or name != start.name else start

    def feed_calls(self, items: Any, whole: bool) -> tuple[list[Event], list[CallBuilder]]:
        """Add pieces of calls; return their events, and the calls that begin."""
        count = len(self.calls.all)
        self.calls.ids.reply = self.id
        events = self.named(self.calls.feed(_replace_surrogates(items), whole=whole))
        return events, self.calls.all[count:]

    def start_call(self, call: CallBuilder) -> list[Event]:
        """Add a call that was found in a text; return the events of its beginning."""
        out: list[Event] = []
        self.calls.ids.reply = self.id
        self.calls.add(call)
        self.calls.start(call, out)
        return self.named(out)

    def end_part(self) -> list[Event]:
        """End the last part; return the events that this allows."""
        out: list[Event] = []
        if self.citations.has_waiting:
            out += map(CitationAdded, self.citations.settle(self.parts.text.size))
        return [*out, *self.parts.end()]

    def begun_again(self) -> list[Event]:
        """Return the events of what came besides the texts: calls, sources and other data."""
        out: list[Event] = []
        for call in self.calls.all:
            if call.started:
                self.calls.start(call, out)
        out = self.named(out)
        out += map(CitationAdded, self.citations.all)
        return [*out, ExtraAdded(dict(self.extra))] if self.extra else out
