"""Lead the pieces of a wire's decoder through a row of stages to the collector: events, and at the end the Reply.

The same code serves a stream and a whole body, on every wire.

    reasoning:  duplicates → deltas → halves of characters ┐
    answer:              deltas → halves of characters → think tags ┤
             both → calls in text → answer tags → stop texts → answer call → collector → settle → Reply
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cnllm.engine.decode.answer_markup import AnswerTags, StopTexts
from cnllm.engine.decode.collector import Collector
from cnllm.engine.decode.deltas import Deltas, Duplicates, Surrogates
from cnllm.engine.decode.parts import Fragments, PartKind
from cnllm.engine.decode.settle import ReplyDecision, build_reply, settle, silence_note
from cnllm.engine.decode.stage import Item, Restart, Stage, next_places
from cnllm.engine.decode.structured import AnswerCall, read_answer
from cnllm.engine.decode.text_tool_calls import TextCalls, Then, text_calls
from cnllm.engine.decode.think_tags import ThinkTags
from cnllm.engine.decode.tool_calls import CallBuilder
from cnllm.engine.encode.plan import Plan, unknown_plan
from cnllm.engine.history.prompted_tools import is_prompted
from cnllm.engine.options import read_options
from cnllm.protocols import wire
from cnllm.protocols.pieces import (
    FACTS,
    CallPieces,
    CitationPiece,
    MediaPiece,
    OpaquePiece,
    PartEnd,
    PartStart,
    Piece,
    ReasoningPiece,
    TextPiece,
    WholeText,
)
from cnllm.registry.model import Model
from cnllm.types import (
    CitationAdded,
    Event,
    Finished,
    Media,
    Note,
    NoteAdded,
    Part,
    Reply,
    Restarted,
    ToolCallEnd,
)
from cnllm.types.lenient_json import break_off, decode_arguments, replace_surrogates

_COUNTED = (TextPiece, ReasoningPiece, CallPieces)
__all__ = ["ReplyBuilder", "reply_builder", "text_reply_builder"]


class ReplyBuilder:
    """The builder of one reply: a row of stages, composed by the flags, and a collector behind it.

    `ordered`: the wire orders the parts of a reply. `is_known`: the plan has the messages of the request. `is_new`: all
    text is certainly new. For `script` and `is_offer_known` see `text_calls`.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        ordered: bool = False,
        is_known: bool = False,
        is_new: bool = False,
        script: str | None = None,
        is_offer_known: bool = True,
    ) -> None:
        flags = plan.flags
        self._plan = plan
        self.collected = Collector(plan, ordered=ordered, is_known=is_known)
        self._last_kind: type[Piece] | None = None  # of the last piece with text
        self.settled: ReplyDecision | None = None
        self._parts: tuple[Part, ...] = ()
        self._parsed: Any = None
        reasoning = flags.reasoning
        mode = flags.stream.deltas
        tags, answer_tags = reasoning.tags, reasoning.answer_tags
        self._duplicates = Duplicates(self.collected)
        self._deltas = None if is_new or mode == "incremental" else Deltas(mode)
        self._undecided = set[bool]() if self._deltas is None else self._deltas.undecided
        surrogates = Surrogates()
        new_tagged = self._duplicates.new_tagged
        self._tags = ThinkTags(tags, reasoning.tags_at or "start", new_tagged) if tags else None
        around = AnswerTags(answer_tags, self._has_tagged) if answer_tags else None
        self._stops = StopTexts(plan.stops, self.collected) if plan.stops else None
        behind = tuple(filter(None, (around, self._stops)))
        calls = text_calls(plan, self.collected, new_tagged, behind, script, is_offer_known=is_offer_known)
        self._calls = calls
        if around is not None and calls is not None:
            around.lets_text, around.plain = True, calls.plain
        self._busy = False  # a stage holds text back
        self._row_input = self._row_output = 0  # characters of the answer that went into the row, and came out of it
        # Kinds of piece that may pass by the row for now: the field of the reasoning, None for the answer, and the
        # index of a call whose arguments go on.
        self.plain_kinds: set[str | int | None] = set()
        tool = plan.answer.name if plan.answer is not None and plan.answer.method == "tool" else None
        self._answer = None if tool is None else AnswerCall(tool, self.collected)
        before, last = (
            (self._duplicates, self._deltas, surrogates, self._tags),
            (calls, around, self._stops, self._answer),
        )
        self._stages: list[Stage] = [stage for stage in (*before, *last) if stage is not None]
        self._behind_calls = 0 if calls is None else self._stages.index(calls) + 1
        # For each place in the row: the next stage that reads text of the answer, of the reasoning.
        self._next_text, self._next_thought = next_places(tuple(map(type, self._stages)))

    # ── what the parser asks ─────────────────────────────────────────────────

    @property
    def is_idle(self) -> bool:
        """Whether no stage holds text back."""
        for stage in self._stages:  # noqa: SIM110 - a loop, because this is asked for each chunk
            if not stage.is_idle:
                return False
        return True

    def _look(self) -> None:
        """Find out whether a stage holds text back, and which kinds of piece may pass by the row for now."""
        parts = self.collected.parts
        calls = self.collected.calls
        kinds: set[str | int | None] = calls.open_indexes if calls.all else set()
        lets_text = parts.text and (parts.kind == "text" or not parts.is_ordered)
        lets_thought = parts.thought and (parts.kind == "thought" or not parts.is_ordered)
        self._busy = False
        for stage in self._stages:
            lets_text = lets_text and stage.lets_text
            lets_thought = lets_thought and stage.lets_thought
            self._busy = self._busy or not stage.is_idle
        if lets_text:
            kinds.add(None)
        if lets_thought and self._duplicates.source is not None:
            kinds.add(self._duplicates.source)
        self.plain_kinds = kinds

    @property
    def has_nothing(self) -> bool:
        """Whether no content of any kind has arrived."""
        collector = self.collected
        return not (collector.parts.has_content or collector.calls.all or collector.parts.has_begun or not self.is_idle)

    @property
    def is_empty(self) -> bool:
        """Whether the reply holds nothing that can be used or that explains why it is empty."""
        settled = self.settled
        assert settled is not None, "end() comes first"
        if settled.finish in ("length", "content_filter") or settled.calls or settled.incomplete or self._parts:
            return False
        has_found = self._calls is not None and self._calls.has_found
        return not has_found and (self._stops is None or not self._stops.removed)

    @property
    def has_torn_arguments(self) -> bool:
        """Whether the arguments of a call break off."""
        calls = self.collected.calls.all
        return any(decode_arguments(call.raw)[1] is not None and break_off(call.raw) for call in calls)

    # ── pieces ───────────────────────────────────────────────────────────────

    def add(self, pieces: Iterable[Piece]) -> list[Event]:
        """Add the pieces of a chunk or a body; return their events. Texts go through the row, the rest is collected."""
        out: list[Event] = []
        collector = self.collected
        collector.has_output_count = False
        facts: list[Piece] = []  # neighbours
        for piece in pieces:
            kind = type(piece)
            if kind in FACTS:
                facts.append(piece)
                continue
            if facts:
                out += collector.add(facts)
                facts = []
            if kind in _COUNTED:
                collector.has_uncounted = True
            self._add(piece, out)
        if facts:
            out += collector.add(facts)
        if collector.has_output_count:  # counts are for all of their chunk
            collector.has_uncounted = False
        if not collector.whole:
            self._look()
        return out

    def add_text(self, text: str) -> list[Event]:
        """Add text of the answer; return its events."""
        return self.add([TextPiece(text)])

    def _add(self, piece: Piece, out: list[Event]) -> None:
        """Add a piece that is or begins a part of the reply."""
        collector = self.collected
        match piece:
            case TextPiece() | ReasoningPiece():
                if collector.parts.is_ordered and type(piece) is not self._last_kind:
                    if self._last_kind is not None:
                        self._release(out)
                    self._last_kind = type(piece)
                if type(piece) is TextPiece:
                    self._row_input += len(piece.text)
                self._push(piece, 0, out)
            case WholeText():
                self._add_missing(piece, out)
            case CallPieces(items, whole, part):
                if not self.is_idle:
                    self._end_text(out)
                events, begun = collector.feed_calls(items, whole=whole)
                for call in begun if collector.parts.is_ordered else ():
                    self._begin(self._part_kind(call), call, out)
                collector.parts.number(part)
                out += self._call_events(events)
            case PartStart(kind, part):
                if collector.parts.is_ordered:
                    self._begin(kind, None, out, part)
            case PartEnd():
                if collector.parts.is_ordered:
                    self._end_part(out)
            case OpaquePiece(data, part):
                if collector.parts.is_ordered:
                    self._begin("opaque", replace_surrogates(data), out, part)
                else:
                    collector.parts.add_opaque(replace_surrogates(data))
            case MediaPiece(media, seal, part):
                type_, data, url, extra = map(replace_surrogates, (media.type, media.data, media.url, media.extra))
                media = Media(type_, data, url, extra=extra)
                if collector.parts.is_ordered:
                    self._begin("media", media, out, part)
                else:
                    collector.parts.add_media(media, replace_surrogates(seal))
            case CitationPiece():
                out += collector.add_citation(piece, is_placed=not self._is_text_changed)

    def add_run(self, kind: str | int | None, pieces: list[str]) -> Iterable[Event]:
        """Add plain pieces of one of the `plain_kinds`; return their events.

        Text in which the marker of a call may begin goes through the row.
        """
        self.collected.has_uncounted = True
        if type(kind) is int:
            out: list[Event] = []
            if self._busy:
                self._end_text(out)
                self._busy = not self.is_idle
            events = self.collected.calls.go_on(kind, pieces)
            out += events if self._answer is None else self._answer.events(events)
            return out
        in_reasoning, parts, calls = kind is not None, self.collected.parts, self._calls
        if in_reasoning in self._undecided and self._deltas is not None:
            self._deltas.skip(pieces, in_reasoning=in_reasoning)
        if calls is None:
            return parts.put_run(pieces, in_reasoning=in_reasoning)
        if not self._busy and not calls.has_start(pieces[0] if len(pieces) == 1 else "".join(pieces)):
            return self._pass_by(pieces, calls, in_reasoning=in_reasoning)
        out = []
        plain: list[str] = []  # neighbours that pass by; each piece is read as if it came alone
        for text in pieces:
            start = None if self._busy else calls.may_begin_at(text)
            if start is not None and start < 0:
                plain.append(text)
                continue
            if plain:
                out += self._pass_by(plain, calls, in_reasoning=in_reasoning)
                plain = []
            self._row_input += 0 if in_reasoning else len(text)
            piece = ReasoningPiece(text, "") if in_reasoning else TextPiece(text)
            for item in calls.feed(piece, start):
                self._push(item, self._behind_calls, out)
            self._busy = not self.is_idle
        return [*out, *self._pass_by(plain, calls, in_reasoning=in_reasoning)] if plain else out

    def _pass_by(self, pieces: list[str], calls: TextCalls, *, in_reasoning: bool) -> Iterable[Event]:
        """Add pieces in which no marker may begin."""
        if calls.is_reading:
            calls.skip(pieces, in_reasoning=in_reasoning)
        return self.collected.parts.put_run(pieces, in_reasoning=in_reasoning)

    def _has_tagged(self) -> bool:
        """Whether reasoning stood between tags at the head of the answer."""
        return self._tags is not None and bool(self._tags.raw)

    @property
    def _is_text_changed(self) -> bool:
        """Whether text was taken out of the answer, so that positions in it do not fit."""
        has_block = self._has_tagged()
        has_answer = self._answer is not None and self._answer.has_begun
        is_shorter = self.is_idle and self._row_input != self._row_output
        return has_block or has_answer or is_shorter or (self._calls is not None and self._calls.has_found)

    # ── the row ──────────────────────────────────────────────────────────────

    def _push(self, item: Item, at: int, out: list[Event]) -> None:
        """Pass an item through the stages from one on. What a stage gives first arrives before the rest goes on."""
        stages, end = self._stages, len(self._stages)
        while True:
            kind = type(item)
            at = self._next_text[at] if kind is TextPiece else self._next_thought[at] if kind is ReasoningPiece else at
            if at == end:
                self._take(item, out)
                return
            items = stages[at].feed(item)
            at += 1
            if len(items) != 1:
                for one in items:
                    self._push(one, at, out)
                return
            item = items[0]

    def _take(self, item: Item, out: list[Event]) -> None:
        """Collect what comes out of the row."""
        if type(item) is TextPiece:
            self._row_output += len(item.text)
            self._put(item.text, out, in_reasoning=False)
        elif type(item) is ReasoningPiece:
            self._put(item.text, out, in_reasoning=True)
        elif type(item) is CallBuilder:
            if self.collected.parts.is_ordered:
                self._next_part(self._part_kind(item), item, out)
            self.collected.calls.add(item)
            out += self._call_events(self.collected.calls.start(item))
        elif type(item) is Restart:
            self._restart(item, out)
        elif type(item) is Note:
            out += self.collected.add_note(item)

    def _add_missing(self, piece: WholeText, out: list[Event]) -> None:
        """Add what all text of a part has behind its pieces."""
        self._release(out)
        if not self.is_idle or self._is_text_changed:
            return
        missing, notes = self.collected.compare(piece)
        self._put(missing, out, in_reasoning=piece.in_reasoning)
        out += notes

    def _put(self, text: str, out: list[Event], *, in_reasoning: bool) -> None:
        """Collect text. It begins a part where the last one is of another kind."""
        if not text:
            return
        parts = self.collected.parts
        if parts.is_ordered:
            kind: PartKind = "thought" if in_reasoning else "text"
            if parts.kind != kind:
                self._next_part(kind, None, out)
        out.append(parts.put(text, in_reasoning=in_reasoning))

    def _restart(self, restart: Restart, out: list[Event]) -> None:
        """Begin again, because texts were misread. The text of the other kind was right."""
        out.append(Restarted())
        other = self.collected.parts.restart(in_reasoning=restart.thought)
        self._duplicates.restart()
        if not (restart.text and restart.thought):
            self._put(other, out, in_reasoning=restart.text)
        out += self._call_events(self.collected.begun_again())

    def _call_events(self, events: list[Event]) -> list[Event]:
        """Return the events of calls for the reader."""
        events = self.collected.rename_calls(events)
        return events if self._answer is None else self._answer.events(events)

    def _part_kind(self, call: CallBuilder) -> PartKind:
        """Return the kind of the part of a call that begins."""
        return "text" if self._answer is not None and self._answer.is_next(call) else "call"

    def _end_text(self, out: list[Event]) -> None:
        """Deliver the text before a piece of a call, where no part says that it ends."""
        if not self.collected.parts.is_ordered:
            self._release(out)
            self._flush_stops(out)

    # ── parts, on a wire that orders them ────────────────────────────────────

    def _begin(self, kind: PartKind, data: Any, out: list[Event], part: int | None = None) -> None:
        """Begin a part, and end the one before it: what only waits for more of it goes on its way.

        `part` is the decoder's number of it.
        """
        self._release(out)
        self._last_kind = None
        self._flush_stops(out)
        self._next_part(kind, data, out)
        self.collected.parts.number(part)

    def _next_part(self, kind: PartKind, data: Any, out: list[Event]) -> None:
        """Begin a part behind what has arrived."""
        if self.collected.parts.kind == "call" and kind != "call":
            out += self._call_events(self.collected.calls.announce_last())
        if kind != "text":
            self._flush_stops(out)
        if self.is_idle:
            out += self.collected.end_part()
        self.collected.parts.begin(kind, data)

    def _end_part(self, out: list[Event]) -> None:
        """End the current part. Its event comes later where text that waits still belongs to it."""
        self._release(out)
        if self._stops is not None and not self._stops.has_stop:
            self._flush_stops(out)
        if self.is_idle:
            out += self.collected.end_part()

    def _release(self, out: list[Event]) -> None:
        """Deliver text that might have begun a tag or a marker: neither can go on in another part."""
        for at, stage in enumerate(self._stages, 1):
            for item in stage.release():
                self._push(item, at, out)

    def _flush_stops(self, out: list[Event]) -> None:
        """Deliver text that might have been a stop text: the reply goes on behind it."""
        for item in () if self._stops is None else self._stops.flush():
            self._take(item, out)

    # ── the end ──────────────────────────────────────────────────────────────

    def end(self, *, proven: bool) -> list[Event]:
        """Return the last events; `proven` means that the endpoint marked the end of the reply."""
        out: list[Event] = []
        collector, calls = self.collected, self._calls
        if collector.calls.all:
            out += self._call_events(collector.calls.finish())
        for at, stage in enumerate(self._stages, 1):
            for item in stage.end(proven=proven):
                self._push(item, at, out)
        settled = settle(collector, self._plan, proven=proven)
        self.settled = settled = settled if self._answer is None else self._answer.settle(settled, out)
        for note in settled.notes:
            out += collector.add_note(note)
        if collector.citations.waiting:
            out += map(CitationAdded, collector.citations.settle_all("".join(collector.parts.text)))
        has_more = calls is not None and calls.has_tagged  # reasoning that the first block lacks
        tagged = "" if self._tags is None or has_more else "".join(self._tags.raw)
        has_snapshots = self._deltas is not None and self._deltas.has_snapshots
        fragments: Fragments = "none" if collector.whole else "snapshots" if has_snapshots else "pieces"
        keeps_seal = calls is None or not calls.thought_of
        self._parts = collector.parts.build(settled.calls, tagged, fragments, keeps_seal=keeps_seal)
        has_text = any(map(str.strip, collector.parts.text))
        if settled.finish == "stop" and not has_text and (silence := silence_note(collector, self._parts)):
            out += collector.add_note(silence)
        out += collector.parts.last_ends(self._parts)
        for call in collector.calls.all:
            if (found := settled.calls.get(id(call))) is not None:
                out.append(ToolCallEnd(call.at if self._answer is None else self._answer.index(call.at), found))
        is_paused = collector.finish_kind == "pause"  # the text is not complete yet
        if self._plan.answer is not None and settled.finish == "stop" and not is_paused:
            self._parsed, faults = read_answer(self._plan.answer, "".join(collector.parts.text))
            for note in faults:
                out += collector.add_note(note)
        out += map(NoteAdded, collector.notes.close())
        out.append(Finished(settled.finish, collector.finish_word))
        return out

    def reply(self, notes: list[Note]) -> Reply:
        """Build the Reply. `notes` are those of the request and come first. Call `end` before."""
        assert self.settled is not None, "end() comes first"
        reply = build_reply(self.collected, self.settled, self._parts, self._plan, notes)
        if self._answer is None or not self._answer.has_begun:
            return reply if self._parsed is None else msgspec.structs.replace(reply, parsed=self._parsed)
        citations = [msgspec.structs.replace(citation, start=None, end=None) for citation in reply.citations]
        return msgspec.structs.replace(reply, parsed=self._parsed, citations=citations)


