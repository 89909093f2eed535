"""Collect what a reply holds: parts, calls, sources and notes, each once, and what the endpoint says about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.decode.meter import meter_of
from cnllm.engine.decode.parts import Parts
from cnllm.engine.decode.tool_calls import CallBuilder, CallCollector
from cnllm.engine.encode.plan import Plan
from cnllm.protocols import wire
from cnllm.protocols.pieces import (
    FINISH_RANKS,
    LISTS,
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
    WholeText,
)
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

_NOTES_LEFT_OUT: Final = "notes-left-out"
"""The code of the last note where notes were left out."""
_MAX_SPACE = 64  # characters at both ends of a text that a repetition may lack
_MAX_PER_CODE = 100  # the codes are the engine's own, so there are few


class Collector:
    """The content of one reply so far, to the request of a plan.

    `is_known`: the plan has the messages of the request.
    """

    def __init__(self, plan: Plan, *, ordered: bool, is_known: bool) -> None:
        self.model = plan.model
        self.flags = plan.flags
        self.meter = meter_of(plan.flags)
        self._names = plan.renamed
        self._rules = plan.call_rules
        self._begins_whole = wire(plan.model.protocol).call_heads
        self.citations = Citations()
        self.notes = ReplyNotes()
        self.parts = Parts(plan.model, plan.flags, ordered=ordered)
        self.calls = CallCollector(plan if is_known else None)
        self.usage = Usage()
        self.invalid_counts: frozenset[str] = frozenset()  # names of counts that came last and are none
        self.paid_calls: dict[str, int | None] = {}  # by name, as far as the endpoint has reported them
        self.extra: dict[str, Any] = {}
        self.id: str | None = None
        self.reported_model: str | None = None
        self.created: float | None = None  # in seconds since 1970
        self.finish_word: str | None = None
        self.finish_kind: str | None = None  # the registry's meaning of the word; None for an unknown word
        self.ended = self.answered = self.refused = False
        self.has_another = False  # another reply begins in the same stream
        self.has_gap = False  # pieces of the text are missing
        self.has_words = False  # data came that is no chunk: it may be an error in words
        self.has_uncounted = False  # pieces came after the last counts that include the output
        self.has_output_count = False  # such counts came with the last pieces
        self.fault: Any = None
        self.raw: Any = None
        self.choiceless_chunk: Any = None  # a chunk without a choice: all that can be shown of an empty reply
        self.whole = False  # one body, not a stream of fragments

    def add(self, pieces: Iterable[Piece]) -> list[Event]:
        """Add pieces that are neither text nor the beginning of a part; return their events."""
        out: list[Event] = []
        for piece in pieces:
            match piece:
                case Head(id, model, created):
                    if self.id is None and type(id) is str:
                        self.id = self.calls.reply_id = _replace_surrogates(id) or None
                    if self.reported_model is None and type(model) is str:
                        self.reported_model = _replace_surrogates(model) or None
                    if self.created is None and type(created) in (int, float):
                        self.created = created or None
                case Mark(fact):
                    self.answered = self.answered or fact == "answered"
                    self.refused = self.refused or fact == "refused"
                    self.ended = self.ended or fact == "ended"
                    self.has_another = self.has_another or fact == "another"
                    self.has_words = self.has_words or fact == "words"
                case FinishWord(word, kind):
                    # Of several the worst counts.
                    if FINISH_RANKS.get(kind, 0) >= FINISH_RANKS.get(self.finish_kind, 0):
                        self.finish_word, self.finish_kind = _replace_surrogates(word), kind
                case Counts(usage, invalid, has_output):
                    self.has_output_count = self.has_output_count or has_output
                    self.invalid_counts = invalid if invalid or usage != Usage() else self.invalid_counts
                    if usage not in (Usage(), self.usage):
                        self.usage = usage
                        out.append(UsageSeen(usage))
                case Details(items):
                    self.parts.details += items
                case PartSeal(data, part):
                    self.parts.seal(data, part)
                case CallEnd(index, is_whole):
                    self.calls.end(index, is_whole=is_whole)
                case Annotations(data):
                    self.parts.annotations.update(_replace_surrogates(data))
                    for key, value in data.items():
                        out += self._add_extra(key, value)
                case ExtraPiece(key, value):
                    out += self._add_extra(key, value)
                case Fault(data):
                    self.fault = data if self.fault is None else self.fault
                case Note():
                    out += self.add_note(piece)
        return out

    def _add_extra(self, key: str, value: Any) -> list[Event]:
        """Add data about the reply without a field of their own."""
        value = _replace_surrogates(value)
        if not value and (key != "usage" or not self.extra.get(key)):  # other counts may have become invalid
            return []
        if key in LISTS:
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
            begin, finish = (place if type(place) is int else None for place in (start, end))
            self.citations.wait(replace(citation, start=begin, end=finish), None, _replace_surrogates(piece.quote))
            return []
        elif type(start) is int and type(end) is int and 0 <= start < end:
            offset = 0 if block is None else block.start
            citation = replace(citation, start=offset + start, end=offset + end)
        elif block is not None and block.end is None and self.parts.kind is not None:
            self.citations.wait(citation, block.start, None)
            return []
        elif block is not None:  # it has ended
            citation = _place(citation, block.start, self.parts.text.size if block.end is None else block.end)
        return [CitationAdded(new) for new in self.citations.add(citation)]

    def add_note(self, note: Note) -> list[Event]:
        """Add a note; return its event where it is new."""
        return [NoteAdded(note)] if self.notes.add(note) else []

    def note(self, code: NoteCode, flag: str, subject: str, did: str) -> list[Event]:
        """Add a note; return its event where the note is new."""
        return self.add_note(Note(code, flag, subject, did))

    # ── whole texts ──────────────────────────────────────────────────────────

    def compare(self, piece: WholeText) -> tuple[str, list[Event]]:
        """Compare all text of a part, or of the answer, with its pieces. Return what its end lacks, or notes."""
        whole = _replace_surrogates(piece.text)
        if piece.in_reasoning and piece.part is not None:
            return self._compare_reasoning(whole, piece.part)
        return self._compare_text(whole, piece.part)

    def _compare_text(self, whole: str, part: int | None) -> tuple[str, list[Event]]:
        """Compare text of the answer. A gap makes the reply cut, but all of an answer may hold reasoning."""
        parts = self.parts
        size = parts.text.size if part is None else parts.text_size(part)
        if len(whole) <= size:
            # A much shorter one is not compared: there may be many, and each comparison reads all pieces.
            is_short = len(whole) + _MAX_SPACE < size / 2
            if part is not None and (is_short or not parts.text_of(part).lstrip().startswith(whole.strip())):
                return "", self._note_difference(f"{size} characters in pieces, others in the whole text")
            return "", []
        text = "".join(parts.text) if part is None else parts.text_of(part)
        if whole.startswith(text) and (part is None or parts.is_last(part)):
            return whole[len(text) :], []
        if len(whole.strip()) <= len(text.strip()):
            return "", []
        before = next((i for i, pair in enumerate(zip(text, whole, strict=False)) if len({*pair}) > 1), len(text))
        has_gap = part is not None and whole.endswith(text[before:])
        self.has_gap |= has_gap
        subject = f"{len(text)} characters in pieces, {len(whole)} in the whole text"
        if has_gap:
            did = f"cut: pieces after the first {before} characters are missing"
            return "", self.note("text-differs", "stream", subject, did)
        return "", self._note_difference(subject)

    def _compare_reasoning(self, whole: str, part: int) -> tuple[str, list[Event]]:
        """Compare reasoning. One that differs before its end is not: endpoints write their summaries in two ways."""
        parts = self.parts
        if len(whole) <= parts.text_size(part, "thought") or not whole.startswith(text := parts.text_of(part)):
            return "", []
        if parts.is_last(part):
            return whole[len(text) :], []
        subject = f"{len(text)} characters of reasoning in pieces, {len(whole)} in the whole text"
        return "", self._note_difference(subject)

    def _note_difference(self, subject: str) -> list[Event]:
        return self.note("text-differs", "stream", subject, "kept as in the pieces")

    # ── calls ────────────────────────────────────────────────────────────────

    def rename_calls(self, events: list[Event]) -> list[Event]:
        """Return events with the callers' names of the tools, and whether a call is excluded."""
        return [self._rename_start(event) if type(event) is ToolCallStart else event for event in events]

    def caller_name(self, name: str) -> str:
        """Return the caller's name of a tool."""
        return self._names.get(name, name)

    def _rename_start(self, start: ToolCallStart) -> Event:
        name = self.caller_name(start.name)
        is_excluded = self._rules is not None and self._rules.exclusion(name) is not None
        extra = self.calls.all[start.index].extra if self._begins_whole else None
        if not is_excluded and name == start.name and not extra:
            return start
        seal = self.parts.seal_of(dict(extra)) if extra else None
        return ToolCallStart(start.index, start.id, name, is_excluded, seal)

    def feed_calls(self, items: list[Any], *, whole: bool) -> tuple[list[Event], list[CallBuilder]]:
        """Add pieces of calls; return their events, and the calls that begin."""
        count = len(self.calls.all)
        events = self.calls.feed(items, whole=whole)
        return events, self.calls.all[count:]

    def end_part(self) -> list[Event]:
        """End the last part; return the events that this allows."""
        out: list[Event] = []
        if self.citations.waiting:
            out += map(CitationAdded, self.citations.settle(self.parts.text.size))
        return [*out, *self.parts.end()]

    def begun_again(self) -> list[Event]:
        """Return the events of what came besides the texts: calls, sources and other data."""
        out: list[Event] = []
        for call in self.calls.all:
            out += self.calls.start(call) if call.started else []
        out += map(CitationAdded, self.citations.all)
        return [*out, ExtraAdded(dict(self.extra))] if self.extra else out


