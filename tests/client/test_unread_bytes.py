"""Bytes behind a complete response: they are nobody's reply, and their connection serves nobody again."""

import gzip
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore
import pytest

import cnllm

from . import certificate
from .conftest import Make
from .peer import JSON, Peer, Step, Wait, answer, chunked, head, refused, reply, said, whole
from .support import QUICK, SOON, Driver, at, drained

ADAPTERS = ["httpx", "httpx2"]
EVIL = reply("EVIL")
BODY = whole("EVIL")
BEHIND: dict[str, bytes] = {
    "another response": reply() + EVIL,
    "two of them": reply() + EVIL + EVIL,
    "a line end": reply() + b"\r\n",
    "one byte": reply() + b"x",
    "half a response": reply() + EVIL[:20],
    "a late 100 Continue": reply() + b"HTTP/1.1 100 Continue\r\n\r\n" + EVIL,
    "early hints": reply() + b"HTTP/1.1 103 Early Hints\r\n\r\n" + EVIL,
    "behind the last chunk": chunked(whole(), headers=JSON) + EVIL,
    "behind a compressed body": answer(200, gzip.compress(whole()), JSON, content_encoding="gzip") + EVIL,
    "behind an unheard-of coding": answer(200, whole(), JSON, content_encoding="x-unheard-of") + EVIL,
    "more than its length": answer(200, whole()) + b" " * 70_000 + EVIL,
    "a body of 204": head(204, JSON, content_length=str(len(BODY))) + BODY + EVIL,
    "a response behind 204": head(204, {}) + EVIL,
    "a body of 304": head(304, JSON, content_length=str(len(BODY))) + BODY,
    "content-length: 0": head(200, JSON, content_length="0") + EVIL,
    "behind a refusal": refused(400) + EVIL,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssl.SSLContext]:
    folder: Path = tmp_path_factory.mktemp("tls")
    certificate.make(folder)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "cert.pem"))
        yield made


class Sent(threading.Event):
    """A step of a peer's that says that it has come so far."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True

    def came(self) -> bool:
        return super().wait(SOON)


def _twice(client: Driver, script: list[Step], tls: ssl.SSLContext | None, sent: Sent | None = None) -> list[int]:
    """The connections of two requests, of which the second is answered as it should be."""
    with Peer(script, [reply("right")], tls=tls) as peer:
        try:
            client.call(at(peer))
        except cnllm.CnllmError:
            assert sent is None
        assert sent is None or sent.came()
        assert client.call(at(peer)).text == "right"
        assert client.call(at(peer)).text == "right"
    return [request.connection for request in peer.received]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_unread_bytes_answer_no_other_request(make: Make, server: ssl.SSLContext, encrypted: bool) -> None:
    client, tls = make(retry=cnllm.Retry(attempts=1)), server if encrypted else None
    for name, sent in BEHIND.items():
        assert _twice(client, [sent], tls) == [0, 1, 1], name
    for late in (EVIL, b"\n", b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n"):
        done = Sent()  # what comes after the next request was sent is its answer, as far as anyone can tell
        assert _twice(client, [reply(), late, Wait(done)], tls, done) == [0, 1, 1], "in a segment and record of its own"
    assert _twice(client, [reply("right")], tls) == [0, 0, 0], "a clean connection is used again"


def test_unread_bytes_answer_no_retry_of_ours(make: Make) -> None:
    client = make(retry=QUICK)
    for first in (refused(429) + EVIL, refused(503) + EVIL, refused(429) + b"\r\n"):
        with Peer([first], [reply("right")]) as peer:
            assert client.call(at(peer)).text == "right"
        assert [request.connection for request in peer.received] == [0, 1]


def test_unread_bytes_answer_no_stream(make: Make) -> None:
    client = make(retry=QUICK)
    for surplus in (EVIL, chunked(*said("EVIL"))):
        with Peer([chunked(*said("The sky")) + surplus], [reply("right")]) as peer:
            assert drained(client.stream(at(peer)))[1].text == "The sky"
            assert client.call(at(peer)).text == "right"
        assert [request.connection for request in peer.received] == [0, 1]


def _without_connections(patch: pytest.MonkeyPatch, core: Any) -> None:
    """A pool that does not show its connections."""
    for kind in (core.ConnectionPool, core.AsyncConnectionPool):
        patch.setattr(kind, "connections", property(lambda self: []))


def test_where_nobody_can_look_no_connection_is_used_again(
    make: Make, adapter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpcore2

    core = httpcore if adapter == "httpx" else httpcore2
    with monkeypatch.context() as patch:
        _without_connections(patch, core)
        assert _twice(make(), [reply()], None) == [0, 1, 2]
    with monkeypatch.context() as patch:
        patch.delattr(core, "ConnectionNotAvailable")
        with Peer([reply() + EVIL], [reply("right")]) as peer:
            client = make()
            for _ in range(2):
                client.call(at(peer))
            assert [request.headers.get("connection") for request in peer.received] == ["close", "close"]
            assert [request.connection for request in peer.received] == [0, 1]
    with monkeypatch.context() as patch:
        patch.setattr(
            "cnllm.transports.httpx_backend._h11_of", lambda pool, stream: type("Odd", (), {"trailing_data": None})()
        )
        assert _twice(make(), [reply()], None) == [0, 1, 2]
