"""What a tool loop checks after every step: the chain of calls and results, and whether it goes round in circles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.errors import CnllmError, EmptyReply, ReplyTooLarge, StreamCut, Timeout, TransportError
from cnllm.types import (
    Cost,
    Event,
    Message,
    Part,
    ReasoningDelta,
    Reply,
    Restarted,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)

__all__ = [
    "failed_result_text",
    "has_lost_calls",
    "is_repeating",
    "join_replies",
    "needs_continuation",
    "remaining_events",
    "result_turn",
    "retry_reason",
    "total_cost",
    "total_usage",
    "unique_call_ids",
]

# ── history ──────────────────────────────────────────────────────────────────


def result_turn(result: ToolResult) -> Message:
    """A result as a turn of its own."""
    return Message("tool", (result,))


def failed_result_text(call: ToolCall, why: str) -> ToolResult:
    """What the model is told of a call that gave nothing."""
    return ToolResult(call.id, why, call.name, error=True)


def unique_call_ids(reply: Reply, used: set[str]) -> Reply:
    """The reply with ids that no earlier call has: endpoints that send none get the same few in every reply."""
    new: dict[int, ToolCall] = {}
    numbers: dict[str, int] = {}  # up to which an id was tried
    for call in reply.tool_calls:
        id, number = call.id, numbers.get(call.id, 1)
        while id in used:
            number += 1
            id = f"{call.id}_{number}"
        numbers[call.id] = number
        used.add(id)
        if id != call.id:
            new[id_of(call)] = replace(call, id=id)
    if not new:
        return reply
    parts: list[Part] = [new.get(id_of(p), p) if type(p) is ToolCall else p for p in reply.message.parts]
    calls = [new.get(id_of(call), call) for call in reply.tool_calls]
    return replace(reply, tool_calls=calls, message=replace(reply.message, parts=tuple(parts)))


id_of = id
"""The object's own, where `id` names a call's."""


# ── a step ───────────────────────────────────────────────────────────────────


def has_lost_calls(reply: Reply) -> bool:
    """Does the endpoint say that calls came, and none can be executed?"""
    if reply.tool_calls:
        return False
    if reply.finish == "tool_calls":
        return True
    return any(note.code == "finish-follows" and note.did == "stop" for note in reply.notes)


def _broken(error: BaseException) -> bool:
    """Whether the body of a whole reply broke off.

    Any other failure of the network stands: either the call has been tried again already, for nothing had come, or
    nobody knows whether the request was served and paid for.
    """
    return isinstance(error, TransportError) and error.began and not isinstance(error, Timeout)


def retry_reason(got: Reply | CnllmError, tries: int) -> str | None:
    """Why a step is to be taken again; a cut stream has been asked for again before it gets here."""
    if isinstance(got, Reply):
        if not has_lost_calls(got) or (tries and got.text.strip()):  # said twice, it is the endpoint's habit
            return None
        return "calls were announced and none came"
    if isinstance(got, EmptyReply):
        return "the reply was empty"
    return "the reply broke off" if _broken(got) else None


def needs_continuation(got: Reply | CnllmError) -> bool:
    """Is asking the model to go on all that is left?"""
    if isinstance(got, Reply):
        return has_lost_calls(got) and not got.text.strip()
    if isinstance(got, ReplyTooLarge):
        return False
    return isinstance(got, EmptyReply) or (
        isinstance(got, StreamCut) and got.reply is not None and bool(got.reply.text)
    )


def remaining_events(thought: str, text: str, begun: bool, reply: Reply) -> list[Event]:
    """What a reply has that was not delivered yet; a `Restarted` and everything where it does not go on from that.

    `begun`: a call was begun, which cannot be gone on with.
    """
    same = reply.reasoning == thought if text else reply.reasoning.startswith(thought)
    events: list[Event] = []
    if begun or not same or not reply.text.startswith(text):
        events.append(Restarted())
        thought = text = ""
    if more := reply.reasoning[len(thought) :]:
        events.append(ReasoningDelta(more))
    if more := reply.text[len(text) :]:
        events.append(TextDelta(more))
    return events


def join_replies(thought: str, text: str, reply: Reply) -> Reply:
    """A reply that goes on from a text, and from the thinking before it, as one."""
    whole = text + reply.text.removeprefix(text)  # some begin again from the start
    parts: list[Part] = [p for p in reply.message.parts if type(p) is not Text]
    before = next((i for i, p in enumerate(parts) if type(p) is ToolCall), len(parts))
    if whole:
        parts.insert(before, Text(whole))
    message = replace(reply.message, parts=tuple(parts))
    return replace(reply, text=whole, reasoning=thought + reply.reasoning, message=message)


# ── circles ──────────────────────────────────────────────────────────────────


def is_repeating(
    steps: Sequence[tuple[Sequence[ToolCall], Sequence[ToolResult] | None]], times: int, cycle: int
) -> bool:
    """Whether the last steps were the same calls with the same results, so many times.

    Circles of up to `cycle` steps count too. Of steps without results the calls alone are compared.
    """
    marks = [_mark(calls, results) for calls, results in steps[-cycle * times :]]
    for length in range(1, cycle + 1):
        last = marks[-length * times :]
        if len(last) == length * times and all(last[i] == last[i % length] for i in range(len(last))):
            return True
    return False


def _mark(calls: Sequence[ToolCall], results: Sequence[ToolResult] | None) -> list[str]:
    """Calls and what they gave, whatever their order and ids. In ASCII: there may be halves of characters in them."""
    gave: list[list[Any]] = [[]] * len(calls)
    if results is not None:
        gave = [[r.text, r.error, *map(repr, r.media)] for r in results]
    return sorted(
        json.dumps([c.name, c.raw if c.arguments is None else c.arguments, *more], sort_keys=True)
        for c, more in zip(calls, gave, strict=True)
    )


# ── sums ─────────────────────────────────────────────────────────────────────


def total_usage(replies: Sequence[Reply]) -> Usage:
    """The sum of what replies counted; a count that one of them does not tell is unknown."""

    def sums() -> Iterator[tuple[str, int | None]]:
        for name in Usage.__struct_fields__:
            counts: list[Any] = [getattr(reply.usage, name) for reply in replies]
            yield name, sum(counts) if counts and None not in counts else None

    return Usage(**dict(sums()))


def total_cost(replies: Sequence[Reply]) -> Cost | None:
    """The sum of what replies cost; None where one is unknown, or they are in several currencies."""
    costs = [reply.cost for reply in replies if reply.cost is not None]
    if not costs or len(costs) < len(replies) or len({cost.currency for cost in costs}) > 1:
        return None
    return Cost(sum((cost.amount for cost in costs[1:]), costs[0].amount), costs[0].currency)
