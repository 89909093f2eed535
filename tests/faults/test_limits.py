"""What is read of a reply is bounded, whatever a peer sends: over sockets, compressed or not."""

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
    Script,
    Stay,
    answer,
    call_delta,
    chunked,
    delta,
    head,
    piece,
    reply,
    said,
    stream,
    texts,
    usage,
    whole,
)
from client.support import ONCE, Driver, ask, at, counted, drained, folds

import cnllm
from cnllm import Limits, ReplyTooLarge

SMALL = Limits(max_reply_bytes=100_000, max_event_bytes=10_000)
CALL = call_delta(0, '{"q": "sky"}', id="c0", name="search")
STOP = delta(finish="stop")


def too_large(caught: pytest.ExceptionInfo[ReplyTooLarge], limit: str, most: int) -> cnllm.Reply:
    """The error says which limit it was and what to set; the reply in it passes for nothing whole."""
    error = caught.value
    assert (error.limit, error.most) == (limit, most)
    assert f"{most:,}" in error.message
    assert f"Limits({limit}=" in str(error.hint)
    assert error.reply is not None
    assert (error.reply.finish, error.reply.tool_calls) == ("cut", [])
    return error.reply


# ── streams ──────────────────────────────────────────────────────────────────
BEGUN = stream(*texts("The sky"), CALL, end=False)
ENDLESS: dict[str, tuple[bytes, str]] = {
    "text": (delta("x" * 1000), "max_reply_bytes"),
    "comments": (b": x\n" * 500, "max_reply_bytes"),
    "blank lines": (b"\r\n" * 500, "max_reply_bytes"),
    "a line": (b"data: " + b"x" * 500, "max_event_bytes"),
    "an event": (b"data: x\n" * 50, "max_event_bytes"),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_stream_without_an_end_is_cut_at_the_limit_and_keeps_what_came(client: Driver, case: str) -> None:
    more, limit = ENDLESS[case]
    events: list[Any] = []
    with Peer([BEGUN, Again(piece(more), every=0)]) as peer:
        with pytest.raises(ReplyTooLarge) as caught:
            drained(client.stream(at(peer), limits=SMALL), events)
        assert peer.gone.wait(15), "nothing more is read"
        assert len(peer.received) == 1
    got = too_large(caught, limit, getattr(SMALL, limit))
    assert got.text.startswith("The sky")
    assert [call.name for call in got.incomplete] == ["search"]
    assert counted(events, cnllm.ToolCallEnd) == 0
    folds(events, got)


def test_an_event_that_is_too_long_ends_it_where_it_began(client: Driver) -> None:
    long = delta("x" * 20_000)
    with Peer([stream(*texts("The sky", " is"), long, *said(" blue."))]) as peer:
        with pytest.raises(ReplyTooLarge) as caught:
            drained(client.stream(at(peer), limits=SMALL))
        assert too_large(caught, "max_event_bytes", 10_000).text == "The sky is"
        wider = Limits(max_event_bytes=len(long))
        assert drained(client.stream(at(peer), limits=wider))[1].text == "The sky is" + "x" * 20_000 + " blue."


def test_whoever_keeps_cut_streams_keeps_this_one(client: Driver) -> None:
    with Peer([stream(*texts("The sky"), delta("x" * 20_000))]) as peer:
        events, got = drained(client.stream(at(peer), if_cut="keep", limits=SMALL))
    assert (got.text, got.finish) == ("The sky", "cut")
    folds(events, got)


def test_it_is_not_asked_for_again(client: Driver) -> None:
    """It would be as long."""
    with Peer([stream(*texts("The sky"), delta("x" * 20_000))], [reply()]) as peer:
        with pytest.raises(ReplyTooLarge):
            drained(client.stream(at(peer), if_cut="again-whole", limits=SMALL))
        assert len(peer.received) == 1


def test_what_follows_a_finish_takes_nothing_away_from_it(client: Driver) -> None:
    """All that the model said had come, as where a connection is reset after it."""
    with Peer([stream(*texts("The sky"), STOP, usage(), delta("x" * 20_000))]) as peer:
        events, got = drained(client.stream(at(peer), limits=SMALL))
    assert (got.text, got.finish, got.usage.total) == ("The sky", "stop", 7)
    folds(events, got)


# ── whole bodies ─────────────────────────────────────────────────────────────
def bodies(body: bytes) -> dict[str, Script]:
    """The same body, framed in each way, and never ended."""
    return {
        "a length": [head(200, JSON, content_length="10000000000") + body, Again(b" " * 5000, every=0)],
        "chunks": [chunked(body, headers=JSON, end=False), Again(piece(b" " * 5000), every=0)],
        "no length": [head(200, JSON) + body, Again(b" " * 5000, every=0)],
    }


@pytest.mark.parametrize("verb", ["call", "stream"])
@pytest.mark.parametrize("framing", bodies(b""))
def test_a_body_without_an_end_is_read_up_to_the_limit(client: Driver, framing: str, verb: str) -> None:
    with Peer(bodies(whole())[framing]) as peer:
        with pytest.raises(ReplyTooLarge) as caught:
            ask(client, verb, at(peer), limits=SMALL)
        assert peer.gone.wait(15)
        assert len(peer.received) == 1
    assert too_large(caught, "max_reply_bytes", 100_000).text == ""


def test_a_stream_that_answers_a_whole_request_keeps_what_came(client: Driver) -> None:
    script: Script = [stream(*texts("The sky"), end=False), Again(piece(b": x\n\n" * 100), every=0)]
    with Peer(script) as peer, pytest.raises(ReplyTooLarge) as caught:
        client.call(at(peer), limits=SMALL)
    assert too_large(caught, "max_reply_bytes", 100_000).text == "The sky"


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_of_a_refusal_without_an_end_the_beginning_is_enough(make: Make, verb: str) -> None:
    page = head(502, {"content-type": "text/html"}) + b"<html><title>Bad Gateway</title>"
    with Peer([page, Again(b"<br>" * 1000, every=0)]) as peer:
        with pytest.raises(cnllm.EndpointError, match="Bad Gateway") as caught:
            ask(make(retry=ONCE), verb, at(peer), limits=SMALL)
        assert peer.gone.wait(15)
    assert caught.value.status == 502


def test_a_body_of_just_the_limit_is_a_reply(client: Driver) -> None:
    exactly = Limits(max_reply_bytes=len(whole()))
    with Peer([reply()]) as peer:
        assert client.call(at(peer), limits=exactly).text == "The sky is blue."
        with pytest.raises(ReplyTooLarge):
            client.call(at(peer), limits=Limits(max_reply_bytes=len(whole()) - 1))


# ── compression ──────────────────────────────────────────────────────────────
BLANKS = 100  # megabytes, plain


def bomb(wbits: int) -> bytes:
    """A reply that begins well, and goes on in blanks."""
    packer = zlib.compressobj(1, wbits=wbits)
    pieces = [packer.compress(whole())]
    pieces += [packer.compress(b" " * 1_000_000) for _ in range(BLANKS)]
    return b"".join([*pieces, packer.flush()])


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    """By their coding; each less than a thousandth of what it stands for."""
    packed = bomb(31)
    return {"gzip": packed, "deflate": bomb(-15), "gzip, gzip": gzip.compress(packed)}


@pytest.mark.parametrize("verb", ["call", "stream"])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "gzip, gzip"])
def test_a_bomb_is_not_unpacked(client: Driver, bombs: dict[str, bytes], coding: str, verb: str) -> None:
    limits = Limits(max_reply_bytes=1_000_000, max_event_bytes=1_000_000)
    with Peer([answer(200, bombs[coding], JSON, content_encoding=coding)]) as peer:
        tracemalloc.start()
        try:
            with pytest.raises(ReplyTooLarge) as caught:
                ask(client, verb, at(peer), limits=limits)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    too_large(caught, "max_reply_bytes", 1_000_000)
    assert peak < 12_000_000, "some copies of what may come, and what lies in buffers"


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_a_bomb_in_a_coding_that_nobody_asked_for(make: Make, coding: str) -> None:
    """Undone where a package for it is installed; else it is a body that nobody can read."""
    name = {"br": "brotli", "zstd": "zstandard"}[coding]
    package = pytest.importorskip(name, reason=f"{name} is not installed")
    packed = [package.compress(whole() + b" " * 50_000_000), package.compress(whole())]
    with Peer(*([answer(200, body, JSON, content_encoding=coding)] for body in packed)) as peer:
        client = make(retry=ONCE)
        with pytest.raises(ReplyTooLarge):
            client.call(at(peer), limits=Limits(max_reply_bytes=1_000_000))
        assert client.call(at(peer)).text == "The sky is blue."


