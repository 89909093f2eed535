"""Streams that break off: what came is kept, nothing of it is executed, and asking again hides no seam."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from cases import each
from examples import SHARE
from waits import replace_waits

import cnllm
from cnllm import Client, Timeouts

from .conftest import Make
from .peer import (
    DONE,
    SSE,
    Close,
    Peer,
    Reset,
    Stay,
    Step,
    Wait,
    answer,
    call_delta,
    chunked,
    delta,
    frame,
    head,
    piece,
    refused,
    reply,
    said,
    stream,
    texts,
    usage,
    whole,
)
from .support import ONCE, QUICK, Driver, at, counted, drained, folds, home, registry, written

PART = texts("The sky", " is")
CALLS = [
    call_delta(0, "{}", id="c0", name="now"),
    call_delta(1, '{"q":', id="c1", name="search"),
    call_delta(1, ' "sky"}'),
]
ENDS = ["closed", "unfinished chunk", "promised length", "ended", "reset"]


def cut(end: str, *events: bytes, read: threading.Event | None = None) -> list[Step]:
    """A stream that ends after these events; a reset is sent once the client has read."""
    match end:
        case "closed":
            return [head() + b"".join(events), Close()]
        case "unfinished chunk":
            return [chunked(*events, end=False) + b"ffff\r\ndata: {", Close()]
        case "promised length":
            return [head(content_length="100000") + b"".join(events), Close()]
        case "ended":
            return [stream(*events)]
        case _:
            return [stream(*events, end=False), *([] if read is None else [Wait(read)]), Reset()]


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the clients slept between tries; they do not sleep really."""
    taken: list[float] = []

    async def nap(seconds: float) -> None:
        taken.append(seconds)

    replace_waits(monkeypatch, taken.append)
    monkeypatch.setattr(anyio, "sleep", nap)
    return taken


def what_came(error: cnllm.CnllmError) -> cnllm.Reply:
    assert error.reply is not None
    return error.reply


# ── the error ────────────────────────────────────────────────────────────────
@each("end", ENDS)
def test_a_stream_that_breaks_off_is_cut_and_keeps_what_came(client: Driver, end: str) -> None:
    read = threading.Event()
    events: list[Any] = []
    with Peer(cut(end, delta(reasoning_content="Hm."), *PART, read=read)) as peer:
        with pytest.raises(cnllm.StreamCut) as caught:
            drained(client.stream(at(peer)), events, read, 3)
        assert len(peer.received) == 1
    got = what_came(caught.value)
    assert (got.reasoning, got.text, got.finish, got.raw_finish) == ("Hm.", "The sky is", "cut", None)
    assert isinstance(caught.value.__cause__, cnllm.TransportError) == (end not in ("closed", "ended"))
    folds(events, got)


@each("end", ENDS)
def test_no_call_of_a_cut_stream_is_executable_not_even_a_whole_one(client: Driver, end: str) -> None:
    read = threading.Event()
    events: list[Any] = []
    with Peer(cut(end, *CALLS, read=read)) as peer, pytest.raises(cnllm.StreamCut) as caught:
        drained(client.stream(at(peer)), events, read, 5)
    got = what_came(caught.value)
    assert got.tool_calls == got.message.tool_calls == []
    assert [(call.name, call.arguments, call.raw) for call in got.incomplete] == [
        ("now", None, "{}"),
        ("search", None, '{"q": "sky"}'),
    ]
    assert counted(events, cnllm.ToolCallEnd) == 0
    folds(events, got)


@each("end", ENDS)
@each("if_cut", ["error", "keep"])
def test_a_stream_cut_before_its_first_event(client: Driver, end: str, if_cut: str) -> None:
    """With a comment, so that it did begin; what an empty body means is another question."""
    with Peer(cut(end, b": hello\n\n")) as peer:
        streamed = client.stream(at(peer), if_cut=if_cut)
        if if_cut == "keep":
            events, got = drained(streamed)
            assert (got.text, got.finish) == ("", "cut")
            folds(events, got)
        else:
            with pytest.raises(cnllm.StreamCut):
                drained(streamed)
        assert len(peer.received) == 1


