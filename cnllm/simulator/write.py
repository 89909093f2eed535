"""Encode a reply through the server side of its wire."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from cnllm.protocols import PROTOCOLS, server_codec, sse_frame
from cnllm.protocols.event_order import reply_events
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import form
from cnllm.simulator.reply import SimulatedReply, finish_word
from cnllm.simulator.request import ParsedRequest
from cnllm.simulator.tokenize import split_pieces
from cnllm.types import Finished, Message, Part, Reasoning, Reply, Seal, Text, ToolCall

__all__ = ["encode_body", "encode_frames", "is_genuine_seal"]


@cache
def _seal_keys() -> frozenset[str]:
    """Return the keys under which any wire writes a seal."""
    examples = (make("token", "") for name in PROTOCOLS if (make := server_codec(name).seal_example) is not None)
    return frozenset(key for example in examples for key, value in example.items() if value == "token")


def _token(model: Model) -> str:
    """Return the seal's text: this endpoint accepts only its own. It names no model."""
    return base64.b64encode(hashlib.sha256(f"simulated by {model.name}".encode()).hexdigest()[:48].encode()).decode()


def is_genuine_seal(model: Model, data: Any) -> bool:
    """Whether sealed data comes from this endpoint, or is of a kind that carries no seal."""
    text = json.dumps(data)
    return not any(f'"{key}"' in text for key in _seal_keys()) or _token(model) in text


def encode_body(model: Model, flags: Flags, request: ParsedRequest, reply: SimulatedReply) -> bytes:
    """Return the body of a reply that is not streamed."""
    return msgspec.json.encode(server_codec(model.protocol).write_reply(_reply(model, flags, reply), request.body))


def encode_frames(model: Model, flags: Flags, request: ParsedRequest, reply: SimulatedReply) -> Iterator[bytes]:
    """Yield the same reply as server-sent events."""
    stream = server_codec(model.protocol).stream(f"sim-{reply.id}", reply.model, request.body)
    yield from (sse_frame(*frame) for frame in stream.begin())
    whole = _reply(model, flags, reply)
    for event in (*reply_events(whole, split_pieces), Finished(whole.finish, whole.raw_finish)):
        yield from (sse_frame(*frame) for frame in stream.event(event))


def _reply(model: Model, flags: Flags, reply: SimulatedReply) -> Reply:
    parts: list[Part] = []
    seals = flags.reasoning is not None and form(flags.reasoning) in ("seal", "content-parts")
    seal: Seal | None = None
    codec = server_codec(model.protocol)
    if reply.reasoning and seals and reply.reasoning_complete and codec.seal_example is not None:
        data = codec.seal_example(_token(model), reply.reasoning)
        seal = Seal(model.protocol, model.provider, model.id, data)
    late = codec.late_seals and bool(reply.text or reply.calls)
    if reply.reasoning:
        parts.append(Reasoning(reply.reasoning, None if late else seal))
    if reply.text:
        parts.append(Text(reply.text, seal if late and not reply.calls else None))
    calls = [ToolCall(c.id, c.name, _parse_arguments(c.arguments), c.arguments) for c in reply.calls]
    if calls and late:
        calls[0] = msgspec.structs.replace(calls[0], seal=seal)
    return Reply(
        text=reply.text,
        reasoning=reply.reasoning,
        tool_calls=calls,
        finish=reply.finish,
        raw_finish=finish_word(flags, reply.finish),
        usage=reply.usage,
        cost=None,
        model=reply.model,
        id=f"sim-{reply.id}",
        notes=[],
        message=Message("assistant", (*parts, *calls), model.name),
        incomplete=[],
        registry=model.data_version,
    )


def _parse_arguments(arguments: str) -> dict[str, Any] | None:
    try:
        value = json.loads(arguments)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
