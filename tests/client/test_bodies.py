"""What comes back in another form than was asked for: errors of all shapes, wrong labels, compression."""

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from cases import each

import cnllm

from .conftest import Make
from .peer import (
    DONE,
    JSON,
    SSE,
    Close,
    Peer,
    answer,
    chunked,
    delta,
    failure,
    frame,
    head,
    piece,
    reply,
    said,
    stream,
    texts,
    whole,
)
from .support import ONCE, Driver, at, drained, folds

VERBS = ["call", "stream"]
TEXT = {"content-type": "text/plain; charset=utf-8"}
HTML = {"content-type": "text/html"}
PAGE = b"<!DOCTYPE html>\n<html><head>\n<title>502 Bad Gateway</title></head><body><h1>502</h1></body></html>"


def ask(client: Driver, verb: str, peer: Peer, **options: Any) -> cnllm.Reply:
    if verb == "call":
        return client.call(at(peer), **options)
    events, got = drained(client.stream(at(peer), **options))
    folds(events, got)
    return got


# ── errors ───────────────────────────────────────────────────────────────────
ERRORS: dict[str, tuple[bytes, type[cnllm.EndpointError], int, str, str | None]] = {
    "json": (
        answer(400, failure("Bad temperature", "bad_param")),
        cnllm.BadRequest,
        400,
        "Bad temperature",
        "bad_param",
    ),
    "json without a label": (
        answer(400, failure("Bad temperature"), {}),
        cnllm.BadRequest,
        400,
        "Bad temperature",
        None,
    ),
    "json under a wrong label": (answer(401, failure("No key"), HTML), cnllm.BadKey, 401, "No key", None),
    "events": (
        answer(400, b": x\n\nevent: error\n" + frame({"error": {"message": "Too long", "code": 7}}) + DONE, SSE),
        cnllm.BadRequest,
        400,
        "Too long",
        "7",
    ),
    "text": (
        answer(429, b"Too many requests\nplease slow down\n", TEXT),
        cnllm.RateLimited,
        429,
        "Too many requests",
        None,
    ),
    "json string": (answer(429, b'"Too many requests"'), cnllm.RateLimited, 429, "Too many requests", None),
    "page": (answer(502, PAGE, HTML), cnllm.EndpointError, 502, "502 Bad Gateway", None),
    "nothing": (answer(500, b""), cnllm.EndpointError, 500, "500", None),
    "nothing, chunked": (chunked(status=503), cnllm.Overloaded, 503, "503", None),
    "an empty object": (answer(400, b"{}"), cnllm.BadRequest, 400, "400", None),
    "an empty list": (answer(404, b"[]"), cnllm.BadRequest, 404, "404", None),
    "null": (answer(404, b"null"), cnllm.BadRequest, 404, "", None),
    "half an object": (answer(400, b'{"error": {"mess'), cnllm.BadRequest, 400, "400", None),
    "no utf-8": (answer(400, b"\xff\xfe no \xe5", TEXT), cnllm.BadRequest, 400, "no", None),
    "chinese": (answer(400, "参数错误".encode(), TEXT), cnllm.BadRequest, 400, "参数错误", None),
    "in status 200": (answer(200, failure("Gone wrong", "oops")), cnllm.EndpointError, 200, "Gone wrong", "oops"),
    "text in status 200": (answer(200, b"Please log in", TEXT), cnllm.EndpointError, 200, "Please log in", None),
    "a page in status 200": (answer(200, PAGE, HTML), cnllm.EndpointError, 200, "502 Bad Gateway", None),
    "nothing in status 200": (answer(200, b""), cnllm.EmptyReply, 200, "", None),
    "a list in status 200": (answer(200, b"[1]"), cnllm.EndpointError, 200, "", None),
    "204": (head(204, {}), cnllm.EmptyReply, 204, "", None),
    "a status nobody knows": (answer(799, b"what"), cnllm.EndpointError, 799, "what", None),
}