@each("end", ["unfinished chunk", "promised length", "reset"])
def test_a_connection_that_breaks_before_the_first_byte_of_a_body(client: Driver, end: str) -> None:
    start = head(transfer_encoding="chunked") if end == "unfinished chunk" else head(content_length="9")
    with Peer([start, Reset() if end == "reset" else Close()]) as peer:
        with pytest.raises(cnllm.StreamCut) as caught:
            drained(client.stream(at(peer)))
        with pytest.raises(cnllm.TransportError):
            client.call(at(peer))
    assert (what_came(caught.value).text, what_came(caught.value).finish) == ("", "cut")


def test_half_a_whole_body_for_a_stream_is_cut_too(client: Driver) -> None:
    with Peer([answer(200, whole())[:-30], Close()]) as peer, pytest.raises(cnllm.StreamCut) as caught:
        drained(client.stream(at(peer)))
    assert what_came(caught.value).finish == "cut"


@each("end", ENDS)
def test_keep_returns_what_came(client: Driver, end: str) -> None:
    read = threading.Event()
    events: list[Any] = []
    streamed = None
    with Peer(cut(end, *PART, *CALLS, read=read)) as peer:
        streamed = client.stream(at(peer), if_cut="keep")
        drained(streamed, events, read, 7)
        assert len(peer.received) == 1
    assert (streamed.reply.text, streamed.reply.finish) == ("The sky is", "cut")
    assert (streamed.reply.tool_calls, len(streamed.reply.incomplete)) == ([], 2)
    folds(events, streamed.reply)


def test_keep_returns_what_came_before_a_stall(client: Driver) -> None:
    with Peer([stream(*PART, end=False), Stay()]) as peer:
        events, got = drained(client.stream(at(peer), if_cut="keep", timeout=Timeouts(idle=0.2)))
    assert (got.text, got.finish) == ("The sky is", "cut")
    folds(events, got)


# ── once more ────────────────────────────────────────────────────────────────
@each("end", ENDS)
def test_once_more_asks_whole_and_adds_the_difference(client: Driver, end: str) -> None:
    read = threading.Event()
    events: list[Any] = []
    with Peer(cut(end, *PART, read=read), [reply()]) as peer:
        streamed = client.stream(at(peer), if_cut="again-whole")
        drained(streamed, events, read, 2)
    first, second = (request.json() for request in peer.received)
    assert first.pop("stream") is True
    first.pop("stream_options", None)
    assert first == second
    assert peer.received[1].headers["accept"] == "application/json"
    assert [e.text for e in events if isinstance(e, cnllm.TextDelta)] == ["The sky", " is", " blue."]
    assert counted(events, cnllm.Restarted) == 0
    assert (streamed.reply.finish, streamed.reply.usage.total) == ("stop", 7)
    assert "again-whole" in [note.code for note in streamed.reply.notes]
    folds(events, streamed.reply)


def test_once_more_asks_what_was_asked_though_the_callers_list_changed(client: Driver) -> None:
    question = {"role": "user", "content": "Why?"}
    messages = [question]
    with Peer([stream(*PART)], [reply()]) as peer:
        with client.stream(at(peer), messages, system="Be brief.", if_cut="again-whole") as streamed:
            for _ in streamed:
                question["content"] = "What for?"
                messages.append({"role": "user", "content": "And now?"})
        assert streamed.reply.text == "The sky is blue."
    sent = [request.json()["messages"] for request in peer.received]
    assert [[message["content"] for message in turns] for turns in sent] == [["Be brief.", "Why?"]] * 2


