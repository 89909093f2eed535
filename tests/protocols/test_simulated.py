"""Requests of every client are accepted by simulated endpoints of real models, and their replies by the client."""

from __future__ import annotations

import pytest

import cnllm
from cnllm import CannotSend, Client, Registry, engine
from cnllm.protocols import PROTOCOLS

from .clients import CHAT, PATHS, endpoint, picture_body, schema_body, tool_body
from .test_pairs import ASKED, read, whole

REGISTRY = Registry.load()
NAMES = ("glm-4.7", "deepseek/deepseek-flash", "kimi-k2.5", "minimax/MiniMax-M2.5", "qwen3-max")
"""Models of several makers; one that the registry does not know is passed over."""


def models() -> list[cnllm.Model]:
    """The models that the registry knows, over each of their protocols."""
    out = []
    for name in NAMES:
        try:
            out.append(REGISTRY.resolve(name))
        except cnllm.UnknownModel:
            continue
    return out


def test_simulated_models_accept_what_clients_send() -> None:
    seen = 0
    with Client(registry=REGISTRY, simulate=True) as client:
        for model in models():
            for protocol in PROTOCOLS:
                for body in (tool_body(protocol), picture_body(protocol), schema_body(protocol)):
                    request = engine.decode_request(protocol, body, path=PATHS.get(protocol, ""))
                    asked = {**body, **ASKED} if protocol == CHAT else body
                    options = {**request.options, "max_tokens": 4000}
                    reply = client.call(model, request.messages, **options)
                    told = whole(protocol, engine.encode_reply(protocol, reply, request=asked))
                    assert (told.text, told.reasoning) == (reply.text, reply.reasoning)
                    writer = engine.StreamWriter(protocol, model=model.id, request=asked)
                    with client.stream(model, request.messages, **options) as events:
                        content = writer.begin() + b"".join(writer.feed(event) for event in events)
                    _, got = read(protocol, content)
                    meant = events.reply
                    assert (got.text, got.reasoning, got.finish) == (meant.text, meant.reasoning, meant.finish)
                    assert [c.arguments for c in got.tool_calls] == [c.arguments for c in meant.tool_calls]
                    seen += 1
    assert seen >= 24


def test_whoever_wants_no_change_gets_an_error() -> None:
    for client in PROTOCOLS:
        request = engine.decode_request(client, tool_body(client), path=PATHS.get(client, ""))
        for target in PROTOCOLS:
            if target != client:
                with pytest.raises(CannotSend, match="only endpoints of"):
                    engine.build_request(endpoint(target), request.messages, on_unsupported="error", **request.options)