def test_a_long_compressed_reply_comes_whole_though_in_pieces(client: Driver) -> None:
    """Ten times what one piece may hold, in one read of the socket and in many."""
    text = "天 is blue. " * 80_000
    packed = gzip.compress(whole(text))
    streamed = gzip.compress(b"".join(said(text, " And so on.")))
    in_pieces = [streamed[i : i + 100] for i in range(0, len(streamed), 100)]
    with Peer(
        [answer(200, packed, JSON, content_encoding="gzip")],
        [answer(200, packed, JSON, content_encoding="gzip")],
        [answer(200, streamed, SSE, content_encoding="gzip")],
        [chunked(*in_pieces, headers={**SSE, "content-encoding": "gzip"})],
    ) as peer:
        for _ in range(2):
            assert client.call(at(peer)).text == text
        for _ in range(2):
            events, got = drained(client.stream(at(peer)))
            assert got.text == text + " And so on."
            folds(events, got)
        assert peer.connections == 1, "each body was read to its end"


def test_what_is_behind_a_compressed_reply_is_told_after_all_that_came(client: Driver) -> None:
    packer = zlib.compressobj(wbits=31)
    good = packer.compress(b"".join(texts("x" * 300_000, "y" * 300_000))) + packer.flush(zlib.Z_SYNC_FLUSH)
    sent = chunked(good, headers={**SSE, "content-encoding": "gzip"}, end=False) + b"7\r\nhalf"
    with Peer([sent, Close()]) as peer, pytest.raises(cnllm.StreamCut) as caught:
        drained(client.stream(at(peer)))
    assert caught.value.reply is not None
    assert caught.value.reply.text == "x" * 300_000 + "y" * 300_000


