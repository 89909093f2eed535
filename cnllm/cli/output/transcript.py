"""Print a stored conversation for people."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING

from cnllm.cli.language.messages import localize, localize_word
from cnllm.cli.output import stdout
from cnllm.cli.output.usage import cost_text
from cnllm.types import Message, Reasoning, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cnllm.store.records import RecordedConversation, RecordedTurn
    from cnllm.types import Part

__all__ = ["local_time", "print_transcript", "short_time"]

_STATE_TEXTS = {
    "partial": "the answer is incomplete",
    "failed": "no answer",
    "interrupted": "interrupted",
    "running": "being answered",
}


def local_time(timestamp: str) -> str:
    """Format a stored time as local time."""
    return datetime.datetime.fromisoformat(timestamp).astimezone().strftime("%Y-%m-%d %H:%M")


def short_time(timestamp: str) -> str:
    """Format a stored time as local time: a time of this year without the year, an earlier one without the hour."""
    local = datetime.datetime.fromisoformat(timestamp).astimezone()
    is_recent = local.year == datetime.datetime.now().astimezone().year
    return local.strftime("%m-%d %H:%M" if is_recent else "%Y-%m-%d")


def print_transcript(conversation: RecordedConversation, *, reasoning: bool, raw: bool) -> None:
    """Print each turn: the question, the answer, and a line on its end."""
    blocks = [block for turn in conversation.turns for block in _turn(turn, reasoning=reasoning)]
    text = "\n\n".join([localize(f"conversation {conversation.id}"), *blocks])
    stdout.print_line(text, raw=raw)


def _turn(turn: RecordedTurn, *, reasoning: bool) -> Iterator[str]:
    if turn.client is not None:
        yield localize("(words not stored)")
    for data in turn.messages:
        message = Message.from_dict(data)
        author = turn.model if message.role == "assistant" else message.role
        lines = [line for part in message.parts if (line := _part(part, reasoning=reasoning))]
        if message.role == "assistant" and not (message.text or message.tool_calls):
            hint = "" if reasoning else "; --reasoning shows it"
            lines.append(localize(f"(the model sent only reasoning, no answer{hint})"))
        yield "\n".join([f"── {author}", *lines])
    for call in turn.incomplete:
        yield f"({localize(f'tool call, cut off: {call.name} {call.raw}')})"
    yield f"({' · '.join(map(localize, _facts(turn)))})"


def _part(part: Part, *, reasoning: bool) -> str:
    match part:
        case Text():
            return part.text
        case Reasoning():
            return f"<thinking>\n{part.text}\n</thinking>" if reasoning and part.text else ""
        case ToolCall():
            raw = part.raw or json.dumps(part.arguments, ensure_ascii=False)
            return f"({localize(f'tool call: {part.name} {raw}')})"
        case ToolResult():
            return part.text
    return f"({type(part).__name__.lower()})"


def _facts(turn: RecordedTurn) -> Iterator[str]:
    """Yield the known facts about a turn: time, origin, state, finish, usage, cost, seconds, registry."""
    yield local_time(turn.began)
    if turn.origin != "endpoint":
        yield localize_word(turn.origin)
    if turn.state in _STATE_TEXTS:
        reason = f": {turn.error.message}" if turn.error and turn.error.message and turn.state != "interrupted" else ""
        yield f"{_STATE_TEXTS[turn.state]}{reason}"
    if turn.finish is not None:
        yield f"{localize_word('finish')} {turn.finish}"
    usage = turn.usage
    if usage is not None:
        counts = ((usage.input, "in"), (usage.output, "out"))
        yield from (f"{count} {label}" for count, label in counts if count is not None)
    if turn.cost is not None:
        yield cost_text(turn.cost)
    if turn.seconds is not None:
        yield f"{turn.seconds:.1f} s"
    if turn.registry is not None:
        yield f"registry {turn.registry}"
