"""Events out of bytes: in any pieces the same, and the same as the standard says, but that no line is lost."""

from __future__ import annotations

import re

from cnllm.engine.decode.framing import SseParser

from ..given import given, pack
from ..spent import bounded

_BOM = b"\xef\xbb\xbf"


def by_the_book(body: bytes) -> list[bytes]:
    """Return the data of every event, read in the plainest way. A line that is no field is an event of its own.

    Of names, only `error` matters here.
    """
    lines = body.removeprefix(_BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    out: list[bytes] = []
    data: list[bytes] = []
    for line in [*lines, b"", b""]:
        if not line:
            if data:
                out.append(b"\n".join(data))
            data = []
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value)
        elif line.strip() and not re.match(rb"[A-Za-z_-]*:|[A-Za-z_-]+\Z", line):
            out += [*([b"\n".join(data)] if data else []), line]
            data = []
    return out


def read(pieces: list[bytes]) -> list[bytes]:
    """Return the data of every event in these pieces."""
    frames = SseParser()
    out = [data for piece in pieces for data in frames.feed(piece)]
    return out + frames.end()


def check(data: bytes) -> None:
    """Check that whole and in pieces are the same; without an event named error, as the standard says."""
    case = given(data)
    body = case.payload
    with bounded(len(body)):
        found = read([body])
    assert read(list(case.pieces())) == found
    assert read([body[at : at + 1] for at in range(len(body))]) == found
    if b"error" not in body.lower():
        assert found == by_the_book(body)
    if case.how % 32 == 0 and body:
        many = body * (200_000 // len(body))
        with bounded(len(many)):
            read([many])


def seeds() -> list[bytes]:
    """Return every kind of line and of line end."""
    bodies = (
        b'data: {"a": 1}\n\ndata: [DONE]\n\n',
        b'event: error\ndata: oh no\n\n: comment\nid: 7\nretry: 10\ndata:{"b"\ndata: :2}\n\n',
        b"\xef\xbb\xbfdata: a\r\ndata: b\r\n\r\ndata\rdata:\r\rdata: torn",
        b"data\n\ndata:\n\n data: not a field\n\ndatax: 1\n\n: \n\n",
    )
    return [pack(body, most=n, seed=n) for n, body in enumerate(bodies)]
