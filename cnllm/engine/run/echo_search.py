"""Run the web search of an endpoint that hands each search to its client as a call, and wants the arguments back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.continuation import shift_citation
from cnllm.types import (
    BlockEnd,
    CitationAdded,
    Event,
    Finished,
    Message,
    Note,
    NoteAdded,
    Part,
    Reply,
    Seal,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    UsageSeen,
)
from cnllm.types.parts import seal_data
from cnllm.types.totals import with_totals

__all__ = [
    "EchoFilter",
    "dropped_note",
    "echo_turns",
    "join_steps",
    "search_calls",
    "unanswerable_calls",
    "without_searches",
]


def search_calls(reply: Reply, name: str) -> list[ToolCall]:
    """Return the calls of a reply that stand for searches and can be answered."""
    if reply.finish != "tool_calls":
        return []
    return [call for call in reply.tool_calls if call.name == name and not call.excluded]


def unanswerable_calls(reply: Reply, name: str) -> list[ToolCall]:
    """Return the calls of a reply that stand for searches, where its end says that they may not be whole."""
    calls = [*reply.tool_calls, *reply.incomplete]
    return [call for call in calls if call.name == name and not call.excluded]


def echo_turns(reply: Reply, calls: Sequence[ToolCall], plan: Plan) -> list[Message]:
    """Return the turns that answer the calls with their own arguments."""
    parts = tuple([_as_received(part, plan) for part in reply.message.parts])
    results = [Message("tool", (ToolResult(call.id, call.raw or "{}", call.name),)) for call in calls]
    return [replace(reply.message, parts=parts), *results]


def _as_received(part: Part, plan: Plan) -> Part:
    """Return a part; a call of the search has the type of its tool again."""
    tool = (plan.search and plan.search.tool) or {}
    if type(part) is not ToolCall or part.name != plan.echo or "type" not in tool:
        return part
    data = seal_data(part.seal)
    model = plan.model
    return replace(part, seal=Seal(model.protocol, model.provider, model.id, {**data, "type": tool["type"]}))


def without_searches(reply: Reply, name: str) -> Reply:
    """Return a reply without the calls of the search; what it cost stays."""
    calls = [call for call in reply.tool_calls if call.name != name]
    parts = tuple([p for p in reply.message.parts if type(p) is not ToolCall or p.name != name])
    return replace(
        reply,
        tool_calls=calls,
        message=replace(reply.message, parts=parts),
        incomplete=[call for call in reply.incomplete if call.name != name],
        finish="stop" if reply.finish == "tool_calls" and not calls else reply.finish,
    )


def join_steps(first: Reply, last: Reply) -> Reply:
    """Return the reply of two steps: the text of both in order, and the usage and the cost of both."""
    seen = set(first.notes)
    reply = replace(
        last,
        text=first.text + last.text,
        reasoning=first.reasoning + last.reasoning,
        message=replace(last.message, parts=(*first.message.parts, *last.message.parts)),
        citations=[*first.citations, *(shift_citation(citation, len(first.text)) for citation in last.citations)],
        notes=[*first.notes, *(note for note in last.notes if note not in seen)],
    )
    return with_totals(reply, [first, last])


class EchoFilter:
    """A filter of the events of one step of such a search: calls of the search are hidden, its end is held back.

    `first` is what earlier steps delivered; the indexes of parts go on from there.
    """

    def __init__(self, name: str, first: Reply | None = None) -> None:
        self._name = name
        self._first = first
        self._parts = 0 if first is None else len(first.message.parts)
        self._notes = frozenset() if first is None else frozenset(first.notes)
        self._indexes: dict[int, int | None] = {}
        self._raw_finish: str | None = None

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that may be delivered now."""
        return [visible for event in events if (visible := self._visible(event)) is not None]

    def _visible(self, event: Event) -> Event | None:
        match event:
            case ToolCallStart(index=index, name=name):
                if index not in self._indexes:
                    count = sum(number is not None for number in self._indexes.values())
                    self._indexes[index] = None if name == self._name else count
                return self._renumber(event, index)
            case ToolCallDelta(index=index) | ToolCallEnd(index=index):
                return self._renumber(event, index)
            case BlockEnd(index=index) if self._parts:
                return replace(event, index=index + self._parts)
            case NoteAdded(note=note) if note in self._notes:
                return None
            case CitationAdded(citation=citation) if self._first is not None:
                return CitationAdded(shift_citation(citation, len(self._first.text)))
            case UsageSeen():
                return None
            case Finished(raw=raw):
                self._raw_finish = raw
                return None
        return event

    def _renumber(self, event: Any, index: int) -> Event | None:
        """Return an event of a call with the call's number among the visible ones; None for a call of the search."""
        number = self._indexes.get(index)
        return None if number is None else event if number == index else replace(event, index=number)

    def ending(self, reply: Reply) -> list[Event]:
        """Return the last events of the whole reply."""
        return [UsageSeen(reply.usage), Finished(reply.finish, self._raw_finish)]


def dropped_note(calls: Sequence[ToolCall], did: str) -> Note:
    """Return the note on searches that were not run."""
    return Note("web-search", "web_search.echo", f"{len(calls)} searches", did)
