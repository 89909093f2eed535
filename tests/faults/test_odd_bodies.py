"""Bodies in another form than they were asked for: streams of JSON lines that nothing declares."""

from __future__ import annotations

import json

import pytest
from cases import each
from client.peer import DONE, delta, frame, whole

import cnllm
from cnllm import engine

from .honest import came
from .streams import TEXT, WIRES, Wire

CHAT = "openai-chat"


def lines_of(wire: Wire) -> list[bytes]:
    """The wire's stream as lines of JSON."""
    return [event.partition(b"data: ")[2].strip() + b"\n" for event in wire.events if event != DONE]


def parsed(model: cnllm.Model, body: bytes, *, orderly: bool = True) -> cnllm.Reply:
    parser = engine.StreamParser(model)
    for at in range(0, len(body), 100):
        parser.feed(body[at : at + 100])
    parser.end(orderly=orderly)
    return parser.close() if orderly else parser.close_broken()


@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_lines_of_json_are_a_stream_though_nothing_declares_them(wire: Wire) -> None:
    lines = lines_of(wire)
    expected = came(parsed(wire.model(), wire.content))
    for body in (b"".join(lines), b"".join(lines).rstrip(), b"\n\n".join(lines), b"".join([*lines, DONE])):
        assert came(parsed(wire.model(), body)) == expected


@each("orderly", [True, False])
@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_lines_of_json_that_break_off_are_cut_with_what_came(wire: Wire, orderly: bool) -> None:
    lines = lines_of(wire)
    end = next(number for number, line in enumerate(lines) if wire.proof in line)
    for count in range(2, end + 1):
        for rest in (b"", lines[count][: len(lines[count]) // 2]):
            with pytest.raises(cnllm.StreamCut) as caught:
                parsed(wire.model(), b"".join(lines[:count]) + rest, orderly=orderly)
            reply = caught.value.reply
            assert reply is not None
            assert TEXT.startswith(reply.text)
            assert (reply.finish, reply.tool_calls) == ("cut", [])


@each("end", [b"", b"\n", b"\n" + delta(content=" it").partition(b"data: ")[2][:20]])
def test_one_line_of_a_chat_stream_is_no_whole_reply(end: bytes) -> None:
    """Its choice has a delta: nothing says that the answer ended there."""
    model = WIRES[CHAT].model()
    line = delta(content="half").partition(b"data: ")[2].strip()
    with pytest.raises(cnllm.StreamCut) as caught:
        parsed(model, line + end)
    assert caught.value.reply is not None
    assert caught.value.reply.text == "half"
    last = delta(content="all", finish="stop").partition(b"data: ")[2]
    assert parsed(model, last).text == "all"


def test_a_whole_body_before_the_end_marker_is_a_reply() -> None:
    model = WIRES[CHAT].model()
    reply = parsed(model, whole("The sky is blue.") + b"\n" + DONE)
    assert (reply.text, reply.finish) == ("The sky is blue.", "stop")
    data = json.loads(whole("The sky is blue."))
    assert came(parsed(model, frame(data) + DONE)) == came(reply)