AGAIN: dict[str, tuple[list[bytes], bytes, bool]] = {
    "the same": (texts("The sky is blue."), reply(), False),
    "nothing came": ([b": hello\n\n"], reply(), False),
    "other text": (PART, reply("Rayleigh."), True),
    "shorter text": (PART, reply("The sky"), True),
    "thinking goes on": (
        [delta(reasoning_content="Hm")],
        reply(reasoning_content="Hm, light."),
        False,
    ),
    "other thinking": ([delta(reasoning_content="Hm")], reply(reasoning_content="Well."), True),
    "thinking was over": (
        [delta(reasoning_content="Hm"), *PART],
        reply(reasoning_content="Hm, light."),
        True,
    ),
    "thinking is gone": ([delta(reasoning_content="Hm"), *PART], reply(), True),
    "a call had begun": (
        [*PART, CALLS[1]],
        reply(
            tool_calls=[{"id": "n1", "type": "function", "function": {"name": "search", "arguments": '{"q":"sky"}'}}],
            finish="tool_calls",
        ),
        True,
    ),
    "a call instead": (
        PART,
        reply(
            "The sky is",
            tool_calls=[{"id": "n1", "type": "function", "function": {"name": "search", "arguments": "{}"}}],
            finish="tool_calls",
        ),
        False,
    ),
    "too long": (PART, reply("The sky is bl", finish="length"), False),
}


@each("case", AGAIN)
def test_once_more_restarts_only_where_it_must(client: Driver, case: str) -> None:
    came, again, restarts = AGAIN[case]
    with Peer([stream(*came)], [again], [again]) as peer:
        events, got = drained(client.stream(at(peer), if_cut="again-whole"))
        assert len(peer.received) == 2
        expected = client.call(at(peer))
    assert counted(events, cnllm.Restarted) == int(restarts)
    assert (got.text, got.reasoning, got.tool_calls) == (expected.text, expected.reasoning, expected.tool_calls)
    assert (got.finish, got.usage, got.message) == (expected.finish, expected.usage, expected.message)
    folds(events, got)


def test_once_more_after_a_stall(client: Driver) -> None:
    with Peer([stream(*PART, end=False), Stay()], [reply()]) as peer:
        streamed = client.stream(at(peer), if_cut="again-whole", timeout=Timeouts(idle=0.2))
        events, got = drained(streamed)
        assert peer.gone.wait(15), "the first connection is given up"
    assert got.text == "The sky is blue."
    folds(events, got)


FAILURES: dict[str, list[Step]] = {
    "overloaded": [refused(503)],
    "lost": [Reset()],
    "cut whole": [answer(200, whole())[:-20], Close()],
    "cut stream": [stream(*PART)],
    "rate limit in the body": [answer(200, b'{"error":{"message":"slow","code":"rate_limit_exceeded"}}')],
}


@each("kind", FAILURES)
def test_after_three_whole_tries_it_is_cut(make: Make, naps: list[float], kind: str) -> None:
    events: list[Any] = []
    with Peer([stream(*PART)], FAILURES[kind]) as peer:
        with pytest.raises(cnllm.StreamCut) as caught:
            drained(make().stream(at(peer), if_cut="again-whole"), events)
        assert [bool(request.json().get("stream")) for request in peer.received] == [True, False, False, False]
    assert len(naps) == 2
    assert naps[0] < naps[1]
    assert caught.value.__cause__ is not None
    got = what_came(caught.value)
    assert (got.text, got.finish) == ("The sky is", "cut")
    folds(events, got)


def test_the_third_whole_try_may_succeed(client: Driver, naps: list[float]) -> None:
    with Peer([stream(*PART)], [refused(503)], [Reset()], [reply()]) as peer:
        events, got = drained(client.stream(at(peer), if_cut="again-whole"))
        assert len(peer.received) == 4
    assert got.text == "The sky is blue."
    folds(events, got)


