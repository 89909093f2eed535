"""The same fault has the same outcome over every adapter: the reply or the error, whether it may be tried again, and
how often the request was sent. One of whose response a byte came is not sent again, whatever is wrong with it.
"""

import asyncio
import gzip
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import cnllm
from cnllm import AsyncClient, Client, Retry, Timeouts
from cnllm.transports import AsyncHttpx, Httpx

from .peer import Close, Peer, Reset, Script, Stay, whole
from .support import at, registry

pytest.importorskip("httptools", reason="the extra cnllm-client[fast] is not installed")

from cnllm.transports.fast import AsyncFast, Fast

ADAPTERS = ["fast"]  # once for each test: `outcomes` asks over all four adapters

THRICE = Retry(attempts=3, base=0.001)
BODY = whole("ok")
SIZE = len(BODY)
LENGTH = b"content-length: %d" % SIZE
CHUNKED = b"transfer-encoding: chunked"
GZIP = b"content-encoding: gzip"
PACKED = gzip.compress(BODY)
HALVES = gzip.compress(BODY[:9]), gzip.compress(BODY[9:])


def sent(*lines: bytes, body: bytes = BODY, start: bytes = b"HTTP/1.1 200 OK", end: bytes = b"\r\n") -> bytes:
    return end.join([start, *lines]) + end + end + body


def packed(body: bytes, coding: bytes = b"gzip") -> bytes:
    return sent(b"content-encoding: " + coding, b"content-length: %d" % len(body), body=body)


def chunks(after: bytes = b"0\r\n\r\n", size: bytes = b"%x" % SIZE, body: bytes = BODY) -> bytes:
    return sent(CHUNKED, body=size + b"\r\n" + body + b"\r\n" + after)


