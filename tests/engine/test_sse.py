"""Server-sent events, against a tiny reading of the standard that knows nothing of the real one."""

from __future__ import annotations

import json
import re

import pytest
from cases import each
from examples import share
from hypothesis import given
from hypothesis import strategies as st

from cnllm.engine.decode.framing import ErrorData, SseParser

from .support import Work, cuts, pieces, times

# ── the standard, as short as it can be said ─────────────────────────────────


def reference(stream: bytes) -> list[bytes]:
    """The data of every event, by the standard, but for two things that count: an event that the end of the input cuts
    short, and a line that is no field, which is an event of its own.
    """
    lines = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    out: list[bytes] = []
    data = b""
    for line in [*lines, b""]:
        name, colon, value = line.partition(b":")
        if not line:
            out += [data[:-1]] if data else []
            data = b""
        elif name == b"data":
            data += (value.removeprefix(b" ") if colon else b"") + b"\n"
        elif line.strip() and not re.match(rb"[A-Za-z_-]*:|[A-Za-z_-]+$", line):
            out += [*([data[:-1]] if data else []), line.removeprefix(b" ")]
            data = b""
    return out


def heard(parts: list[bytes]) -> list[bytes]:
    """What `SseParser` makes of the parts, without the space after the colon, which it may leave."""
    frames = SseParser()
    found = [data for part in parts for data in frames.feed(part)]
    found += frames.end()
    return [b"\n".join(line.removeprefix(b" ") for line in data.split(b"\n")) for data in found]


# ── streams ──────────────────────────────────────────────────────────────────

values = st.text(
    st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]) | st.sampled_from("\u2028\u2029\x85\ufeff:{} "),
    max_size=12,
)
ends = st.sampled_from(["\n", "\r", "\r\n"])
lines = st.one_of(
    values.map(lambda v: f"data:{v}"),
    values.map(lambda v: f"data: {v}"),
    st.just("data"),
    values.map(lambda v: f":{v}"),
    st.sampled_from(
        [
            "event: message",
            "event:ping",
            "event",
            "id: 7",
            "retry: 10",
            "datax: no",
            " data: no",
            "foo",
            "data :no",
            "{}",
        ]
    ),
)
events = st.lists(st.lists(lines, max_size=4), max_size=5)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Events with random line ends; the last blank line, or the last line end too, may be missing; maybe a BOM."""
    text = draw(st.sampled_from(["", "\ufeff"]))
    for event in draw(events):
        for line in [*event, ""]:
            text += line + draw(ends)
    missing = draw(st.integers(0, 2))
    for _ in range(missing):
        text = text[:-2] if text.endswith("\r\n") else text[:-1]
    return text.encode()


@times(200)
@given(streams(), cuts)
def test_any_stream_in_any_pieces_gives_the_data_that_the_standard_gives(stream: bytes, where: list[int]) -> None:
    assert heard(pieces(stream, where)) == reference(stream)


@times(200)
@given(st.lists(st.sampled_from([b"data", b":", b" ", b"\r", b"\n", b"x", b"\xef", b"\xbb", b"\xbf", b"\n\n"])), cuts)
def test_any_heap_of_bytes_gives_the_data_that_the_standard_gives(heap: list[bytes], where: list[int]) -> None:
    stream = b"".join(heap)
    assert heard(pieces(stream, where)) == reference(stream)


@times(60)
@given(streams())
def test_byte_by_byte_gives_the_same_as_all_at_once(stream: bytes) -> None:
    assert heard([stream[i : i + 1] for i in range(len(stream))]) == heard([stream])


def test_every_pair_of_cuts_through_a_hard_stream_gives_the_same() -> None:
    stream = "\ufeffdata: é\u2028\r\n: no\rdata:\r\ndata\n\r\nevent: x\rdata: 好\x85\r\rdata: last\n".encode()
    expected = ["é\u2028\n\n".encode(), "好\x85".encode(), b"last"]
    assert reference(stream) == expected
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            assert heard([stream[:first], stream[first:second], stream[second:]]) == expected


@each("end", ["\n", "\r", "\r\n"])
@each("start", ["", "\ufeff", "\n\n", ": hello\n\n"])
def test_an_event_comes_as_soon_as_its_blank_line_has_begun(start: str, end: str) -> None:
    frames = SseParser()
    frames.feed(start.encode())
    assert frames.feed(f"data: 1{end}".encode()) == []
    assert frames.feed(end.encode()) == [b" 1"]


def test_a_field_with_another_name_is_no_data() -> None:
    assert heard([b"database: 1\ndat: 2\nDATA: 4\nx-y_z\n\n"]) == []


@each("line", [b'{"error": "x"}', b"<html>", b"Bad Gateway", b"[1]", b"2 data: 3"])
@each("before", [b"", b"data: 1\n", b"data: 1\n\n", b": a comment\n"])
def test_a_line_that_is_no_field_is_an_event(line: bytes, before: bytes) -> None:
    assert heard([before + line + b"\ndata: 4\n\n"]) == [b"1"] * before.count(b"1") + [line, b"4"]


@each("name", ["error", "Error", "ERROR"])
def test_a_field_with_the_name_of_an_error_is_one(name: str) -> None:
    first, second = SseParser().feed(f'{name}: {{"code": 500}}\n\ndata: [DONE]\n\n'.encode())
    assert (type(first), json.loads(first), second) == (ErrorData, {"code": 500}, b" [DONE]")


def test_a_line_behind_the_name_of_an_error_is_its_data() -> None:
    [event] = SseParser().feed(b"event: error\nupstream died\n\n")
    assert (type(event), event) == (ErrorData, b"upstream died")


@times(60)
@given(values, cuts, st.sampled_from(["error", "Error", "ERROR", "response.error", "stream_error"]))
def test_an_error_event_is_one_by_its_name_whatever_its_data(words: str, where: list[int], name: str) -> None:
    for data in (f"data: {words}\n", ""):
        frames = SseParser()
        [event] = [e for piece in pieces(f"event: {name}\n{data}\n".encode(), where) for e in frames.feed(piece)]
        assert type(event) is ErrorData
        assert event.strip() == (words if data else "").encode().strip()
    [plain] = SseParser().feed(f"event: no errors\ndata: {words}\n\n".encode())
    assert type(plain) is bytes


@times(60)
@given(st.dictionaries(st.text(max_size=3), st.integers(), min_size=1))
def test_an_error_event_in_json_stays_as_it_is(data: dict[str, int]) -> None:
    stream = f"event: error\ndata: {json.dumps(data)}\n\ndata: next\n\n".encode()
    first, second = heard([stream])
    assert (json.loads(first), second) == (data, b"next")


def test_the_end_may_be_said_more_than_once() -> None:
    frames = SseParser()
    frames.feed(b"data: 1")
    assert [frames.end(), frames.end()] == [[b" 1"], []]


# ── time ─────────────────────────────────────────────────────────────────────


def work(stream: bytes, size: int) -> int:
    frames = SseParser()
    with Work() as counted:
        for at in range(0, len(stream), size):
            frames.feed(stream[at : at + size])
        frames.end()
    return counted.done


@pytest.mark.sampled
@each("size", [1, 7, 1 << 20])
@each(
    "unit", [b"x", b"data: x\n", b"data\n", b"\r", b"\n", b"\r\n", b": x\n", b"data: x\n\n", b"\xef\xbb\xbf"], ids=repr
)
def test_four_times_the_input_is_about_four_times_the_work(unit: bytes, size: int) -> None:
    count = share(200)
    small, large = work(b"data:" + unit * count, size), work(b"data:" + unit * 4 * count, size)
    assert large < 6 * small
