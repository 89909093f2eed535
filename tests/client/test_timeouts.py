"""A peer that stalls never hangs a caller, and a slow one is waited for."""

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cases import each

import cnllm
from cnllm import IdleTimeout, Timeout, Timeouts

from .conftest import Make
from .peer import (
    DONE,
    JSON,
    Again,
    Pause,
    Peer,
    Stay,
    Step,
    answer,
    call_delta,
    delta,
    head,
    piece,
    reply,
    said,
    stream,
    texts,
    whole,
)
from .support import ONCE, SOON, Driver, ask, at, drained, folds, registry, written

VERBS = ["call", "stream"]
COMMENT = piece(b": still here\n\n")


@contextlib.contextmanager
def full() -> Iterator[int]:
    """A port whose queue is full: connections to it hang."""
    with socket.socket() as listener, contextlib.ExitStack() as kept:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        for _ in range(8):
            waiting = kept.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
            if not select.select([], [waiting], [], 0.05)[1]:
                break
        else:
            pytest.skip("this system takes every connection")
        yield port


def test_a_connection_that_does_not_come_about(make: Make) -> None:
    client = make(retry=ONCE)
    with full() as port:
        model = registry().resolve("openai-compatible/m", base_url=f"http://127.0.0.1:{port}/v1")
        with pytest.raises(Timeout, match=r"no connection to 127\.0\.0\.1 in 0\.2 s") as caught:
            ask(client, "stream", model, timeout=Timeouts(connect=0.2, first_byte=30))
    assert not isinstance(caught.value, IdleTimeout)
    assert caught.value.retryable


@each("verb", VERBS)
@each("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Ty"], ids=["nothing", "half a header"])
def test_an_answer_that_does_not_begin(client: Driver, verb: str, sent: bytes) -> None:
    with Peer([sent, Stay()]) as peer, pytest.raises(Timeout, match=r"did not answer in 0\.1 s") as caught:
        ask(client, verb, at(peer), timeout=Timeouts(first_byte=0.1, idle=30))
    assert not isinstance(caught.value, IdleTimeout)
    assert caught.value.reply is None


@each("verb", VERBS)
def test_headers_that_come_in_drops_are_no_answer(client: Driver, verb: str) -> None:
    waits = Timeouts(connect=0.2, first_byte=0.2, idle=0.2)
    with Peer([b"HTTP/1.1 200 OK\r\n", Again(b"x-a: y\r\n", 0.02)]) as peer:
        with pytest.raises(Timeout, match=r"did not answer in 0\.2 s"):
            ask(client, verb, at(peer), timeout=waits)
        assert peer.gone.wait(SOON)


def test_a_number_stands_for_every_wait(client: Driver) -> None:
    with Peer([Stay()]) as peer, pytest.raises(Timeout):
        ask(client, "call", at(peer), timeout=0.2)
    with Peer([head(), Stay()]) as peer, pytest.raises(IdleTimeout):
        ask(client, "stream", at(peer), timeout=1)


def test_the_client_has_a_timeout_and_a_call_another(make: Make) -> None:
    with Peer([Pause(0.4), reply()]) as peer:
        client = make(timeout=0.2)
        with pytest.raises(Timeout):
            client.call(at(peer))
        assert client.call(at(peer), timeout=20).text == "The sky is blue."