def singly(body: bytes, *lines: bytes) -> bytes:
    return sent(CHUNKED, *lines, body=b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")


INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
START = b"HTTP/1.1 200 OK\r\nx: "

READ: list[Script] = [
    [sent(LENGTH)],
    [sent(LENGTH, LENGTH)],
    [sent(LENGTH, b"x: y", b"Content-Length:%d" % SIZE, LENGTH)],
    [sent(b"content-length: %d, %d" % (SIZE, SIZE))],
    [sent(b"content-length: 00%d" % SIZE)],
    [sent(LENGTH, CHUNKED, body=singly(BODY).partition(b"\r\n\r\n")[2])],
    [sent(CHUNKED, b"content-length: 3", body=singly(BODY).partition(b"\r\n\r\n")[2])],
    [sent(b"x: a", b" b", LENGTH)],
    [sent(b"x: a", b"\tb", b"  c", b"   ", LENGTH)],
    [sent(b"content-length:", b" %d" % SIZE)],
    [sent(LENGTH, b"x: a", b" b")],
    [sent(b"x: a\x01\x1b\x7fb", LENGTH)],
    [sent(b"x: \xc3\xa9\xe9", b"y:", LENGTH)],
    [sent(b"x: " + b"a" * 90_000, LENGTH)],
    [sent(LENGTH, start=b"HTTP/1.1 200")],
    [sent(LENGTH, start=b"HTTP/1.2 200 OK")],
    [sent(LENGTH, start=b"HTTP/2.0 200 OK")],
    [sent(LENGTH, end=b"\n")],
    [sent(LENGTH, body=BODY + b"and so on")],
    [sent(LENGTH) + sent(LENGTH)],
    [INTERIM + sent(LENGTH)],
    [INTERIM * 4_200 + sent(LENGTH)],
    [INTERIM + b"HTTP/1.1 103 x\r\nlink: a\r\n b\r\n\r\n" + sent(b"x: a", b" b", LENGTH)],
    [sent(LENGTH, b"connection: upgrade", b"upgrade: h2c")],
    [sent(), Close()],
    [sent(start=b"HTTP/1.0 200 OK"), Close()],
    [chunks(b"0\r\na: b\r\n\r\n")],
    [chunks(size=b"%X;a=b" % SIZE)],
    [chunks(size=b'%x;a="b;c"' % SIZE)],
    [packed(PACKED)],
    [packed(b"".join(HALVES))],
    [packed(b"".join(gzip.compress(BODY[n : n + 1]) for n in range(SIZE)))],
    [packed(gzip.compress(b"") + PACKED + gzip.compress(b""))],
    [singly(b"".join(HALVES), GZIP)],
    [packed(PACKED + b"\0\0")],
    [packed(PACKED + b"\x1f")],
    [packed(b"".join(HALVES) + b"garbage")],
    [packed(gzip.compress(b"".join(HALVES)), b"gzip, gzip")],
    [packed(BODY, b"x-unheard-of")],
    [packed(BODY, b"")],
    [packed(PACKED[:-4])],
    [singly(zlib.compress(BODY, wbits=-15), b"content-encoding: deflate")],
    [singly(zlib.compress(BODY), b"content-encoding: deflate")],
]
REFUSED: list[Script] = [  # a response came that cannot be read
    [sent(LENGTH, b"content-length: 5")],
    [sent(b"content-length: %d, 5" % SIZE)],
    [sent(LENGTH, b"content-length: 0%d" % SIZE)],
    [sent(CHUNKED, LENGTH, b"content-length: 3", body=singly(BODY).partition(b"\r\n\r\n")[2])],
    *([sent(b"content-length: " + value)] for value in (b"-1", b"abc", b"+5", b"", b"0x10", b"9" * 30, b"1 2", b"5.0")),
    *([sent(b"transfer-encoding: " + value)] for value in (b"gzip, chunked", b"identity", b"xchunked", b"")),
    [sent(CHUNKED, CHUNKED, body=singly(BODY).partition(b"\r\n\r\n")[2])],
    [sent(b" x: a", LENGTH)],
    *([sent(line, LENGTH)] for line in (b"nonsense", b"x: a\0b", b"x\0: b", b"x : a", b": a", b"x(y): a", b"x: a\rb")),
    [sent(b"x: " + b"a" * 300_000, LENGTH)],
    [sent(*[b"x%d: y" % n + b"y" * 99 for n in range(4000)], LENGTH)],
    [b"nonsense\r\n\r\n"],
    [BODY, Close()],
    *(
        [sent(LENGTH, start=start)]
        for start in (b"ICY 200 OK", b"HTTP/2 200 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 abc OK")
    ),
    *([sent(LENGTH, start=start)] for start in (b"HTTP/1.1 099 OK", b"http/1.1 200 OK", b"HTTP/1.1 200 O\0K")),
    *([before + sent(LENGTH)] for before in (b"\r\n", b"\n", b" ", b"\xef\xbb\xbf")),
    *([part, end] for part in (b"H", START, INTERIM, START + b"a\r\n b\r\n") for end in (Close(), Reset())),
    [b"HTTP/1.1 101 x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"],
]
BROKEN: list[Script] = [  # the headers came, and not the body
    [sent(b"content-length: %d" % (SIZE + 5)), Close()],
    [sent(LENGTH, body=b""), Close()],
    [sent(LENGTH, body=b""), Reset()],
    [sent(LENGTH, body=BODY[:9]), Reset()],
    *([chunks(size=size)] for size in (b"zz", b"-5", b"f" * 30, b"", b"0x%x" % SIZE)),
    [sent(CHUNKED, body=b"%x\r\n%bXX0\r\n\r\n" % (SIZE, BODY))],
    [chunks(b"0\r\nnonsense\r\n\r\n")],
    [chunks(b""), Close()],
    [chunks(b"0\r\n"), Close()],
    [packed(BODY)],
    [packed(PACKED[:12] + b"\xff\xff\xff" + PACKED[15:])],
    [packed(PACKED[:-8] + b"abcdefgh")],
    [packed(PACKED + b"\x1f\x8bxx")],
    [packed(HALVES[0] + HALVES[1][:-8] + b"abcdefgh")],
]
ENDPOINTS: list[Script] = [  # a response that is in order, and no reply
    [sent(LENGTH, start=b"HTTP/1.1 204 x")],
    [sent(LENGTH, start=b"HTTP/1.1 304 x")],
    [sent(b"content-length: 0")],
    [packed(PACKED[:-20])],
]
NOTHING: list[Script] = [[Close()], [Reset()]]
SILENT: list[Script] = [[Stay()], [b"HTTP/1.", Stay()], [START, Stay()], [START + b"a\r\n b\r\n", Stay()]]
SILENT += [[INTERIM, Stay()]]


def outcome(call: Any) -> tuple[str, bool]:
    try:
        return call().text, False
    except cnllm.CnllmError as error:
        kind = "an error without a reason" if str(error).endswith((":", ": ")) else type(error).__name__
        return kind, getattr(error, "retryable", False)


def outcomes(script: Script, times: Timeouts) -> set[tuple[str, bool, int]]:
    """What came over each adapter, and how often the request was sent."""
    seen: set[tuple[str, bool, int]] = set()
    for kind in (Httpx, Fast):
        with Peer(script) as peer, Client(registry(), kind(), retry=THRICE) as client:
            got = outcome(lambda: client.call(at(peer), "hi", timeout=times))
        seen.add((*got, len(peer.received)))
    for other in (AsyncHttpx, AsyncFast):
        with Peer(script) as peer:
            got = outcome(lambda: asyncio.run(called(other(), peer, times)))  # noqa: B023
        seen.add((*got, len(peer.received)))
    return seen


async def called(transport: Any, peer: Peer, times: Timeouts) -> cnllm.Reply:
    async with AsyncClient(registry(), transport, retry=THRICE) as client:
        return await client.call(at(peer), "hi", timeout=times)


CASES: list[tuple[str, list[Script], set[tuple[str, bool, int]]]] = [
    ("read", READ, {("ok", False, 1)}),
    ("refused", REFUSED, {("TransportError", False, 1)}),
    ("broken", BROKEN, {("TransportError", False, 1)}),
    ("nothing came", NOTHING, {("TransportError", True, 3)}),
    ("silent", SILENT, {("Timeout", False, 1)}),
]


@pytest.mark.parametrize(("scripts", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_fault_has_one_outcome(scripts: list[Script], expected: set[tuple[str, bool, int]]) -> None:
    patience = Timeouts(first_byte=0.5 if scripts is SILENT else 5, idle=5)
    at_once = len(scripts) if scripts is SILENT else 1  # those wait, and do nothing else
    with ThreadPoolExecutor(at_once) as pool:
        found = pool.map(lambda script: outcomes(script, patience), scripts)
        wrong = [(script, got) for script, got in zip(scripts, found, strict=True) if got != expected]
    assert not wrong


def test_a_response_that_is_no_reply_has_one_outcome() -> None:
    for script in ENDPOINTS:
        (got,) = outcomes(script, Timeouts(first_byte=5, idle=5))
        assert got[1:] == (False, 1)


def test_what_is_retried_and_what_is_not_stands_in_the_error() -> None:
    scripts: list[tuple[Script, bool]] = [([b"H", Close()], False), ([Close()], True)]
    for script, retryable in scripts:
        for kind in (Httpx, Fast):
            with (
                Peer(script) as peer,
                Client(registry(), kind(), retry=Retry(attempts=1)) as client,
                pytest.raises(cnllm.TransportError) as caught,
            ):
                client.call(at(peer), "hi")
            assert caught.value.retryable is retryable
            assert ("cannot be read" in str(caught.value)) is not retryable
