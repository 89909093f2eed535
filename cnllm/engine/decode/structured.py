"""The reply to a request for an answer by a schema: read, checked, and where a tool gave it, told as text."""

from __future__ import annotations

from typing import Any

import msgspec

from cnllm.engine.decode.reply_builder import ReplyBuilder
from cnllm.engine.decode.reply_notes import NOTES_LEFT_OUT
from cnllm.engine.encode.structured import WRAPPED, OutputMethod
from cnllm.schemas.validate import (
    InvalidAnswer,
    Undecided,
    UnusableSchema,
    build_value,
    read_json,
    undecided_patterns,
    validates_itself,
)
from cnllm.types import (
    BlockEnd,
    Event,
    Finish,
    Finished,
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
)

__all__ = ["OutputReader"]

_FOLLOWS = ("finish-follows", "finish-unknown")


class OutputReader:
    """Stands between a fold and who reads its events. `parsed` is the answer once `Finished` has gone through.

    The first call of the answer tool is no call to the reader: its arguments are the text. Prose beside it is left out,
    and noted; where it has been delivered already, the reply begins anew.
    """

    def __init__(self, answer: OutputMethod, fold: ReplyBuilder) -> None:
        self._answer = answer
        self._fold = fold
        self._tool = answer.name if answer.method == "tool" else None
        self._begin()
        self.parsed: Any = None
        self._reply: Reply | None = None

    def _begin(self) -> None:
        self._index: int | None = None  # of the call that is the answer
        self._twice: set[int] = set()  # further calls of the answer tool
        self._others: dict[int, int] = {}  # index among all calls → among those that the reader sees
        self._calls: list[Event] = []  # what was said of these
        self._said: list[str] = []
        self._thoughts: list[str] = []
        self._prose: list[str] = []
        self._ended: list[BlockEnd] = []  # where a part stands is settled once it is known whether the answer came

    def events(self, events: list[Event]) -> list[Event]:
        """The events as the reader is to see them."""
        if self._tool is not None:
            out: list[Event] = []
            for event in events:
                self._event(event, out)
            events = out
        if events and type(events[-1]) is Finished:
            return self._finished(events)
        return events

    def reply(self, reply: Reply) -> Reply:
        """The reply as the reader is to see it."""
        mine = self._reply
        if mine is None:
            return reply
        return msgspec.structs.replace(
            reply,
            text=mine.text,
            tool_calls=mine.tool_calls,
            incomplete=mine.incomplete,
            message=mine.message,
            finish=mine.finish,
            parsed=self.parsed,
        )

    # ── as it comes ──────────────────────────────────────────────────────────

    def _event(self, event: Event, out: list[Event]) -> None:
        match event:
            case TextDelta(text):
                if self._index is not None:
                    self._prose.append(text)
                    return
                self._said.append(text)
            case ReasoningDelta(text):
                self._thoughts.append(text)
            case Restarted():
                self._begin()
            case BlockEnd():
                self._ended.append(event)
                return
            case ToolCallStart(index, _, name) if name == self._tool:
                if self._index is None:
                    self._index = index
                    self._anew(out)
                else:
                    self._twice.add(index)
                return
            case ToolCallStart(index, id, name, excluded):
                self._others[index] = len(self._others)
                event = ToolCallStart(self._others[index], id, name, excluded)
                self._calls.append(event)
            case ToolCallDelta(index, text):
                if index == self._index:
                    out.append(TextDelta(text))
                if index not in self._others:
                    return
                event = ToolCallDelta(self._others[index], text)
                self._calls.append(event)
        out.append(event)

    def _anew(self, out: list[Event]) -> None:
        """The answer begins. What was said before it has been delivered as if it were the answer."""
        if not "".join(self._said).strip():
            return
        self._prose, self._said = self._said, []
        out.append(Restarted())
        if self._thoughts:
            out.append(ReasoningDelta("".join(self._thoughts)))
        out += self._calls

    # ── the end ──────────────────────────────────────────────────────────────

    def _finished(self, events: list[Event]) -> list[Event]:
        last = events[-1]
        assert type(last) is Finished
        base = self._fold.reply([])
        if self._index is not None:
            reply, extra = self._retold(base)
            gone = (ToolCallEnd, Finished)
            events = [e for e in events if not isinstance(e, gone) and not _about_finish(e, reply.finish)]
            events += extra
            events += [BlockEnd(i, p) for i, p in enumerate(reply.message.parts) if type(p) is not ToolCall]
            events += [ToolCallEnd(i, call) for i, call in enumerate(reply.tool_calls)]
        else:
            ends = [e for e in events if isinstance(e, ToolCallEnd)]
            reply, events = base, [*(e for e in events[:-1] if not isinstance(e, ToolCallEnd)), *self._ended, *ends]
        self._reply = reply
        events = [e for e in events if not (type(e) is NoteAdded and e.note.code == NOTES_LEFT_OUT)]
        if reply.finish == "stop":
            events += self._read(reply.text)
        events += self._fold.omitted_notes()
        return [*events, Finished(reply.finish, last.raw)]

    def _retold(self, base: Reply) -> tuple[Reply, list[Event]]:
        """The reply with the answer tool's call as its text, and the events that this adds."""
        extra: list[Event] = []
        assert self._index is not None
        begun = self._fold.calls[self._index]  # calls stand in the order of their own indexes, not of their beginnings
        call = self._fold.finished_call(begun)
        text = begun.raw
        if call is not None and not text.strip():
            text += "{}"  # behind the blanks that were delivered
            extra.append(TextDelta("{}"))
        others = [c for c in base.tool_calls if c.name != self._tool]
        incomplete = [c for c in base.incomplete if c.name != self._tool]
        finish: Finish = base.finish
        if finish == "tool_calls" and not others and not incomplete:
            finish = "stop"
            self._fold.forget(_FOLLOWS)
            if (self._fold.flags.finish or {}).get(self._fold.raw_finish or "stop") is None:
                extra += self._fold.note("finish-unknown", "finish", str(self._fold.raw_finish), finish)
        if prose := "".join(self._prose).strip():
            extra += self._note("answer-prose", prose, "left out: it stands beside the call that is the answer")
        for further in (c for c in base.tool_calls if c.name == self._tool and c is not call):
            if call is None or further.arguments != call.arguments:
                extra += self._note("answer-twice", further.raw, f"left out: {self._tool} was called before")
        text = "".join(self._said) + text
        parts: list[Part] = [p for p in base.message.parts if type(p) is Reasoning]
        parts += [Text(text)] if text else []
        parts += [p for p in base.message.parts if type(p) is Opaque]
        message = msgspec.structs.replace(base.message, parts=(*parts, *others))
        reply = msgspec.structs.replace(
            base, text=text, tool_calls=others, incomplete=incomplete, message=message, finish=finish
        )
        return reply, extra

    def _read(self, text: str) -> list[Event]:
        """Parses and checks the answer; what is wrong with it is noted."""
        answer = self._answer
        try:
            value, prose = read_json(text, lenient=answer.lenient)
            if answer.wrapped and isinstance(value, dict) and set(value) == {WRAPPED}:
                value = value[WRAPPED]
            self.parsed = build_value(value, answer.schema, answer.kind)
        except InvalidAnswer as error:
            return self._note("answer-invalid", str(error), "parsed is None")
        except UnusableSchema as error:
            return self._note("schema-unusable", str(error), "the answer is not checked, and parsed is None")
        except Undecided as error:
            said = f"the answer cannot be checked: {error}"
            return self._note("answer-unjudged", said, "whether it is valid is not known, and parsed is None")
        notes: list[Event] = []
        if prose:
            notes += self._note("answer-prose", prose, "left out of parsed: it stands before the JSON")
        if not validates_itself(answer.kind):
            for said in undecided_patterns(answer.schema):
                notes += self._note("pattern-unjudged", said, "the answer is checked but for this")
        return notes

    def _note(self, code: str, said: str, did: str) -> list[Event]:
        said = said if len(said) <= 1000 else said[:999] + "…"
        return self._fold.note(code, "schema", said, did)


def _about_finish(event: Event, finish: str) -> bool:
    """Does it note a finish that has since become another one?"""
    return type(event) is NoteAdded and event.note.code in _FOLLOWS and event.note.did != finish