@each("refusal", [refused(401), refused(402), refused(400), answer(200, whole(""))], ids=["401", "402", "400", "empty"])
def test_a_refusal_of_the_second_request_ends_it_with_what_came(
    client: Driver, naps: list[float], refusal: bytes
) -> None:
    events: list[Any] = []
    with Peer([stream(*PART)], [refusal]) as peer:
        with pytest.raises(cnllm.StreamCut) as caught:
            drained(client.stream(at(peer), if_cut="again-whole"), events)
        assert len(peer.received) == 2
    assert isinstance(caught.value.__cause__, cnllm.EndpointError)
    assert what_came(caught.value).text == "The sky is"
    folds(events, what_came(caught.value))


def test_where_only_streams_are_answered_it_is_streamed_again_and_not_for_ever(
    make: Make, naps: list[float], tmp_path: Path
) -> None:
    with Peer([stream(*PART)]) as peer:
        model = home(tmp_path, peer, 'stream = { required = true, if_cut = "again-whole" }')
        for verb in ("stream", "call"):
            peer.received.clear()
            with pytest.raises(cnllm.StreamCut):
                _ = drained(make().stream(model)) if verb == "stream" else make().call(model)
            assert [request.json().get("stream") for request in peer.received] == [True] * 4
    with Peer([stream(*PART)], [stream(*said("The sky", " is blue."))]) as peer:
        events, got = drained(make().stream(home(tmp_path, peer, "stream.required = true"), if_cut="again-whole"))
        assert len(peer.received) == 2
    assert got.text == "The sky is blue."
    folds(events, got)


def test_the_registry_may_say_what_becomes_of_cut_streams(client: Driver, tmp_path: Path) -> None:
    with Peer([stream(*PART)]) as peer:
        model = home(tmp_path, peer, 'stream.if_cut = "keep"')
        assert drained(client.stream(model))[1].finish == "cut"
        with pytest.raises(cnllm.StreamCut):
            drained(client.stream(model, if_cut="error"))


def test_a_second_request_carries_the_key_too(client: Driver) -> None:
    with Peer([stream(*PART)], [reply()]) as peer:
        drained(client.stream(at(peer), if_cut="again-whole", api_key="sk-secret-0123456789"))
    assert {request.headers["authorization"] for request in peer.received} == {"Bearer sk-secret-0123456789"}


# ── cuts everywhere ──────────────────────────────────────────────────────────
FULL = b"".join(
    [
        delta(reasoning_content="Hm, "),
        delta(reasoning_content="light."),
        *texts("天空", " is", " blue."),
        *CALLS,
        delta(finish="tool_calls"),
        usage(),
        DONE,
    ]
)
WHOLE = whole(
    "天空 is blue.",
    "tool_calls",
    reasoning_content="Hm, light.",
    tool_calls=[
        {"id": "c0", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "sky"}'}},
    ],
)
PROVEN = FULL.index(b"tool_calls", FULL.index(b'"finish_reason": "tool_calls"')) + len(b'tool_calls"}]}')


