"""What these tests share: a registry of made-up endpoints, requests, and readers of what comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cnllm.registry.model import Model
from cnllm.registry.read import read
from cnllm.registry.registry import Registry
from cnllm.simulator import SimTransport

REGISTRY = Registry([read(Path(__file__).with_name("endpoints.toml"), builtin=True)])
KEY = {"Authorization": "Bearer k"}
Json = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """As much of a plan as a transport looks at."""

    model: Model
    content: bytes
    headers: Mapping[str, str]
    url: str = "https://example.com/chat/completions"


def send(model: str | Model, body: Json, headers: dict[str, str] = KEY) -> tuple[int, bytes]:
    """What the simulator answers to a body; `model` is filled in."""
    chosen = REGISTRY.resolve(model) if isinstance(model, str) else model
    plan = Plan(model=chosen, content=json.dumps({"model": chosen.id, **body}).encode(), headers=headers)
    status, _, pieces = SimTransport(REGISTRY).send(plan)
    return status, b"".join(pieces)


def taken(model: str | Model, body: Json) -> Json:
    """The decoded body of an answer that is not refused."""
    status, content = send(model, body)
    assert status == 200, content
    decoded: Json = json.loads(content)
    return decoded


def choice(model: str | Model, body: Json) -> Json:
    """The only choice of an answer."""
    found: Json = taken(model, body)["choices"][0]
    return found


def refused(model: str, body: Json, headers: dict[str, str] = KEY) -> tuple[int, str]:
    """Status and text of a refusal."""
    status, content = send(model, body, headers)
    assert status >= 400, content
    return status, content.decode()


def events(model: str | Model, body: Json) -> list[Json]:
    """The decoded frames of a stream, which ends as a stream does."""
    status, content = send(model, {**body, "stream": True})
    assert status == 200, content
    return frames(content)


def frames(content: bytes) -> list[Json]:
    """The decoded `data:` frames of a stream that ends with [DONE]."""
    blocks = content.decode().split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    assert blocks[0] == ": keep-alive"
    assert all(b.startswith("data: ") for b in blocks[1:-1])
    return [json.loads(b.removeprefix("data: ")) for b in blocks[1:-2]]


def user(text: str = "Why is the sky blue?") -> Json:
    return {"role": "user", "content": text}


def ask(text: str = "Why is the sky blue?", **more: Any) -> Json:
    """A body with one user message."""
    return {"messages": [user(text)], **more}


def tool(name: str = "search", parameters: Any = None) -> Json:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters or schema}}


def called(call_id: str = "abcdefgh1", arguments: Any = '{"q":"a"}', **more: Any) -> Json:
    function = {"name": "search", "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call], **more}


def result(call_id: str = "abcdefgh1", text: str = "found it") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def told(*messages: Json, **more: Any) -> Json:
    """A body with these messages."""
    return {"messages": list(messages), **more}
