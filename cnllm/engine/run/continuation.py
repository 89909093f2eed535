"""Decide how a tool loop continues after a step: history, repeated steps, endless cycles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.types import (
    Citation,
    Part,
    Reply,
    Text,
    ToolCall,
    ToolResult,
)

__all__ = [
    "failed_result_text",
    "has_lost_calls",
    "is_repeating",
    "join_replies",
    "shift_citation",
    "unique_call_ids",
]

# ── history ──────────────────────────────────────────────────────────────────


def failed_result_text(call: ToolCall, reason: str) -> ToolResult:
    """Return the result of a call that failed, as the model reads it."""
    return ToolResult(call.id, reason, call.name, error=True)


def unique_call_ids(reply: Reply, used: set[str]) -> Reply:
    """Return the reply with ids that no earlier call has.

    Endpoints without ids of their own lead to the same few ids in every reply.
    """
    new_calls: dict[int, ToolCall] = {}
    numbers: dict[str, int] = {}  # the last number that was tried for an id
    for call in reply.tool_calls:
        id, number = call.id, numbers.get(call.id, 1)
        while id in used:
            number += 1
            id = f"{call.id}_{number}"
        numbers[call.id] = number
        used.add(id)
        if id != call.id:
            new_calls[id_of(call)] = replace(call, id=id)
    if not new_calls:
        return reply
    parts: list[Part] = [new_calls.get(id_of(p), p) if type(p) is ToolCall else p for p in reply.message.parts]
    calls = [new_calls.get(id_of(call), call) for call in reply.tool_calls]
    return replace(reply, tool_calls=calls, message=replace(reply.message, parts=tuple(parts)))


id_of = id
"""Python's `id`, where the name `id` is that of a call's id."""


# ── a step ───────────────────────────────────────────────────────────────────


def has_lost_calls(reply: Reply) -> bool:
    """Whether the endpoint reports calls but sent none that can be executed."""
    if reply.tool_calls:
        return False
    if reply.finish == "tool_calls":
        return True
    return any(note.code == "finish-follows" and note.did == "stop" for note in reply.notes)


def join_replies(reasoning: str, text: str, reply: Reply) -> Reply:
    """Join a reply with the text and the reasoning that it continues."""
    whole = text + reply.text.removeprefix(text)  # some models begin again from the start
    parts: list[Part] = [p for p in reply.message.parts if type(p) is not Text]
    index = next((i for i, p in enumerate(parts) if type(p) is ToolCall), len(parts))
    if whole:
        parts.insert(index, Text(whole))
    message = replace(reply.message, parts=tuple(parts))
    citations = [shift_citation(citation, len(whole) - len(reply.text)) for citation in reply.citations]
    return replace(reply, text=whole, reasoning=reasoning + reply.reasoning, message=message, citations=citations)


def shift_citation(citation: Citation, offset: int) -> Citation:
    """Return a citation for a text that stands behind other text."""
    if not offset or citation.start is None or citation.end is None:
        return citation
    return replace(citation, start=citation.start + offset, end=citation.end + offset)


# ── cycles ───────────────────────────────────────────────────────────────────


def is_repeating(
    steps: Sequence[tuple[Sequence[ToolCall], Sequence[ToolResult] | None]], times: int, cycle: int
) -> bool:
    """Whether the last steps had the same calls with the same results, so many times.

    Cycles of up to `cycle` steps count too. Steps without results are compared by their calls alone.
    """
    keys = [_step_key(calls, results) for calls, results in steps[-cycle * times :]]
    for length in range(1, cycle + 1):
        last = keys[-length * times :]
        if len(last) == length * times and all(last[i] == last[i % length] for i in range(len(last))):
            return True
    return False


def _step_key(calls: Sequence[ToolCall], results: Sequence[ToolResult] | None) -> list[str]:
    """Return a key of calls and results that ignores their order and ids. ASCII, as it may hold half characters."""
    outcomes: list[list[Any]] = [[]] * len(calls)
    if results is not None:
        outcomes = [[r.text, r.error, *map(repr, r.media)] for r in results]
    return sorted(
        json.dumps([c.name, c.raw if c.arguments is None else c.arguments, *outcome], sort_keys=True)
        for c, outcome in zip(calls, outcomes, strict=True)
    )
