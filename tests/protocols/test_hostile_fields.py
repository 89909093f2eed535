"""A value of the wrong type in any documented field breaks nothing, of a request and of a reply, in and out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

import msgspec
import pytest
from cases import each
from examples import SHARE

import cnllm
from cnllm import Model, Registry, Reply, engine
from cnllm.protocols import PROTOCOLS

from . import documented, requests
from .clients import CHAT, GEMINI, MESSAGES, PATHS, RESPONSES
from .documented_replies import FIELDS
from .replies import BODIES, streamed
from .requests import Json, Path, put

VALUES: dict[str, Any] = {
    "true": True,
    "a fraction": 1.5,
    "a word": "x",
    "half a character": "\ud800",
    "a list": [],
    "an object": {},
    "null": None,
}
SEARCH: Json = {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": [], "query": "q"}}
SUPPORT: Json = {"segment": {"startIndex": 1.5, "endIndex": "3", "text": "It"}, "groundingChunkIndices": [0]}
GROUNDING: Json = {"groundingChunks": [{"web": {"uri": "https://a.example"}}], "groundingSupports": [SUPPORT]}
FOUND: list[tuple[str, Path, Any]] = [
    (CHAT, ("choices", 0, "logprobs"), {"content": [{"token": "a", "logprob": -1, "top_logprobs": True}]}),
    (MESSAGES, ("content", 0), {}),
    (MESSAGES, ("content", 0), {"type": []}),
    (GEMINI, ("candidates", 0, "citationMetadata"), {"citations": [{"uri": "https://a.example", "startIndex": "x"}]}),
    (GEMINI, ("candidates", 0, "groundingMetadata"), GROUNDING),
    (RESPONSES, ("output", 0), SEARCH),
    (RESPONSES, ("output", 0), {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "\ud800"}),
]
"""Values that once raised an error of Python."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """A model with a price on each wire."""
    path: File = tmp_path_factory.mktemp("registry") / "own.toml"
    with path.open("w", encoding="utf-8") as file:
        for number, protocol in enumerate(PROTOCOLS):
            file.write(f'[providers.p{number}]\ntitle = "x"\nprotocol = "{protocol}"\nbase_url = "http://a.example"\n')
            file.write(f'keys = []\n[models."p{number}/m"]\nprice = {{input = 1, output = 2, currency = "USD"}}\n')
    registry = Registry.load(str(path))
    return {protocol: registry.resolve(f"p{number}/m") for number, protocol in enumerate(PROTOCOLS)}


@each("found", FOUND)
@each("stream", [False, True])
def test_values_that_were_not_read(models: dict[str, Model], found: tuple[str, Path, Any], stream: bool) -> None:
    protocol, path, value = found
    read_and_write(models[protocol], put(BODIES[protocol], path, value), stream=stream)


def test_half_of_a_character_in_the_input_of_a_tool_of_the_endpoint(models: dict[str, Model]) -> None:
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"code": "\ud800"}'}
    events: list[Json] = [
        {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    parser = engine.StreamParser(models[MESSAGES])
    parser.feed(b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events))
    (part,) = parser.close().message.parts
    msgspec.json.encode(part)


@pytest.mark.sampled
@each("value", VALUES, parts=2)
@each("protocol", PROTOCOLS)
def test_no_value_of_a_documented_field_breaks_a_reply(models: dict[str, Model], protocol: str, value: str) -> None:
    number = list(VALUES).index(value)
    for place, (path, known) in enumerate(FIELDS[protocol]):
        whole = put(BODIES[protocol], path, known)
        for inner, spot in enumerate(places(known)):
            if (place + inner + number) % SHARE == 0:
                body = put(whole, (*path, *spot), VALUES[value])
                read_and_write(models[protocol], body, stream=bool(place % 2))


NAMELESS: Json = {"type": "code_execution_20250825", "name": []}
UNREAD: list[tuple[str, Path, Any]] = [
    (RESPONSES, ("input", 2, "namespace"), 5),
    (RESPONSES, ("input", 2, "namespace"), []),
    (MESSAGES, ("tools", 1), NAMELESS),
    (MESSAGES, ("tools", 1), {"type": "web_search_20250305", "name": []}),
]
"""Values of requests that once raised an error of Python."""


@each("unread", UNREAD)
def test_values_of_requests_that_were_not_read(models: dict[str, Model], unread: tuple[str, Path, Any]) -> None:
    protocol, path, value = unread
    ask(models, protocol, put(requests.BODIES[protocol], path, value))


@pytest.mark.sampled
@each("value", VALUES, parts=2)
@each("protocol", PROTOCOLS)
def test_no_value_of_a_documented_field_breaks_a_request(models: dict[str, Model], protocol: str, value: str) -> None:
    number = list(VALUES).index(value)
    for place, (path, known) in enumerate(documented.FIELDS[protocol]):
        whole = put(requests.BODIES[protocol], path, known)
        for inner, spot in enumerate(places(known)):
            if (place + inner + number) % SHARE == 0:
                ask(models, protocol, put(whole, (*path, *spot), VALUES[value]))


def ask(models: dict[str, Model], protocol: str, body: Json) -> None:
    """Read a request, and write it for a model of each wire; a refusal says what is wrong in a sentence of cnllm."""
    try:
        request = engine.decode_request(protocol, body, path=PATHS.get(protocol, ""))
    except (cnllm.CnllmError, ValueError):
        return
    for model in models.values():
        try:
            engine.build_request(model, request.messages, **request.options)
        except (cnllm.CnllmError, ValueError):
            continue
        except TypeError as error:
            if not str(error).endswith((" is expected", " is meant")):  # one of Python's
                raise


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where something stands in a value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def read_and_write(model: Model, body: Json, *, stream: bool) -> None:
    """Read a reply, and write what came of it for the clients of each protocol."""
    plan = engine.build_request(model, "hi", stream=stream)
    reply: Reply | None
    events: list[cnllm.Event] = []
    try:
        if stream:
            parser = engine.StreamParser(model, plan=plan)
            events = [*parser.feed(frames(model.protocol, body)), *parser.end()]
            reply = parser.close()
        else:
            reply = engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=plan)
    except cnllm.CnllmError as error:
        reply = error.reply
    for client in PROTOCOLS if reply is not None else ():
        assert reply is not None
        msgspec.json.encode(engine.encode_reply(client, reply))
        writer = engine.StreamWriter(client, id="x", model="m")
        assert b"".join([writer.begin(), *map(writer.feed, events)]) is not None


def frames(protocol: str, body: Json) -> bytes:
    """The bytes with which an endpoint streams a reply; none where the wire has no such stream."""
    try:
        events = streamed(protocol, body)
    except (TypeError, KeyError, AttributeError, ValueError):
        return b""
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
