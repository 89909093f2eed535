"""Send back what a model got wrong: an answer that its schema refuses, and the input of a custom tool.

An invalid answer goes back with the error, as often as the caller wants. A model that knows functions alone gets a
custom tool as a function, and nothing but the check of its input keeps it to the grammar of the tool. A call waits
until it is judged. A wrong one goes back once, with what the parser says; the calls of the second reply take its place.
Text that was delivered stays, and so do the other calls. The usage of a corrected reply is that of all requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.effects import CheckInputs, Effect, FinalEvents, HoldContent, InputCheck, InputVerdict, Steps
from cnllm.errors import CnllmError
from cnllm.types import (
    BlockEnd,
    Cost,
    Event,
    Finished,
    Message,
    Note,
    NoteAdded,
    Part,
    ReasoningDelta,
    Reply,
    Restarted,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    UsageSeen,
)
from cnllm.types.delivered import call_events, text_events
from cnllm.types.tools import custom_grammar, custom_input
from cnllm.types.totals import with_costs, with_totals

__all__ = [
    "Grammars",
    "HeldEvents",
    "check_inputs",
    "correct_answer",
    "hold_events",
    "plan_grammars",
]


_INVALID = "answer-invalid"

Grammars = Mapping[str, tuple[str, str]]
"""The syntax and definition of a grammar, by the name of the tool."""
_FLAG = "tools"
_LONGEST_SUBJECT = 1000
_WAITING = "This call is right and will be run. Do not make it again."
_SEPARATOR = "\n\n"


# ── an answer by a schema ────────────────────────────────────────────────────


def correct_answer(plan: Plan, reply: Reply, ask: Callable[..., Steps]) -> Steps:
    """Return the reply, or the corrected one after an invalid answer was sent back. Corrections are not streamed.

    `ask` returns the steps of a call with further turns.
    """
    turns: list[Message] = []
    for number in range(1, plan.corrections + 1):
        problem = _validation_error(reply)
        if problem is None:
            break
        turns += _answer_turns(plan, reply, problem)
        try:
            corrected = yield from ask(*turns)
        except CnllmError as error:  # the earlier reply is whole, and paid for
            return with_costs(_failed_correction(reply, problem, str(error)), error.costs)
        if corrected.finish not in ("stop", "tool_calls"):
            reply = with_totals(reply, [reply, corrected])
            return _failed_correction(reply, problem, f"it ended with {corrected.finish}")
        reply = _corrected_answer(reply, corrected, problem, number, plan.corrections)
    return reply


def _validation_error(reply: Reply) -> str | None:
    """Return the validator's message; None where the answer is valid, or where asking again would not help.

    Only a whole answer is corrected: one that was cut off, withheld or is a call is not invalid but missing.
    """
    if reply.finish != "stop":
        return None
    return next((note.said for note in reply.notes if note.code == _INVALID), None)


def _answer_turns(plan: Plan, reply: Reply, problem: str) -> list[Message]:
    """Return the turns that ask for another answer: the invalid one, and the error."""
    instruction = "Answer again, with the corrected JSON and nothing else."
    if plan.answer is not None and plan.answer.method == "tool":
        instruction = f"Call {plan.answer.name} again, with corrected arguments."
    request = Message("user", (Text(f"That answer is not valid against the JSON Schema: {problem}\n{instruction}"),))
    return [reply.message, request] if reply.text.strip() else [request]


def _corrected_answer(first: Reply, last: Reply, problem: str, number: int, limit: int) -> Reply:
    """Return the last reply with the tokens and the cost of both: both were paid for."""
    did = f"sent back, and asked again ({number} of {limit}); usage and cost are of all requests"
    note = Note("answer-corrected", "corrections", problem, did)
    earlier = [n for n in first.notes if n.code != _INVALID]
    seen_notes = set(earlier)
    notes = [*earlier, note, *(n for n in last.notes if n not in seen_notes)]
    return with_totals(replace(last, notes=notes), [first, last])


def _failed_correction(reply: Reply, problem: str, reason: str) -> Reply:
    """Return the reply with a note that its correction failed."""
    note = Note("correction-failed", "corrections", problem, f"sent back, but no other answer came: {reason}")
    return replace(reply, notes=[*reply.notes, note])


# ── the input of a custom tool ───────────────────────────────────────────────


def plan_grammars(plan: Plan) -> Grammars:
    """Return the grammars of the custom tools that the endpoint knows as functions only."""
    customs = {tool.name: tool.custom for tool in plan.callable if tool.custom is not None}
    if plan.flags.tools.custom or not customs:
        return {}
    found = ((name, custom_grammar(custom)) for name, custom in customs.items())
    return {name: grammar for name, grammar in found if grammar is not None}


def check_inputs(reply: Reply, grammars: Grammars, ask: Callable[..., Steps] | None) -> Steps:
    """Return the reply, or the one with other calls after one with a wrong input was sent back.

    `ask` returns the steps of a call with further turns; None: a wrong input is not sent back.
    """
    calls = _checked_calls(reply, grammars)
    if not calls:
        return reply
    notes, found = yield from _judge(calls, grammars)
    reply = _add_notes(reply, notes)
    if not found:
        return reply
    if ask is None:
        return _add_notes(reply, _wrong_notes(calls, found, "passed on as it is"))
    try:
        second = yield from ask(*_correction_turns(reply, found))
        reason = None if second.finish in ("stop", "tool_calls") else f"it ended with {second.finish}"
        costs: Sequence[Cost | None] = [second.cost]
    except CnllmError as error:  # the earlier reply is whole, and paid for
        reason, costs = str(error), error.costs
    if reason is not None:
        notes = _wrong_notes(calls, found, "passed on as it is")
        return with_costs(_add_notes(reply, [*notes, _failed_note(reason)]), costs)
    reply = _corrected_reply(reply, second, found)
    later = _checked_calls(second, grammars)
    if not later:
        return reply
    notes, found = yield from _judge(later, grammars)
    return _add_notes(reply, [*notes, *_wrong_notes(later, found, "passed on as it is, after one correction")])


def _judge(calls: Sequence[ToolCall], grammars: Grammars) -> Generator[Effect, Any, tuple[list[Note], dict[str, str]]]:
    """Return the notes on calls that could not be judged, and what is wrong with the others, by their ids."""
    texts = [(grammars[call.name], custom_input(call)) for call in calls]
    checks = tuple([InputCheck(syntax, definition, text) for (syntax, definition), text in texts])
    verdicts: Sequence[InputVerdict] = yield CheckInputs(checks)
    found = {call.id: v.problem for call, v in zip(calls, verdicts, strict=True) if v.problem is not None}
    return _unknown_notes(calls, verdicts), found


def _checked_calls(reply: Reply, grammars: Grammars) -> list[ToolCall]:
    """Return the calls of a reply whose input has to follow a grammar."""
    return [call for call in reply.tool_calls if call.name in grammars and not call.excluded]


# ── notes ─────────────────────────────────────────────────────────────────────


def _unknown_notes(calls: Sequence[ToolCall], verdicts: Sequence[InputVerdict]) -> list[Note]:
    """Return a note for each tool whose calls could not be judged."""
    found = {(call.name, v.unknown): None for call, v in zip(calls, verdicts, strict=True) if v.unknown is not None}
    did = "passed on without a check"
    return [Note("input-unjudged", _FLAG, _subject(name, reason), did) for name, reason in found]


def _wrong_notes(calls: Sequence[ToolCall], found: Mapping[str, str], did: str) -> list[Note]:
    """Return a note for each call whose input is wrong and is passed on."""
    return [Note("input-invalid", _FLAG, _subject(c.name, found[c.id]), did) for c in calls if c.id in found]


def _failed_note(reason: str) -> Note:
    """Return the note on a correction that failed."""
    subject = "the input of a call does not follow its grammar"
    return Note("correction-failed", _FLAG, subject, f"sent back, but no other call came: {reason}")


def _subject(name: str, reason: str) -> str:
    text = f"{name}: {reason}"
    return text if len(text) <= _LONGEST_SUBJECT else f"{text[: _LONGEST_SUBJECT - 1]}…"


def _add_notes(reply: Reply, notes: Sequence[Note]) -> Reply:
    """Return the reply with notes that it does not have."""
    new = [note for note in notes if note not in reply.notes]
    return replace(reply, notes=[*reply.notes, *new]) if new else reply


# ── the correction ────────────────────────────────────────────────────────────


def _correction_turns(reply: Reply, found: Mapping[str, str]) -> list[Message]:
    """Return the turns that send a reply back: it, and a result for each of its calls."""
    return [reply.message, *(Message("tool", (_result(call, found.get(call.id)),)) for call in reply.tool_calls)]


def _result(call: ToolCall, problem: str | None) -> ToolResult:
    """Return the result of a call that waits or is wrong."""
    if problem is None:
        return ToolResult(call.id, _WAITING, call.name)
    text = (
        f"{call.name} was not run: its input does not follow the grammar of the tool. {problem}\n"
        f"Call {call.name} again with the whole corrected input."
    )
    return ToolResult(call.id, text, call.name, error=True)


def _corrected_reply(first: Reply, second: Reply, found: Mapping[str, str]) -> Reply:
    """Return the first reply with the second one in the place of its wrong calls: both were paid for."""
    rest = [call for call in first.tool_calls if call.id not in found]
    known = {_content(call) for call in rest}
    new = [call for call in second.tool_calls if _content(call) not in known]
    ids = {call.id for call in (*rest, *new)}
    text = second.text
    parts: list[Part] = [part for part in first.message.parts if type(part) is not ToolCall or part.id in ids]
    for part in second.message.parts:
        if type(part) is ToolCall and part.id not in ids:
            continue
        if type(part) is Text and text is second.text and first.text and part.text:
            part = replace(part, text=f"{_SEPARATOR}{part.text}")
            text = f"{_SEPARATOR}{second.text}"
        parts.append(part)
    names = ", ".join(dict.fromkeys(call.name for call in first.tool_calls if call.id in found))
    did = "sent back, and asked again (1 of 1); usage and cost are of both requests"
    notes = [Note("input-corrected", _FLAG, _subject(names, problem), did) for problem in found.values()]
    later = [note for note in second.notes if note not in first.notes]
    reply = replace(
        second,
        text=f"{first.text}{text}",
        reasoning=f"{first.reasoning}{second.reasoning}",
        tool_calls=[*rest, *new],
        incomplete=[*first.incomplete, *second.incomplete],
        message=replace(second.message, parts=tuple(parts)),
        notes=[*first.notes, *later],
        timing=first.timing,
    )
    if rest and not new:
        reply = replace(reply, finish=first.finish, raw_finish=first.raw_finish)
    return _add_notes(with_totals(reply, [first, second]), notes)


def _content(call: ToolCall) -> tuple[str, bytes | str]:
    """Return what a call does, without its id."""
    return call.name, call.raw if call.arguments is None else msgspec.json.encode(call.arguments, order="sorted")


# ── events ────────────────────────────────────────────────────────────────────


class HeldEvents:
    """The events of a stream from the first call on whose input has to be judged. The ones before are delivered."""

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._begin()

    def _begin(self) -> None:
        self.events: list[Event] = []
        self._calls: dict[str, int] = {}  # indexes of the calls that were delivered, by id
        self._ended: set[int] = set()
        self._blocks: set[int] = set()

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """Return the events to deliver now."""
        out: list[Event] = []
        for event in events:
            match event:
                case Restarted():
                    self._begin()
                case ToolCallStart() if self.events or event.name in self._grammars:
                    self.events.append(event)
                    continue
                case _ if self.events:
                    self.events.append(event)
                    continue
                case ToolCallStart():
                    self._calls[event.id] = event.index
                case ToolCallEnd():
                    self._ended.add(event.index)
                case BlockEnd():
                    self._blocks.add(event.index)
            out.append(event)
        return out

    def after(self, first: Reply, last: Reply) -> list[Event]:
        """Return the events to deliver when the calls are judged: those of the reply that holds."""
        notes: list[Event] = [NoteAdded(note) for note in last.notes if note not in first.notes]
        if last.message == first.message:
            return [*notes, *self.events]
        return [*notes, *self._correct(first, last)]

    def _correct(self, first: Reply, last: Reply) -> Iterator[Event]:
        """Yield the rest of a corrected reply."""
        yield from (e for e in self.events if type(e) in (TextDelta, ReasoningDelta, NoteAdded))
        yield from text_events(last.reasoning[len(first.reasoning) :], last.text[len(first.text) :])
        indexes: dict[str, int] = {}
        for call in last.tool_calls:
            indexes[call.id] = index = self._calls.get(call.id, len(self._calls) + len(indexes.keys() - self._calls))
            if call.id not in self._calls:
                yield from call_events(index, call)
        yield UsageSeen(last.usage)
        for index, part in enumerate(last.message.parts):
            if type(part) is not ToolCall and index not in self._blocks:
                yield BlockEnd(index, part)
        for call in last.tool_calls:
            if indexes[call.id] not in self._ended:
                yield ToolCallEnd(indexes[call.id], call)
        yield Finished(last.finish, last.raw_finish)

    def after_failure(self) -> list[Event]:
        """Return the events to deliver where the reply broke off: all but the content that nobody can judge."""
        content = (TextDelta, ReasoningDelta, ToolCallStart, ToolCallDelta, ToolCallEnd)
        return [event for event in self.events if not isinstance(event, content)]


def hold_events(steps: Steps, buffer: HeldEvents) -> Steps:
    """Carry out steps and return their reply. Events wait in `buffer` where it keeps them."""
    answer, is_holding = None, False
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration as stop:
            reply: Reply = stop.value
            return reply
        except CnllmError:
            yield FinalEvents(buffer.after_failure())
            raise
        if isinstance(effect, list):
            effect = type(effect)(buffer.feed(effect))
            if buffer.events and not is_holding:
                yield HoldContent()
            is_holding = bool(buffer.events)
        answer = yield effect