@each("verb", VERBS)
@each("case", ERRORS)
def test_an_error_of_any_shape_is_typed_and_speaks_the_endpoints_words(make: Make, verb: str, case: str) -> None:
    sent, kind, status, message, code = ERRORS[case]
    with Peer([sent]) as peer:
        with pytest.raises(cnllm.EndpointError) as caught:
            ask(make(retry=ONCE), verb, peer)
        assert len(peer.received) == 1
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code) == (status, code)
    assert message in error.message
    assert error.message.strip()
    assert not error.message.startswith(("{", "[", "<", "data:"))
    assert (error.reply is None) == (status >= 300)


def test_an_error_that_would_be_a_reply_is_still_an_error(make: Make) -> None:
    for verb in VERBS:
        with Peer([answer(500, whole())]) as peer, pytest.raises(cnllm.EndpointError):
            ask(make(retry=ONCE), verb, peer)


def test_a_long_page_is_not_carried_around(make: Make) -> None:
    with Peer([answer(500, b"<html>" + b"x" * 5_000_000, HTML)]) as peer, pytest.raises(cnllm.EndpointError) as caught:
        make(retry=ONCE).call(at(peer))
    assert len(caught.value.message) < 2000
    assert len(caught.value.body) <= 100_000


def test_a_key_that_an_error_echoes_is_not_shown(make: Make) -> None:
    key = "sk-echoed-0123456789abcdef"
    for sent in (
        answer(401, failure(f"Incorrect API key provided: {key}")),
        answer(401, f"bad key {key}".encode(), TEXT),
        answer(401, PAGE.replace(b"502", key.encode()), HTML),
        answer(200, frame({"error": {"message": f"bad {key}"}}), SSE),
    ):
        for verb in VERBS:
            with Peer([sent]) as peer, pytest.raises(cnllm.EndpointError) as caught:
                ask(make(retry=ONCE), verb, peer, api_key=key)
            assert key not in f"{caught.value!r}{caught.value}{vars(caught.value)}"


