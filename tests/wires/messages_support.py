"""What the tests of a wire share."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any

from cnllm import Model, Registry, Reply, engine

MESSAGES = "anthropic-messages"


@functools.cache
def registry() -> Registry:
    return Registry.load()


@functools.cache
def model(name: str = "anthropic/claude-haiku-4-5", protocol: str = MESSAGES, base_url: str | None = None) -> Model:
    return registry().resolve(name, protocol=protocol, base_url=base_url)


def stream(*events: dict[str, Any]) -> bytes:
    """Events as they come over a connection."""
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def blocks_streamed(*blocks: tuple[dict[str, Any], list[dict[str, Any]]], reason: str = "end_turn") -> bytes:
    """A whole stream of blocks, each with its deltas."""
    head = {"id": "msg_1", "model": "m", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events += [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return stream(*events)


def read(pieces: bytes | Iterable[bytes], of: Model | None = None) -> tuple[list[Any], Reply]:
    """The events and the reply of a stream."""
    parser = engine.StreamParser(of or model())
    events: list[Any] = []
    for piece in [pieces] if isinstance(pieces, bytes) else pieces:
        events += parser.feed(piece)
    events += parser.end()
    return events, parser.close()


def body(*content: dict[str, Any], reason: str | None = "end_turn", **more: Any) -> bytes:
    """A whole answer."""
    said: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    said["content"] = list(content)
    said |= {"stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 9}}
    return json.dumps(said | more).encode()


def whole(content: bytes, of: Model | None = None) -> Reply:
    """The reply that a whole answer is."""
    return engine.parse_response(of or model(), 200, {}, content)
