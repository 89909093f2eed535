"""Streams of every wire, cut over sockets in each way a connection can end."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from client.peer import Close, Peer, Reset, Script, Wait, answer, chunked, head, stream, whole
from client.support import Driver, drained

import cnllm
from cnllm import engine

from .honest import came, closed, cut
from .streams import TEXT, WIRES, Wire

ENDS = ["closed", "chunk torn", "length not reached", "ended", "reset"]


def script(end: str, content: bytes) -> Script:
    """A stream of this content and no more."""
    match end:
        case "closed":
            return [head() + content, Close()]
        case "chunk torn":
            return [chunked(end=False) + b"%x\r\n" % (len(content) + 99) + content, Close()]
        case "length not reached":
            return [head(content_length=str(len(content) + 99)) + content, Close()]
        case "ended":
            return [stream(content), Close()]
        case _:
            return [stream(content, end=False), Reset()]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_over_sockets_however_the_connection_ends(client: Driver, wire: Wire, end: str) -> None:
    """What had not been read before a reset may be gone; what was delivered stays."""
    content = wire.content
    full = engine.parse_response(wire.model(), 200, {}, content)
    dice = random.Random(f"{wire.protocol} {end}")
    offsets = sorted(dice.sample(range(len(b"data: {"), len(content)), 8))
    with Peer(*(script(end, content[:at]) for at in offsets)) as peer:
        for at in offsets:
            place = f"{wire.protocol} cut at {at} ({end})"
            events: list[Any] = []
            try:
                _, reply = drained(client.stream(wire.model(peer.url)), events)
            except cnllm.CnllmError as error:
                if end == "reset" and not events and type(error) is cnllm.TransportError:
                    continue  # it was torn down before its status line was read
                assert type(error) is cnllm.StreamCut, place  # noqa: PT017
                got = cut(error, events, full, place)
                if end != "reset":
                    alone, _ = closed_at(wire, at)
                    assert came(got) == came(alone), place
            else:
                assert at > content.index(wire.proof), place
                assert came(reply) == came(full), place


@pytest.mark.parametrize("streams", [True, False])
def test_a_whole_body_that_goes_on_is_cut_however_it_was_requested(client: Driver, streams: bool) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "wipe", "arguments": "{}"}}
    body = answer(200, whole("half", finish="in_progress", tool_calls=[call]))

    def got(peer: Peer, if_cut: str) -> cnllm.Reply:
        model = WIRES["openai-chat"].model(peer.url)
        if streams:
            return drained(client.stream(model, if_cut=if_cut))[1]
        return client.call(model, if_cut=if_cut)

    with Peer([body]) as peer:
        kept = got(peer, "keep")
    with Peer([body]) as peer, pytest.raises(cnllm.StreamCut, match="in_progress") as caught:
        got(peer, "error")
    for reply in (kept, caught.value.reply):
        assert reply is not None
        assert (reply.finish, reply.text, reply.tool_calls) == ("cut", "half", [])
        assert [call.name for call in reply.incomplete] == ["wipe"]


def closed_at(wire: Wire, at: int) -> tuple[cnllm.Reply, cnllm.CnllmError | None]:
    """What the parser alone makes of these bytes."""
    parser = engine.StreamParser(wire.model())
    parser.feed(wire.content[:at])
    reply, error = closed(parser, [])
    assert reply is not None
    return reply, error


def test_a_reset_after_what_was_read_takes_nothing_away(client: Driver) -> None:
    for wire in WIRES.values():
        read = threading.Event()
        events: list[Any] = []
        half = b"".join(wire.events[: next(n for n, event in enumerate(wire.events) if wire.proof in event)])
        script: Script = [stream(half, end=False), Wait(read), Reset()]
        with Peer(script) as peer, pytest.raises(cnllm.StreamCut) as caught:
            drained(client.stream(wire.model(peer.url)), events, read, 2)
        full = engine.parse_response(wire.model(), 200, {}, wire.content)
        assert cut(caught.value, events, full).text == TEXT
