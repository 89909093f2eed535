"""Parse a request and encode a reply through the server side of its wire."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import msgspec

from cnllm.jsonpath import get
from cnllm.protocols import PROTOCOLS, Recall, ServerCodec, server_codec, sse_frame
from cnllm.protocols.event_order import reply_events
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import form
from cnllm.simulator.chat_request import read_chat_request, usual_body, usual_messages
from cnllm.simulator.reply import SimulatedReply, finish_word
from cnllm.simulator.request import (
    Form,
    ParsedMessage,
    ParsedRequest,
    RequestCall,
    read_choice,
    read_tool,
    split_pieces,
)
from cnllm.types import (
    Finished,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Reply,
    Request,
    Seal,
    Text,
    ToolCall,
    ToolResult,
)
from cnllm.types.lenient_json import decode_arguments
from cnllm.types.media import media_kind

__all__ = [
    "encode_body",
    "encode_frames",
    "is_genuine_seal",
    "read_request",
]


# ── requests ─────────────────────────────────────────────────────────────────


def read_request(model: Model, body: dict[str, Any], path: str) -> ParsedRequest:
    """Parse a body. Never raises: `broken` names the place that does not have the shape of the wire."""
    codec = server_codec(model.protocol)
    body, misplaced = usual_body(body, model.flags)
    if codec.dialects:
        body, unread = usual_messages(body, model.flags)
        parsed = read_chat_request(body)
        return msgspec.structs.replace(parsed, broken=misplaced or unread or parsed.broken)
    if misplaced is not None:
        return ParsedRequest(body=body, turns=(), broken=misplaced)
    stamp = partial(Seal, model.protocol, model.provider, model.id)
    try:
        request = codec.read_request(body, path, stamp, Recall())
    except (TypeError, ValueError) as error:
        return ParsedRequest(body=body, turns=(), broken=str(error))
    return _parsed_request(codec, request, body, next(iter(model.flags.reasoning.fields or ()), "reasoning"))


def _parsed_request(codec: ServerCodec, request: Request, body: dict[str, Any], field: str) -> ParsedRequest:
    options = request.options
    choice, tool_name = read_choice(options.get("tool_choice"))
    schema = options.get("schema")
    json_schema = schema.get("json_schema") if isinstance(schema, Mapping) else None
    schema = json_schema["schema"] if isinstance(json_schema, Mapping) and "schema" in json_schema else schema
    tools = options.get("tools")
    json_object = codec.json_mode is not None and get(body, codec.json_mode[0]) == codec.json_mode[1]
    return ParsedRequest(
        body=body,
        turns=tuple(turn for message in request.messages for turn in _turns(message, field)),
        tools=None if tools is None else tuple(read_tool(tool) for tool in tools),
        choice=choice,
        named=tool_name,
        parallel=options.get("parallel_tool_calls") is not False,
        stream=request.stream,
        answer="json_schema" if schema is not None else "json_object" if json_object else None,
        schema=schema,
    )


def _turns(message: Message, field: str) -> list[ParsedMessage]:
    """Split a message: each result becomes a message of its own. `field` is the endpoint's field for reasoning."""
    results = [p for p in message.parts if type(p) is ToolResult]
    turns = [
        ParsedMessage(
            role="tool",
            form="text" if p.text else "empty",
            text=p.text,
            wire={} if p.name is None else {"name": p.name},
            media=tuple(media_kind(m) for m in p.media),
            seals=_seals([p]),
            result_of=p.id,
        )
        for p in results
    ]
    if message.role == "tool":
        return turns
    media = tuple(media_kind(p) for p in message.parts if type(p) is Media)
    calls = tuple(RequestCall(p.id, p.name, p.raw or p.arguments) for p in message.parts if type(p) is ToolCall)
    has_reasoning = bool(message.reasoning) or any(type(p) is Reasoning for p in message.parts)
    turn = ParsedMessage(
        role=message.role,
        form=_form(message, media),
        text=message.text,
        wire={"reasoning": message.reasoning, field: message.reasoning} if has_reasoning else {},
        media=media,
        blank=any(type(p) is Text and not p.text for p in message.parts),
        calls=calls or None,
        seals=_seals(message.parts),
        has_other_content=has_reasoning or any(type(p) is Opaque for p in message.parts),
    )
    return [*turns, turn]


def _form(message: Message, media: tuple[str, ...]) -> Form:
    if media:
        return "parts"
    if message.text:
        return "text"
    return "empty" if any(type(p) is Text for p in message.parts) else "absent"


def _seals(parts: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(p.seal.data for p in parts if getattr(p, "seal", None) is not None)


@cache
def _seal_keys() -> frozenset[str]:
    """Return the keys under which any wire writes a seal."""
    examples = (make("token", "") for name in PROTOCOLS if (make := server_codec(name).seal_example) is not None)
    return frozenset(key for example in examples for key, value in example.items() if value == "token")


def _token(model: Model) -> str:
    """Return the seal's text: this endpoint accepts only its own. It names no model."""
    return base64.b64encode(hashlib.sha256(f"simulated by {model.name}".encode()).hexdigest()[:48].encode()).decode()


# ── replies ──────────────────────────────────────────────────────────────────


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
    seals = form(flags.reasoning) in ("seal", "content-parts")
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
    calls = [ToolCall(c.id, c.name, decode_arguments(c.arguments)[0], c.arguments) for c in reply.calls]
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
