"""What the tests of text calls share: a model's words as a stream, and what a user sees of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from note_rules import check_notes

import cnllm
from cnllm import Registry, Reply, engine
from cnllm.types import Event, ReasoningDelta, Restarted, TextDelta, ToolCallEnd, ToolCallStart

__all__ = ["REGISTRY", "answers", "called", "plan", "read", "seen_however_cut", "told", "tool", "wire"]

REGISTRY = Registry.load()


def tool(name: str, /, **properties: str | dict[str, Any]) -> dict[str, Any]:
    """A function with parameters: `city="string"`, or a JSON Schema each."""
    schema = {k: {"type": v} if isinstance(v, str) else v for k, v in properties.items()}
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": schema}}}


def plan(model: str | cnllm.Model, messages: Any = "Hi", **options: Any) -> cnllm.Plan:
    """The request for a conversation."""
    found = REGISTRY.resolve(model) if isinstance(model, str) else model
    return engine.build_request(found, messages, **options)


def wire(pieces: Iterable[str], field: str = "content", finish: str = "stop") -> list[bytes]:
    """Deltas of a chat stream, one an item, then the finish."""

    def event(delta: dict[str, Any], reason: str | None) -> bytes:
        chunk = {"id": "1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    return [*(event({field: piece}, None) for piece in pieces), event({}, finish), b"data: [DONE]\n\n"]


def answers(
    model: str, chunks: Iterable[bytes], tools: Sequence[Any] | None = None, **options: Any
) -> tuple[list[Event], Reply]:
    """The events and the reply of a stream."""
    found = REGISTRY.resolve(model)
    plan = engine.build_request(found, "Hi", stream=True, tools=tools, **options)
    parser = engine.StreamParser(found, plan=plan)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    events += parser.end()
    reply = parser.close()
    check_notes(reply.notes)
    return events, reply


def read(model: str, text: str, tools: Sequence[Any] | None = None) -> cnllm.Sanitized:
    """What a text comes to."""
    return cnllm.sanitize(REGISTRY.resolve(model), text, tools)


def called(found: Any) -> list[tuple[str, dict[str, Any] | None]]:
    """The calls of a reply: name and arguments."""
    return [(call.name, call.arguments) for call in found.tool_calls]


def told(events: Iterable[Event]) -> tuple[str, str, list[tuple[str, dict[str, Any] | None]]]:
    """What the events say since they last began anew: text, reasoning, calls."""
    said = list(events)
    anew = [at for at, event in enumerate(said) if isinstance(event, Restarted)]
    events = said[anew[-1] :] if anew else said
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    thought = "".join(e.text for e in events if isinstance(e, ReasoningDelta))
    begun = {e.index: e.name for e in events if isinstance(e, ToolCallStart)}
    calls = [(begun[e.index], e.call.arguments) for e in events if isinstance(e, ToolCallEnd)]
    return text, thought, calls


def seen_however_cut(model: str, text: str, tools: Sequence[Any] | None = None) -> tuple[list[Any], str, list[str]]:
    """The calls and the text of an answer and what its notes say of them: the same whole, in characters and in two."""
    seen = []
    for pieces in ([text], list(text), *([text[:at], text[at:]] for at in range(1, len(text), 1 + len(text) // 40))):
        events, reply = answers(model, wire(pieces), tools)
        assert told(events) == (reply.text, reply.reasoning, called(reply))
        notes = [note.did for note in reply.notes if note.code.startswith("text-call")]
        seen.append((called(reply), reply.text, notes))
    assert all(outcome == seen[0] for outcome in seen)
    return seen[0]
