"""Clients and proxies that speak HTTP/1.0, such as `ab` and older nginx."""

from __future__ import annotations

import json
import re

import pytest

from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running
from gateway.support import KEY, lines_sent

BODY = json.dumps({"model": "zai/glm-4.7", "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()


@pytest.mark.parametrize("more", ["", "expect: 100-continue\r\n", "connection: keep-alive\r\n"])
def test_a_stream_has_no_chunks_and_ends_with_its_connection(more: str) -> None:
    """RFC 9112, 6.1 and RFC 9110, 10.1.1: neither chunks nor interim responses."""
    rest = f"host: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(BODY)}\r\n{more}\r\n"
    with running(Gateway(simulate=True, keys=[KEY])) as url:
        head, _, old = lines_sent(url, f"POST /v1/chat/completions HTTP/1.0\r\n{rest}", BODY).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        assert b"transfer-encoding" not in head.lower()
        assert b"\r\nconnection: close" in head
        assert b"\r\n" not in old
        assert old.startswith(b"data: {")
        assert old.endswith(b"data: [DONE]\n\n")
        new = lines_sent(url, f"POST /v1/chat/completions HTTP/1.1\r\nconnection: close\r\n{rest}", BODY)
        chunks = re.sub(
            rb"\r\n[0-9a-f]+\r\n|\A[0-9a-f]+\r\n", b"", new.split(b"\r\n\r\n", 2 if "expect" in more else 1)[-1]
        )
    own = rb'"(?:id|created)":(?:"[^"]*"|\d+)'
    assert re.sub(own, b"", old) == re.sub(own, b"", chunks.removesuffix(b"\r\n"))


def test_a_whole_answer_keeps_its_length() -> None:
    with running(Gateway(simulate=True, keys=[KEY])) as url:
        for method in ("GET", "HEAD"):
            head = f"{method} /v1/models/glm-4.7 HTTP/1.0\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n\r\n"
            head_back, _, body = lines_sent(url, head).partition(b"\r\n\r\n")
            size = int(head_back.split(b"content-length: ")[1].split(b"\r\n")[0])
            assert (head_back[:12], len(body)) == (b"HTTP/1.1 200", size if method == "GET" else 0)