@pytest.mark.share(1)  # with each client: each waits in its own way
def test_a_request_that_nobody_reads(client: Driver) -> None:
    """The peer takes the connection and then reads nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        model = registry().resolve("openai-compatible/m", base_url=f"http://127.0.0.1:{port}/v1")
        with pytest.raises(Timeout):
            client.call(model, "x" * 30_000_000, timeout=Timeouts(idle=0.3, first_byte=0.3))


# ── silence ──────────────────────────────────────────────────────────────────
BEFORE: dict[str, tuple[list[bytes], str]] = {
    "headers": ([], ""),
    "a comment": ([b": hello\n\n"], ""),
    "half an event": ([delta("The sky")[:20]], ""),
    "text": (texts("The sky", " is"), "The sky is"),
    "text and half an event": ([*texts("The sky"), delta(" is")[:30]], "The sky"),
}


@each("before", BEFORE)
def test_silence_in_a_stream_ends_it_with_what_came(client: Driver, before: str) -> None:
    sent, text = BEFORE[before]
    events: list[cnllm.Event] = []
    with Peer([stream(*sent, end=False), Stay()]) as peer:
        with pytest.raises(IdleTimeout, match=r"no bytes for 0\.1 s") as caught:
            drained(client.stream(at(peer), timeout=Timeouts(first_byte=30, idle=0.1)), events)
        assert peer.gone.wait(15)
        assert len(peer.received) == 1
    got = caught.value.reply
    assert got is not None
    assert (got.text, got.finish) == (text, "cut")
    folds(events, got)


def test_calls_of_a_stream_that_stalled_are_not_executable(client: Driver) -> None:
    sent = [call_delta(0, "{}", id="a", name="now"), call_delta(1, '{"q":', id="b", name="search")]
    with Peer([stream(*sent, end=False), Stay()]) as peer, pytest.raises(IdleTimeout) as caught:
        drained(client.stream(at(peer), timeout=Timeouts(idle=0.2)))
    assert caught.value.reply is not None
    assert caught.value.reply.tool_calls == []
    assert [call.name for call in caught.value.reply.incomplete] == ["now", "search"]


@each("status", [200, 400, 503])
def test_a_whole_body_that_stalls_is_no_reply(client: Driver, status: int) -> None:
    with Peer([answer(status, whole())[:-20], Stay()]) as peer, pytest.raises(IdleTimeout) as caught:
        ask(client, "call", at(peer), timeout=Timeouts(idle=0.2))
    assert caught.value.reply is None
    assert len(peer.received) == 1


def test_a_refused_stream_whose_body_stalls(client: Driver) -> None:
    with Peer([head(500, JSON, content_length="50") + b'{"error":', Stay()]) as peer, pytest.raises(IdleTimeout):
        ask(client, "stream", at(peer), timeout=Timeouts(idle=0.2))
    assert len(peer.received) == 1


# ── progress ─────────────────────────────────────────────────────────────────
CHATTER: dict[str, bytes] = {
    "comments": COMMENT,
    "empty deltas": piece(delta("")),
    "a role": piece(delta(role="assistant")),
    "blank lines": piece(b"\n\n"),
    "no choice": piece(b'data: {"id":"r1","choices":[]}\n\n'),
}


@each("chatter, before", [*((kind, "text") for kind in CHATTER), ("comments", "comment")])
def test_chatter_is_no_progress(client: Driver, chatter: str, before: str) -> None:
    first = delta("The sky") if before == "text" else b": hello\n\n"
    events: list[cnllm.Event] = []
    began = time.monotonic()
    with Peer([stream(first, end=False), Again(CHATTER[chatter], every=0.02)]) as peer:
        with pytest.raises(IdleTimeout, match=r"no event for 0\.1 s") as caught:
            drained(client.stream(at(peer), timeout=Timeouts(idle=30, progress=0.1)), events)
        assert peer.gone.wait(15)
    assert 0.1 < time.monotonic() - began < 15
    got = caught.value.reply
    assert got is not None
    assert (got.text, got.finish) == ("The sky" if before == "text" else "", "cut")
    assert written(events) == got.text


@each("chatter", [b"\n", b"  ", b": keep-alive\n\n"])
def test_chatter_is_no_progress_of_a_whole_reply(client: Driver, chatter: bytes) -> None:
    began = time.monotonic()
    with Peer([head(200, JSON, transfer_encoding="chunked"), Again(piece(chatter), every=0.02)]) as peer:
        with pytest.raises(IdleTimeout, match=r"no (part of the reply|event) for 0\.1 s"):
            ask(client, "call", at(peer), timeout=Timeouts(idle=30, progress=0.1))
        assert peer.gone.wait(15)
    assert time.monotonic() - began < 15


def test_progress_may_be_asked_for_sooner_than_bytes(client: Driver) -> None:
    """Who wants a word every 0.3 seconds does not wait for the socket's 30."""
    began = time.monotonic()
    with Peer([stream(delta("The sky"), end=False), Stay()]) as peer, pytest.raises(IdleTimeout) as caught:
        drained(client.stream(at(peer), timeout=Timeouts(idle=30, progress=0.3)))
    assert time.monotonic() - began < 15
    assert caught.value.reply is not None
    assert caught.value.reply.text == "The sky"


def _slow(*said: bytes, pause: float, times: int) -> list[Step]:
    """Pieces that are sent again and again, with a pause before each."""
    return [step for _ in range(times) for one in said for step in (Pause(pause), one)]


BODY = b'{"choices": [{"message": {"content": "The sky"}, "finish_reason": "stop"}]}'
SLOW: dict[str, tuple[str, list[Step], Timeouts, tuple[str, str]]] = {
    "comments in a stream": (
        "stream",
        [
            stream(*texts("The sky"), end=False),
            *_slow(COMMENT, pause=0.2, times=9),
            piece(delta(" is", "stop") + DONE),
            piece(b""),
        ],
        Timeouts(idle=1.5, progress=20),
        ("", "The sky is"),
    ),
    "white space before a whole reply": (
        "call",
        [
            head(200, JSON, transfer_encoding="chunked"),
            *_slow(piece(b"\n"), pause=0.2, times=9),
            piece(BODY),
            piece(b""),
        ],
        Timeouts(idle=1.5, progress=20),
        ("", "The sky"),
    ),
    "a word now and then": (
        "stream",
        [
            stream(end=False),
            *_slow(COMMENT, piece(delta(reasoning_content="hm ")), pause=0.25, times=4),
            piece(b"".join(said("So."))),
            piece(b""),
        ],
        Timeouts(idle=20, progress=1.8),
        ("hm " * 4, "So."),
    ),
}


def test_who_says_something_in_time_is_waited_for(client: Driver) -> None:
    """However long it takes as a whole. All are asked at once: each takes two seconds."""

    def waited(kind: str) -> tuple[str, str]:
        verb, script, waits, _ = SLOW[kind]
        with Peer(script) as peer:
            got = ask(client, verb, at(peer), timeout=waits)
        return got.reasoning, got.text

    with ThreadPoolExecutor(len(SLOW)) as pool:
        found = dict(zip(SLOW, pool.map(waited, SLOW), strict=True))
    assert found == {kind: expected for kind, (*_, expected) in SLOW.items()}


def test_a_whole_reply_that_is_thought_over_is_waited_for(client: Driver) -> None:
    with Peer([Pause(0.4), reply()]) as peer:
        assert ask(client, "call", at(peer), timeout=Timeouts(idle=0.2, progress=0.2)).text == "The sky is blue."


def test_no_limit_at_all(client: Driver) -> None:
    never = Timeouts(connect=None, first_byte=None, idle=None, progress=None)
    with Peer([Pause(0.2), stream(*said("The sky"))]) as peer:
        assert ask(client, "stream", at(peer), timeout=never).text == "The sky"