# ── where they are set ───────────────────────────────────────────────────────
def test_a_client_has_limits_and_a_call_others(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_MAX_REPLY_BYTES", "77")
    with Peer([reply()]) as peer:
        for client, most in ((make(limits=Limits(max_reply_bytes=99)), 99), (make(), 77)):
            with pytest.raises(ReplyTooLarge) as caught:
                client.call(at(peer))
            assert caught.value.most == most
            assert client.call(at(peer), limits=Limits()).text == "The sky is blue."
        with pytest.raises(TypeError, match=r"limits is int; a cnllm\.Limits\(.*\) is expected"):
            make().call(at(peer), limits=5)
        with pytest.raises(TypeError, match=r"limits is int; a cnllm\.Limits"):
            make(limits=5)


def test_none_is_no_limit(client: Driver) -> None:
    free = Limits(max_reply_bytes=None, max_event_bytes=None)
    with Peer([reply("x" * 1_000_000)], [stream(*said("x" * 1_000_000))]) as peer:
        assert len(client.call(at(peer), limits=free).text) == 1_000_000
        assert len(drained(client.stream(at(peer), limits=free))[1].text) == 1_000_000


def test_a_finish_before_done_and_then_silence_is_no_matter_of_limits(client: Driver) -> None:
    with Peer([stream(*texts("The sky"), STOP, DONE, end=False), Stay()]) as peer:
        assert drained(client.stream(at(peer), limits=SMALL))[1].finish == "stop"