def reply_builder(model: Model, tools: Sequence[Any] | None, plan: Plan | None) -> ReplyBuilder:
    """Return the builder for the reply to a request; without `plan` as if `tools` had been offered."""
    ordered = wire(model.protocol).ordered
    if plan is None:
        return ReplyBuilder(_unknown_plan(model, tools), ordered=ordered, is_offer_known=tools is not None)
    return ReplyBuilder(plan, ordered=ordered, is_known=True)


def text_reply_builder(
    model: Model, tools: Sequence[Any] | None = None, then: Then | None = None, script: str | None = None
) -> ReplyBuilder:
    """Return a builder for a text that the model wrote: add it in pieces, then end it.

    `then` and `script`: see `cnllm.engine.decode.text_tool_calls`.
    """
    builder = ReplyBuilder(_unknown_plan(model, tools, then), is_new=True, script=script)
    builder.collected.whole = True
    return builder


def _unknown_plan(model: Model, tools: Sequence[Any] | None, then: Then | None = None) -> Plan:
    """Return a plan for a reply to a request that is not known, as if `tools` had been offered."""
    return msgspec.structs.replace(
        unknown_plan(model),
        callable=() if tools is None else read_options({"tools": tools}).tools,
        text_calls=then or (model.flags.call or {}).get("recover_text_calls"),
        prompted=is_prompted(model.flags, "adjust"),
    )
