"""Build the events that end a reply which did not come from its own stream."""

from __future__ import annotations

from cnllm.types import (
    BlockEnd,
    CitationAdded,
    Event,
    ExtraAdded,
    Finished,
    NoteAdded,
    Reply,
    Restarted,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSeen,
)
from cnllm.types.delivered import text_events

__all__ = ["call_events", "closing_events", "corrected_events", "final_events", "is_verdict"]


def final_events(reply: Reply) -> list[Event]:
    """Return the closing events of a reply that was read elsewhere, with `Finished`."""
    return [*closing_events(reply), Finished(reply.finish, reply.raw_finish)]


def closing_events(reply: Reply) -> list[Event]:
    """Return the closing events without `Finished`."""
    out: list[Event] = []
    calls = reply.tool_calls
    for index, call in enumerate(calls):
        out += call_events(index, call)
    out += map(CitationAdded, reply.citations)
    out += [ExtraAdded(reply.extra)] if reply.extra else []
    out.append(UsageSeen(reply.usage))
    out += [BlockEnd(i, p) for i, p in enumerate(reply.message.parts) if type(p) is not ToolCall]
    out += [ToolCallEnd(index, call) for index, call in enumerate(calls)]
    return out


def call_events(index: int, call: ToolCall) -> list[Event]:
    """Return the events of a whole call, without its end."""
    start = ToolCallStart(index, call.id, call.name, call.excluded)
    return [start, ToolCallDelta(index, call.raw)] if call.raw else [start]


def is_verdict(event: Event) -> bool:
    """Whether an event says that the reply ended, or that the answer is invalid."""
    return type(event) is Finished or (type(event) is NoteAdded and event.note.code == "answer-invalid")


def corrected_events(old: Reply, new: Reply, final: list[Event]) -> list[Event]:
    """Return the events of a corrected reply; where the reply stayed the same, its new notes and its end."""
    notes: list[Event] = [NoteAdded(n) for n in new.notes if n not in old.notes or n.code == "answer-invalid"]
    if not any(note.code == "answer-corrected" for note in new.notes):
        return [*notes, *final[-1:]]
    return [*notes, Restarted(), *text_events(new.reasoning, new.text), *final_events(new)]
