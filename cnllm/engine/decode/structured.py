"""Read an answer by a schema out of a reply.

The answer is parsed and checked. The call of an answer tool becomes text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cnllm.engine.decode.collector import NOTES_LEFT_OUT, without_place
from cnllm.engine.decode.reply_builder import ReplyBuilder
from cnllm.engine.encode.structured import WRAPPER_KEY, OutputMethod
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

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["OutputReader"]

_FINISH_CODES = ("finish-follows", "finish-unknown", "finish-pending")


class OutputReader:
    """The filter between a reply builder and the reader of its events. `parsed` is the answer after `Finished`.

    The first call of the answer tool does not reach the reader: its arguments are the text. Prose beside the call is
    left out, with a note. Where prose was already delivered, the reply begins again.
    """

    def __init__(self, answer: OutputMethod, builder: ReplyBuilder) -> None:
        self._answer = answer
        self._builder = builder
        self._tool = answer.name if answer.method == "tool" else None
        self._begin()
        self.parsed: Any = None
        self._reply: Reply | None = None

    def _begin(self) -> None:
        """Begin a reply, or begin it again."""
        self._index: int | None = None  # of the call that holds the answer
        self._repeated: set[int] = set()  # indexes of further calls of the answer tool
        self._index_map: dict[int, int] = {}  # index among all calls → index among those for the reader
        self._calls: list[Event] = []  # events of the calls for the reader
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._prose: list[str] = []
        self._block_ends: list[
            BlockEnd
        ] = []  # held back: the indexes are final once it is known whether the answer came

    def events(self, events: list[Event]) -> list[Event]:
        """Return the events for the reader."""
        if self._tool is not None:
            out: list[Event] = []
            for event in events:
                self._event(event, out)
            events = out
        if events and type(events[-1]) is Finished:
            return self._finish(events)
        return events

    def reply(self, reply: Reply) -> Reply:
        """Return the reply for the reader."""
        answer = self._reply
        if answer is None:
            return reply
        return msgspec.structs.replace(
            reply,
            text=answer.text,
            tool_calls=answer.tool_calls,
            incomplete=answer.incomplete,
            message=answer.message,
            finish=answer.finish,
            parsed=self.parsed,
            citations=reply.citations if answer.text == reply.text else [without_place(c) for c in reply.citations],
        )

    # ── while the reply arrives ──────────────────────────────────────────────

    def _event(self, event: Event, out: list[Event]) -> None:
        """Add the events for the reader that one event of the builder becomes."""
        match event:
            case TextDelta(text):
                if self._index is not None:
                    self._prose.append(text)
                    return
                self._texts.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case Restarted():
                self._begin()
            case BlockEnd():
                self._block_ends.append(event)
                return
            case ToolCallStart(index, _, name) if name == self._tool:
                if self._index is None:
                    self._index = index
                    self._begin_answer(out)
                else:
                    self._repeated.add(index)
                return
            case ToolCallStart(index, id, name, excluded):
                self._index_map[index] = len(self._index_map)
                event = ToolCallStart(self._index_map[index], id, name, excluded)
                self._calls.append(event)
            case ToolCallDelta(index, text):
                if index == self._index:
                    out.append(TextDelta(text))
                if index not in self._index_map:
                    return
                event = ToolCallDelta(self._index_map[index], text)
                self._calls.append(event)
        out.append(event)

    def _begin_answer(self, out: list[Event]) -> None:
        """Begin the answer. Text before it was delivered as if it were the answer, so the reply begins again."""
        if not "".join(self._texts).strip():
            return
        self._prose, self._texts = self._texts, []
        out.append(Restarted())
        if self._reasoning:
            out.append(ReasoningDelta("".join(self._reasoning)))
        out += self._calls

    # ── at the end of the reply ──────────────────────────────────────────────

    def _finish(self, events: list[Event]) -> list[Event]:
        """Return the last events for the reader."""
        last = events[-1]
        assert type(last) is Finished
        base = self._builder.reply([])
        if self._index is not None:
            reply, extra = self._with_answer_text(base)
            hidden = (ToolCallEnd, Finished)
            events = [e for e in events if not isinstance(e, hidden) and not _is_outdated_finish(e, reply.finish)]
            events += extra
            events += [BlockEnd(i, p) for i, p in enumerate(reply.message.parts) if type(p) is not ToolCall]
            events += [ToolCallEnd(i, call) for i, call in enumerate(reply.tool_calls)]
        else:
            ends = [e for e in events if isinstance(e, ToolCallEnd)]
            reply, events = (
                base,
                [*(e for e in events[:-1] if not isinstance(e, ToolCallEnd)), *self._block_ends, *ends],
            )
        self._reply = reply
        events = [e for e in events if not (type(e) is NoteAdded and e.note.code == NOTES_LEFT_OUT)]
        if reply.finish == "stop":
            events += self._parse(reply.text)
        events += self._builder.collected.omitted_notes()
        return [*events, Finished(reply.finish, last.raw)]

    def _with_answer_text(self, base: Reply) -> tuple[Reply, list[Event]]:
        """Return the reply with the answer tool's call as its text, and the events that this adds."""
        extra: list[Event] = []
        assert self._index is not None
        # Calls are in the order of their indexes, not of their starts.
        text = self._builder.collected.calls.all[self._index].raw
        call = self._builder.finished_call(self._index)
        if call is not None and not text.strip():
            text += "{}"  # after the white space that was delivered
            extra.append(TextDelta("{}"))
        others = [c for c in base.tool_calls if c.name != self._tool]
        incomplete = [c for c in base.incomplete if c.name != self._tool]
        finish: Finish = base.finish
        if finish == "tool_calls" and not others and not incomplete:
            finish = "stop"
            collected = self._builder.collected
            collected.notes.forget(_FINISH_CODES)
            if base.raw_finish is not None and collected.finish_kind is None:
                extra += collected.note("finish-unknown", "finish", base.raw_finish, finish)
        if prose := "".join(self._prose).strip():
            extra += self._note("answer-prose", prose, "left out: it stands beside the call that is the answer")
        for repeated in (c for c in base.tool_calls if c.name == self._tool and c is not call):
            if call is None or repeated.arguments != call.arguments:
                extra += self._note("answer-twice", repeated.raw, f"left out: {self._tool} was called before")
        text = "".join(self._texts) + text
        parts: list[Part] = [p for p in base.message.parts if type(p) is Reasoning]
        parts += [Text(text)] if text else []
        parts += [p for p in base.message.parts if type(p) is Opaque]
        message = msgspec.structs.replace(base.message, parts=(*parts, *others))
        reply = msgspec.structs.replace(
            base, text=text, tool_calls=others, incomplete=incomplete, message=message, finish=finish
        )
        return reply, extra

    def _parse(self, text: str) -> list[Event]:
        """Parse and check the answer, and return notes on its faults."""
        answer = self._answer
        try:
            value, prose = read_json(text, lenient=answer.lenient)
            if answer.wrapped and isinstance(value, dict) and set(value) == {WRAPPER_KEY}:
                value = value[WRAPPER_KEY]
            self.parsed = build_value(value, answer.schema, answer.kind)
        except InvalidAnswer as error:
            return self._note("answer-invalid", str(error), "parsed is None")
        except UnusableSchema as error:
            return self._note("schema-unusable", str(error), "the answer is not checked, and parsed is None")
        except Undecided as error:
            subject = f"the answer cannot be checked: {error}"
            return self._note(
                "answer-unjudged", subject, "it is not known whether the answer is valid, and parsed is None"
            )
        notes: list[Event] = []
        if prose:
            notes += self._note("answer-prose", prose, "left out of parsed: it stands before the JSON")
        if not validates_itself(answer.kind):
            for pattern in undecided_patterns(answer.schema):
                notes += self._note("pattern-unjudged", pattern, "the answer is checked without this")
        return notes

    def _note(self, code: NoteCode, subject: str, did: str) -> list[Event]:
        """Return the event of a note, with a subject of at most 1000 characters."""
        subject = subject if len(subject) <= 1000 else subject[:999] + "…"
        return self._builder.collected.note(code, "schema", subject, did)


def _is_outdated_finish(event: Event, finish: str) -> bool:
    """Whether an event notes a finish that has changed since."""
    return type(event) is NoteAdded and event.note.code in _FINISH_CODES and event.note.did != finish
