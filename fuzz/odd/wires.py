"""Replies, streams and request bodies of every wire, each JSON value replaced by every odd one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import cnllm
from cnllm import engine

from .judge import Input
from .surface import tool, wire_model
from .values import JSON

__all__ = ["bodies", "requests", "wires"]

PROTOCOLS = {name: name for name in ("openai-chat", "anthropic-messages", "gemini", "openai-responses")}
_TOP = ("body", "messages", "contents", "input")
NOTHING = ("no argument is wrong here",)
TEXTS: tuple[bytes, ...] = (
    b"",
    b"\xef\xbb\xbf",
    b"\0",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'"x"',
    b"1" * 10_000,
    b"NaN",
    b"1e999",
    b'{"choices":[{"message":{"content":"\\ud800"}}]}',
    b"data:",
    b"data: [DONE]",
    b"data: [DONE]\n\n",
    b"event: x\ndata: \xff\n\n",
    b"data: null\n\ndata: 5\n\ndata: []\n\n",
    b": " * 5000,
    b"<html>502</html>",
)


@cache
def said() -> cnllm.Reply:
    """Return a reply with everything that a reply can hold."""
    call = cnllm.ToolCall("a", "weather", {"city": "x"}, '{"city":"x"}')
    parts = (cnllm.Reasoning("why"), cnllm.Text("so"), call)
    usage = cnllm.Usage(input=5, output=3, total=8, reasoning=1, cached=1)
    return cnllm.Reply(
        text="so",
        reasoning="why",
        tool_calls=[call],
        finish="tool_calls",
        raw_finish=None,
        usage=usage,
        cost=None,
        model="m",
        id="x",
        notes=[],
        message=cnllm.Message("assistant", parts),
        incomplete=[],
    )


@cache
def chunks(protocol: str) -> tuple[Any, ...]:
    """Return the chunks of a stream that says the same."""
    writer = engine.StreamWriter(protocol, id="x", model="m")
    reply = said()
    call = reply.tool_calls[0]
    events: list[cnllm.Event] = [
        cnllm.ReasoningDelta("why"),
        cnllm.TextDelta("so"),
        cnllm.ToolCallStart(0, "a", "weather"),
        cnllm.ToolCallDelta(0, call.raw),
        cnllm.ToolCallEnd(0, call),
        cnllm.UsageSeen(reply.usage),
        cnllm.Finished("tool_calls", None),
    ]
    raw = writer.begin() + b"".join(writer.feed(event) for event in events)
    lines = [line[5:].strip() for line in raw.split(b"\n") if line.startswith(b"data:")]
    return tuple(json.loads(line) for line in lines if line != b"[DONE]")


def places(data: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value."""
    yield here
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(value, (*here, key))


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return the data with another value at a path."""
    if not path:
        return value
    made = copy.deepcopy(data)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def wires(values: dict[str, Callable[[], Any]] = JSON) -> Iterator[Input]:
    """Yield whole replies, refusals and streams, an odd value at each place.

    Nothing but a reply's own error may come.
    """
    for protocol, name in PROTOCOLS.items():
        body = engine.encode_reply(protocol, said())
        refusal = engine.encode_error(protocol, 429, "slow down", "rate_limit")
        for status, data in ((200, body), (429, refusal)):
            for path in places(data):
                for odd, make in values.items():
                    content = partial(_encoded, data, path, make)
                    label = f"parse_response {protocol} {status} {path}={odd}"
                    yield Input(label, NOTHING, partial(_parsed, name, status, content))
        for number, chunk in enumerate(chunks(protocol)):
            for path in places(chunk):
                for odd, make in values.items():
                    yield Input(
                        f"feed {protocol} chunk {number} {path}={odd}",
                        NOTHING,
                        partial(_fed, name, protocol, number, path, make),
                    )
        for status in (200, 204, 304, 400, 500):
            for text in TEXTS:
                yield Input(
                    f"parse_response {protocol} {status} {text[:20]!r}",
                    NOTHING,
                    partial(_parsed, name, status, partial(bytes, text)),
                )


@cache
def _plan(name: str) -> cnllm.Plan:
    return engine.build_request(wire_model(name), "hi", tools=[tool()])


def _encoded(data: Any, path: tuple[Any, ...], make: Callable[[], Any]) -> bytes:
    return json.dumps(put(data, path, make())).encode()


def _parsed(name: str, status: int, content: Callable[[], bytes]) -> None:
    for plan in (None, _plan(name)):
        try:
            reply = engine.parse_response(wire_model(name), status, {}, content(), plan=plan)
        except (cnllm.EndpointError, cnllm.StreamCut) as error:
            if error.reply is not None:
                cnllm.Message.from_dict(error.reply.message.to_dict())
            continue
        json.dumps(reply.to_dict())
        cnllm.Message.from_dict(reply.message.to_dict())


def _fed(name: str, protocol: str, number: int, path: tuple[Any, ...], make: Callable[[], Any]) -> None:
    parser = engine.StreamParser(wire_model(name), plan=_plan(name))
    for at, chunk in enumerate(chunks(protocol)):
        data = put(chunk, path, make()) if at == number else chunk
        parser.feed(b"data: " + json.dumps(data).encode() + b"\n\n")
    parser.end()
    try:
        json.dumps(parser.close().to_dict())
    except (cnllm.EndpointError, cnllm.StreamCut):
        return


def requests(values: dict[str, Callable[[], Any]] = JSON) -> Iterator[Input]:
    """Yield requests as a server reads them, an odd value at each place."""
    history: list[Any] = [
        {"role": "system", "content": "be kind"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "http://a/b.png"}}],
        },
        said().message,
        {"role": "tool", "tool_call_id": "a", "content": "fair"},
        {"role": "user", "content": "go on"},
    ]
    for protocol, name in PROTOCOLS.items():
        plan = engine.build_request(
            wire_model(name), history, tools=[tool()], tool_choice="auto", temperature=0.5, max_tokens=100
        )
        body = json.loads(plan.content)
        for path in places(body):
            words = tuple(str(key) for key in path if isinstance(key, str)) or _TOP
            for odd, make in values.items():
                yield Input(
                    f"decode_request {protocol} {path}={odd}",
                    (*words, "body"),
                    partial(_decoded, protocol, body, path, make),
                )


def _decoded(protocol: str, body: Any, path: tuple[Any, ...], make: Callable[[], Any]) -> None:
    request = engine.decode_request(protocol, put(body, path, make()), path="/v1beta/models/m:generateContent")
    [message.to_dict() for message in request.messages]


def bodies(values: dict[str, Callable[[], Any]]) -> Iterator[Input]:
    """Yield values that a caller may hand to the parser instead of bytes, headers and a status."""
    for odd, make in values.items():
        for key in ("status", "headers", "content", "tools", "plan", "model"):
            yield Input(f"parse_response({key}={odd})", (key,), partial(_given, key, make))
        yield Input(f"StreamParser.feed(chunk={odd})", ("chunk",), partial(_chunk, make))


def _given(key: str, make: Callable[[], Any]) -> None:
    content = engine.encode_reply("openai-chat", said())
    fields: dict[str, Any] = {
        "model": wire_model("openai-chat"),
        "status": 200,
        "headers": {},
        "content": json.dumps(content).encode(),
        key: make(),
    }
    engine.parse_response(**fields)


def _chunk(make: Callable[[], Any]) -> None:
    for first in (b"", b"data: {}\n\n", b"{"):
        parser = engine.StreamParser(wire_model("openai-chat"))
        parser.feed(first)
        parser.feed(make())
        parser.feed(make())
        try:
            parser.close()
        except (cnllm.EndpointError, cnllm.StreamCut):
            continue
