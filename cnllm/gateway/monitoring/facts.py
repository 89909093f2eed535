"""Count tool calls, results and faults in one request and its reply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from cnllm.gateway.monitoring.entry import Entry
from cnllm.types import Message, Note, Reply, ToolCall, ToolResult

__all__ = ["RECOVERIES", "Round", "end_entry", "last_round", "set_reply"]

RECOVERIES = frozenset(["again-whole", "reply-continued"])
"""The codes of notes on a reply that was cut and became whole."""


class Round(Struct, frozen=True):
    """The results at the end of a conversation, and the calls that they answer.

    A client sends the whole conversation each time, so that only its last round is new: each call and each result
    counts once. `unanswered` calls have no result, `orphans` are results without a call.
    """

    results: int = 0
    errors: int = 0
    unanswered: int = 0
    orphans: int = 0


def last_round(messages: Sequence[Message]) -> Round:
    """Return the round of calls and results at the end of a conversation."""
    results: list[ToolResult] = []
    calls: set[str] = set()
    for message in reversed(messages):
        if message.role == "assistant":
            calls = {part.id for part in message.parts if type(part) is ToolCall and not part.excluded}
            break
        results += [part for part in message.parts if type(part) is ToolResult]
    if not calls and not results:
        return Round()
    answered = {result.id for result in results}
    return Round(
        len(results),
        sum(result.error for result in results),
        len(calls - answered),
        len(answered - calls),
    )


def set_reply(entry: Entry, reply: Reply, notes: Iterable[Note]) -> None:
    """Enter what a reply says; an error of a stream has one, too."""
    entry.finish = reply.finish
    entry.usage = reply.usage
    entry.cost = reply.cost
    entry.registry = reply.registry
    entry.reply_id, entry.reply_model = reply.id, reply.model
    calls = [*reply.tool_calls, *reply.incomplete]
    entry.tool_calls = len(calls)
    entry.tool_errors = (entry.tool_errors or 0) + sum([call.problem is not None for call in reply.tool_calls])
    entry.recovered = not RECOVERIES.isdisjoint([note.code for note in notes]) or None
    entry.cut = entry.recovered or reply.finish == "cut" or None
    if reply.incomplete and not entry.broken:
        entry.broken = "call-incomplete"


def end_entry(entry: Entry, round: Round) -> None:
    """Enter what only the end of a request shows: its speed, and whether a chain of tool calls broke."""
    if entry.usage is not None and entry.usage.output and entry.finish not in ("cut", "error"):
        seconds = entry.seconds - (entry.first or 0.0)
        if seconds > 0:
            entry.tokens_per_second = round_to(entry.usage.output / seconds)
    if entry.broken:
        return
    if round.orphans:
        entry.broken = "result-without-call"
    elif round.unanswered:
        entry.broken = "call-without-result"
    elif round.results and (entry.error or entry.finish in ("cut", "error")):
        entry.broken = "no-reply-to-results"


def round_to(value: float) -> float:
    """Return a value with three digits after the point."""
    return float(f"{value:.3f}")