class Cutting:
    """Streams as much of it as it is told to, in pieces, and answers whole requests whole."""

    def __init__(self, length: int, size: int, breaks: bool) -> None:
        self.length, self.size, self.breaks = length, size, breaks

    def send(self, plan: cnllm.Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        if not plan.stream:
            return 200, {}, iter([WHOLE])
        return 200, dict(SSE), self._pieces()

    def _pieces(self) -> Iterator[bytes]:
        for start in range(0, self.length, self.size):
            yield FULL[start : min(start + self.size, self.length)]
        if self.breaks and self.length < len(FULL):
            raise cnllm.TransportError("lost")


@pytest.mark.sampled
@each("if_cut", ["error", "keep", "again-whole"])
@each("breaks", [False, True], ids=["ends", "breaks"])
def test_wherever_it_is_cut_the_events_tell_the_truth(if_cut: Any, breaks: bool) -> None:
    step = SHARE if if_cut == "error" else 5 if SHARE == 1 else 2 * SHARE + 1
    lengths = [*range(len("data:"), len(FULL), step), PROVEN - 1, PROVEN, len(FULL)]
    for length in lengths:
        events: list[Any] = []
        raised = False
        with Client(registry(), Cutting(length, 7 + length % 90, breaks), retry=ONCE) as client:
            model = registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")
            stream = client.stream(model, "hi", if_cut=if_cut)
            try:
                with stream:
                    events.extend(stream)
                got = stream.reply
            except cnllm.StreamCut as error:
                got = what_came(error)
                raised = True
        assert raised == (if_cut == "error" and length < PROVEN)
        assert "天空 is blue.".startswith(written(events))
        if length >= PROVEN or (if_cut == "again-whole"):
            assert got.finish == "tool_calls"
            assert [call.arguments for call in got.tool_calls] == [{}, {"q": "sky"}]
        else:
            assert (got.finish, got.tool_calls) == ("cut", []), length
        sent = [json.loads(line[6:]) for line in FULL[:length].split(b"\n\n")[:-1] if line != DONE.strip()]
        text = "".join(c["delta"].get("content") or "" for one in sent for c in one["choices"])
        assert got.text.startswith(text), "what came whole is never lost"
        folds(events, got)


# ── whole replies ────────────────────────────────────────────────────────────
@each("end", ["promised length", "chunks without an end", "half a chunk", "reset"])
@each("complete", [False, True], ids=["half the JSON", "all the JSON"])
def test_a_whole_reply_that_breaks_off_is_never_a_reply(client: Driver, end: str, complete: bool) -> None:
    body = whole() if complete else whole()[:-30]
    more = str(len(body) + 10)
    scripts: dict[str, list[Step]] = {
        "promised length": [head(content_length=more) + body, Close()],
        "chunks without an end": [chunked(body, end=False), Close()],
        "half a chunk": [chunked(end=False) + b"ffff\r\n" + body, Close()],
        "reset": [head(content_length=more) + body, Reset()],
    }
    with Peer(scripts[end]) as peer, pytest.raises(cnllm.TransportError) as caught:
        client.call(at(peer))
    assert not isinstance(caught.value, cnllm.Timeout)
    assert len(peer.received) == 1, "an answer that began is not asked for again"


def test_half_a_reply_that_ends_properly_is_none_either(client: Driver) -> None:
    half = whole()[:-30]
    for sent in (answer(200, half), head() + half, stream(half)):
        with Peer([sent, Close()]) as peer, pytest.raises(cnllm.CnllmError):
            client.call(at(peer))


def test_a_stream_for_a_whole_request_that_is_cut(make: Make) -> None:
    with Peer([stream(*PART, *CALLS)]) as peer, pytest.raises(cnllm.StreamCut) as caught:
        make(retry=QUICK).call(at(peer))
    assert (what_came(caught.value).text, what_came(caught.value).tool_calls) == ("The sky is", [])


def test_an_unreadable_chunk_in_the_middle_is_no_whole_reply(client: Driver) -> None:
    damaged = [*PART, b'data: {"choices":[{"delta":{"conte\n\n', delta(finish="stop"), usage(), frame("[DONE]")]
    events: list[Any] = []
    with Peer([stream(*damaged)]) as peer, pytest.raises(cnllm.StreamCut) as caught:
        drained(client.stream(at(peer)), events)
    folds(events, what_came(caught.value))


def test_bytes_after_the_end_are_nobodys(client: Driver) -> None:
    with Peer([stream(*said("The sky"), delta(" is lost"))]) as peer:
        events, got = drained(client.stream(at(peer)))
    assert got.text == "The sky"
    folds(events, got)


def test_a_piece_larger_than_a_read(client: Driver) -> None:
    long = "天" * 300_000
    with Peer([stream(delta(long), delta(finish="stop"), end=False) + piece(DONE) + piece(b"")]) as peer:
        assert drained(client.stream(at(peer)))[1].text == long
