"""Retry: what can succeed is tried again, what cannot is not; the requests that a peer saw are counted."""

import json
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from cases import each
from waits import replace_waits

import cnllm
from cnllm import Retry, Timeouts

from .conftest import Make
from .peer import (
    DONE,
    JSON,
    Close,
    Peer,
    Reset,
    Stay,
    Wait,
    answer,
    delta,
    failure,
    frame,
    head,
    refused,
    reply,
    said,
    stream,
)
from .support import ONCE, QUICK, Driver, ask, at, drained, written

VERBS = ["call", "stream"]


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the clients slept; they do not sleep really."""
    taken: list[float] = []

    async def nap(seconds: float) -> None:
        taken.append(seconds)

    replace_waits(monkeypatch, taken.append)
    monkeypatch.setattr(anyio, "sleep", nap)
    return taken


def good(verb: str) -> bytes:
    return reply() if verb == "call" else stream(*said("The sky", " is blue."))


# ── what is tried again ──────────────────────────────────────────────────────
@each("verb", VERBS)
@each("status", [408, 409, 429, 500, 502, 503, 504, 520, 529])
def test_a_status_that_may_pass_is_tried_again(client: Driver, naps: list[float], verb: str, status: int) -> None:
    with Peer([refused(status)], [refused(status)], [good(verb)]) as peer:
        assert ask(client, verb, at(peer)).text == "The sky is blue."
    assert len(peer.received) == 3
    assert len({request.body for request in peer.received}) == 1
    assert len(naps) == 2


@each("verb", VERBS)
@each("end", [Close(), Reset()], ids=["closed", "reset"])
@each("words", [b"", failure("slow down")[:-5]], ids=["none", "half"])
def test_a_status_whose_body_broke_off_is_tried_again(
    client: Driver, naps: list[float], verb: str, words: bytes, end: Close | Reset
) -> None:
    busy = head(429, JSON, retry_after="7", content_length="500") + words
    with Peer([busy, end], [good(verb)]) as peer:
        assert ask(client, verb, at(peer)).text == "The sky is blue."
    assert len(peer.received) == 2
    assert 7 <= naps[0] < 8


@each("verb", VERBS)
@each("status, kind", [(401, cnllm.BadKey), (429, cnllm.RateLimited), (503, cnllm.Overloaded)])
def test_a_refusal_stands_though_its_words_broke_off(
    make: Make, verb: str, status: int, kind: type[cnllm.EndpointError]
) -> None:
    """What there is of them is shown, but not the half of a key that was in them."""
    half = head(status, JSON, content_length="500") + b'{"error": {"message": "no: sk-0123456789ab'
    with Peer([half, Close()]) as peer, pytest.raises(kind) as caught:
        ask(make(retry=ONCE, api_key="sk-0123456789abcdef"), verb, at(peer))
    assert caught.value.status == status
    assert f"HTTP {status}, with JSON that cannot be read: " in str(caught.value)
    assert '"message": "no: ' in str(caught.value)
    assert "sk-0" not in f"{caught.value} {caught.value.body}"


@each("verb", VERBS)
@each("attempts", [1, 2, 4])
def test_no_more_often_than_attempts_say(make: Make, naps: list[float], verb: str, attempts: int) -> None:
    with Peer([refused(503, "busy")]) as peer, pytest.raises(cnllm.Overloaded, match="busy") as caught:
        ask(make(retry=Retry(attempts=attempts)), verb, at(peer))
    assert (caught.value.status, caught.value.retryable) == (503, True)
    assert len(peer.received) == attempts
    assert len(naps) == attempts - 1


@each("verb", VERBS)
@each("status", [400, 401, 402, 403, 404, 405, 410, 413, 415, 418, 422, 451])
def test_any_other_refusal_is_final(client: Driver, naps: list[float], verb: str, status: int) -> None:
    with Peer([refused(status, "no")]) as peer, pytest.raises(cnllm.EndpointError) as caught:
        ask(client, verb, at(peer))
    assert (caught.value.status, caught.value.message, caught.value.retryable) == (status, "no", False)
    assert (len(peer.received), naps) == (1, [])


QUOTA = [
    answer(429, failure("You exceeded your current quota.", "insufficient_quota")),
    answer(429, failure("Your account has insufficient balance"), retry_after="1"),
    answer(429, b"insufficient credits", {"content-type": "text/plain"}),
    answer(402, b""),
]


@each("verb", VERBS)
@each("refusal", QUOTA, ids=["code", "sentence", "text", "402"])
def test_an_empty_purse_is_not_filled_by_waiting(client: Driver, naps: list[float], verb: str, refusal: bytes) -> None:
    with Peer([refusal]) as peer, pytest.raises(cnllm.QuotaExceeded):
        ask(client, verb, at(peer))
    assert (len(peer.received), naps) == (1, [])


# ── how long it waits ────────────────────────────────────────────────────────
def _date(ahead: float) -> str:
    return formatdate(1_800_000_000 + ahead, usegmt=True)


AFTER: list[tuple[dict[str, str], float]] = [
    ({"retry_after": "7"}, 7),
    ({"retry_after": "0"}, 0),
    ({"retry_after": "1.5"}, 1.5),
    ({"retry_after_ms": "250"}, 0.25),
    ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
    ({"retry_after": _date(30), "date": _date(0)}, 30),
    ({"retry_after": _date(-30), "date": _date(0)}, 0),
]


@each("verb", VERBS)
@each("headers, seconds", AFTER)
def test_retry_after_is_honoured(
    client: Driver, naps: list[float], verb: str, headers: dict[str, str], seconds: float
) -> None:
    with Peer([refused(429, **headers)], [good(verb)]) as peer:
        ask(client, verb, at(peer))
    assert len(peer.received) == 2
    assert seconds <= naps[0] <= seconds + 0.5


@each("verb", VERBS)
def test_a_wait_in_the_body_is_honoured(client: Driver, naps: list[float], verb: str) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    body = json.dumps({"error": {"message": "slow down", "details": [info]}}).encode()
    with Peer([answer(429, body)], [good(verb)], [answer(429, body, retry_after="2")], [good(verb)]) as peer:
        ask(client, verb, at(peer))
        ask(client, verb, at(peer))
    assert len(peer.received) == 4
    assert 34 <= naps[0] <= 34.5
    assert 2 <= naps[1] <= 2.5  # the header goes first


def test_a_date_without_the_peers_clock_counts_from_ours(client: Driver, naps: list[float]) -> None:
    with Peer([refused(503, retry_after=formatdate(time.time() + 30, usegmt=True))], [reply()]) as peer:
        client.call(at(peer))
    assert 25 < naps[0] < 35


@each("nonsense", ["soon", "-3", "", "Mon, 99 Foo 2026", "nan", "inf", "1e400", "٣", "²"])
def test_a_retry_after_that_says_nothing_is_not_heeded(client: Driver, naps: list[float], nonsense: str) -> None:
    sent = refused(429).replace(b"\r\n\r\n", b"\r\nretry-after: " + nonsense.encode() + b"\r\n\r\n", 1)
    with Peer([sent], [reply()]) as peer:
        client.call(at(peer))
    assert 0.25 <= naps[0] <= 0.5


@each("verb", VERBS)
@each("asked", ["61", "86400"])
def test_a_longer_wait_than_the_cap_is_left_to_the_caller(
    client: Driver, naps: list[float], verb: str, asked: str
) -> None:
    with Peer([refused(429, "slow down", retry_after=asked)]) as peer, pytest.raises(cnllm.RateLimited) as caught:
        ask(client, verb, at(peer))
    assert (caught.value.retry_after, caught.value.retryable) == (float(asked), True)
    assert (len(peer.received), naps) == (1, [])


def test_the_wait_really_takes_place(make: Make) -> None:
    with Peer([refused(429, retry_after_ms="300")], [reply()]) as peer:
        make(retry=QUICK).call(at(peer))
    first, second = peer.received
    assert 0.29 <= second.at - first.at < 60, "milliseconds, and not seconds"


# ── the network ──────────────────────────────────────────────────────────────
@each("verb", VERBS)
def test_a_refused_connection_is_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    with Peer([good(verb)], refuses=True) as peer:

        async def nap(seconds: float) -> None:
            peer.listen()

        replace_waits(monkeypatch, lambda seconds: peer.listen())
        monkeypatch.setattr(anyio, "sleep", nap)
        assert ask(make(), verb, at(peer)).text == "The sky is blue."
    assert peer.connections == 1


@each("verb", VERBS)
def test_a_connection_that_is_refused_for_good(client: Driver, naps: list[float], verb: str) -> None:
    with Peer(refuses=True) as peer, pytest.raises(cnllm.TransportError, match="no connection to 127") as caught:
        ask(client, verb, at(peer))
    assert f"no connection to {urlsplit(peer.url).netloc}: " in caught.value.message
    assert not isinstance(caught.value, cnllm.Timeout)
    assert (caught.value.retryable, caught.value.reply, len(naps)) == (True, None, 2)


@each("verb", VERBS)
@each("end", [Close(), Reset()], ids=["closed", "reset"])
def test_a_connection_lost_before_the_answer_is_tried_again(
    client: Driver, naps: list[float], verb: str, end: Close | Reset
) -> None:
    with Peer([end], [end], [good(verb)]) as peer:
        assert ask(client, verb, at(peer)).text == "The sky is blue."
    assert (len(peer.received), peer.connections, len(naps)) == (3, 3, 2)


@each("verb", VERBS)
def test_silence_is_not_asked_again(client: Driver, naps: list[float], verb: str) -> None:
    with Peer([Stay()]) as peer, pytest.raises(cnllm.Timeout) as caught:
        ask(client, verb, at(peer), timeout=Timeouts(first_byte=0.1))
    assert not isinstance(caught.value, cnllm.IdleTimeout)
    assert (caught.value.retryable, len(peer.received), naps) == (False, 1, [])


# ── streams ──────────────────────────────────────────────────────────────────
BUSY = frame({"error": {"message": "Rate limit exceeded", "code": "rate_limit_exceeded"}})


@each("before", [b"", b": hello\n\n", delta("")], ids=["nothing", "comment", "empty delta"])
def test_an_error_in_the_first_event_is_tried_again(client: Driver, naps: list[float], before: bytes) -> None:
    with Peer([stream(before or b"\n", BUSY, DONE)], [stream(*said("The sky"))]) as peer:
        events, got = drained(client.stream(at(peer)))
    assert (got.text, written(events), len(peer.received), len(naps)) == ("The sky", "The sky", 2, 1)


def test_an_error_in_a_whole_reply_of_status_200_is_tried_again(client: Driver, naps: list[float]) -> None:
    busy = answer(200, failure("Rate limit exceeded", "rate_limit_exceeded"))
    with Peer([busy], [busy], [reply()]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."
    assert len(peer.received) == 3


@each("first", [delta("The sky"), delta(reasoning_content="Hm")], ids=["text", "reasoning"])
@each("end", ["error", "close", "reset"])
def test_nothing_is_tried_again_once_an_event_was_delivered(
    client: Driver, naps: list[float], first: bytes, end: str
) -> None:
    read = threading.Event()
    last: dict[str, list[Any]] = {
        "error": [b"%x\r\n%b\r\n0\r\n\r\n" % (len(BUSY), BUSY)],
        "close": [Close()],
        "reset": [Wait(read), Reset()],
    }
    events: list[Any] = []
    with Peer([stream(first, end=False), *last[end]]) as peer:
        with pytest.raises(cnllm.RateLimited if end == "error" else cnllm.StreamCut) as caught:
            drained(client.stream(at(peer)), events, read)
        assert (len(peer.received), naps) == (1, [])
    got = caught.value.reply
    assert got is not None
    assert got.text + got.reasoning == written(events) + written(events, cnllm.ReasoningDelta) != ""
    assert got.finish == ("error" if end == "error" else "cut")


def test_a_client_that_may_try_once_tries_once(make: Make, naps: list[float]) -> None:
    with Peer([Reset()]) as peer, pytest.raises(cnllm.TransportError):
        make(retry=ONCE).call(at(peer))
    assert (len(peer.received), naps) == (1, [])


class Retryable:
    """A transport whose body breaks off with an error that asks for a retry."""

    def __init__(self) -> None:
        self.sent = 0

    def send(self, plan: cnllm.Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        self.sent += 1

        def body() -> Iterator[bytes]:
            yield reply()[:20]
            raise cnllm.TransportError("the network failed", retryable=True)

        return 200, {"content-type": "application/json"}, body()


def test_a_whole_reply_that_began_is_not_sent_again_whatever_the_transport_says(naps: list[float]) -> None:
    transport = Retryable()
    with cnllm.Client(api_key="k", transport=transport) as client, pytest.raises(cnllm.TransportError) as caught:
        client.call("zai/glm-4.7", "hi")
    assert (caught.value.began, caught.value.retryable) == (True, False)
    assert (transport.sent, naps) == (1, [])
