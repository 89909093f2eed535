"""What the tests of generateContent share: models, bodies, streams, and a reading."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any

import cnllm
from cnllm import Event, Model, Registry, Reply, Seal, engine

Json = dict[str, Any]
WIRE = "gemini"


@functools.cache
def registry() -> Registry:
    return Registry.load()


@functools.cache
def model(name: str = "gemini-3.8-flash") -> Model:
    return registry().resolve(f"google/{name}", protocol=WIRE)


def seal(data: Any, name: str = "gemini-3.8-flash") -> Seal:
    return Seal(WIRE, "google", name, data)


def answer(*parts: Any, finish: str | None = "STOP", **more: Any) -> Json:
    """A body, or a chunk, with these parts."""
    said: Json = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [said | ({"finishReason": finish} if finish else {})], **more}


def dumps(data: Any) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a character
        return json.dumps(data).encode()


def sse(*chunks: Any) -> bytes:
    return b"".join(b"data: " + dumps(chunk) + b"\n\n" for chunk in chunks)


def whole(body: Any, of: Model | None = None) -> Reply:
    return engine.parse_response(of or model(), 200, {}, dumps(body))


def streamed(content: bytes, size: int | None = None, of: Model | None = None) -> tuple[Reply, list[Event]]:
    """The reply of a stream that comes in pieces of this size, and its events. Raises what the parser raises."""
    parser = engine.StreamParser(of or model())
    events: list[Event] = []
    for at in range(0, len(content), size or len(content)):
        events += parser.feed(content[at : at + (size or len(content))])
    events += parser.end()
    return parser.close(), events


def failed(content: bytes, status: int = 200) -> cnllm.EndpointError:
    try:
        engine.parse_response(model(), status, {}, content)
    except cnllm.EndpointError as error:
        return error
    raise AssertionError("it was taken")


def kinds(parts: Iterable[Any]) -> list[str]:
    """What the parts are, with a star for each that is sealed."""
    return [type(p).__name__ + ("*" if p.seal is not None else "") for p in parts]
