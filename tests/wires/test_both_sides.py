"""The two sides of each wire, which share no code, understand one another without loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from examples import share
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cnllm import (
    BlockEnd,
    EndpointError,
    Event,
    Finished,
    Reasoning,
    ReasoningDelta,
    Reply,
    StreamCut,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSeen,
    engine,
)

from .made import SPOKEN, TOOLS, bare, conversations, essence, replies

UNHURRIED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=share(150))
pytestmark = pytest.mark.parametrize("protocol", SPOKEN)


@UNHURRIED
@given(data=st.data())
def test_a_request_is_read_as_it_was_meant(protocol: str, data: st.DataObject) -> None:
    model = bare(protocol)
    history = data.draw(conversations(model))
    choice = data.draw(st.sampled_from([None, "auto", "required", "weather"]))
    options: dict[str, Any] = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 900, "temperature": 0.5}
    plan = engine.build_request(model, history, stream=True, **options)
    path = plan.url.removeprefix("http://127.0.0.1:9/v1")
    request = engine.decode_request(protocol, json.loads(plan.content), path=path, origin=model)
    assert essence(request.messages) == essence(history)
    assert (request.model, request.stream) == ("m", True)
    assert request.options["max_tokens"] == 900
    assert request.options["temperature"] == 0.5
    functions = [tool["function"] for tool in request.options["tools"]]
    assert [{k: v for k, v in f.items() if v is not False} for f in functions] == [t["function"] for t in TOOLS]
    again = engine.build_request(model, request.messages, stream=request.stream, **request.options)
    assert json.loads(again.content) == json.loads(plan.content)
    assert again.url == plan.url


def told(reply: Reply) -> Iterator[Event]:
    """The events of a reply, its texts in pieces."""
    nth = 0
    for index, part in enumerate(reply.message.parts):
        match part:
            case Reasoning():
                yield from (ReasoningDelta(char) for char in part.text)
                yield BlockEnd(index, part)
            case Text():
                yield from (TextDelta(char) for char in part.text)
                yield BlockEnd(index, part)
            case ToolCall():
                yield ToolCallStart(nth, part.id, part.name)
                yield from (ToolCallDelta(nth, char) for char in part.raw)
                yield ToolCallEnd(nth, part)
                nth += 1
    yield UsageSeen(reply.usage)
    yield Finished(reply.finish, reply.raw_finish)


def same(read: Reply, meant: Reply) -> None:
    assert (read.text, read.reasoning, read.finish) == (meant.text, meant.reasoning, meant.finish)
    assert essence([read.message]) == essence([meant.message])
    assert (read.usage.input, read.usage.output, read.usage.cached) == (20, 9, 5)


@UNHURRIED
@given(data=st.data())
def test_a_reply_is_read_as_it_was_meant(protocol: str, data: st.DataObject) -> None:
    model = bare(protocol)
    meant = data.draw(replies(model))
    beside: Any = data.draw(st.sampled_from([None, "Your quota ends soon.", ["Soon."], True]))
    body = json.dumps({"error": beside, **engine.encode_reply(protocol, meant)}).encode()
    same(engine.parse_response(model, 200, {"content-type": "application/json"}, body, tools=TOOLS), meant)


@UNHURRIED
@given(data=st.data())
def test_a_stream_is_read_as_it_was_meant_and_as_cut_where_it_was_cut(protocol: str, data: st.DataObject) -> None:
    model = bare(protocol)
    meant = data.draw(replies(model))
    writer = engine.StreamWriter(protocol, id="id-1", model="m")
    pieces = [writer.begin(), *(writer.feed(event) for event in told(meant))]
    body = b"".join(pieces)
    parser = engine.StreamParser(model, TOOLS)
    parser.feed(body)
    same(parser.close(), meant)
    # Nothing before the last words counts as whole.
    last = max(i for i, piece in enumerate(pieces) if piece)
    cut = data.draw(st.integers(0, len(b"".join(pieces[:last]))))
    parser = engine.StreamParser(model, TOOLS)
    parser.feed(body[:cut])
    with pytest.raises((StreamCut, EndpointError)) as caught:
        parser.close()
    reply = caught.value.reply
    assert reply is None or (reply.finish in ("cut", "error") and not reply.tool_calls)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 529])
def test_a_refusal_is_read_with_the_words_it_has(protocol: str, status: int) -> None:
    body = json.dumps(engine.encode_error(protocol, status, "You cannot do that.", "no_way")).encode()
    with pytest.raises(EndpointError) as caught:
        engine.parse_response(bare(protocol), status, {"content-type": "application/json"}, body)
    assert caught.value.message == "You cannot do that."


KINDS = {
    "openai-chat": {418: "invalid_request_error", 507: "server_error"},
    "openai-responses": {418: "invalid_request_error", 507: "server_error"},
    "anthropic-messages": {418: "invalid_request_error", 507: "api_error"},
    "gemini": {418: "FAILED_PRECONDITION", 507: "INTERNAL"},
}


def test_a_refusal_with_a_rare_status_has_a_kind_of_the_protocol(protocol: str) -> None:
    for status, kind in KINDS[protocol].items():
        error = engine.encode_error(protocol, status, "No.")["error"]
        assert error["status" if protocol == "gemini" else "type"] == kind


def test_a_failure_in_the_middle_is_read_as_one_with_what_came(protocol: str) -> None:
    writer = engine.StreamWriter(protocol, id="id-1", model="m")
    body = writer.begin() + writer.feed(TextDelta("It ra")) + writer.error(500, "It broke.", "broken")
    parser = engine.StreamParser(bare(protocol))
    parser.feed(body)
    with pytest.raises(EndpointError) as caught:
        parser.close()
    assert caught.value.message == "It broke."
    assert caught.value.reply is not None
    assert caught.value.reply.text == "It ra"