# ── labels ───────────────────────────────────────────────────────────────────
@each("label", [SSE, JSON, TEXT, HTML, {}, {"content-type": "nonsense"}], ids=str)
def test_what_is_said_counts_not_what_it_is_called(client: Driver, label: dict[str, str]) -> None:
    with Peer([answer(200, whole(), label)], [answer(200, b"".join(said("The sky", " is blue.")), label)]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."
        assert ask(client, "stream", peer).text == "The sky is blue."


@each("chunks", [1, 7, 10_000])
def test_a_whole_body_for_a_stream_is_delivered_as_events(client: Driver, chunks: int) -> None:
    call = {"id": "c0", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    body = whole("Let me see.", "tool_calls", reasoning_content="Hm.", tool_calls=[call])
    pieces = [body[i : i + chunks] for i in range(0, len(body), chunks)]
    with Peer([stream(*pieces)]) as peer:
        events, got = drained(client.stream(at(peer)))
    assert (got.text, got.reasoning, got.finish) == ("Let me see.", "Hm.", "tool_calls")
    assert [(call.name, call.arguments) for call in got.tool_calls] == [("now", {})]
    folds(events, got)


def test_a_stream_for_a_whole_request_is_collected(client: Driver) -> None:
    with Peer([stream(delta(reasoning_content="Hm."), *said("The sky", " is blue."))]) as peer:
        got = client.call(at(peer))
    assert (got.text, got.reasoning, got.finish, got.usage.total) == ("The sky is blue.", "Hm.", "stop", 7)


def test_a_byte_order_mark_before_a_whole_reply(client: Driver) -> None:
    with Peer([answer(200, b"\xef\xbb\xbf" + whole())]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."


def test_a_byte_order_mark_and_blank_lines_before_a_reply(client: Driver) -> None:
    with Peer([answer(200, b"\r\n " + whole())], [stream(b"\xef", b"\xbb\xbf\n", *said("x"))]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."
        assert ask(client, "stream", peer).text == "x"


def test_blank_lines_keep_a_whole_reply_waiting(client: Driver) -> None:
    """Some gateways write a line break now and then until the JSON is ready."""
    with Peer([stream(b"\n", b"\n", b"\r\n", whole())]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."


# ── compression ──────────────────────────────────────────────────────────────
CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@each("coding", CODINGS)
def test_a_compressed_body_is_read(client: Driver, coding: str) -> None:
    pack = CODINGS[coding]
    streamed = pack(b"".join(said("The sky", " is blue.")))
    with Peer(
        [answer(200, pack(whole()), content_encoding=coding)],
        [answer(200, streamed, SSE, content_encoding=coding)],
        [answer(400, pack(failure("Bad temperature")), content_encoding=coding)],
    ) as peer:
        assert client.call(at(peer)).text == "The sky is blue."
        assert ask(client, "stream", peer).text == "The sky is blue."
        with pytest.raises(cnllm.BadRequest, match="Bad temperature"):
            client.call(at(peer))


def test_a_compressed_stream_is_read_as_it_comes(client: Driver) -> None:
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) for event in said("The sky", " is", " blue.")]
    sent = chunked(*pieces, packer.flush(), headers={**SSE, "content-encoding": "gzip"})
    with Peer([sent]) as peer:
        events, got = drained(client.stream(at(peer)))
    assert [e.text for e in events if isinstance(e, cnllm.TextDelta)] == ["The sky", " is", " blue."]
    folds(events, got)


def test_streams_are_asked_for_plain(client: Driver) -> None:
    with Peer([reply()], [stream(*said("x"))]) as peer:
        client.call(at(peer))
        ask(client, "stream", peer)
    codings = [request.headers["accept-encoding"] for request in peer.received]
    assert "gzip" in codings[0]
    assert codings[1] == "identity"


@each("verb", VERBS)
def test_what_only_claims_to_be_compressed(client: Driver, verb: str) -> None:
    with Peer([answer(200, whole(), content_encoding="gzip")]) as peer, pytest.raises(cnllm.CnllmError) as caught:
        ask(client, verb, peer)
    assert isinstance(caught.value, cnllm.TransportError if verb == "call" else cnllm.StreamCut)
    assert len(peer.received) == 1


def test_compressed_bytes_that_break_off_are_no_reply(client: Driver) -> None:
    packed = gzip.compress(whole())
    with Peer([answer(200, packed[:-30], content_encoding="gzip")]) as peer, pytest.raises(cnllm.CnllmError):
        client.call(at(peer))


def test_a_stream_whose_compression_breaks_keeps_what_came(client: Driver) -> None:
    packer = zlib.compressobj(wbits=31)
    good = packer.compress(b"".join(texts("The sky"))) + packer.flush(zlib.Z_SYNC_FLUSH)
    sent = chunked(good, b"\xff\xff\xff nonsense", headers={**SSE, "content-encoding": "gzip"})
    with Peer([sent]) as peer, pytest.raises(cnllm.StreamCut) as caught:
        drained(client.stream(at(peer)))
    assert caught.value.reply is not None
    assert caught.value.reply.text == "The sky"


# ── odd HTTP ─────────────────────────────────────────────────────────────────
def test_an_interim_response_is_passed_over(client: Driver) -> None:
    with Peer([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + reply()]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."


@each("verb", VERBS)
@each("sent", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x01\x00\x02\x02F", b"HTTP/1.1 \r\n\r\n"])
def test_what_is_no_http(make: Make, verb: str, sent: bytes) -> None:
    with Peer([sent, Close()]) as peer, pytest.raises(cnllm.TransportError):
        ask(make(retry=ONCE), verb, peer)


@each("verb", VERBS)
def test_chunks_that_are_none(client: Driver, verb: str) -> None:
    sent = head(transfer_encoding="chunked") + piece(delta("The sky")) + b"nonsense\r\n"
    with Peer([sent, Close()]) as peer, pytest.raises((cnllm.TransportError, cnllm.StreamCut)):
        ask(client, verb, peer)
