"""Bodies in another form than they were asked for: lines of JSON, and events in place of one body."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from cases import each
from client.peer import DONE, SSE, Again, Pause, Peer, Reset, Stay, chunked, delta, frame, head, reply, whole
from client.support import QUICK, SEARCH, Driver, ask, at, home

import cnllm
from cnllm import engine

from .conftest import Make
from .honest import came
from .streams import TEXT, WIRES, Wire

CHAT = "openai-chat"


def lines_of(wire: Wire) -> list[bytes]:
    """The wire's stream as lines of JSON."""
    return [event.partition(b"data: ")[2].strip() + b"\n" for event in wire.events if event != DONE]


def parsed(model: cnllm.Model, body: bytes, *, orderly: bool = True) -> cnllm.Reply:
    parser = engine.StreamParser(model)
    for start in range(0, len(body), 100):
        parser.feed(body[start : start + 100])
    parser.end(orderly=orderly)
    return parser.close() if orderly else parser.close_broken()


# ── lines of JSON ────────────────────────────────────────────────────────────
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
            got = caught.value.reply
            assert got is not None
            assert TEXT.startswith(got.text)
            assert (got.finish, got.tool_calls) == ("cut", [])


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
    got = parsed(model, whole("The sky is blue.") + b"\n" + DONE)
    assert (got.text, got.finish) == ("The sky is blue.", "stop")
    data = json.loads(whole("The sky is blue."))
    assert came(parsed(model, frame(data) + DONE)) == came(got)


# ── events ───────────────────────────────────────────────────────────────────
@each("marker", [b"[DONE]", b"[done]", b'"[DONE]"', b" [Done] "])
@each("end", [b"\n\n", b"\n", b""])
def test_the_end_marker_counts_however_it_is_written(marker: bytes, end: bytes) -> None:
    got = parsed(WIRES[CHAT].model(), delta(content="whole") + b"data: " + marker + end)
    assert (got.text, got.finish, [note.code for note in got.notes]) == ("whole", "stop", ["unknown-model"])


@each("wire", lambda: [WIRES[CHAT], WIRES["gemini"]], ids=str)
def test_all_chunks_in_a_list_are_read(wire: Wire) -> None:
    chunks = [json.loads(line) for line in lines_of(wire)]
    pairs = [chunks[start : start + 2] for start in range(0, len(chunks), 2)]
    content = b"".join([b"data: " + json.dumps(pair).encode() + b"\n\n" for pair in pairs])
    assert came(parsed(wire.model(), content + DONE)) == came(parsed(wire.model(), wire.content))


# ── a stream of events that answers a request for a whole reply ──────────────
WAIT = 0.3  # seconds
SOON = 10.0  # seconds: far below what the peer would go on for
STREAM = head(200, SSE)
EMPTY = delta()
IDLE = {"comments": b": alive\n\n", "pieces of comments": b": al", "empty chunks": EMPTY, "empty events": b"data:\n\n"}


@pytest.mark.parametrize("verb", ["call", "stream"])
@pytest.mark.parametrize("name", IDLE)
def test_events_without_content_extend_no_wait(client: Driver, tmp_path: Path, name: str, verb: str) -> None:
    """A model that is asked without streaming, because of its tools, whose endpoint streams nevertheless."""
    with Peer([STREAM + delta(content="The sky"), Again(IDLE[name], 0.02)]) as peer:
        began = time.monotonic()
        with pytest.raises(cnllm.IdleTimeout) as caught:
            ask(client, verb, home(tmp_path, peer, "stream.tools = false"), tools=[SEARCH], timeout=WAIT)
        assert time.monotonic() - began < SOON
        assert peer.gone.wait(SOON)
    assert caught.value.reply is not None
    assert caught.value.reply.text == "The sky"


@pytest.mark.parametrize("wire", [wire for wire in WIRES.values() if wire.protocol != "gemini"], ids=str)
def test_the_end_of_such_a_stream_ends_the_reply_though_the_connection_stays_open(client: Driver, wire: Wire) -> None:
    with Peer([STREAM + wire.content[:50], Pause(0.05), wire.content[50:], Stay()]) as peer:
        began = time.monotonic()
        got = client.call(wire.model(peer.url), timeout=60)
        assert time.monotonic() - began < SOON
    assert came(got) == came(parsed(wire.model(), wire.content))


def test_an_error_in_such_a_stream_is_tried_again_for_nothing_was_delivered(make: Make) -> None:
    busy = frame({"error": {"message": "slow down", "code": 429}})
    begun = chunked(delta(content="The sky"), busy)
    with Peer([begun], [reply()]) as peer:
        got = make(retry=QUICK).call(at(peer))
    assert (got.text, len(peer.received)) == ("The sky is blue.", 2)


def test_a_stream_that_breaks_off_in_place_of_a_whole_reply_keeps_what_came(client: Driver) -> None:
    with Peer([STREAM + delta(content="The sky"), Reset()]) as peer:
        with pytest.raises(cnllm.TransportError) as caught:
            client.call(at(peer))
        assert caught.value.reply is not None
        assert caught.value.reply.text == "The sky"
        assert client.call(at(peer), if_cut="keep").finish == "cut"
        with pytest.raises(cnllm.TransportError):
            client.call(at(peer), if_cut="again-whole")
    assert len(peer.received) == 3
