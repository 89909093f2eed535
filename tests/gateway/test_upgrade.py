"""Clients that offer another protocol with a request, as Java's HttpClient and `curl --http2` offer HTTP/2.

RFC 9110, 7.8: a server that does not take the offer answers as if it were not there.
"""

from __future__ import annotations

import json
import socket

import pytest

from cnllm.gateway.asgi import Gateway
from cnllm.gateway.bounds import Bounds
from cnllm.gateway.server import running
from gateway.support import KEY, lines_sent

BODY = json.dumps({"model": "zai/glm-4.7", "messages": [{"role": "user", "content": "Hi"}]}).encode()
OFFER = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQBAAAA\r\n"
HEAD = f"host: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n"
GET = f"GET /v1/models/glm-4.7 HTTP/1.1\r\n{HEAD}"


@pytest.mark.parametrize("cut", [0, 1, len(BODY) // 2, len(BODY)])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_request_that_offers_http_2_is_answered_and_so_is_the_next_one(cut: int, is_chunked: bool) -> None:
    size = (
        f"transfer-encoding: chunked\r\n\r\n{len(BODY):x}\r\n" if is_chunked else f"content-length: {len(BODY)}\r\n\r\n"
    )
    head = f"POST /v1/chat/completions?a=b HTTP/1.1\r\n{HEAD}{OFFER}{size}".encode()
    end = b"\r\n0\r\n\r\n" if is_chunked else b""
    next_one = f"{GET}connection: close\r\n\r\n".encode()
    with running(Gateway(simulate=True, keys=[KEY])) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), 10) as peer, peer.makefile("rb") as answer:
            peer.sendall(head + BODY[:cut])
            peer.sendall(BODY[cut:] + end + next_one)
            text = answer.read()
        assert text.count(b"HTTP/1.1 200 OK\r\n") == 2, text
        assert b'You said: \\"Hi\\"' in text
        assert text.endswith(b'"owned_by":"zai"}')


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (f"{GET}connection: upgrade\r\nupgrade: websocket\r\nconnection: close\r\n\r\n", 200),
        (f"{GET}connection: upgrade\r\nupgrade: h2c\r\ntransfer-encoding: gzip\r\n\r\n", 501),
        (f"{GET}connection: upgrade\r\nupgrade: h2c\r\n{'x: y' * 20_000}\r\n\r\n", 431),
        (f"{GET}{OFFER}host: elsewhere\r\n\r\n", 400),
        (f"CONNECT 127.0.0.1:443 HTTP/1.1\r\n{HEAD}\r\n", 400),
        (f"{GET}{OFFER}\r\n" * 40, 200),
    ],
)
def test_what_is_refused_without_an_offer_is_refused_with_one(request_head: str, status: int) -> None:
    with running(Gateway(simulate=True, keys=[KEY], bounds=Bounds(idle_seconds=1))) as url:
        answer = lines_sent(url, request_head)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert answer.count(b"HTTP/1.1 ") <= 18
