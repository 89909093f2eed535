"""A conversation for people."""

from __future__ import annotations

import datetime
import json
import sys
from typing import TYPE_CHECKING

from cnllm.cli.output import answer, terminal
from cnllm.types import Message, Reasoning, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cnllm.store.records import RecordedConversation, RecordedTurn
    from cnllm.types import Part

__all__ = ["escape_for_stdout", "local_time", "print_transcript"]

_ENDED = {
    "partial": "the answer is not whole",
    "failed": "no answer came",
    "interrupted": "interrupted",
    "running": "being answered",
}


def local_time(when: str) -> str:
    """A kept time as the clock on the wall showed it."""
    return datetime.datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M")


def escape_for_stdout(text: str) -> str:
    """The text as a terminal may have it, if stdout is one."""
    return terminal.escape(text) if sys.stdout.isatty() else text


def print_transcript(found: RecordedConversation, *, reasoning: bool, raw: bool) -> None:
    """Each turn: what was asked, what came, and a line on how it ended."""
    blocks = [block for turn in found.turns for block in _turn(turn, reasoning)]
    text = "\n\n".join([f"conversation {found.id}", *blocks])
    answer.print_line(text, raw=raw)


def _turn(turn: RecordedTurn, reasoning: bool) -> Iterator[str]:
    for data in turn.messages:
        message = Message.from_dict(data)
        who = turn.model if message.role == "assistant" else message.role
        shown = [line for part in message.parts if (line := _part(part, reasoning))]
        if message.role == "assistant" and not (message.text or message.tool_calls):
            seen = "" if reasoning else "; --reasoning shows it"
            shown.append(f"(only thinking came, no answer{seen})")
        yield "\n".join([f"── {who}", *shown])
    for call in turn.incomplete:
        yield f"(tool call, cut off: {call.name} {call.raw})"
    yield f"({' · '.join(_facts(turn))})"


def _part(part: Part, reasoning: bool) -> str:
    match part:
        case Text():
            return part.text
        case Reasoning():
            return f"<thinking>\n{part.text}\n</thinking>" if reasoning and part.text else ""
        case ToolCall():
            return f"(tool call: {part.name} {part.raw or json.dumps(part.arguments, ensure_ascii=False)})"
        case ToolResult():
            return part.text
    return f"({type(part).__name__.lower()})"


def _facts(turn: RecordedTurn) -> Iterator[str]:
    """How a turn went, as far as it is known."""
    yield local_time(turn.began)
    if turn.origin != "endpoint":
        yield turn.origin
    if turn.state in _ENDED:
        why = f": {turn.error.message}" if turn.error and turn.error.message and turn.state != "interrupted" else ""
        yield f"{_ENDED[turn.state]}{why}"
    if turn.finish is not None:
        yield f"finish {turn.finish}"
    used = turn.usage
    if used is not None:
        counts = ((used.input, "in"), (used.output, "out"))
        yield from (f"{count} {word}" for count, word in counts if count is not None)
    if turn.cost is not None:
        yield f"{turn.cost.amount.normalize():f} {turn.cost.currency}"
    if turn.seconds is not None:
        yield f"{turn.seconds:.1f} s"
