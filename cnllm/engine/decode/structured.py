"""Read an answer by a schema: the stage that makes the call of an answer tool the answer, and the check at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cnllm.engine.decode.settle import ReplyDecision
from cnllm.engine.decode.stage import Item, Restart, Stage
from cnllm.engine.decode.tool_calls import CallBuilder
from cnllm.engine.encode.structured import WRAPPER_KEY, OutputMethod
from cnllm.protocols.pieces import TextPiece
from cnllm.schemas.validate import (
    AnswerError,
    Undecided,
    UnusableSchema,
    build_value,
    read_json,
    undecided_patterns,
    validates_itself,
)
from cnllm.types import (
    Event,
    Note,
    ReasoningDelta,
    Restarted,
    ToolCallDelta,
    ToolCallStart,
)

if TYPE_CHECKING:
    from cnllm.engine.decode.collector import Collector
    from cnllm.types.note_codes import NoteCode

__all__ = ["AnswerCall", "read_answer"]

_FINISH_CODES = ("finish-follows", "finish-unknown", "finish-pending")


class AnswerCall(Stage):
    """The stage that makes the first call of the answer tool the text of the reply.

    Prose beside the call is left out, with a note. Where prose was already delivered, the reply begins again.
    """

    def __init__(self, name: str, collector: Collector) -> None:
        self._name = name
        self._collected = collector
        self._prose: list[str] = []
        self._index: int | None = None  # of the call that is the answer
        self.lets_text = True  # while text is the answer, as far as is known
        self._indexes: dict[int, int] = {}  # index among all calls → index among those for the reader
        collector.parts.is_reported_late = True  # their indexes are final once it is known whether the answer came

    @property
    def has_begun(self) -> bool:
        """Whether the answer came, or begins."""
        return self._index is not None

    def feed(self, item: Item) -> list[Item]:
        """Return text that stands before the answer, and any other item."""
        if type(item) is TextPiece and self._index is not None:
            self._prose.append(item.text)
            return []
        if type(item) is Restart:
            if item.text:
                self._prose = []
            if self._index is not None:  # its call begins again, too
                self._collected.parts.text.begin_again()
            self._index, self._indexes, self.lets_text = None, {}, True
        return [item]

    def is_next(self, call: CallBuilder) -> bool:
        """Whether a call that begins is the answer."""
        return self._index is None and self._collected.caller_name(call.name) == self._name

    def index(self, at: int) -> int:
        """Return the index for the reader of a call."""
        return self._indexes.setdefault(at, len(self._indexes))

    def events(self, events: list[Event]) -> list[Event]:
        """Return the events of calls for the reader: those of the answer are text."""
        out: list[Event] = []
        for event in events:
            if type(event) is ToolCallStart:
                if event.name != self._name:
                    out.append(msgspec.structs.replace(event, index=self.index(event.index)))
                elif self._index is None:
                    self._index, self.lets_text = event.index, False
                    self._begin(out)
            elif type(event) is ToolCallDelta:
                if event.index == self._index:
                    out.append(self._collected.parts.put(event.text, in_reasoning=False))
                elif event.index in self._indexes:
                    out.append(ToolCallDelta(self._indexes[event.index], event.text))
        return out

    def _begin(self, out: list[Event]) -> None:
        """Begin the answer. Text before it was delivered as if it were the answer, so the reply begins again."""
        collector = self._collected
        parts = collector.parts
        if (text := "".join(parts.text)).strip():
            self._prose.append(text)
            parts.text.begin_again()
            out.append(Restarted())
            if parts.thought:
                out.append(ReasoningDelta("".join(parts.thought)))
            for call in collector.calls.all:
                if call.started and call.at in self._indexes:
                    out += self.events(collector.rename_calls(collector.calls.start(call)))
        parts.gather_text()

    def settle(self, settled: ReplyDecision, out: list[Event]) -> ReplyDecision:
        """Return the decisions about the reply whose text is the answer."""
        if self._index is None:
            return settled
        collector = self._collected
        answer = settled.calls.get(id(collector.calls.all[self._index]))
        if answer is not None and not answer.raw.strip():
            out.append(collector.parts.put("{}", in_reasoning=False))  # after the white space that was delivered
        calls = {key: call for key, call in settled.calls.items() if call.name != self._name}
        incomplete = [call for call in settled.incomplete if call.name != self._name]
        finish, notes = settled.finish, list(settled.notes)
        if finish == "tool_calls" and not calls and not incomplete:
            finish = "stop"
            notes = [note for note in notes if note.code not in _FINISH_CODES]
            if collector.finish_word is not None and collector.finish_kind is None:
                notes.append(Note("finish-unknown", "finish", collector.finish_word, finish))
        if prose := "".join(self._prose).strip():
            notes.append(_note("answer-prose", prose, "left out: it stands beside the call that is the answer"))
        for call in settled.calls.values():
            is_repeated = answer is not None and (call is answer or call.arguments == answer.arguments)
            if call.name == self._name and not is_repeated:
                notes.append(_note("answer-twice", call.raw, f"left out: {self._name} was called before"))
        return ReplyDecision(finish, calls, incomplete, notes)


def read_answer(answer: OutputMethod, text: str) -> tuple[Any, list[Note]]:
    """Parse and check an answer; return it, None where it is invalid, and notes on its faults."""
    try:
        value, prose = read_json(text, lenient=answer.lenient)
        if answer.wrapped and isinstance(value, dict) and set(value) == {WRAPPER_KEY}:
            value = value[WRAPPER_KEY]
        parsed = build_value(value, answer.schema, answer.kind)
    except AnswerError as error:
        return None, [_note("answer-invalid", str(error), "parsed is None")]
    except UnusableSchema as error:
        return None, [_note("schema-unusable", str(error), "the answer is not checked, and parsed is None")]
    except Undecided as error:
        subject = f"the answer cannot be checked: {error}"
        did = "it is not known whether the answer is valid, and parsed is None"
        return None, [_note("answer-unjudged", subject, did)]
    notes: list[Note] = []
    if prose:
        notes.append(_note("answer-prose", prose, "left out of parsed: it stands before the JSON"))
    if not validates_itself(answer.kind):
        for pattern in undecided_patterns(answer.schema):
            notes.append(_note("pattern-unjudged", pattern, "the answer is checked without this"))
    return parsed, notes


def _note(code: NoteCode, subject: str, did: str) -> Note:
    """Return a note, with a subject of at most 1000 characters."""
    return Note(code, "schema", subject if len(subject) <= 1000 else subject[:999] + "…", did)
