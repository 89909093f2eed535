"""Happenings → events and, at the end, the Reply. The same for a stream and for a whole body, on every wire."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Literal

import msgspec

from cnllm.engine.decode.blocks import BlockKind, Blocks
from cnllm.engine.decode.cost import cost_of, is_off_peak
from cnllm.engine.decode.deltas import Deltas, DuplicateField, join_fragments, pack_pieces
from cnllm.engine.decode.reply_notes import ReplyNotes
from cnllm.engine.decode.stop_texts import StopTexts
from cnllm.engine.decode.text_tool_calls import TextCalls
from cnllm.engine.decode.think_tags import TagSplitter
from cnllm.engine.decode.tool_calls import CallBuilder, CallCollector, markup_in_names
from cnllm.engine.encode.call_rules import CallRules
from cnllm.protocols import wire
from cnllm.protocols.call_ids import ReplyIds
from cnllm.protocols.decode_sink import REPEATABLE
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.schemas.simplify import remove_nulls
from cnllm.types import (
    BlockEnd,
    Event,
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
from cnllm.types.arguments import decode_arguments
from cnllm.types.lenient_json import SurrogateBuffer
from cnllm.types.lenient_json import replace_surrogates as _whole

__all__ = ["ReplyBuilder"]

_MANY = 1024  # pieces that are kept apart
_TAGS = "(tags)"  # stands for the field of thinking that comes between tags
_REPEATED = 24  # characters of thinking; a shorter repetition may be chance
_TRIES = 8  # comparisons of a text with all the thinking so far


class ReplyBuilder:
    """Gathers one reply. The wires tell it what happened (see `cnllm.protocols.decode_sink`); it answers with
    events."""

    __slots__ = (
        "_beside",
        "_blocks",
        "_calls",
        "_details",
        "_done",
        "_halves",
        "_incomplete",
        "_made",
        "_max_output",
        "_message",
        "_mirrors",
        "_notes",
        "_opaque",
        "_out",
        "_packed_texts",
        "_packed_thoughts",
        "_places",
        "_rules",
        "_said",
        "_stops",
        "_wholes",
        "answered",
        "created",
        "fault",
        "finish",
        "finished",
        "flags",
        "id",
        "leaks",
        "model",
        "odd",
        "of",
        "raw",
        "raw_finish",
        "refused",
        "renamed",
        "source",
        "splitter",
        "state",
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
        self.of = model
        self.flags = flags
        self.renamed = renamed
        self.strict_forms: dict[str, dict[str, Any]] = {}  # by names: parameters that went out in another form
        self.id: str | None = None
        self.model: str | None = None
        self.created: float | None = None
        self.raw_finish: str | None = None
        self.finished = False
        self.answered = False
        self.refused = False
        self.fault: Any = None
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.usage = Usage()
        self._notes = ReplyNotes()
        self.raw: Any = None
        self.odd: Any = None  # a chunk that held no choice: all there is to show of an empty reply
        self.whole = False  # one body, not a stream of fragments
        self.finish: Finish | None = None
        self._calls = CallCollector(ids)
        self._rules = rules
        self._done: list[ToolCall] = []
        self._made: dict[int, ToolCall] = {}
        self._places: list[int] = []  # which of the calls that began each whole one is
        self._message: tuple[Part, ...] = ()
        self._incomplete: list[ToolCall] = []
        self._details: list[Any] = []
        self._opaque: list[Any] = []
        self.source: str | None = None
        self.state: dict[str, Any] = {}
        self._beside: dict[str, Any] = {}  # what came with the answer and is about it
        self._blocks = Blocks(self.texts, self.thoughts) if ordered else None
        self._mirrors: dict[str, DuplicateField] = {}  # of the fields of the thinking that are not its source
        self._wholes = _TRIES
        self._max_output: int | None = None
        self._stops: StopTexts | None = None
        reasoning = flags.reasoning
        tags = reasoning.tags if reasoning else None
        self.splitter = TagSplitter(tags, (reasoning and reasoning.tags_at) or "start") if tags else None
        self._packed_texts = self._packed_thoughts = 0
        deltas = flags.stream.deltas if flags.stream else None
        self._halves = {"text": SurrogateBuffer(), "thought": SurrogateBuffer()}
        self._said = {"text": Deltas(deltas), "thought": Deltas(deltas)}
        self._out: list[Event] = []  # where what a filter lets through becomes events
        self.leaks = texts
        if texts is not None:
            texts.begin(self)

    def expect(self, max_output: int | None, stops: tuple[str, ...]) -> None:
        """What the request said about the end: the most tokens of the reply, and stop texts."""
        self._max_output = max_output
        self._stops = StopTexts(stops) if stops else None

    @property
    def has_text(self) -> bool:
        return bool(self.texts) or (self.splitter is not None and self.splitter.has_block)

    @property
    def are_deltas_plain(self) -> bool:
        """Are deltas what is new, as far as anyone knows, with no half of a character held?"""
        if self._stops is not None or self.state.get(REPEATABLE):
            return False
        if any(halves.held for halves in self._halves.values()):
            return False
        return not any(said.mode in ("cumulative", "either") for said in self._said.values())

    @property
    def is_idle(self) -> bool:
        """Does no filter wait for more?"""
        return self.leaks is None or self.leaks.is_idle

    @property
    def calls(self) -> list[CallBuilder]:
        """The calls that have begun."""
        return self._calls.all

    @property
    def notes(self) -> list[Note]:
        """What was noted, and at its end what was left out."""
        return self._notes.all

    def forget(self, codes: Container[str]) -> None:
        """Notes of these codes hold no more."""
        self._notes.forget(codes)

    def add_note(self, code: str, flag: str, said: str, did: str) -> None:
        """A note among the events of what is being read."""
        self._out += self.note(code, flag, said, did, self.of.where(flag))

    def finished_call(self, call: CallBuilder) -> ToolCall | None:
        """What a call came to at the end; None where it is no whole one."""
        return self._made.get(id(call))

    @property
    def has_calls(self) -> bool:
        return bool(self._calls.all)

    @property
    def part_count(self) -> int:
        return 0 if self._blocks is None else self._blocks.count

    # ── happenings ───────────────────────────────────────────────────────────

    def add_text(self, text: str) -> list[Event]:
        said = self._said["text"]
        new = said.new(text)
        if said.restart is not None:
            return self._restart("text", said)
        return self._write(self._halves["text"].mend(new))

    def add_piece(self, text: str) -> list[Event]:
        """A piece of the answer, which is new, whatever it looks like."""
        return self._write(self._halves["text"].mend(text))

    def _write(self, new: str) -> list[Event]:
        """New text of the answer, thinking between tags told apart."""
        out: list[Event] = []
        if self.splitter is None or self.splitter.has_ended:
            self._say(False, new, out)
        else:
            for inside, piece in self.splitter.feed(new):
                self._say(inside, self._tagged(piece) if inside else piece, out)
            if stray := self.splitter.take_stray_closers():
                out += self.note("tag-stripped", "reasoning.tags", stray, "left out: it closes nothing")
        return out

    def add_reasoning(self, text: str, field: str) -> list[Event]:
        out: list[Event] = []
        if not (text := self._new_thought(text, field)):
            return out
        said = self._said["thought"]
        new = said.new(text)
        if said.restart is not None:
            return self._restart("thought", said)
        self._say(True, self._halves["thought"].mend(new), out)
        return out

    def _tagged(self, piece: str) -> str:
        """What of thinking between tags did not come in a field, too."""
        return self._new_thought(piece, _TAGS)

    def _new_thought(self, text: str, field: str) -> str:
        """What of some thinking is new: several fields may have the same, and one may have it again as a whole."""
        if self.source is None:
            self.source = field
        if field == self.source:
            return "" if len(text) >= _REPEATED and not self.whole and self._is_whole(text) else text
        mirror = self._mirrors.get(field)
        if mirror is None:
            mirror = self._mirrors[field] = DuplicateField(self.thoughts)
        new = mirror.new(text)
        if mirror.ahead:  # from now on the other one may repeat this one
            self._mirrors[self.source] = DuplicateField(self.thoughts, over=True)
            del self._mirrors[field]
            self.source = field
        return new

    def _is_whole(self, text: str) -> bool:
        """Whether a text is all the thinking so far once more."""
        if self._blocks is not None or not self.thoughts or self._wholes == 0:
            return False
        head = self.thoughts[0].strip()[:_REPEATED]
        text = text.strip()
        if not text.startswith(head):
            return False
        self._wholes -= 1
        return text == "".join(self.thoughts).strip()

    def add_details(self, items: list[Any]) -> None:
        self._details += _whole(items)

    def add_opaque(self, data: Any) -> list[Event]:
        if self._blocks is None:
            self._opaque.append(_whole(data))
            return []
        return self._begin("opaque", _whole(data))

    def add_call_pieces(self, items: Any, whole: bool) -> list[Event]:
        out: list[Event] = []
        known = len(self._calls.all)
        self._calls.ids.reply = self.id
        for event in self._calls.feed(_whole(items), whole=whole):
            out.append(self._named(event))
        if self._blocks is not None and len(self._calls.all) > known:
            ended: list[Event] = []
            for call in self._calls.all[known:]:
                ended += self._begin("call", call)
            out = ended + out
        return out

    def begin_block(self, kind: Literal["text", "thought"]) -> list[Event]:
        return self._begin(kind)

    def add_seal(self, data: Any, part: int | None = None) -> None:
        if self._blocks is not None and (block := self._blocks.block(part)) is not None:
            if block.kind == "opaque":
                block.data = _whole(data)
            elif block.kind != "call":
                block.seal = data if callable(data) else _whole(data)
            elif callable(data):
                block.data.late = data
            elif type(data := _whole(data)) is dict:
                block.data.extra.update(data)

    def add_media(self, type: str, *, data: str | None = None, url: str | None = None) -> list[Event]:
        return self._begin("media", Media(_whole(type), _whole(data), _whole(url)))

    def annotate(self, data: dict[str, Any]) -> None:
        self._beside.update(_whole(data))

    def end_block(self) -> list[Event]:
        blocks = self._blocks
        if blocks is None:
            return []
        out: list[Event] = []
        self._release(out)
        if self._stops is not None and self._stops.held:
            if self._stops.complete:  # whether the answer ends here is not known yet
                return out
            self._put(False, self._stops.flush(), out)
        if not self.is_idle or any(halves.held for halves in self._halves.values()):
            return out  # it is over all the same, and told of later; what is held still belongs to it
        return [*out, *(BlockEnd(index, part) for index, part in blocks.finished_parts(self._part))]

    def _release(self, out: list[Event]) -> None:
        """Deliver what was held back because a tag or marker could begin with it: none goes on in another part."""
        if self.splitter is not None and not self.splitter.has_ended:
            for inside, piece in self.splitter.release():
                self._say(inside, self._tagged(piece) if inside else piece, out)
        if self.leaks is not None and not self.leaks.is_idle:
            self._out = out
            self.leaks.release()

    def continues_part(self, kind: str) -> bool:
        """Would more of this kind go on with the part that came last?"""
        return self._blocks is None or self._blocks.kind == kind

    def _begin(self, kind: BlockKind, data: Any = None) -> list[Event]:
        """A new part begins; what came before it is over."""
        blocks = self._blocks
        if blocks is None:
            return []
        out: list[Event] = []
        if self._stops is not None and (held := self._stops.flush()):  # more follows: it is no end
            self._put(False, held, out)
        out += self.end_block()
        if kind == "text":
            self._packed_texts = self._pack(False, self._packed_texts)
        elif kind == "thought":
            self._packed_thoughts = self._pack(True, self._packed_thoughts)
        blocks.begin(kind, data)
        return out

    def _pack(self, inside: bool, start: int) -> int:
        """Join what came of a kind since the last time, and tell those who count the pieces."""
        pieces = self.thoughts if inside else self.texts
        if len(pieces) - start < 2:
            return len(pieces)
        if inside:
            for mirror in self._mirrors.values():
                mirror.before_pack(start)
        if self.leaks is not None:
            self.leaks.before_pack(inside, start)
        return pack_pieces(pieces, start)

    def add_usage(self, usage: Usage) -> list[Event]:
        if usage == Usage() or usage == self.usage:
            return []
        self.usage = usage
        return [UsageSeen(usage)]

    def note(self, code: str, flag: str, said: str, did: str, where: str = "") -> list[Event]:
        note = Note(code, flag, said, did, where)
        return [NoteAdded(note)] if self._notes.add(note) else []

    def add_plain_text(self, inside: bool, text: str) -> list[Event]:
        """More plain text of a kind that has come before, in which a marker may begin."""
        out: list[Event] = []
        self._say(inside, text, out)
        return out

    def _say(self, inside: bool, text: str, out: list[Event]) -> None:
        """Text of the answer or of the thinking, which may hold what was meant to be a call."""
        if self.leaks is None:
            self._add(inside, text, out)
        elif text:
            self._out = out
            self.leaks.feed(inside, text)

    def deliver(self, inside: bool, text: str) -> None:
        """Text that a filter lets through."""
        self._add(inside, text, self._out)

    def _add(self, inside: bool, text: str, out: list[Event]) -> None:
        if self._stops is not None and not inside:
            text = self._stops.feed(text)
        self._put(inside, text, out)

    def _put(self, inside: bool, text: str, out: list[Event]) -> None:
        if not text:
            return
        if self._blocks is not None and not self.continues_part("thought" if inside else "text"):
            out += self._begin("thought" if inside else "text")
        if inside:
            self.thoughts.append(text)
            out.append(ReasoningDelta(text))
        else:
            self.texts.append(text)
            out.append(TextDelta(text))

    def _named(self, event: Event) -> Event:
        """The event with the name that the caller knows, and whether the call is excluded."""
        if type(event) is not ToolCallStart:
            return event
        name = self.renamed.get(event.name, event.name)
        barred = self._rules is not None and self._rules.exclusion(name) is not None
        return ToolCallStart(event.index, event.id, name, barred) if barred or name != event.name else event

    def _restart(self, kind: str, said: Deltas) -> list[Event]:
        """Pieces were taken for snapshots, or the reverse: begin again with what it all comes to."""
        snapshot, said.restart = said.restart or "", None
        out: list[Event] = [Restarted()]
        other = self.thoughts if kind == "text" else self.texts
        if self.leaks is not None:
            self._out = []
            self.leaks.restart(kind == "thought")
        kept = "".join(other)
        if self._stops is not None:
            held = self._stops.flush()
            kept += held if kind == "thought" else ""
        if self._blocks is not None:
            self._blocks.restart()
        mine = self.texts if kind == "text" else self.thoughts
        for mirror in self._mirrors.values():
            mirror.before_pack(0)
        mine.clear()
        other.clear()
        self._halves[kind].held = ""
        self._packed_texts = self._packed_thoughts = 0
        if kind == "text" and self.splitter is not None:
            reasoning = self.flags.reasoning
            tags = reasoning.tags if reasoning else None
            if self.splitter.has_block:
                kept = ""  # it came out of the text that begins again
            self.splitter = TagSplitter(tags, (reasoning and reasoning.tags_at) or "start") if tags else None
        self._add(kind == "text", kept, out)
        for call in self._calls.all:
            if call.started:
                self._calls.start(call, out)
        out = [self._named(event) for event in out]
        out += self.note("deltas-reread", "stream.deltas", "the deltas were misread", f"read again as {said.mode}")
        if kind == "text" and self.splitter is not None:
            for inside, piece in self.splitter.feed(self._halves[kind].mend(snapshot)):
                self._say(inside, self._tagged(piece) if inside else piece, out)
        else:
            self._say(kind != "text", self._halves[kind].mend(snapshot), out)
        return out

    def compact(self) -> None:
        """A long stream is mostly the overhead of its many short strings: join them by the thousand."""
        if len(self.texts) - self._packed_texts > _MANY:
            self._packed_texts = self._pack(False, self._packed_texts)
        if len(self.thoughts) - self._packed_thoughts > _MANY:
            self._packed_thoughts = self._pack(True, self._packed_thoughts)

    # ── the end ──────────────────────────────────────────────────────────────

    @property
    def has_torn_arguments(self) -> bool:
        """Do the arguments of a call break off?"""
        return any(call.raw.strip() and decode_arguments(call.raw)[1] is not None for call in self._calls.all)

    def end(self, *, proven: bool) -> list[Event]:
        """Everything has been read; `proven`: and it was all there is."""
        out: list[Event] = []
        self._say(True, self._halves["thought"].rest() + _whole(self._said["thought"].half), out)
        out += self._write(self._halves["text"].rest() + _whole(self._said["text"].half))
        if self.splitter is not None:
            for inside, piece in self.splitter.close():
                self._say(inside, self._tagged(piece) if inside else piece, out)
        for event in self._calls.finish():
            out.append(self._named(event))
        if self.leaks is not None:
            self._out = out
            self._written(self.leaks.close(proven=proven), out)
        if self._stops is not None and self._stops.held:
            self._end_text(self._stops, proven, out)
        self._settle(proven, out)
        self._message = self._annotated(tuple(self._parts()))
        if self.finish == "stop" and not self._done and not self._incomplete:
            out += self._note_silence()
        told = 0 if self._blocks is None else self._blocks.told
        for index, part in enumerate(self._message):
            if type(part) is not ToolCall and index >= told:
                out.append(BlockEnd(index, part))
        for index, call in zip(self._places, self._done, strict=True):
            out.append(ToolCallEnd(index, call))
        assert self.finish is not None
        out += self.omitted_notes()
        out.append(Finished(self.finish, self.raw_finish))
        return out

    def _end_text(self, stops: StopTexts, proven: bool, out: list[Event]) -> None:
        """Take off the stop text that the server left in at the end of the answer."""
        text, stop = stops.split()
        ended = (self.flags.finish or {}).get(self.raw_finish or "", "stop") == "stop" and self.fault is None
        if not stop or not proven or not ended or self.has_calls:
            self._put(False, text + stop, out)
            return
        self._put(False, text, out)
        stops.removed = True
        out += self.note("stop-left-in", "params.stop", stop, "taken off the end of the text")

    def omitted_notes(self) -> list[Event]:
        """The note on the notes that are not kept, if there are any."""
        return [NoteAdded(note) for note in self._notes.omitted]

    def _written(self, calls: list[CallBuilder], out: list[Event]) -> None:
        """Calls that were written as text: the same events as others."""
        begun: list[Event] = []
        self._calls.ids.reply = self.id
        for call in calls:
            out += self._begin("call", call)
            self._calls.add(call)
            self._calls.start(call, begun)
        out += [self._named(event) for event in begun]

    def _settle(self, proven: bool, out: list[Event]) -> None:
        """Decide the finish from what arrived, and which calls are whole."""
        finish = self.flags.finish or {}
        self.raw_finish = _whole(self.raw_finish)
        said = finish.get(self.raw_finish or "", None) if self.raw_finish is not None else None
        broken = self.fault is not None or said == "error"
        for index, call in enumerate(self._calls.all):
            self._sort(index, call, out, broken=broken or not proven, cut_off=said == "length")
        if broken:
            self.finish = "error"
        elif not proven:
            self.finish = "cut"
        elif self.refused or said == "content_filter":
            self.finish = "content_filter"
        elif said == "length":
            self.finish = "length"
        else:
            self.finish = "tool_calls" if self._done or self._incomplete else "stop"
            # Where no word of the wire means that tools are called, the calls themselves say it.
            silent = said == "stop" and self.finish == "tool_calls" and "tool_calls" not in finish.values()
            if self.raw_finish is not None and said != self.finish and not silent:
                where = self.of.where(f"finish.{self.raw_finish}") if said else ""
                code = "finish-follows" if said else "finish-unknown"
                out += self.note(code, "finish", self.raw_finish, self.finish, where)
        if self._max_output is not None:
            self._note_limit(self._max_output, out)
        if self._calls.ids.renamed:
            self._note_ids(out)
        if self._rules is not None and self.finish in ("stop", "tool_calls"):
            for code, wish, did in self._rules.ignored_wishes([call.name for call in self._done]):
                flag = "tools.parallel" if code == "parallel-ignored" else "tool_choice"
                out += self.note(code, flag, wish, did, self.of.where(flag))
        price = self.flags.price
        if price is not None and price.off_peak is not None and cost_of(self.usage, price) is not None:
            self._note_price(out)
        if self.finish == "length" and self.thoughts and not self.texts and not self._done:
            out += self.note(
                "budget-spent-on-reasoning",
                "limits.output",
                "length",
                "the whole budget went into reasoning, there is no answer: allow more tokens, or less reasoning",
            )

    def _note_price(self, out: list[Event]) -> None:
        """Say where the price of the hour is not known."""
        if is_off_peak(self.flags.price, self.created) is None:
            said = "the time of the reply" if self.created is None else "the peak hours"
            flag = "price.off_peak"
            did = f"the cost is by the price of peak hours: {said} is not known"
            out += self.note("price-peak", flag, "cheaper outside the peak hours", did, self.of.where(flag))

    def _note_limit(self, most: int, out: list[Event]) -> None:
        """Compare the tokens with the limit: a reply that reached it may not be whole, whatever its last word says."""
        output = self.usage.output
        if output is None or output < most or not most or self.finish not in ("stop", "tool_calls"):
            return
        said = f"{output} tokens of {most} that it may have, and {self.raw_finish or 'no word of the end'}"
        if self.finish == "stop" and not wire(self.of.protocol).reports_length:
            self.finish = "length"
            out += self.note("limit-reached", "finish", said, "length: the reply ended at its limit")
        else:
            out += self.note("limit-reached", "finish", said, f"kept as {self.finish}, but the reply may not be whole")

    def _note_silence(self) -> list[Event]:
        """Note a reply that ends as if it were whole and holds nothing but reasoning."""
        if any(text.strip() for text in self.texts):
            return []
        kinds = {type(part) for part in self._message}
        if not (self.thoughts or Reasoning in kinds) or Media in kinds:
            return []
        said, did = "reasoning without text or a call", "the reply is not whole: ask again, or with less reasoning"
        return self.note("answer-missing", "reasoning", said, did)

    def _note_ids(self, out: list[Event]) -> None:
        """Note the ids of the wire that an earlier call has."""
        again = self._calls.ids.renamed
        said = f"{len(again)} call ids that came before, the first {again[0]!r}"
        out += self.note("ids-repeated", "tools.call_id_pattern", said, "made unique")

    def _sort(self, index: int, call: CallBuilder, out: list[Event], *, broken: bool, cut_off: bool) -> None:
        raw = call.raw
        arguments, problem = decode_arguments(raw)
        empty = raw.strip() in ("", "null")
        if call.late is not None:
            call.extra.update(_whole(call.late()) or {})
        extra = Seal(self.of.protocol, self.of.provider, self.of.id, call.extra) if call.extra else None
        name = self.renamed.get(call.name, call.name)
        if arguments is not None and name in self.strict_forms:
            arguments = remove_nulls(arguments, self.strict_forms[name])
        whole = not broken and bool(name) and not (cut_off and (problem is not None or empty))
        if whole and (left := markup_in_names(name, arguments)):
            arguments, problem = None, f"markup is left in it: {left}"
        barred = None if self._rules is None else self._rules.exclusion(name)
        if whole:
            self._places.append(index)
            if barred is not None:
                arguments, problem = None, barred.reason
                told = f"a call of {name!a}"
                where = self.of.where(barred.flag)
                out += self.note(barred.code, barred.flag, told, f"never executed: {barred.reason}", where)
            self._done.append(
                ToolCall(call.call_id, name, arguments, raw, call.via, problem, extra, barred is not None)
            )
            self._made[id(call)] = self._done[-1]
        elif call.name or raw:
            problem = problem or "it was cut off"
            self._incomplete.append(
                ToolCall(call.call_id, name, None, raw, call.via, problem, extra, bool(name) and barred is not None)
            )

    def _part(self, kind: BlockKind, said: str, data: Any, seal: Any) -> Part | None:
        """What a block came to; None where it holds nothing, or a call that is no whole one."""
        if kind == "call":
            return self._made.get(id(data))
        seal = _whole(seal()) if callable(seal) else seal
        sealed = None if seal is None else Seal(self.of.protocol, self.of.provider, self.of.id, seal)
        if kind == "media":
            return msgspec.structs.replace(data, seal=sealed)  # type: ignore[no-any-return]
        if kind == "opaque":
            return Opaque(data, Seal(self.of.protocol, self.of.provider, self.of.id))
        if kind == "thought":
            taken = self.leaks is not None and self.leaks.thought_of
            return Reasoning(said, None if taken else sealed) if said or sealed is not None else None
        return Text(said, sealed) if said or sealed is not None else None

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
        origin = Seal(self.of.protocol, self.of.provider, self.of.id)
        parts += [Opaque(data, origin) for data in self._opaque]
        return [*parts, *self._done]

    def _annotated(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts, the last text with what came beside it."""
        last = next((i for i in range(len(parts) - 1, -1, -1) if type(parts[i]) is Text), None)
        if not self._beside or last is None:
            return parts
        return (*parts[:last], msgspec.structs.replace(parts[last], extra=self._beside), *parts[last + 1 :])

    def _seal(self) -> Seal | None:
        snapshots = self._said["thought"].mode in ("cumulative", "either")
        data: Any = (self._details if self.whole else join_fragments(self._details, snapshots)) or None
        if data is None and self.splitter is not None and self.splitter.raw:
            data = self.splitter.raw
        if self.leaks is not None and self.leaks.thought_of:
            data = None  # a call was taken out of it: what goes back is what is left
        return None if data is None else Seal(self.of.protocol, self.of.provider, self.of.id, data)

    def reply(self, notes: list[Note]) -> Reply:
        """What it all came to; `notes` are the request's, which come first."""
        assert self.finish is not None, "end() comes first"
        return Reply(
            text="".join(self.texts),
            reasoning="".join(self.thoughts),
            tool_calls=self._done,
            finish=self.finish,
            raw_finish=self.raw_finish,
            usage=self.usage,
            cost=cost_of(self.usage, self.flags.price, self.created),
            model=_whole(self.model),
            id=_whole(self.id),
            notes=[*notes, *self.notes],
            message=Message("assistant", self._message, by=self.of.name),
            incomplete=self._incomplete,
            raw=self.raw,
        )

    @property
    def is_empty(self) -> bool:
        """Nothing came that anyone could use or that explains why."""
        explained = self.finish in ("length", "content_filter") or (self.leaks is not None and self.leaks.has_found)
        explained = explained or (self._stops is not None and self._stops.removed)
        return not (
            self.texts or self.thoughts or self._done or self._incomplete or self._opaque or self._details or explained
        ) and (self._blocks is None or not self._message)
