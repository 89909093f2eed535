"""Writes an answer over the wires whose other side `cnllm.protocols` speaks."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cnllm.protocols import framed, speaks
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import form
from cnllm.simulator.reply import Said
from cnllm.simulator.request import Asked
from cnllm.simulator.tokenize import pieces
from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Message,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Seal,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSeen,
)

__all__ = ["frames", "genuine", "whole"]

_MADE: dict[str, Callable[[str, str], Any]] = {
    "anthropic-messages": lambda token, text: {"signature": token},
    "gemini": lambda token, text: {"thoughtSignature": token},
    "openai-responses": lambda token, text: {
        "type": "reasoning",
        "id": f"rs_{token[:24]}",
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": token,
    },
}

_LATE = ("gemini",)
"""Wires on which the seal comes with what follows the reasoning: the first call, or the text."""


def _token(model: Model) -> str:
    """What this endpoint wants back with its reasoning; another endpoint knows it for a stranger's. It names nobody."""
    return base64.b64encode(hashlib.sha256(f"simulated by {model.name}".encode()).hexdigest()[:48].encode()).decode()


def genuine(model: Model, data: Any) -> bool:
    """Is something sealed what this endpoint gave out, or nothing that it signs?"""
    text = json.dumps(data)
    words = ("signature", "thoughtSignature", "encrypted_content")
    return not any(f'"{word}"' in text for word in words) or _token(model) in text


def whole(model: Model, flags: Flags, asked: Asked, said: Said) -> bytes:
    """The body of an answer that is not streamed."""
    return msgspec.json.encode(speaks(model.protocol).write_reply(_reply(model, flags, said), asked.body))


def frames(model: Model, flags: Flags, asked: Asked, said: Said) -> Iterator[bytes]:
    """The same answer as server-sent events."""
    stream = speaks(model.protocol).stream(f"sim-{said.id}", said.model, asked.body)
    yield from (framed(*frame) for frame in stream.begin())
    for event in _events(_reply(model, flags, said)):
        yield from (framed(*frame) for frame in stream.event(event))


def _reply(model: Model, flags: Flags, said: Said) -> Reply:
    parts: list[Part] = []
    seals = flags.reasoning is not None and form(flags.reasoning) in ("seal", "content-parts")
    seal: Seal | None = None
    if said.reasoning and seals and said.whole:
        data = _MADE[model.protocol](_token(model), said.reasoning)
        seal = Seal(model.protocol, model.provider, model.id, data)
    late = model.protocol in _LATE and bool(said.text or said.calls)
    if said.reasoning:
        parts.append(Reasoning(said.reasoning, None if late else seal))
    if said.text:
        parts.append(Text(said.text, seal if late and not said.calls else None))
    calls = [ToolCall(c.id, c.name, _decoded(c.arguments), c.arguments) for c in said.calls]
    if calls and late:
        calls[0] = msgspec.structs.replace(calls[0], seal=seal)
    return Reply(
        text=said.text,
        reasoning=said.reasoning,
        tool_calls=calls,
        finish=said.finish,
        raw_finish=_word(flags, said.finish),
        usage=said.usage,
        cost=None,
        model=said.model,
        id=f"sim-{said.id}",
        notes=[],
        message=Message("assistant", (*parts, *calls), model.name),
        incomplete=[],
    )


def _word(flags: Flags, finish: str) -> str:
    """The endpoint's own word for why an answer ended."""
    return next((theirs for theirs, ours in (flags.finish or {}).items() if ours == finish), finish)


def _decoded(arguments: str) -> dict[str, Any] | None:
    try:
        found = json.loads(arguments)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _events(reply: Reply) -> Iterator[Event]:
    """The events that a reader of this reply would have seen."""
    nth = 0
    for index, part in enumerate(reply.message.parts):
        match part:
            case Reasoning():
                yield from (ReasoningDelta(text) for text in pieces(part.text))
                yield BlockEnd(index, part)
            case Text():
                yield from (TextDelta(text) for text in pieces(part.text))
                yield BlockEnd(index, part)
            case ToolCall():
                yield ToolCallStart(nth, part.id, part.name)
                yield from (ToolCallDelta(nth, text) for text in pieces(part.raw))
                yield ToolCallEnd(nth, part)
                nth += 1
    yield UsageSeen(reply.usage)
    yield Finished(reply.finish, reply.raw_finish)