class _Waiting(Struct, frozen=True):
    """A citation whose place is known when its text is complete.

    It is for the text from `offset` to the end of what has come, or for the bytes of `quote` in the whole answer.
    """

    citation: Citation
    offset: int | None
    quote: str | None


class Citations:
    """The citations of one reply. Those whose place is still to be found are `waiting`."""

    __slots__ = ("_known", "_pages", "all", "waiting")

    def __init__(self) -> None:
        self.all: list[Citation] = []
        self._known: set[tuple[str | None, str | None, int | None, int | None]] = set()
        self._pages: set[str] = set()
        self.waiting: list[_Waiting] = []

    def add(self, citation: Citation) -> list[Citation]:
        """Add a citation; return it where it is new.

        Endpoints repeat their list of pages in each chunk. A page without a place is new once.
        """
        if citation.start is None and citation.url is not None and citation.url in self._pages:
            return []
        key = (citation.url, citation.title, citation.start, citation.end)
        if key in self._known:
            return []
        self._known.add(key)
        if citation.url is not None:
            self._pages.add(citation.url)
        self.all.append(citation)
        return [citation]

    def wait(self, citation: Citation, offset: int | None, quote: str | None) -> None:
        """Add a citation when its text is complete: see `_Waiting`."""
        self.waiting.append(_Waiting(citation, offset, quote))

    def settle(self, length: int) -> list[Citation]:
        """Return the new citations of a part that ends where the text has this length."""
        waiting, self.waiting = self.waiting, [item for item in self.waiting if item.offset is None]
        return [
            new
            for item in waiting
            if item.offset is not None
            for new in self.add(_place(item.citation, item.offset, length))
        ]

    def settle_all(self, text: str) -> list[Citation]:
        """Return the new ones of all citations that wait, at the end of the reply with this text."""
        out = self.settle(len(text))
        waiting, self.waiting = self.waiting, []
        places = _character_places(text, [item.citation for item in waiting])
        for item in waiting:
            start, end = places.get(item.citation.start), places.get(item.citation.end)
            if start is None or end is None or (item.quote and text[start:end] != item.quote):
                quote = item.quote or ""  # an empty one has no place
                start = text.find(quote)
                end = start + len(quote)
            out += self.add(_place(item.citation, start, end))
        return out


