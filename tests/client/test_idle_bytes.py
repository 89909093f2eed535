"""Bytes that nobody asked for, behind a response or on a connection that waits for the next request: they answer
nothing. The connection is closed, and the next request goes out on another one.
"""

import asyncio
import gzip
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cnllm import AsyncClient, Client, CnllmError, Retry

from . import certificate
from .peer import JSON, Peer, Step, Wait, answer, chunked, head, refused, reply, whole
from .support import ONCE, QUICK, SOON, at, registry

pytest.importorskip("httptools", reason="the extra cnllm-client[fast] is not installed")

from cnllm.transports.fast import AsyncFast, Fast
from cnllm.transports.response_parser import ResponseParser

ADAPTERS = ["fast"]
RIGHT = "The sky is blue."
EVIL = reply("EVIL")

SURPLUS: dict[str, bytes] = {
    "a reply": EVIL,
    "a refusal": b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    "half a status line": b"HTTP/1.1 2",
    "one letter": b"H",
    "a line end": b"\r\n",
    "half a line end": b"\r",
    "many line ends": b"\r\n" * 50,
    "an interim response": b"HTTP/1.1 100 Continue\r\n\r\n",
    "a reply behind an interim response": b"HTTP/1.1 100 Continue\r\n\r\n" + EVIL,
    "garbage": b"\x00\xff garbage",
    "a chunk": b"5\r\nhello\r\n0\r\n\r\n",
    "a blank": b" ",
    "headers": b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n",
    "a reply behind a line end": b"\r\n" + EVIL,
}
WHOLE: dict[str, bytes] = {
    "a length": reply(),
    "a body that ends with line ends": answer(200, whole() + b"\r\n\r\n"),
    "chunks": chunked(whole(), headers=JSON),
    "chunks with a trailer": chunked(whole(), headers=JSON)[:-2] + b"x-sum: 1\r\n\r\n",
    "gzip": answer(200, gzip.compress(whole()), JSON, content_encoding="gzip"),
}
EMPTY: dict[str, bytes] = {
    "204": head(204, {}),
    "304": head(304, {}),
    "length 0": answer(200, b""),
    "a length, and 204": head(204, {}, content_length="30"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    certificate.make(made)
    return made


@pytest.fixture(params=[False, True], ids=["http", "https"])
def tls(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext | None:
    if not request.param:
        return None
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "cert.pem"))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return made


class Sent(threading.Event):
    """Set by the peer when it comes to wait for it: everything before was sent."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


Between = Callable[[], None]


def _fast(peer: Peer, between: Between, retry: Retry) -> list[str]:
    """What two calls over `Fast` say, with something in between."""
    with Client(registry(), Fast(), retry=retry) as client:

        def call() -> str:
            try:
                return client.call(at(peer), "hi", timeout=SOON).text
            except CnllmError as error:
                return type(error).__name__

        first = call()
        between()
        return [first, call()]


def _async_fast(peer: Peer, between: Between, retry: Retry) -> list[str]:
    """The same over `AsyncFast`. The loop has no turn in between: what came lies in the socket."""
    return asyncio.run(_two_calls(peer, between, retry, 0))


def _async_fast_with_turns(peer: Peer, between: Between, retry: Retry) -> list[str]:
    """The loop has turns in between, and reads what came."""
    return asyncio.run(_two_calls(peer, between, retry, 10))


async def _two_calls(peer: Peer, between: Between, retry: Retry, turns: int) -> list[str]:
    async with AsyncClient(registry(), AsyncFast(), retry=retry) as client:

        async def call() -> str:
            try:
                return (await client.call(at(peer), "hi", timeout=SOON)).text
            except CnllmError as error:
                return type(error).__name__

        first = await call()
        between()
        for _ in range(turns):
            await asyncio.sleep(0)
        return [first, await call()]


WAYS = [_fast, _async_fast, _async_fast_with_turns]


def outcomes(
    *script: Step, late: bytes = b"", tls: ssl.SSLContext | None = None, retry: Retry = ONCE
) -> list[tuple[list[str], list[int]]]:
    """Over each adapter: what two calls say, and the connections that the requests came over."""
    seen = []
    for calls in WAYS:
        idle, sent = threading.Event(), Sent()

        def between(idle: threading.Event = idle, sent: Sent = sent) -> None:
            idle.set()
            if late:
                assert threading.Event.wait(sent, SOON)

        steps = [*script, Wait(idle), late, Wait(sent)] if late else script
        with Peer(steps, [reply()], tls=tls) as peer:
            said = calls(peer, between, retry)
        seen.append((said, [request.connection for request in peer.received]))
    return seen


def differing(cases: dict[Any, Any], expected: tuple[list[str], list[int]]) -> dict[Any, Any]:
    return {name: got for name, got in cases.items() if got != [expected] * len(WAYS)}


def test_bytes_that_come_later(tls: ssl.SSLContext | None) -> None:
    cases = {name: outcomes(reply(), late=late, tls=tls) for name, late in SURPLUS.items()}
    assert not differing(cases, ([RIGHT, RIGHT], [0, 1]))


def test_bytes_that_come_with_the_response(tls: ssl.SSLContext | None) -> None:
    surplus = SURPLUS if tls is None else {"a reply": EVIL, "a line end": b"\r\n"}
    cases = {(w, s): outcomes(WHOLE[w] + surplus[s], tls=tls) for w in WHOLE for s in surplus}
    assert not differing(cases, ([RIGHT, RIGHT], [0, 1]))


def test_bytes_behind_a_response_without_a_body() -> None:
    for empty in EMPTY.values():
        for surplus in SURPLUS.values():
            late = [outcomes(empty, late=surplus)] if empty == EMPTY["204"] else []
            for got in [outcomes(empty + surplus), *late]:
                assert [(said[1], over) for said, over in got] == [(RIGHT, [0, 1])] * len(WAYS)


def test_bytes_behind_a_refusal_do_not_answer_its_retry() -> None:
    for surplus in SURPLUS.values():
        got = outcomes(refused(429) + surplus, retry=QUICK)
        assert got == [([RIGHT, RIGHT], [0, 1, 1])] * len(WAYS)


def test_a_connection_without_them_is_used_again(tls: ssl.SSLContext | None) -> None:
    cases = {name: outcomes(sent, tls=tls) for name, sent in WHOLE.items()}
    assert not differing(cases, ([RIGHT, RIGHT], [0, 0]))


def test_line_ends_behind_a_response_are_noticed_however_it_is_cut() -> None:
    """The parser skips them; where a cut makes it impossible to say, the connection is not used again either."""
    for sent in [*WHOLE.values(), *EMPTY.values()]:
        for surplus in (b"", b"\r\n", b"\n", b"\r"):
            for cut in range(1, len(sent)):
                one = ResponseParser()
                one.feed(sent[:cut])
                one.feed(sent[cut:] + surplus)
                assert one.complete
                assert not (surplus and one.reusable)
        one = ResponseParser()
        one.feed(sent)
        assert one.reusable
