"""HTTP that goes wrong, beyond what tests/client has: promises not kept, pages, endings without end, a great deal."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import Any

import pytest
from client.conftest import Make
from client.peer import (
    DONE,
    JSON,
    SSE,
    Again,
    Close,
    Peer,
    Reset,
    Script,
    Stay,
    Step,
    answer,
    call_delta,
    chunked,
    delta,
    frame,
    head,
    piece,
    reply,
    said,
    stream,
    texts,
    usage,
    whole,
)
from client.support import ONCE, Driver, ask, at, drained, folds

import cnllm
from cnllm import Timeouts

HTML = {"content-type": "text/html; charset=utf-8"}
CALL = call_delta(0, '{"q": "sky"}', id="c0", name="search")
STOP = delta(finish="stop")
SOON = Timeouts(first_byte=30, idle=0.2, progress=0.2)


def is_cut(error: cnllm.CnllmError, events: list[Any], text: str) -> None:
    """What came is there, told as cut; nothing of it can be executed."""
    assert error.reply is not None
    assert (error.reply.text, error.reply.finish, error.reply.tool_calls) == (text, "cut", [])
    folds(events, error.reply)


# ── promises about the length ────────────────────────────────────────────────
def test_a_length_that_ends_a_stream_in_its_middle(client: Driver) -> None:
    """All that was promised came: only the stream itself can tell that it is not whole."""
    content = b"".join([*texts("The sky", " is"), CALL, STOP, DONE])
    for promised, text in ((len(b"".join(texts("The sky", " is"))), "The sky is"), (60, "")):
        events: list[Any] = []
        script: Script = [head(content_length=str(promised)) + content, Close()]
        with Peer(script) as peer, pytest.raises(cnllm.StreamCut) as caught:
            drained(client.stream(at(peer)), events)
        is_cut(caught.value, events, text)


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_a_length_that_ends_a_body_in_its_middle_is_no_reply(make: Make, verb: str) -> None:
    short = head(200, JSON, content_length=str(len(whole()) - 10)) + whole()
    with Peer([short, Close()]) as peer, pytest.raises(cnllm.CnllmError) as caught:
        ask(make(retry=ONCE), verb, at(peer))
    assert isinstance(caught.value, cnllm.EndpointError | cnllm.TransportError | cnllm.StreamCut)


@pytest.mark.parametrize("length", ["-5", "1e3", "ten", "10, 20", "99999999999999999999999"])
def test_a_length_that_is_none(make: Make, length: str) -> None:
    with Peer([head(200, JSON, content_length=length) + whole(), Close()]) as peer:
        try:
            assert make(retry=ONCE).call(at(peer), timeout=SOON).text == "The sky is blue."
        except cnllm.CnllmError as error:
            assert isinstance(error, cnllm.TransportError)  # noqa: PT017 (either is honest)


# ── pages ────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("verb", ["call", "stream"])
@pytest.mark.parametrize("status", [200, 403, 502, 524])
def test_a_page_is_an_error_that_says_its_title(make: Make, status: int, verb: str) -> None:
    page = b"<!DOCTYPE html><html><head><title>A timeout occurred</title></head><body>" + b"<p>x</p>" * 5000
    for body, kind in ((page, HTML), (page, SSE), (gzip.compress(page), {**HTML, "content-encoding": "gzip"})):
        with Peer([answer(status, body, kind)]) as peer, pytest.raises(cnllm.EndpointError) as caught:
            ask(make(retry=ONCE), verb, at(peer))
        assert caught.value.status == status
        assert "A timeout occurred" in caught.value.message
        assert len(caught.value.message) < 200
        assert caught.value.retryable == (status >= 500)


# ── ends ─────────────────────────────────────────────────────────────────────
ENDINGS: dict[str, bytes] = {
    "the end twice": DONE + DONE,
    "the end, then another answer": DONE + b"".join(said("No.")),
    "the end, then a call": DONE + CALL + DONE,
    "the end, then an error": DONE + frame({"error": {"message": "late"}}),
    "the end, then noise": DONE + b"\x00\xff\xfe data: {{{{\n\n" * 50,
    "the end, then half an event": DONE + CALL[:30],
    "the end in blanks": b"data:   [DONE]  \r\n\r\n",
    "the end without its lines": b"data: [DONE]",
}


@pytest.mark.parametrize("framing", ["chunks", "no length", "one chunk a byte"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_after_the_end_nothing_counts(client: Driver, ending: str, framing: str) -> None:
    content = b"".join([*texts("The sky", " is blue."), STOP, usage()]) + ENDINGS[ending]
    framed: dict[str, Script] = {
        "chunks": [stream(content)],
        "no length": [head() + content, Close()],
        "one chunk a byte": [stream(*(content[i : i + 1] for i in range(len(content))))],
    }
    with Peer(framed[framing]) as peer:
        events, got = drained(client.stream(at(peer)))
    assert (got.text, got.finish, got.tool_calls, got.usage.total) == ("The sky is blue.", "stop", [], 7)
    folds(events, got)


@pytest.mark.parametrize("end", ["closed", "reset", "stalled", "comments"])
@pytest.mark.parametrize("sent", ["a call", "half a call"])
def test_no_end_of_a_connection_makes_a_call_executable(client: Driver, sent: str, end: str) -> None:
    content = [*texts("Let me see."), CALL if sent == "a call" else call_delta(0, '{"q": "sk', id="c0", name="search")]
    steps: dict[str, list[Step]] = {
        "closed": [Close()],
        "reset": [Reset()],
        "stalled": [Stay()],
        "comments": [Again(piece(b": still here\n\n"), every=0.02)],
    }
    events: list[Any] = []
    typed = (cnllm.StreamCut, cnllm.IdleTimeout, cnllm.TransportError)
    with Peer([stream(*content, end=False), *steps[end]]) as peer, pytest.raises(typed) as caught:
        drained(client.stream(at(peer), timeout=SOON), events)
    if end == "reset" and caught.value.reply is None:
        return  # torn down before anything of it was read
    got = caught.value.reply
    assert got is not None
    assert (got.finish, got.tool_calls) == ("cut", [])
    assert end == "reset" or [call.name for call in got.incomplete] == ["search"]
    folds(events, got)


def test_the_word_of_an_end_does_not_make_half_a_call_whole(client: Driver) -> None:
    """Some gateways write it after whatever came. No finish was said, and a call is in its middle."""
    events: list[Any] = []
    half = call_delta(0, '{"q": "sk', id="c0", name="search")
    with Peer([stream(*texts("Let me see."), half, DONE)]) as peer, pytest.raises(cnllm.StreamCut) as caught:
        drained(client.stream(at(peer)), events)
    is_cut(caught.value, events, "Let me see.")
    with Peer([stream(*texts("Let me see."), CALL, DONE)]) as peer:
        assert [call.arguments for call in drained(client.stream(at(peer)))[1].tool_calls] == [{"q": "sky"}]


# ── compression ──────────────────────────────────────────────────────────────
@pytest.mark.parametrize("end", ["closed", "chunk torn", "ended"])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_stream_cut_in_its_middle_keeps_what_came(client: Driver, coding: str, end: str) -> None:
    packer = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    good = packer.compress(b"".join([*texts("The sky"), CALL])) + packer.flush(zlib.Z_SYNC_FLUSH)
    half = packer.compress(b"".join([*texts(" is"), STOP, DONE])) + packer.flush()
    kind = {**SSE, "content-encoding": coding}
    sent: dict[str, Script] = {
        "closed": [head(200, kind) + good + half[:8], Close()],
        "chunk torn": [chunked(good, headers=kind, end=False) + b"%x\r\n" % len(half) + half[:8], Close()],
        "ended": [chunked(good, half[:8], headers=kind)],
    }
    events: list[Any] = []
    with Peer(sent[end]) as peer, pytest.raises(cnllm.StreamCut) as caught:
        drained(client.stream(at(peer)), events)
    is_cut(caught.value, events, "The sky")


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_a_compressed_body_cut_anywhere_is_no_reply(make: Make, verb: str) -> None:
    packed = gzip.compress(whole())
    client = make(retry=ONCE)
    for at_byte in range(0, len(packed) - 12, 9):
        sent = answer(200, packed[:at_byte], JSON, content_encoding="gzip")
        with Peer([sent]) as peer, pytest.raises(cnllm.CnllmError) as caught:
            ask(client, verb, at(peer))
        assert isinstance(caught.value, cnllm.EndpointError | cnllm.TransportError | cnllm.StreamCut)


# ── a great deal ─────────────────────────────────────────────────────────────
@pytest.mark.share(4)
def test_a_hundred_megabytes_of_comments_are_passed_over(make: Make) -> None:
    """They are taken, within the usual limits, and none of them is held."""
    much = piece(b": " + b"x" * 997_998 + b"\n\n")
    script: Script = [stream(*texts("The sky"), end=False), *[much] * 100, piece(STOP + DONE), piece(b"")]
    with Peer(script) as peer:
        client = make()
        tracemalloc.start()
        try:
            assert drained(client.stream(at(peer)))[1].text == "The sky"
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 12_000_000


@pytest.mark.share(4)
def test_a_hundred_megabytes_of_a_body_are_a_reply_if_they_are_one(client: Driver) -> None:
    padded = whole()[:-1] + b" " * 100_000_000 + b"}"
    with Peer([answer(200, padded)], [reply()]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."
        assert client.call(at(peer)).text == "The sky is blue."


HEADERS = {
    "many": b"x-a: y\r\n" * 200,
    "a long one": b"x-a: " + b"y" * 7000 + b"\r\n",
    "many long ones": (b"x-a: " + b"y" * 7000 + b"\r\n") * 13,
}


@pytest.mark.parametrize("size", HEADERS)
def test_headers_may_be_many_and_long(client: Driver, size: str) -> None:
    with Peer([answer(200, whole()).replace(b"\r\n", b"\r\n" + HEADERS[size], 1)]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."


@pytest.mark.parametrize("endless", [b"x-a: y\r\n" * 1000, b"y" * 10_000], ids=["many", "one"])
def test_headers_without_an_end_are_not_read_for_ever(make: Make, endless: bytes) -> None:
    with Peer([b"HTTP/1.1 200 x\r\nx-a: ", Again(endless, every=0)]) as peer:
        with pytest.raises(cnllm.TransportError):
            make(retry=ONCE).call(at(peer))
        assert peer.gone.wait(15)
