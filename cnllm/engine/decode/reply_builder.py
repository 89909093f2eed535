"""Build events and, at the end, the Reply from the pieces that a wire's decoder returns.

The same code serves a stream and a whole body, on every wire.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from cnllm.engine.decode.answer_tags import AnswerTags
from cnllm.engine.decode.blocks import BlockKind, Blocks
from cnllm.engine.decode.citations import Citations
from cnllm.engine.decode.cost import add_fees, cost_of
from cnllm.engine.decode.deltas import Deltas, DuplicateField, join_fragments, pack_pieces
from cnllm.engine.decode.final_notes import ids_note, price_note, silence_note
from cnllm.engine.decode.reply_notes import ReplyNotes
from cnllm.engine.decode.stop_texts import StopTexts
from cnllm.engine.decode.text_tool_calls import TextCalls, removal
from cnllm.engine.decode.think_tags import TagSplitter
from cnllm.engine.decode.tool_calls import CallBuilder, CallCollector, markup_in_names
from cnllm.engine.encode.call_rules import CallRules
from cnllm.jsonpath import get
from cnllm.protocols import wire
from cnllm.protocols.call_ids import ReplyIds
from cnllm.protocols.pieces import (
    FINISH_RANKS,
    Annotations,
    CallEnd,
    CallPieces,
    CitationPiece,
    Counts,
    Details,
    ExtraPiece,
    Fault,
    FinishWord,
    Head,
    Mark,
    MediaPiece,
    OpaquePiece,
    PartEnd,
    PartSeal,
    PartStart,
    Piece,
    ReasoningPiece,
    TextPiece,
)
from cnllm.registry.flags import Flags, WebSearch
from cnllm.registry.model import Model
from cnllm.schemas.simplify import remove_nulls
from cnllm.types import (
    BlockEnd,
    Citation,
    CitationAdded,
    Event,
    ExtraAdded,
    Finish,
    Finished,
    Media,
    Message,
    Note,
    NoteAdded,
    Opaque,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Restarted,
    Seal,
    Text,
    TextDelta,
    ToolCall,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageSeen,
)
from cnllm.types.arguments import break_off, decode_arguments
from cnllm.types.lenient_json import SurrogateBuffer
from cnllm.types.lenient_json import replace_surrogates as _replace_surrogates

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["ReplyBuilder"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PACK_SIZE = 1024  # short strings that may gather before they are joined
_TAG_SOURCE = "(tags)"  # the source of reasoning that stands between tags, beside the names of fields
_MIN_REPEAT = 24  # characters of reasoning; a shorter repetition may be chance
_MAX_REPEAT_CHECKS = 8  # comparisons of a text with all the reasoning so far


class ReplyBuilder:
    """The builder of one reply.

    A wire's decoder reports what arrived without a field of their own, and each report returns events.
    """

    __slots__ = (
        "_annotations",
        "_answer_tags",
        "_are_tags_seen",
        "_blocks",
        "_call_by_builder",
        "_call_indexes",
        "_calls",
        "_citations",
        "_deltas",
        "_details",
        "_duplicates",
        "_extra",
        "_incomplete",
        "_max_output",
        "_media",
        "_message",
        "_notes",
        "_opaque",
        "_out",
        "_packed_texts",
        "_packed_thoughts",
        "_parts_by_number",
        "_repeat_checks",
        "_rules",
        "_search",
        "_search_echo",
        "_searches",
        "_stops",
        "_surrogates",
        "_tool_calls",
        "answered",
        "choiceless_chunk",
        "created",
        "fault",
        "finish",
        "finished",
        "flags",
        "id",
        "leaks",
        "model",
        "raw",
        "raw_finish",
        "refused",
        "registry_model",
        "renamed",
        "reported",
        "source",
        "splitter",
        "strict_forms",
        "texts",
        "thoughts",
        "usage",
        "whole",
    )

    def __init__(
        self,
        model: Model,
        flags: Flags,
        renamed: dict[str, str],
        texts: TextCalls | None = None,
        ordered: bool = False,
        ids: ReplyIds | None = None,
        rules: CallRules | None = None,
    ) -> None:
        self.registry_model = model
        self.flags = flags
        self.renamed = renamed
        self.strict_forms: dict[str, dict[str, Any]] = {}  # by name: the parameters of tools that were sent as strict
        self.id: str | None = None
        self.model: str | None = None
        self.created: float | None = None
        self.raw_finish: str | None = None
        self.reported: str | None = None  # the registry's meaning of `raw_finish`; None for an unknown word
        self.finished = False
        self.answered = False
        self.refused = False
        self.fault: Any = None
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.usage = Usage()
        self._notes = ReplyNotes()
        self.raw: Any = None
        self.choiceless_chunk: Any = None  # a chunk without a choice: all that can be shown of an empty reply
        self.whole = False  # one body, not a stream of fragments
        self.finish: Finish | None = None
        self._calls = CallCollector(ids)
        self._rules = rules
        self._tool_calls: list[ToolCall] = []
        self._call_by_builder: dict[int, ToolCall] = {}
        self._call_indexes: list[int] = []  # for each whole call, its index among the calls that began
        self._message: tuple[Part, ...] = ()
        self._incomplete: list[ToolCall] = []
        self._details: list[Any] = []
        self._opaque: list[Any] = []
        self._media: list[Media] = []
        self.source: str | None = None
        self._parts_by_number: dict[int, int] = {}  # a decoder's number of a part → its index
        self._citations = Citations()
        self._extra: dict[str, Any] = {}
        self._annotations: dict[str, Any] = {}  # what the endpoint sent about the answer (citations and the like)
        self._blocks = Blocks(self.texts, self.thoughts) if ordered else None
        self._duplicates: dict[str, DuplicateField] = {}  # fields of reasoning that are not its source
        self._repeat_checks = _MAX_REPEAT_CHECKS
        self._max_output: int | None = None
        self._stops: StopTexts | None = None
        self._search: WebSearch | None = None
        self._search_echo: str | None = None
        self._searches: int | None = None
        reasoning = flags.reasoning
        answer_tags = reasoning.answer_tags if reasoning else None
        self._answer_tags = AnswerTags(answer_tags) if answer_tags else None
        tags = reasoning.tags if reasoning else None
        self.splitter = TagSplitter(tags, (reasoning and reasoning.tags_at) or "start") if tags else None
        self._packed_texts = self._packed_thoughts = 0
        deltas = flags.stream.deltas if flags.stream else None
        self._surrogates = {"text": SurrogateBuffer(), "thought": SurrogateBuffer()}
        self._deltas = {"text": Deltas(deltas), "thought": Deltas(deltas)}
        self._out: list[Event] = []  # receives the events for text that a filter lets through
        self.leaks = texts
        # Whether the search for the markers of calls also stops at each tag around the answer.
        self._are_tags_seen = texts is not None and all(map(texts.may_begin, answer_tags or ()))
        if texts is not None:
            texts.begin(self)

    def expect(self, max_output: int | None, stops: tuple[str, ...]) -> None:
        """Set what the request said about the end: the most tokens of the reply, and the stop texts."""
        self._max_output = max_output
        self._stops = StopTexts(stops) if stops else None

    def expect_search(self, rules: WebSearch | None, echo: str | None) -> None:
        """Set the rules of the web search that was requested, and the function that stands for one search."""
        self._search, self._search_echo = rules, echo

    def count_searches(self, data: dict[str, Any]) -> None:
        """Read the number of web searches so far from a body or a chunk, where the endpoint reports it."""
        for path in (self._search and self._search.uses) or ():
            value = get(data, path)
            if type(value) is list:
                self._searches = max(self._searches or 0, len(value))
            elif type(value) is int and value >= 0:
                self._searches = value

    def _search_count(self) -> int | None:
        """Return the number of web searches; None where it is unknown."""
        rules = self._search
        if rules is None or self._searches is not None:
            return self._searches
        if self._search_echo is not None:
            return sum(call.name == self._search_echo for call in self._tool_calls)
        if rules.item is not None:
            return sum(type(p) is Opaque and _is_item(p.data, rules.item) for p in self._message)
        return 1 if rules.always else None

    @property
    def are_deltas_plain(self) -> bool:
        """Whether each delta holds only new text, as far as is known, and no half of a character waits."""
        if self._stops is not None:
            return False
        if self._answer_tags is not None and not self._are_tags_seen:
            return False
        if any(buffer.pending for buffer in self._surrogates.values()):
            return False
        return not any(deltas.mode in ("cumulative", "either") for deltas in self._deltas.values())

    @property
    def is_idle(self) -> bool:
        """Whether no filter waits for more text."""
        return (self.leaks is None or self.leaks.is_idle) and not (self._answer_tags and self._answer_tags.pending)

    @property
    def calls(self) -> list[CallBuilder]:
        """List the calls that have begun."""
        return self._calls.all

    @property
    def notes(self) -> list[Note]:
        """List the notes, with one at the end that counts the notes that were left out."""
        return self._notes.all

    def forget(self, codes: Container[str]) -> None:
        """Remove the notes with these codes."""
        self._notes.forget(codes)

    def add_note(self, code: NoteCode, flag: str, subject: str, did: str) -> None:
        """Add a note to the events of the text that is being read."""
        self._out += self.note(code, flag, subject, did, self.registry_model.where(flag))

    def finished_call(self, call: CallBuilder) -> ToolCall | None:
        """Return the whole call that a builder gave; None where its call is not whole."""
        return self._call_by_builder.get(id(call))

    @property
    def part_count(self) -> int:
        """Count the parts that have begun, on a wire that orders them."""
        return 0 if self._blocks is None else self._blocks.count

    # ── pieces of the decoder ────────────────────────────────────────────────

    def add(self, pieces: Iterable[Piece]) -> list[Event]:
        """Add the pieces of a chunk or a body; return their events."""
        out: list[Event] = []
        for piece in pieces:
            out += self._add_one(piece)
        return out

    def _add_one(self, piece: Piece) -> list[Event]:
        """Add a piece; return its events."""
        match piece:
            case TextPiece(text):
                return self.add_text(text)
            case ReasoningPiece(text, field, is_only):
                return self.add_reasoning(text, field, is_only=is_only)
            case CallPieces(items, whole, part):
                return self._numbered(part, self.add_call_pieces(items, whole))
            case CallEnd(index, is_whole):
                self._calls.end(index, is_whole)
            case FinishWord():
                self._add_finish(piece)
            case Counts(usage):
                return self.add_usage(usage)
            case Details(items):
                self._details += _replace_surrogates(items)
            case PartStart(kind, part):
                return self._numbered(part, self._begin(kind))
            case PartEnd():
                return self.end_block()
            case PartSeal(data, part):
                self.add_seal(data, part)
            case OpaquePiece(data, part):
                return self._numbered(part, self.add_opaque(data))
            case MediaPiece(media, seal, part):
                return self._numbered(part, self.add_media(media, seal))
            case Annotations(data):
                self._annotations.update(_replace_surrogates(data))
            case CitationPiece():
                return self.add_citation(piece)
            case ExtraPiece(key, value):
                return self.add_extra(key, value)
            case Head():
                self._add_head(piece)
            case Fault(data):
                self.fault = data if self.fault is None else self.fault
            case Mark(fact):
                self.answered = self.answered or fact == "answered"
                self.refused = self.refused or fact == "refused"
                self.finished = self.finished or fact == "ended"
            case Note():
                return self._add_final(piece)
        return []

    def _numbered(self, part: int | None, events: list[Event]) -> list[Event]:
        """Remember the decoder's number of the part that began last."""
        if part is not None:
            self._parts_by_number[part] = self.part_count - 1
        return events

    def _add_head(self, head: Head) -> None:
        """Set the id, the model and the time of the reply, where they are unknown so far."""
        if self.id is None and type(head.id) is str:
            self.id = head.id or None
        if self.model is None and type(head.model) is str:
            self.model = head.model or None
        if self.created is None and type(head.created) in (int, float):
            self.created = head.created or None

    def add_text(self, text: str) -> list[Event]:
        """Add text of the answer, a delta or a snapshot."""
        deltas = self._deltas["text"]
        new = deltas.new(text)
        if deltas.restart is not None:
            return self._restart("text", deltas)
        return self._write(self._surrogates["text"].join(new))

    def add_piece(self, text: str) -> list[Event]:
        """Add text of the answer that is certainly new."""
        return self._write(self._surrogates["text"].join(text))

    def _write(self, new: str) -> list[Event]:
        """Add new text of the answer; reasoning between tags goes to the reasoning."""
        out: list[Event] = []
        if self.splitter is None or self.splitter.has_ended:
            self._split_calls(False, new, out)
        else:
            for in_reasoning, piece in self.splitter.feed(new):
                self._split_calls(in_reasoning, self._new_tagged(piece) if in_reasoning else piece, out)
            if stray := self.splitter.take_stray_closers():
                out += self.note("tag-stripped", "reasoning.tags", stray, removal(stray, "it closes nothing"))
        return out

    def add_reasoning(self, text: str, field: str, *, is_only: bool = False) -> list[Event]:
        """Add reasoning from a field, a delta or a snapshot."""
        out: list[Event] = []
        if is_only:
            self.source = field
        if not (text := self._new_thought(text, field)):
            return out
        deltas = self._deltas["thought"]
        new = deltas.new(text)
        if deltas.restart is not None:
            return self._restart("thought", deltas)
        self._split_calls(True, self._surrogates["thought"].join(new), out)
        return out

    def _new_tagged(self, piece: str) -> str:
        """Return the part of reasoning between tags that no field has delivered."""
        return self._new_thought(piece, _TAG_SOURCE)

    def _new_thought(self, text: str, field: str) -> str:
        """Return the new part of some reasoning.

        Several fields may hold the same reasoning, and one may hold all of it again.
        """
        if self.source is None:
            self.source = field
        if field == self.source:
            return "" if len(text) >= _MIN_REPEAT and not self.whole and self._is_whole(text) else text
        duplicate = self._duplicates.get(field)
        if duplicate is None:
            duplicate = self._duplicates[field] = DuplicateField(self.thoughts)
        new = duplicate.new(text)
        if duplicate.ahead:  # from now on the other field may repeat this one
            self._duplicates[self.source] = DuplicateField(self.thoughts, caught_up=True)
            del self._duplicates[field]
            self.source = field
        return new

    def _is_whole(self, text: str) -> bool:
        """Whether a text repeats all the reasoning so far."""
        if self._blocks is not None or not self.thoughts or self._repeat_checks == 0:
            return False
        head = self.thoughts[0].strip()[:_MIN_REPEAT]
        text = text.strip()
        if not text.startswith(head):
            return False
        self._repeat_checks -= 1
        return text == "".join(self.thoughts).strip()

    def add_opaque(self, data: Any) -> list[Event]:
        """Add a part that only the endpoint understands."""
        if self._blocks is None:
            self._opaque.append(_replace_surrogates(data))
            return []
        return self._begin("opaque", _replace_surrogates(data))

    def add_call_pieces(self, items: Any, whole: bool) -> list[Event]:
        """Add fragments of calls; `whole` means that each is a complete call."""
        out: list[Event] = []
        count = len(self._calls.all)
        self._calls.ids.reply = self.id
        for event in self._calls.feed(_replace_surrogates(items), whole=whole):
            out.append(self._with_caller_name(event))
        if self._blocks is not None and len(self._calls.all) > count:
            ended: list[Event] = []
            for call in self._calls.all[count:]:
                ended += self._begin("call", call)
            out = ended + out
        return out

    @property
    def begun_calls(self) -> set[str | int | None]:
        """Return the wire's indexes of the calls that were announced and may go on."""
        return self._calls.open_indexes

    def add_arguments(self, index: int, pieces: list[str]) -> list[Event]:
        """Add pieces of the arguments of a begun call, none of which may begin another one."""
        return self._calls.go_on(index, pieces)

    def _add_finish(self, finish: FinishWord) -> None:
        """Add a finish reason. Of several reasons the worst counts."""
        if FINISH_RANKS.get(finish.kind, 0) >= FINISH_RANKS.get(self.reported, 0):
            self.raw_finish, self.reported = finish.word, finish.kind

    def add_seal(self, data: Any, part: int | None = None) -> None:
        """Attach the endpoint's signature to a part: the last one, or the one with this number."""
        index = None if part is None else self._parts_by_number.get(part, -1)
        if self._blocks is not None and (block := self._blocks.block(index)) is not None:
            if block.kind == "opaque":
                block.data = _replace_surrogates(data)
            elif block.kind != "call":
                block.seal = data if callable(data) else _replace_surrogates(data)
            elif callable(data):
                block.data.late = data
            elif type(data := _replace_surrogates(data)) is dict:
                block.data.extra.update(data)

    def add_media(self, media: Media, seal: Any) -> list[Event]:
        """Add an image, sound or file of the answer."""
        type, data, url, extra, seal = map(_replace_surrogates, (media.type, media.data, media.url, media.extra, seal))
        media = Media(type, data, url, extra=extra)
        if self._blocks is not None:
            return self._begin("media", media)
        model = self.registry_model
        media = replace(media, seal=None if seal is None else Seal(model.protocol, model.provider, model.id, seal))
        if media not in self._media:  # some hosts repeat the whole message
            self._media.append(media)
        return []

    def add_citation(self, piece: CitationPiece) -> list[Event]:
        """Add a source of the answer."""
        pair = (piece.url, piece.title)
        url, title = (_replace_surrogates(text) if type(text) is str and text else None for text in pair)
        if url is None and title is None:
            return []
        model = self.registry_model
        data = _replace_surrogates(piece.data)
        citation = Citation(url, title, seal=Seal(model.protocol, model.provider, model.id, data))
        block = None
        if self._blocks is not None and (piece.in_part or piece.part is not None):
            block = self._blocks.block(None if piece.part is None else self._parts_by_number.get(piece.part, -1))
        start, end = piece.start, piece.end
        is_placed = type(start) is int and type(end) is int and 0 <= start < end
        if self._is_text_changed:
            pass
        elif piece.quote is not None:
            self._citations.wait_for_text(replace(citation, start=start, end=end), _replace_surrogates(piece.quote))
            return []
        elif is_placed:
            offset = 0 if block is None else block.offset
            citation = replace(citation, start=offset + start, end=offset + end)
        elif block is not None:
            self._citations.wait_for_part(citation, block.offset)
            return []
        return [CitationAdded(new) for new in self._citations.add(citation)]

    def add_extra(self, key: str, value: Any) -> list[Event]:
        """Add data about the reply without a field of their own."""
        value = _replace_surrogates(value)
        if not value or self._extra.get(key) == value:
            return []
        if key == "logprobs":
            self._extra.setdefault(key, []).extend(value)
        else:
            self._extra[key] = value
        return [ExtraAdded({key: value})]

    @property
    def _is_text_changed(self) -> bool:
        """Whether text was taken out of the answer, so that positions in it do not fit."""
        return (self.splitter is not None and self.splitter.has_block) or (
            self.leaks is not None and self.leaks.has_found
        )

    def end_block(self) -> list[Event]:
        """End the current part, and return events for the parts that are finished."""
        blocks = self._blocks
        if blocks is None:
            return []
        out: list[Event] = []
        self._release(out)
        if self._stops is not None and self._stops.pending:
            if self._stops.complete:  # it is not known yet whether the answer ends here
                return out
            self._put(False, self._stops.flush(), out)
        if not self.is_idle or any(buffer.pending for buffer in self._surrogates.values()):
            return out  # the part is over; its event comes later, because the text that waits still belongs to it
        if self._citations.has_waiting:
            out += map(CitationAdded, self._citations.settle(blocks.text_length))
        return [*out, *(BlockEnd(index, part) for index, part in blocks.finished_parts(self._part))]

    def _release(self, out: list[Event]) -> None:
        """Deliver text that might have begun a tag or a marker: neither can go on in another part."""
        if self.splitter is not None and not self.splitter.has_ended:
            for in_reasoning, piece in self.splitter.release():
                self._split_calls(in_reasoning, self._new_tagged(piece) if in_reasoning else piece, out)
        if self.leaks is not None and not self.leaks.is_idle:
            previous, self._out = self._out, out
            self.leaks.release()
            self._out = previous
        self._end_answer_tags(out)

    def _end_answer_tags(self, out: list[Event]) -> None:
        """Deliver text that only looked like the beginning of a tag around the answer."""
        if self._answer_tags is not None and (text := self._answer_tags.end()):
            self._put_answer(text, out)

    def continues_part(self, kind: str) -> bool:
        """Whether more content of this kind continues the last part."""
        return self._blocks is None or self._blocks.kind == kind

    def _begin(self, kind: BlockKind, data: Any = None) -> list[Event]:
        """Begin a new part, and end the one before it."""
        blocks = self._blocks
        if blocks is None:
            return []
        out: list[Event] = []
        if self._stops is not None and (text := self._stops.flush()):  # more follows, so this is not the end
            self._put(False, text, out)
        out += self.end_block()
        if kind == "text":
            self._packed_texts = self._pack(False, self._packed_texts)
        elif kind == "thought":
            self._packed_thoughts = self._pack(True, self._packed_thoughts)
        blocks.begin(kind, data)
        return out

    def _pack(self, in_reasoning: bool, start: int) -> int:
        """Join the pieces of a kind since the last time, and tell the objects that index into them."""
        pieces = self.thoughts if in_reasoning else self.texts
        if len(pieces) - start < 2:
            return len(pieces)
        if in_reasoning:
            for duplicate in self._duplicates.values():
                duplicate.before_pack(start)
        if self.leaks is not None:
            self.leaks.before_pack(in_reasoning, start)
        return pack_pieces(pieces, start)

    def add_usage(self, usage: Usage) -> list[Event]:
        """Set the usage; return an event where it is new."""
        if usage == Usage() or usage == self.usage:
            return []
        self.usage = usage
        return [UsageSeen(usage)]

    def note(self, code: NoteCode, flag: str, subject: str, did: str, origin: str = "") -> list[Event]:
        """Add a note; return its event where the note is new."""
        note = Note(code, flag, subject, did, origin)
        return [NoteAdded(note)] if self._notes.add(note) else []

    def add_plain_text(self, in_reasoning: bool, text: str) -> list[Event]:
        """Add plain text that continues a kind that has begun, and in which a marker may begin."""
        out: list[Event] = []
        self._split_calls(in_reasoning, text, out)
        return out

    def _split_calls(self, in_reasoning: bool, text: str, out: list[Event]) -> None:
        """Deliver text of the answer or the reasoning without the calls that are written in it."""
        if self.leaks is None:
            self._add(in_reasoning, text, out)
        elif text:
            self._out = out
            self.leaks.feed(in_reasoning, text)

    def deliver(self, in_reasoning: bool, text: str) -> None:
        """Deliver text that a filter lets through."""
        self._add(in_reasoning, text, self._out)

    def deliver_tagged(self, text: str) -> None:
        """Deliver text between tags of reasoning, which a filter found in the answer."""
        self._split_calls(True, self._new_tagged(text), self._out)

    def _add(self, in_reasoning: bool, text: str, out: list[Event]) -> None:
        if in_reasoning:
            self._put(True, text, out)
        else:
            self._put_answer(text if self._answer_tags is None else self._answer_tags.feed(text), out)

    def _put_answer(self, text: str, out: list[Event]) -> None:
        self._put(False, text if self._stops is None else self._stops.feed(text), out)

    def _put(self, in_reasoning: bool, text: str, out: list[Event]) -> None:
        if not text:
            return
        if self._blocks is not None and not self.continues_part("thought" if in_reasoning else "text"):
            out += self._begin("thought" if in_reasoning else "text")
        if in_reasoning:
            self.thoughts.append(text)
            out.append(ReasoningDelta(text))
        else:
            self.texts.append(text)
            out.append(TextDelta(text))

    def _with_caller_name(self, event: Event) -> Event:
        """Return the event with the caller's name of the tool, and whether the call is excluded."""
        if type(event) is not ToolCallStart:
            return event
        name = self.renamed.get(event.name, event.name)
        is_excluded = self._rules is not None and self._rules.exclusion(name) is not None
        return ToolCallStart(event.index, event.id, name, is_excluded) if is_excluded or name != event.name else event

    def _restart(self, kind: str, deltas: Deltas) -> list[Event]:
        """Begin again with the snapshot: deltas were taken for snapshots, or the reverse."""
        snapshot, deltas.restart = deltas.restart or "", None
        out: list[Event] = [Restarted()]
        other = self.thoughts if kind == "text" else self.texts
        if self.leaks is not None:
            self._out = []
            self.leaks.restart(kind == "thought")
        other_text = "".join(other)
        if self._stops is not None:
            pending = self._stops.flush()
            other_text += pending if kind == "thought" else ""
        if self._answer_tags is not None:
            other_text += self._answer_tags.pending if kind == "thought" else ""
            self._answer_tags = self._answer_tags.anew()
        if self._blocks is not None:
            self._blocks.restart()
        pieces = self.texts if kind == "text" else self.thoughts
        for duplicate in self._duplicates.values():
            duplicate.before_pack(0)
        pieces.clear()
        other.clear()
        self._surrogates[kind].pending = ""
        self._packed_texts = self._packed_thoughts = 0
        if kind == "text" and self.splitter is not None:
            if self.splitter.has_block:
                other_text = ""  # it came out of the text that begins again
            self.splitter = self.splitter.anew()
        self._add(kind == "text", other_text, out)
        for call in self._calls.all:
            if call.started:
                self._calls.start(call, out)
        out = [self._with_caller_name(event) for event in out]
        out += map(CitationAdded, self._citations.all)
        out += [ExtraAdded(self._extra)] if self._extra else []
        out += self.note("deltas-reread", "stream.deltas", "the deltas were misread", f"read again as {deltas.mode}")
        if kind == "text" and self.splitter is not None:
            for in_reasoning, piece in self.splitter.feed(self._surrogates[kind].join(snapshot)):
                self._split_calls(in_reasoning, self._new_tagged(piece) if in_reasoning else piece, out)
        else:
            self._split_calls(kind != "text", self._surrogates[kind].join(snapshot), out)
        return out

    def compact(self) -> None:
        """Join the pieces of a long stream: many short strings need much memory."""
        if len(self.texts) - self._packed_texts > _PACK_SIZE:
            self._packed_texts = self._pack(False, self._packed_texts)
        if len(self.thoughts) - self._packed_thoughts > _PACK_SIZE:
            self._packed_thoughts = self._pack(True, self._packed_thoughts)

    # ── the end ──────────────────────────────────────────────────────────────

    @property
    def has_torn_arguments(self) -> bool:
        """Whether the arguments of a call break off."""
        return any(decode_arguments(call.raw)[1] is not None and break_off(call.raw) for call in self._calls.all)

    def end(self, *, proven: bool) -> list[Event]:
        """Return the last events; `proven` means that the endpoint marked the end of the reply."""
        out: list[Event] = []
        self._split_calls(
            True, self._surrogates["thought"].rest() + _replace_surrogates(self._deltas["thought"].half), out
        )
        out += self._write(self._surrogates["text"].rest() + _replace_surrogates(self._deltas["text"].half))
        if self.splitter is not None:
            for in_reasoning, piece in self.splitter.close():
                self._split_calls(in_reasoning, self._new_tagged(piece) if in_reasoning else piece, out)
        for event in self._calls.finish():
            out.append(self._with_caller_name(event))
        if self.leaks is not None:
            self._out = out
            is_cut = not proven or self.reported == "length"
            self._add_text_calls(self.leaks.close(proven=proven, is_cut=is_cut), out)
        self._end_answer_tags(out)
        if self._stops is not None and self._stops.pending:
            self._end_text(self._stops, proven, out)
        self._settle(proven, out)
        out += map(CitationAdded, self._citations.settle_all(self.texts))
        self._message = self._annotated(tuple(self._parts()))
        if self.finish == "stop" and not self._tool_calls and not self._incomplete:
            out += self._add_final(silence_note(self.texts, self.thoughts, self._message))
        reported = 0 if self._blocks is None else self._blocks.reported
        for index, part in enumerate(self._message):
            if type(part) is not ToolCall and index >= reported:
                out.append(BlockEnd(index, part))
        for index, call in zip(self._call_indexes, self._tool_calls, strict=True):
            out.append(ToolCallEnd(index, call))
        assert self.finish is not None
        out += self.omitted_notes()
        out.append(Finished(self.finish, self.raw_finish))
        return out

    def _end_text(self, stops: StopTexts, proven: bool, out: list[Event]) -> None:
        """Remove the stop text that the server left at the end of the answer."""
        text, stop = stops.split()
        is_end = self.reported in (None, "pending", "stop") and self.fault is None
        if not stop or not proven or not is_end or self._calls.all:
            self._put(False, text + stop, out)
            return
        self._put(False, text, out)
        stops.removed = True
        out += self.note("stop-left-in", "params.stop", stop, "taken off the end of the text")

    def omitted_notes(self) -> list[Event]:
        """Return an event that counts the notes that are left out, if there are any."""
        return [NoteAdded(note) for note in self._notes.omitted]

    def _add_text_calls(self, calls: list[CallBuilder], out: list[Event]) -> None:
        """Add calls that were written as text, with the same events as other calls."""
        starts: list[Event] = []
        self._calls.ids.reply = self.id
        for call in calls:
            out += self._begin("call", call)
            self._calls.add(call)
            self._calls.start(call, starts)
        out += [self._with_caller_name(event) for event in starts]

    def _settle(self, proven: bool, out: list[Event]) -> None:
        """Decide the finish from what arrived, and which calls are whole."""
        self.raw_finish = _replace_surrogates(self.raw_finish)
        reported = self.reported
        broken = self.fault is not None or reported == "error"
        for index, call in enumerate(self._calls.all):
            self._sort_call(
                index, call, out, broken=broken or not proven, cut_off=reported in ("length", "content_filter")
            )
        if broken:
            self.finish = "error"
        elif not proven:
            self.finish = "cut"
            if self.raw_finish is not None and reported not in FINISH_RANKS:
                out += self._note_unproven(self.raw_finish)
        elif self.refused or reported == "content_filter":
            self.finish = "content_filter"
        elif reported == "length":
            self.finish = "length"
        else:
            self.finish = "tool_calls" if self._tool_calls or self._incomplete else "stop"
            # Where the wire has no word for calls, the calls themselves show that tools are called.
            words = (self.flags.finish or {}).values()
            is_implied = reported == "stop" and self.finish == "tool_calls" and "tool_calls" not in words
            if self.raw_finish is not None and reported != self.finish and not is_implied:
                origin = self.registry_model.where(f"finish.{self.raw_finish}") if reported else ""
                code: NoteCode = "finish-follows" if reported in FINISH_RANKS else _unproven_code(reported)
                out += self.note(code, "finish", self.raw_finish, self.finish, origin)
        if self._max_output is not None:
            self._note_limit(self._max_output, out)
        if self._calls.ids.renamed:
            out += self._add_final(ids_note(self._calls.ids.renamed))
        if self._rules is not None and self.finish in ("stop", "tool_calls"):
            for ignored, subject, did in self._rules.ignored_wishes([call.name for call in self._tool_calls]):
                flag = "tools.parallel" if ignored == "parallel-ignored" else "tool_choice"
                out += self.note(ignored, flag, subject, did, self.registry_model.where(flag))
        price = self.flags.price
        if price is not None and price.off_peak is not None:
            out += self._add_final(price_note(self.registry_model, price, self.usage, self.created))
        if self.finish == "length" and self.thoughts and not self.texts and not self._tool_calls:
            out += self.note(
                "budget-spent-on-reasoning",
                "limits.output",
                "length",
                "the whole budget went into reasoning, there is no answer: allow more tokens, or less reasoning",
            )

    def _note_unproven(self, word: str) -> list[Event]:
        """Note the finish reason of a reply that was cut, where no reply ends with that reason."""
        did = "cut: this word says that the reply goes on"
        if self.reported is None:
            model = self.registry_model
            table = f"providers.{_toml_key(model.provider)}.on.{model.protocol}.finish"
            line = f'{table}.{_toml_key(word)} = "stop"'
            did = f"cut: an unknown word ends no stream. If a reply ends with it, declare it: {line}"
        return self.note(_unproven_code(self.reported), "finish", word, did)

    def _add_final(self, note: Note | None) -> list[Event]:
        """Add a note, if there is one; return its event where it is new."""
        return [NoteAdded(note)] if note is not None and self._notes.add(note) else []

    def _note_limit(self, limit: int, out: list[Event]) -> None:
        """Compare the tokens with the limit.

        A reply that reached its limit may not be whole, even if the endpoint reports a normal end.
        """
        output = self.usage.output
        if output is None or output < limit or not limit or self.finish not in ("stop", "tool_calls"):
            return
        subject = f"{output} tokens of at most {limit}, and {self.raw_finish or 'no finish reason'}"
        if self.finish == "stop" and not wire(self.registry_model.protocol).reports_length:
            self.finish = "length"
            out += self.note("limit-reached", "finish", subject, "length: the reply ended at its limit")
        else:
            out += self.note(
                "limit-reached", "finish", subject, f"kept as {self.finish}, but the reply may be incomplete"
            )

    def _sort_call(self, index: int, call: CallBuilder, out: list[Event], *, broken: bool, cut_off: bool) -> None:
        """Decode a call, and put it with the whole calls or the incomplete ones."""
        raw = call.raw
        arguments, problem = decode_arguments(raw)
        empty = raw.strip() in ("", "null")
        if call.late is not None:
            call.extra.update(_replace_surrogates(call.late()) or {})
        extra = (
            Seal(self.registry_model.protocol, self.registry_model.provider, self.registry_model.id, call.extra)
            if call.extra
            else None
        )
        name = self.renamed.get(call.name, call.name)
        if arguments is not None and name in self.strict_forms:
            arguments = remove_nulls(arguments, self.strict_forms[name])
        whole = not broken and bool(name) and not (cut_off and (problem is not None or empty))
        if whole and call.is_whole is False:
            whole, problem = False, problem or "the endpoint marked it as unfinished"
        if whole and (markup := markup_in_names(name, arguments)):
            arguments, problem = None, f"it contains markup: {markup}"
        exclusion = None if self._rules is None else self._rules.exclusion(name)
        if whole:
            self._call_indexes.append(index)
            if exclusion is not None:
                arguments, problem = None, exclusion.reason
                subject = f"a call of {name!a}"
                origin = self.registry_model.where(exclusion.flag)
                out += self.note(exclusion.code, exclusion.flag, subject, f"never executed: {exclusion.reason}", origin)
            self._tool_calls.append(
                ToolCall(call.call_id, name, arguments, raw, call.via, problem, extra, exclusion is not None)
            )
            self._call_by_builder[id(call)] = self._tool_calls[-1]
        elif call.name or raw:
            problem = problem or "it was cut off"
            self._incomplete.append(
                ToolCall(call.call_id, name, None, raw, call.via, problem, extra, bool(name) and exclusion is not None)
            )

    def _part(self, kind: BlockKind, text: str, data: Any, seal: Any) -> Part | None:
        """Make the part of a block; None where the block is empty or its call is not whole."""
        if kind == "call":
            return self._call_by_builder.get(id(data))
        seal = _replace_surrogates(seal()) if callable(seal) else seal
        own_seal = (
            None
            if seal is None
            else Seal(self.registry_model.protocol, self.registry_model.provider, self.registry_model.id, seal)
        )
        if kind == "media":
            return msgspec.structs.replace(data, seal=own_seal)  # type: ignore[no-any-return]
        if kind == "opaque":
            return Opaque(
                data, Seal(self.registry_model.protocol, self.registry_model.provider, self.registry_model.id)
            )
        if kind == "thought":
            has_calls = self.leaks is not None and self.leaks.thought_of
            return Reasoning(text, None if has_calls else own_seal) if text or own_seal is not None else None
        return Text(text, own_seal) if text or own_seal is not None else None

    def _parts(self) -> list[Part]:
        if self._blocks is not None:
            return self._blocks.parts(self._part)
        parts: list[Part] = []
        thought = "".join(self.thoughts)
        if thought or self._details:
            parts.append(Reasoning(thought, self._seal()))
        text = "".join(self.texts)
        if text:
            parts.append(Text(text))
        parts += self._media
        origin = Seal(self.registry_model.protocol, self.registry_model.provider, self.registry_model.id)
        parts += [Opaque(data, origin) for data in self._opaque]
        return [*parts, *self._tool_calls]

    def _annotated(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return the parts, with the endpoint's annotations on the last text."""
        last = next((i for i in range(len(parts) - 1, -1, -1) if type(parts[i]) is Text), None)
        if not self._annotations or last is None:
            return parts
        return (*parts[:last], msgspec.structs.replace(parts[last], extra=self._annotations), *parts[last + 1 :])

    def _seal(self) -> Seal | None:
        snapshots = self._deltas["thought"].mode in ("cumulative", "either")
        part = self.flags.reasoning.part if self.flags.reasoning else None
        data: Any = (self._details if self.whole else join_fragments(self._details, snapshots, part)) or None
        has_more = self.leaks is not None and self.leaks.has_tagged  # reasoning that the first block lacks
        if data is None and self.splitter is not None and self.splitter.raw and not has_more:
            data = self.splitter.raw
        if self.leaks is not None and self.leaks.thought_of:
            data = None  # a call was taken out of the reasoning, so the endpoint's own copy no longer fits
        return (
            None
            if data is None
            else Seal(self.registry_model.protocol, self.registry_model.provider, self.registry_model.id, data)
        )

    def reply(self, notes: list[Note]) -> Reply:
        """Build the Reply. `notes` are those of the request and come first. Call `end` before."""
        assert self.finish is not None, "end() comes first"
        return Reply(
            text="".join(self.texts),
            reasoning="".join(self.thoughts),
            tool_calls=self._tool_calls,
            finish=self.finish,
            raw_finish=self.raw_finish,
            usage=self.usage,
            cost=add_fees(cost_of(self.usage, self.flags.price, self.created), self._search, self._search_count()),
            model=_replace_surrogates(self.model),
            id=_replace_surrogates(self.id),
            notes=[*notes, *self.notes],
            message=Message("assistant", self._message, by=self.registry_model.name),
            incomplete=self._incomplete,
            raw=self.raw,
            registry=self.registry_model.data_version,
            citations=self._citations.all,
            extra=self._extra,
        )

    @property
    def has_nothing(self) -> bool:
        """Whether no content of any kind has arrived."""
        return not (
            self.texts
            or self.thoughts
            or self._calls.all
            or self._opaque
            or self._media
            or self._details
            or not self.is_idle
            or self.part_count
        )

    @property
    def is_empty(self) -> bool:
        """Whether the reply holds nothing that can be used or that explains why it is empty."""
        is_explained = self.finish in ("length", "content_filter") or (self.leaks is not None and self.leaks.has_found)
        is_explained = is_explained or (self._stops is not None and self._stops.removed)
        return not (
            self.texts
            or self.thoughts
            or self._tool_calls
            or self._incomplete
            or self._opaque
            or self._media
            or self._details
            or is_explained
        ) and (self._blocks is None or not self._message)


def _is_item(data: Any, kind: str) -> bool:
    """Whether the data of a part are an item of this type."""
    return type(data) is dict and data.get("type") == kind


def _unproven_code(reported: str | None) -> NoteCode:
    """Return the code of a note on a finish reason that ends no reply."""
    return "finish-unknown" if reported is None else "finish-pending"


def _toml_key(key: str) -> str:
    """Return a key as TOML writes it."""
    return key if _BARE_KEY.fullmatch(key) else msgspec.json.encode(key).decode()
