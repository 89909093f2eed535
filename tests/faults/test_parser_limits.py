"""The engine's own bounds: it never sees a transport, and is fed whatever there is in whatever pieces."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from cases import each
from client.peer import DONE, call_delta, delta, usage, whole
from client.support import folds, registry
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm import Limits, ReplyTooLarge, engine

PIECES = st.sampled_from(
    [
        delta("天 is"),
        delta(" blue."),
        delta("x" * 90),
        b": a comment\n\n",
        b": a long comment " + b"c" * 60 + b"\r\n",
        b"event: message\r\n",
        b"data: \r",
        b"data\n",
        b"\n",
        b"\r\n\r\n",
        call_delta(0, "{}", id="c0", name="now"),
        delta(finish="stop"),
        usage(),
        DONE,
    ]
)


def model(protocol: str = "openai-chat") -> cnllm.Model:
    return registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)


def read(content: bytes, cuts: list[int], limits: Limits, protocol: str = "openai-chat") -> Any:
    """What came of it: the reply and the error, told by events as by the reply."""
    parser = engine.StreamParser(model(protocol), limits=limits)
    events: list[Any] = []
    at = 0
    for cut in [*sorted(cut % (len(content) + 1) for cut in cuts), len(content)]:
        events += parser.feed(content[at:cut])
        at = cut
    events += parser.end()
    said = None
    reply: cnllm.Reply | None
    try:
        reply = parser.close()
    except cnllm.CnllmError as error:
        said = (type(error), getattr(error, "limit", None), str(error))
        reply = error.reply
    assert reply is not None
    folds(events, reply)
    assert not (reply.finish == "cut" and reply.tool_calls)
    return said, reply.text, reply.finish, reply.tool_calls, reply.incomplete, reply.usage


@given(
    st.lists(PIECES, min_size=1, max_size=12),
    st.lists(st.integers(0, 5000), max_size=6),
    st.one_of(st.none(), st.integers(1, 400)),
    st.one_of(st.none(), st.integers(1, 2000)),
)
def test_where_a_limit_cuts_does_not_depend_on_how_the_bytes_arrive(
    pieces: list[bytes], cuts: list[int], event: int | None, most: int | None
) -> None:
    content = b": begin\n\n" + b"".join(pieces)
    limits = Limits(max_event_bytes=event, max_reply_bytes=most)
    at_once = read(content, [], limits)
    assert read(content, cuts, limits) == at_once
    assert read(content, list(range(len(content))), limits) == at_once


CHUNK = {"candidates": [{"content": {"role": "model", "parts": [{"text": "天 [is]"}]}}], "responseId": "r"}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(40, 250), st.lists(st.integers(0, 3000)))
def test_where_a_limit_cuts_an_array_is_the_same_for_all_pieces(sizes: list[int], event: int, cuts: list[int]) -> None:
    chunks = [json.dumps({**CHUNK, "pad": '"{' * size * 20}, ensure_ascii=False) for size in sizes]
    content = ("[" + ",\r\n".join(chunks)).encode()
    limits = Limits(max_event_bytes=event)
    at_once = read(content, [], limits, "gemini")
    assert read(content, cuts, limits, "gemini") == at_once
    longest = next((n for n, chunk in enumerate(chunks) if len(chunk.encode()) > event), None)
    assert at_once[1] == "天 [is]" * (len(chunks) if longest is None else longest)
    assert (at_once[0][0] is ReplyTooLarge) == (longest is not None)


def test_the_reply_is_bounded_to_the_byte() -> None:
    content = delta("The sky") + delta(" is blue.") + delta(finish="stop")
    for most in range(len(content) + 1):
        said, text, finish, *_ = read(content, [], Limits(max_reply_bytes=most))
        assert "The sky is blue.".startswith(text)
        assert (said is None) == (finish == "stop")
        assert said is None or said[:2] == (ReplyTooLarge, "max_reply_bytes")
    assert finish == "stop"


@each("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_is_bounded_to_the_byte(end: bytes) -> None:
    """Its data, or a line of it that has not ended: the longest line is `data:` and what follows."""
    lines = [b": note", b"data: " + delta(" is").strip()[6:], b"", b"data: " + delta(" blue.", "stop").strip()[6:], b""]
    content = delta("The sky") + b"".join(line + end for line in lines)
    longest = max(map(len, content.splitlines()))
    assert read(content, [], Limits(max_event_bytes=longest))[1:3] == ("The sky is blue.", "stop")
    said, text, *_ = read(content, [], Limits(max_event_bytes=longest - 1))
    assert (said[:2], text) == ((ReplyTooLarge, "max_event_bytes"), "The sky is")
    several = b"data: {" + end + b"data:" + b" " * 500 + end + b"data: }" + end + end
    assert read(delta("x") + several, [], Limits(max_event_bytes=400))[0][1] == "max_event_bytes"


FLOODS = {
    "no line": b"x" * 9000,
    "a line": b"data: " + b"x" * 9000,
    "data lines": b"data: x\n" * 1000,
    "empty data lines": b"data\n" * 1000,
    "comments": b": c\n" * 1000,
    "blanks": b"\n" * 9000,
    "a mark and blanks": b"\xef\xbb\xbf" + b" " * 9000,
    "a body": b'{"a": "' + b"x" * 9000,
}


@pytest.mark.share(3)
@each("flood", FLOODS)
def test_a_parser_that_is_fed_for_ever_holds_no_more_than_it_may(flood: str) -> None:
    """A hundred times what it may hold; what is dropped at once (comments, blank lines) may come up to the whole."""
    limits = Limits(max_reply_bytes=2_000_000, max_event_bytes=500_000)
    tracemalloc.start()
    try:
        parser = engine.StreamParser(model(), limits=limits)
        for _ in range(5000):
            parser.feed(FLOODS[flood])
            if parser.done:
                break
        with pytest.raises(cnllm.CnllmError):
            parser.close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16_000_000


def test_a_reply_in_many_short_pieces_takes_little_more_memory_than_its_text() -> None:
    chunk = b"".join(delta(f"w{number} ") for number in range(10, 90))
    parser = engine.StreamParser(model())
    parser.feed(chunk)  # what a first reading loads does not count
    tracemalloc.start()
    try:
        for _ in range(1000):
            parser.feed(chunk)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000  # 320,000 characters; 80,000 strings would take more than 4 MB


def test_a_whole_body_beyond_the_limit_is_no_reply() -> None:
    body = whole()
    plan = engine.build_request(model(), "hi", limits=Limits(max_reply_bytes=len(body) - 1))
    with pytest.raises(ReplyTooLarge, match=f"more than {len(body) - 1} bytes"):
        engine.parse_response(model(), 200, {}, body, plan=plan)
    plan = engine.build_request(model(), "hi", limits=Limits(max_reply_bytes=len(body)))
    assert engine.parse_response(model(), 200, {}, body, plan=plan).text == "The sky is blue."


def test_usual_limits_leave_room_for_a_large_picture() -> None:
    """A picture of 33 MB in base64, in one event, and again in the last one."""
    picture = delta(None) + b"data: " + b" " * 33_000_000 + b"{}\n\n"
    parser = engine.StreamParser(model())
    for content in (picture, picture, delta("x"), delta(finish="stop"), DONE):
        parser.feed(content)
    assert parser.close().finish == "stop"
