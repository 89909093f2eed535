"""The events that end a reply, where they are not those of its own stream."""

from __future__ import annotations

from cnllm.types import (
    BlockEnd,
    Event,
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

__all__ = ["closing_events", "corrected_events", "final_events", "is_verdict"]


def final_events(reply: Reply) -> list[Event]:
    """The closing events of a reply that was read elsewhere."""
    return [*closing_events(reply), Finished(reply.finish, reply.raw_finish)]


def closing_events(reply: Reply) -> list[Event]:
    """The same but for `Finished`."""
    out: list[Event] = []
    calls = reply.tool_calls
    for index, call in enumerate(calls):
        out.append(ToolCallStart(index, call.id, call.name, call.excluded))
        if call.raw:
            out.append(ToolCallDelta(index, call.raw))
    out.append(UsageSeen(reply.usage))
    out += [BlockEnd(i, p) for i, p in enumerate(reply.message.parts) if type(p) is not ToolCall]
    out += [ToolCallEnd(index, call) for index, call in enumerate(calls)]
    return out


def is_verdict(event: Event) -> bool:
    """Does it say that this is the end, or that the answer is not valid?"""
    return type(event) is Finished or (type(event) is NoteAdded and event.note.code == "answer-invalid")


def corrected_events(old: Reply, new: Reply, held: list[Event]) -> list[Event]:
    """The events of a reply that came of corrections; of the same one, where all that came was a note."""
    notes: list[Event] = [NoteAdded(n) for n in new.notes if n not in old.notes or n.code == "answer-invalid"]
    if not any(note.code == "answer-corrected" for note in new.notes):
        return [*notes, *held[-1:]]
    out: list[Event] = [*notes, Restarted()]
    out += [ReasoningDelta(new.reasoning)] if new.reasoning else []
    out += [TextDelta(new.text)] if new.text else []
    return [*out, *final_events(new)]
