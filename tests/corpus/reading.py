"""Ways to feed an answer to the engine, and what came of it in a form that can be compared."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from examples import SHARE

import cnllm
from cnllm import CnllmError, Reply, engine

from .corpus import Exchange


@dataclass
class Outcome:
    """What came of reading an answer; `reply` is the error's where one was raised."""

    reply: Reply | None
    error: CnllmError | None = None
    events: list[Any] = field(default_factory=list)


def read_whole(model: Any, exchange: Exchange, plan: Any = None) -> Outcome:
    """Read as an answer in one piece."""
    try:
        return Outcome(engine.parse_response(model, exchange.status, exchange.headers, exchange.content, plan=plan))
    except CnllmError as error:
        return Outcome(error.reply, error)


def read_stream(
    model: Any, exchange: Exchange, pieces: Iterable[bytes], plan: Any = None, *, full: bool = False
) -> Outcome:
    """Read as a stream in these pieces. With `full` no chunk is decoded quickly."""
    parser = engine.StreamParser(model, plan=plan, status=exchange.status, headers=exchange.headers, keep_raw=full)
    events: list[Any] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.end()
    try:
        return Outcome(parser.close(), None, events)
    except CnllmError as error:
        return Outcome(error.reply, error, events)


def read(model: Any, exchange: Exchange, plan: Any = None) -> Outcome:
    """Read as it was recorded, in one piece."""
    if exchange.stream:
        return read_stream(model, exchange, [exchange.content], plan)
    return read_whole(model, exchange, plan)


def random_pieces(content: bytes, seed: str) -> Iterator[bytes]:
    """The content cut at random bytes; the same seed cuts at the same ones."""
    dice = random.Random(seed)
    most = dice.choice((3, 20, 200, 2000))
    at = 0
    while at < len(content):
        size = dice.randint(1, most)
        yield content[at : at + size]
        at += size


def single_bytes(content: bytes, edge: int) -> Iterator[bytes]:
    """The content one byte at a time; past `edge` bytes from either end, in pieces of one to seven, or longer."""
    at, size = 0, 0
    while at < len(content):
        size = size % (7 * SHARE) + 1 if edge < at < len(content) - edge else 1
        yield content[at : at + size]
        at += size


def delivered(events: Iterable[Any]) -> tuple[str, str]:
    """The text and the reasoning that a listener has at the end."""
    text: list[str] = []
    reasoning: list[str] = []
    for event in events:
        match event:
            case cnllm.TextDelta():
                text.append(event.text)
            case cnllm.ReasoningDelta():
                reasoning.append(event.text)
            case cnllm.Restarted():
                text, reasoning = [], []
    return "".join(text), "".join(reasoning)


def fold(events: Iterable[Any]) -> dict[str, Any]:
    """What a listener knows at the end, in the words of `reply_dict`."""
    events = list(events)
    text, reasoning = delivered(events)
    usage = [usage_dict(event.usage) for event in events if isinstance(event, cnllm.UsageSeen)]
    ends = [(event.finish, event.raw) for event in events if isinstance(event, cnllm.Finished)]
    calls = {event.index: call_dict(event.call) for event in events if isinstance(event, cnllm.ToolCallEnd)}
    return {
        "text": text,
        "reasoning": reasoning,
        "calls": [calls[index] for index in sorted(calls)],
        "usage": usage[-1] if usage else usage_dict(None),
        "ends": ends,
    }


def call_dict(call: Any) -> dict[str, Any]:
    """A call's public face."""
    return {name: getattr(call, name) for name in ("id", "name", "arguments", "raw", "via", "problem")}


def usage_dict(usage: Any) -> dict[str, int | None]:
    """A usage's public face; no usage is usage of which nothing is known."""
    names = ("input", "output", "total", "reasoning", "cached", "cache_write")
    return {name: getattr(usage, name, None) for name in names}


def reply_dict(reply: Reply) -> dict[str, Any]:
    """A reply's public face, without `raw`."""
    cost = reply.cost
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "tool_calls": [call_dict(call) for call in reply.tool_calls],
        "incomplete": [call_dict(call) for call in reply.incomplete],
        "finish": reply.finish,
        "raw_finish": reply.raw_finish,
        "usage": usage_dict(reply.usage),
        "cost": (cost.amount, cost.currency) if cost else None,
        "model": reply.model,
        "id": reply.id,
        "notes": [(note.code, note.flag, note.said, note.did, note.where) for note in reply.notes],
        "message": reply.message.to_dict(),
    }
