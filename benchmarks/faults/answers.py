"""The streams, and what goes wrong with them."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any, NamedTuple

CUTS = 400
SEARCH = '{"q": "weather in Bern", "days": 3}'
NOW = '{"city": "Basel"}'


class Step(NamedTuple):
    """`send` these bytes (so many `times`, `every` so many seconds; 0 times: until the client goes), then go on."""

    do: str  # "send" | "stay" | "reset"
    data: bytes = b""
    times: int = 1
    every: float = 0.0


class Case(NamedTuple):
    """An answer: what is played, whether it comes to its end, the arguments of its calls once they are whole."""

    name: str
    steps: tuple[Step, ...]
    whole: bool
    calls: tuple[str, ...] = ()
    cut: bool = False


def frame(data: Any) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def delta(finish: str | None = None, **said: Any) -> bytes:
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return frame({"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": [choice]})


def call(index: int, arguments: str, **first: Any) -> bytes:
    function = {"arguments": arguments, **({"name": first.pop("name")} if first else {})}
    return delta(tool_calls=[{"index": index, "type": "function", "function": function, **first}])


ROLE = delta(role="assistant", content="")
DONE = b"data: [DONE]\n\n"
USAGE = frame(
    {
        "id": "r1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": [],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }
)
TEXT = [delta(content=piece) for piece in ("The", " sky", " is", " 蓝色", " by", " day", ".")]
THOUGHT = [delta(reasoning_content=piece) for piece in ("Hm", ", 光", " scatters", ".")]
ONE = [
    call(0, "", id="call_a", name="search"),
    *(call(0, piece) for piece in ('{"q": "wea', 'ther in Bern", ', '"days": 3}')),
]
TWO = [*ONE, call(1, "", id="call_b", name="now"), *(call(1, piece) for piece in ('{"city": ', '"Basel"}'))]

STREAMS: dict[str, tuple[list[bytes], str, tuple[str, ...]]] = {
    "text": ([ROLE, *TEXT], "stop", ()),
    "reasoning and text": ([ROLE, *THOUGHT, *TEXT], "stop", ()),
    "one call": ([ROLE, *ONE], "tool_calls", (SEARCH,)),
    "text and two calls": ([ROLE, *TEXT, *TWO], "tool_calls", (SEARCH, NOW)),
}


def head(status: int = 200, kind: str = "text/event-stream", **more: str) -> bytes:
    fields = {"content-type": kind, **{name.replace("_", "-"): value for name, value in more.items()}}
    return f"HTTP/1.1 {status} x\r\n".encode() + b"".join(f"{k}: {v}\r\n".encode() for k, v in fields.items()) + b"\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def send(data: bytes, times: int = 1, every: float = 0.0) -> Step:
    return Step("send", data, times, every)


CHUNKED = send(head(transfer_encoding="chunked"))
CLOSED = head(connection="close")


def cuts() -> list[Case]:
    """Clean cuts: the body ends as HTTP wants it, before the chunk that holds the finish, as proxies do it."""
    dice = random.Random("cuts")
    out = []
    for name, (events, _, calls) in STREAMS.items():
        content = b"".join(events)
        for at in sorted(dice.sample(range(len(ROLE) + 10, len(content) + 1), CUTS // len(STREAMS))):
            steps = (CHUNKED, send(chunk(content[:at]) + b"0\r\n\r\n"))
            out.append(Case(name, steps, whole=False, calls=calls, cut=True))
    return out


def faults() -> list[Case]:
    """Return the cases, each with a name of its own.

    The text comes first; two calls and an end follow, unless a case differs.
    """
    events, finish, calls = STREAMS["text and two calls"]
    end = [delta(finish=finish), USAGE, DONE]
    half = b"".join([ROLE, *TEXT, *ONE[:3]])
    full = b"".join([*events, *end])
    some = chunk(half)
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(half) + packer.flush(zlib.Z_SYNC_FLUSH)
    page = b"<!DOCTYPE html><html><head><title>Just a moment</title></head><body>" + b"<p>x</p>" * 500

    def case(name: str, *steps: Step, whole: bool = False) -> Case:
        return Case(name, steps, whole, calls)

    def damaged(spoiled: bytes) -> Step:
        return send(head(connection="close") + b"".join([ROLE, *TEXT, spoiled, *TWO, *end]))

    def html(status: int) -> Step:
        return send(head(status, "text/html", content_length=str(len(page))) + page)

    return [
        case("as it should be", CHUNKED, send(chunk(full) + b"0\r\n\r\n"), whole=True),
        case("connection closed in a chunk", CHUNKED, send(b"ffff\r\n" + half)),
        case("connection closed, no length", send(CLOSED + half)),
        case("reset", CHUNKED, send(some), Step("stay", every=0.2), Step("reset")),
        case("length not reached", send(head(content_length="100000") + half)),
        case("length too short", send(head(content_length=str(len(half))) + full)),
        case("HTTP/1.0, cut", send(CLOSED.replace(b"HTTP/1.1", b"HTTP/1.0") + half)),
        case("[DONE] without a finish", CHUNKED, send(chunk(half + DONE) + b"0\r\n\r\n")),
        case("gzip cut in its middle", send(head(content_encoding="gzip", connection="close") + packed)),
        case(
            "an error event in the middle",
            CHUNKED,
            send(chunk(half + frame({"error": {"message": "overloaded"}})) + b"0\r\n\r\n"),
        ),
        case("half an event in the middle", damaged(TEXT[0][:90] + b"\n\n")),
        case("stalls before its headers", Step("stay")),
        case("stalls after its headers", CHUNKED, Step("stay")),
        case("stalls between events", CHUNKED, send(some), Step("stay")),
        case("comments without end", CHUNKED, send(some), send(chunk(b": keep-alive\n\n"), 0, 0.1)),
        case("empty deltas without end", CHUNKED, send(some), send(chunk(delta(content="")), 0, 0.1)),
        case("nothing at all, 200", send(head(content_length="0"))),
        case("an HTML page, 200", html(200)),
        case("an HTML page, 502", html(502)),
        case("an HTML page, 524", html(524)),
        case("a redirect", send(head(307, location="/elsewhere", content_length="0"))),
        case("no HTTP", send(b"SSH-2.0-OpenSSH_9.6\r\n")),
        case(
            "[DONE] twice, then noise",
            CHUNKED,
            send(chunk(full + DONE + b"\x00\xff{{{\n\n" + TEXT[0]) + b"0\r\n\r\n"),
            whole=True,
        ),
        case("socket stays open after [DONE]", CHUNKED, send(chunk(full)), Step("stay"), whole=True),
        case("text/html as its label", send(head(200, "text/html", content_length=str(len(full))) + full), whole=True),
        case("a line of 1 MB", CHUNKED, send(chunk(delta(content="x" * 1_000_000) + full) + b"0\r\n\r\n"), whole=True),
        case("invalid UTF-8 in a text", damaged(TEXT[0].replace(b"The", b"\xff\xfe")), whole=True),
        case("a NUL in a text", damaged(TEXT[0].replace(b"The", b"a\\u0000b")), whole=True),
        case("half a surrogate pair", damaged(TEXT[0].replace(b"The", b"a\\ud83d")), whole=True),
        case("NaN for a number", damaged(TEXT[0].replace(b'"created": 1', b'"created": NaN')), whole=True),
        case(
            "a number of 60 digits", damaged(TEXT[0].replace(b'"created": 1', b'"created": ' + b"9" * 60)), whole=True
        ),
        case(
            "JSON 10,000 deep",
            damaged(TEXT[0].replace(b'"created": 1', b'"x": ' + b"[" * 10_000 + b"]" * 10_000)),
            whole=True,
        ),
        case(
            "20 MB of comments",
            CHUNKED,
            send(chunk(b"".join([ROLE, *TEXT]))),
            send(chunk(b": " + b"x" * 999_996 + b"\n\n"), 20),
            send(chunk(b"".join([*TWO, *end])) + b"0\r\n\r\n"),
            whole=True,
        ),
        case("a line without an end", CHUNKED, send(some), send(chunk(b"data: " + b"x" * 1_000_000), 0)),
        case("events without an end", CHUNKED, send(some), send(chunk(delta(content="x" * 4_000) * 250), 0)),
        case("a bomb of 1 GB in gzip", send(head(content_encoding="gzip", connection="close") + bomb(half))),
    ]


def bomb(first: bytes) -> bytes:
    """Return one event that stands for a gigabyte, and takes a megabyte."""
    packer = zlib.compressobj(1, wbits=31)
    pieces = [packer.compress(first + b"data: ")]
    million = b" " * 1_000_000
    pieces += [packer.compress(million) for _ in range(1000)]
    return b"".join([*pieces, packer.flush()])


def cases() -> list[Case]:
    """Return all cases; a case is requested by its number."""
    return [*faults(), *cuts()]