def _place(citation: Citation, start: int, end: int) -> Citation:
    """Return a citation with a place; without one where nothing is at that place."""
    known = 0 <= start < end
    return replace(citation, start=start if known else None, end=end if known else None)


def _character_places(text: str, citations: Sequence[Citation]) -> dict[int | None, int]:
    """Return the index of the character for each index of a byte that a citation has, also of one inside of it."""
    ends = sorted({place for c in citations for place in (c.start, c.end) if place is not None})
    data = text.encode("utf-8", "surrogatepass")
    places: dict[int | None, int] = {}
    characters = byte = 0
    for place in ends:
        if 0 <= place <= len(data):
            begin = place
            while begin < len(data) and data[begin] & 0xC0 == 0x80:  # not the first byte of the character
                begin -= 1
            characters += len(data[byte:begin].decode("utf-8", "surrogatepass"))
            byte = begin
            places[place] = characters
    return places


class ReplyNotes:
    """All notes in the order in which they came. Adding a note takes constant time."""

    __slots__ = ("_counts", "_hashes", "_omitted", "all")

    def __init__(self) -> None:
        self.all: list[Note] = []
        self._hashes: set[int] = set()  # a note that is left out may be long, so only its hash is stored
        self._counts: dict[str, int] = {}
        self._omitted: dict[str, int] = {}

    def add(self, note: Note) -> bool:
        """Add a note; return whether it is new and is stored."""
        key = hash(note)
        if key in self._hashes:
            return False
        self._hashes.add(key)
        count = self._counts[note.code] = self._counts.get(note.code, 0) + 1
        if count > _MAX_PER_CODE:
            self._omitted[note.code] = self._omitted.get(note.code, 0) + 1
            return False
        self.all.append(note)
        return True

    def close(self) -> list[Note]:
        """Add a last note that counts the notes left out, if there are any; return it."""
        if not self._omitted:
            return []
        subject = f"{sum(self._omitted.values()):,} more notes"
        counts = ", ".join(f"{count:,} {code}" for code, count in self._omitted.items())
        note = Note(_NOTES_LEFT_OUT, "notes", subject, f"left out: {counts}")
        self.all.append(note)
        return [note]
