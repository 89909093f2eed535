"""What clients may hold of a gateway: heads, time, connections, requests and bytes; and what they cannot break."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnllm.gateway.access import digest
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.bounds import Bounds, Clients, Guesses, Quota
from cnllm.gateway.failures import RequestFailed
from cnllm.gateway.http_protocol import BoundedProtocol
from cnllm.gateway.http_request import HttpRequest
from cnllm.gateway.limits.book import open_book
from cnllm.gateway.limits.keys import KeyRecord, new_key
from cnllm.gateway.monitoring.recent import Recent
from cnllm.gateway.request_body import _check_values
from cnllm.gateway.server import running

from .support import KEY, Answer, Upstream, gateway_for, lines_sent, say

PATH = "/v1/chat/completions"
BODY = {"model": "zai/glm-4.7", "messages": [{"role": "user", "content": "Hi"}]}
HOST = "host: localhost\r\n"
AUTHORIZED = f"{HOST}x-api-key: {KEY}\r\n"


@contextlib.contextmanager
def simulated(**options: Any) -> Iterator[str]:
    options.setdefault("keys", [KEY])
    with running(Gateway(simulate=True, **options)) as url:
        yield url


def connected(url: str, **options: int) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    peer = socket.socket()
    for name, value in options.items():
        peer.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    peer.settimeout(20)
    peer.connect((host, int(port)))
    return peer


def answer(peer: socket.socket) -> bytes:
    """Everything that arrives before the end of the connection."""
    out = b""
    with contextlib.suppress(ConnectionError):
        while piece := peer.recv(65536):
            out += piece
    return out


def status(data: bytes) -> int:
    return int(data[9:12]) if data else 0


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# ── heads ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("begin", "piece", "words"),
    [
        ("GET /healthz HTTP/1.1\r\n" + HOST + "x: ", "a" * 5000, b"bytes"),
        ("GET /healthz HTTP/1.1\r\n" + HOST, "x: y\r\n" * 50, b"fields"),
        ("GET /healthz HTTP/1.1\r\n" + HOST, "a" * 5000, b"bytes"),
        ("GET /", "a" * 5000, b"bytes"),
        ("GET /?q=", "%41" * 2000, b"bytes"),
        (
            f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n",
            "x: y\r\n" * 50,
            b"fields",
        ),
    ],
    ids=["value", "fields", "name", "path", "query", "trailers"],
)
@pytest.mark.parametrize("pieces", [1, 40])
def test_a_head_without_an_end_is_refused(begin: str, piece: str, words: bytes, pieces: int) -> None:
    with simulated() as url, connected(url) as peer:
        sent = len(begin)
        with contextlib.suppress(ConnectionError):
            peer.sendall(begin.encode() + (piece * 40).encode() if pieces == 1 else begin.encode())
            for _ in range(0 if pieces == 1 else 400):
                peer.sendall(piece.encode())
                sent += len(piece)
        data = answer(peer)
        assert status(data) == 431, data
        assert words in data
        assert b"connection: close" in data


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip", "identity", "xchunked", "chunked, chunked", ""])
def test_a_body_with_another_coding_than_chunked_is_refused(coding: str) -> None:
    content = json.dumps(BODY)
    chunked = f"{len(content):x}\r\n{content}\r\n0\r\n\r\n"
    with simulated() as url:

        def sent(codings: str) -> int:
            head = f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}transfer-encoding: {codings}\r\nconnection: close\r\n\r\n"
            with connected(url) as peer:
                peer.sendall((head + chunked).encode())
                return status(answer(peer))

        is_known = coding in ("chunked, chunked", "")  # the parser of HTTP refuses it before
        assert sent(coding) == sent(f"{coding}\r\ntransfer-encoding: chunked") == (400 if is_known else 501)
        assert sent("Chunked") == 200


def test_what_follows_a_refused_head_is_read_so_that_the_client_sees_the_answer_and_no_reset() -> None:
    with simulated() as url, connected(url, SO_SNDBUF=16_384) as peer:
        peer.sendall(b"BROKEN\r\n\r\n")
        assert status(answer(peer)) == 400
        for _ in range(10):
            peer.sendall(b"x" * 60_000)


def test_a_large_head_within_the_bounds_is_served() -> None:
    fields = "".join(f"x-{number}: {'v' * 600}\r\n" for number in range(90))
    with simulated() as url:
        for pause in (0, 7000):
            head = f"GET /healthz HTTP/1.1\r\n{HOST}connection: close\r\n{fields}\r\n".encode()
            with connected(url) as peer:
                for start in range(0, len(head), pause or len(head)):
                    peer.sendall(head[start : start + (pause or len(head))])
                assert status(answer(peer)) == 200
    assert len(fields) > 50_000


def test_every_head_and_every_idle_connection_has_a_deadline() -> None:
    whole = f"GET /healthz HTTP/1.1\r\n{HOST}\r\n".encode()

    def seconds_open(url: str, begin: bytes, rest: bytes) -> float:
        with connected(url) as peer:
            peer.sendall(begin)
            if begin == whole:
                peer.recv(65536)
            peer.sendall(rest)
            start = time.monotonic()
            answer(peer)
            return time.monotonic() - start

    cases = (
        (b"", b"", 0.4),
        (b"GE", b"", 0.4),
        (b"\r\n", b"", 0.4),
        (whole, b"", 1.2),
        (whole, b"G", 0.4),
        (whole, whole + b"GET / HTTP", 0.4),
        (whole, b"\r\n", 0.4),
    )
    with simulated(bounds=Bounds(head_seconds=0.4, idle_seconds=1.2)) as url, ThreadPoolExecutor(len(cases)) as pool:
        took = list(pool.map(lambda case: seconds_open(url, *case[:2]), cases))
    for (*sent, seconds), found in zip(cases, took, strict=True):
        assert seconds * 0.7 < found < seconds + 8, (sent, found)


def test_a_head_that_drips_is_over_at_its_deadline() -> None:
    with simulated(bounds=Bounds(head_seconds=0.6)) as url, connected(url) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\n")
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - start < 20:
                peer.sendall(b"x: y\r\n"[:1])
                peer.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    if not peer.recv(100):
                        break
        assert time.monotonic() - start < 12


@pytest.mark.parametrize(
    "head",
    [
        f"GET /v1/models HTTP/1.1\r\nhost: evil.example\r\n{AUTHORIZED}",
        f"GET /v1/models HTTP/1.1\r\n{AUTHORIZED}host: evil.example\r\n",
        f"GET /v1/models HTTP/1.1\r\n{AUTHORIZED}{HOST}",
        f"GET http://evil.example/v1/models HTTP/1.1\r\n{AUTHORIZED}",
        f"GET http://localhost:1/v1/models HTTP/1.1\r\n{AUTHORIZED}",
        f"GET http://localhost@evil.example/v1/models HTTP/1.1\r\n{AUTHORIZED}",
        f"GET ftp://localhost/v1/models HTTP/1.1\r\n{AUTHORIZED}",
        f"GET /v1/models HTTP/1.1\r\n{AUTHORIZED}x-api-key: other\r\n",
        f"GET /v1/models HTTP/1.1\r\n{HOST}authorization: Bearer {KEY}\r\nAuthorization: Bearer x\r\n",
        f"GET /v1/models HTTP/1.1\r\n{HOST}x-goog-api-key: x\r\nX-Goog-Api-Key: {KEY}\r\n",
        f"GET /v1/models?key={KEY}&key=other HTTP/1.1\r\n{HOST}",
        f"GET /v1/models?k%65y=x&key={KEY} HTTP/1.1\r\n{HOST}",
        f"GET /v1/models HTTP/1.1\r\n{AUTHORIZED}origin: http://localhost\r\norigin: http://evil.example\r\n",
        f"OPTIONS * HTTP/1.1\r\n{AUTHORIZED}",
        f"CONNECT localhost:80 HTTP/1.1\r\n{AUTHORIZED}",
    ],
)
def test_what_a_proxy_may_understand_in_another_way_is_refused(head: str) -> None:
    with simulated() as url:
        assert status(lines_sent(url, f"{head}connection: close\r\n\r\n")) == 400


def test_a_target_with_the_host_of_the_head_is_served() -> None:
    with simulated() as url:
        port = url.rpartition(":")[2]
        for target, host in (
            ("http://localhost", "localhost"),
            ("HTTP://LOCALHOST:80", "localhost"),
            (url, f"127.0.0.1:{port}"),
        ):
            fields = f"host: {host}\r\nx-api-key: {KEY}\r\nconnection: close\r\n\r\n"
            assert status(lines_sent(url, f"GET {target}/v1/models/glm-4.7 HTTP/1.1\r\n{fields}")) == 200, target


def test_requests_on_one_connection_are_answered_in_turn_and_bounded() -> None:
    one = f"GET /healthz HTTP/1.1\r\n{HOST}\r\n"
    with simulated() as url:
        assert lines_sent(url, one * 5 + one.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")).count(b"200 OK") == 6
        with connected(url) as peer:
            peer.sendall((one * 5000).encode())
            assert 1 <= answer(peer).count(b"200 OK") < 50


# ── what is kept ──────────────────────────────────────────────────────────────
def test_nothing_of_a_client_without_a_key_is_kept() -> None:
    """Not the path, in the log, the metrics or the page; and no object of the connection waits for the collector."""
    secret = "y" * 50_000
    recent, mine = Recent(), {"x-api-key": KEY}
    gc.collect()
    gc.freeze()  # what earlier tests left in memory need not be looked through each time
    gc.disable()
    try:
        with running(Gateway(simulate=True, keys=[KEY], recent=recent)) as url:
            before = _objects_of_requests()
            response = httpx.post(f"{url}{PATH}/{secret}")
            assert response.status_code == 401
            assert httpx.get(f"{url}/v1/models", headers={"host": secret}).status_code == 421
            for headers in ({}, {"x-api-key": "wrong"}):
                assert httpx.post(f"{url}{PATH}", json={**BODY, "user": secret}, headers=headers).status_code == 401
            until(lambda: _objects_of_requests() <= before)
            assert recent.entries() == []
            id = response.headers["x-request-id"]
            assert httpx.get(f"{url}/v1/requests/{id}", headers=mine).status_code == 404
            assert secret not in httpx.get(f"{url}/metrics", headers=mine).text
            assert len(httpx.get(f"{url}/v1/{secret}", headers=mine).text) < 1000
    finally:
        gc.enable()


def _objects_of_requests() -> int:
    """How many connections and requests are in memory, those that the collector has not found among them."""
    return sum(isinstance(owner, BoundedProtocol | HttpRequest) for owner in gc.get_objects())


def test_wrong_keys_are_slowed_down_and_a_known_client_is_not() -> None:
    with simulated(recent=Recent()) as url, httpx.Client(base_url=url) as http:
        mine = {"x-api-key": KEY}
        assert http.get("/v1/models/glm-4.7", headers=mine).status_code == 200

        def guess(path: str, key: str) -> httpx.Response:
            if path == "/ui/login":
                return http.post(path, data={"key": key})
            return http.get(path, headers={"authorization": f"Bearer {key}"})

        for path in ("/v1/models", "/ui/login", "/metrics"):
            statuses = [guess(path, f"guess-{number}").status_code for number in range(130)]
            assert set(statuses) <= {401, 429}, path
            assert statuses.count(429) > 20, path
            last = guess(path, "one-more")
            assert int(last.headers["retry-after"]) > 0
            assert "wrong keys" in last.text
        assert http.post("/ui/login", data={"key": KEY}).status_code == 429, "the right key is no answer to a guess"
        assert http.get("/v1/models/glm-4.7", headers=mine).status_code == 200
        assert http.get("/healthz").status_code == 200


def test_the_table_of_wrong_keys_is_bounded() -> None:
    now = 0.0
    guesses = Guesses(3, 2.0, clock=lambda: now)
    for number in range(50_000):
        guesses.add(f"address-{number}")
        guesses.prove(f"address-{number}", "identity")
    assert len(guesses._free_at) <= 10_000
    assert len(guesses._proven) <= 10_000
    for _ in range(3):
        assert guesses.wait("me") == 0
        guesses.add("me")
    assert guesses.wait("me") == 2.0
    now = 2.0
    assert guesses.wait("me") == 0


# ── connections, requests and bytes ───────────────────────────────────────────
def test_connections_are_bounded_for_all_and_for_one_address() -> None:
    for share, expected in ((1.0, 503), (0.5, 429)):
        with simulated(bounds=Bounds(connections=8, client_share=share)) as url:
            idle = [connected(url) for _ in range(8 if expected == 503 else 4)]
            try:
                for peer in idle:
                    peer.sendall(f"GET /healthz HTTP/1.1\r\n{HOST}\r\n".encode())
                    assert status(peer.recv(65536)) == 200
                start = time.monotonic()
                with connected(url) as late:
                    late.sendall(f"GET /healthz HTTP/1.1\r\n{HOST}\r\n".encode())
                    data = answer(late)
                assert status(data) == expected, data
                assert b"retry-after" in data
                assert time.monotonic() - start < 9
                idle.pop().close()
                until(lambda: httpx.get(f"{url}/healthz").status_code == 200)
            finally:
                for peer in idle:
                    peer.close()


def test_a_process_with_few_files_refuses_and_lives(tmp_path: Path) -> None:
    command = f"ulimit -n 64; exec {sys.executable} -m cnllm serve --simulate --json --key {KEY}"
    env = {**os.environ, "CNLLM_DATA_DIR": str(tmp_path)}
    with subprocess.Popen(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = json.loads(process.stdout.readline())["url"]
        peers = []
        try:
            for _ in range(200):
                with contextlib.suppress(OSError):
                    peers.append(connected(url))
            used = _cpu_seconds(process.pid)
            time.sleep(1)
            assert _cpu_seconds(process.pid) - used < 0.5, "it waits, and does not spin"
        finally:
            for peer in peers:
                peer.close()

        def serves() -> bool:
            with contextlib.suppress(httpx.TransportError):
                headers = {"x-api-key": KEY}
                return httpx.post(f"{url}{PATH}", json=BODY, headers=headers, timeout=20).status_code == 200
            return False

        until(serves)
        process.terminate()
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_requests_at_once_are_bounded(tmp_path: Path) -> None:
    for share, expected in ((1.0, 503), (0.5, 429)):
        go_on = threading.Event()
        upstream = Upstream(say("Hello.", wait=go_on, lasts=False))
        most = 2 if expected == 503 else 1
        with gateway_for(upstream, tmp_path, bounds=Bounds(requests=2, client_share=share)) as http:
            with contextlib.ExitStack() as stack:
                held = []  # without its iterator a response is closed
                for _ in range(most):
                    response = stack.enter_context(http.stream("POST", PATH, json={**BODY, "stream": True}))
                    held.append(response.iter_raw())
                    next(held[-1])
                refused = http.post(PATH, json=BODY)
                assert refused.status_code == expected
                assert refused.headers["retry-after"] == "1"
                assert "too many requests" in refused.json()["error"]["message"]
                assert http.get("/healthz").status_code == 200
                go_on.set()
            until(lambda: http.post(PATH, json=BODY).status_code == 200)


def test_the_bytes_of_bodies_are_bounded() -> None:
    with simulated(bounds=Bounds(held_bytes=1_000_000, client_share=1.0)) as url:
        head = f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}content-length: 600000\r\n\r\n".encode()
        with connected(url) as first, connected(url) as second:
            first.sendall(head + b"{" + b" " * 100_000)
            mine = {"x-api-key": KEY}
            until(lambda: httpx.post(f"{url}{PATH}", content=b" " * 600_000, headers=mine).status_code == 503)
            second.sendall(f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}transfer-encoding: chunked\r\n\r\n".encode())
            with contextlib.suppress(ConnectionError):
                for _ in range(60):
                    second.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
            assert status(second.recv(65536)) == 503
        until(lambda: httpx.post(f"{url}{PATH}", content=b" " * 600_000, headers=mine).status_code == 400)


def test_a_forwarded_address_counts_behind_a_trusted_proxy_alone() -> None:
    def of(peer: str, *forwarded: str, trusted: tuple[str, ...] = ("10.0.0.0/8", "::1")) -> str:
        headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
        return Clients(trusted).of({"client": (peer, 1), "headers": headers})

    assert of("192.0.2.1", "198.51.100.7") == "192.0.2.1", "it is no proxy of ours"
    assert of("10.1.1.1", "198.51.100.7") == "198.51.100.7"
    assert of("10.1.1.1", "evil, 198.51.100.7, 10.2.2.2") == "198.51.100.7"
    assert of("10.1.1.1", "203.0.113.9, 198.51.100.7") == "198.51.100.7", "the client wrote what stands before"
    assert of("10.1.1.1", "203.0.113.9", "198.51.100.7") == "198.51.100.7"
    assert of("10.1.1.1", "198.51.100.7:4711") == "198.51.100.7"
    assert of("::1", "[2001:db8::5]:4711") == of("::1", "2001:db8::6") == "2001:db8::/64"
    assert of("10.1.1.1") == of("10.1.1.1", "unknown") == "10.1.1.1"
    assert of("10.1.1.1", "10.3.3.3") == "10.3.3.3"
    assert of("::ffff:10.1.1.1", "198.51.100.7") == "198.51.100.7"
    assert of("10.1.1.1", "198.51.100.7", trusted=()) == "10.1.1.1"
    with pytest.raises(ValueError, match="nonsense"):
        Clients(["nonsense"])


def test_clients_behind_a_proxy_are_counted_one_by_one() -> None:
    bounds = Bounds(connections=12, client_share=0.25)
    with simulated(bounds=bounds, trusted_proxies=["127.0.0.1"]) as url, contextlib.ExitStack() as stack:
        for _ in range(9):
            stack.enter_context(connected(url))  # all from the proxy, which has more than a share
        mine = {"x-api-key": "wrong", "x-forwarded-for": "198.51.100.7"}
        with httpx.Client(base_url=url) as http:
            statuses = [http.get("/v1/models", headers=mine).status_code for _ in range(120)]
            assert statuses.count(429) > 10
            other = {**mine, "x-forwarded-for": "198.51.100.8"}
            assert http.get("/v1/models", headers=other).status_code == 401


def test_a_quota_counts_what_is_given_back() -> None:
    quota = Quota(10, 6)
    quota.take("a", 6)
    assert (quota.refusal("a"), quota.refusal("b", 4), quota.refusal("b", 5)) == (429, 0, 503)
    quota.take(None, 4)
    assert quota.refusal("b") == 503
    quota.give(None, 4)
    quota.give("a", 5)
    assert (quota.refusal("a", 6), quota.refusal("a", 5)) == (429, 0)
    quota.give("a")
    assert quota.refusal("a", 6) == 0
    assert quota._each == {}


# ── admission ─────────────────────────────────────────────────────────────────
@contextlib.contextmanager
def limited(folder: Path, **limits: Any) -> Iterator[tuple[str, str]]:
    """A gateway, and a key with limits."""
    book = open_book(f"sqlite:{folder / 'state.db'}")
    assert book is not None
    key = new_key()
    book.add(digest(key), KeyRecord("team", time.time(), **limits))
    with simulated(key_book=book) as url:
        yield url, key


def test_a_refusal_comes_before_the_body(tmp_path: Path) -> None:
    """The limit of a key, a wrong key, a path, a method and a length: none waits for a body, none asks for one."""
    with limited(tmp_path, rpm=1) as (url, key):
        assert httpx.post(f"{url}{PATH}", json=BODY, headers={"x-api-key": key}).status_code == 200
        for line, sent, expected in (
            (f"POST {PATH}", key, 429),
            ("POST /v1/messages", key, 429),
            ("POST /v1/messages/count_tokens", key, 429),
            (f"POST {PATH}", "wrong", 401),
            ("POST /v1/nothing", KEY, 404),
            ("PUT /v1/messages", KEY, 405),
            (f"POST {PATH}", KEY, 413),
        ):
            length = 10**9 if expected == 413 else 30_000_000
            for more in ("", "expect: 100-continue\r\n"):
                head = f"{line} HTTP/1.1\r\n{HOST}x-api-key: {sent}\r\ncontent-length: {length}\r\n{more}\r\n"
                with connected(url) as peer:
                    peer.sendall(head.encode())
                    start = time.monotonic()
                    data = peer.recv(65536)
                    assert status(data) == expected, (line, data)
                    assert b"connection: close" in data
                    assert answer(peer) == b""
                    assert time.monotonic() - start < 12


def test_a_body_is_asked_for_where_the_request_is_admitted() -> None:
    body = json.dumps(BODY).encode()
    with simulated() as url, connected(url) as peer:
        head = f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}content-length: {len(body)}\r\nexpect: 100-continue\r\n\r\n"
        peer.sendall(head.encode())
        assert peer.recv(65536).startswith(b"HTTP/1.1 100 ")
        peer.sendall(body)
        assert status(peer.recv(65536)) == 200


def test_sdks_see_the_refusal_of_a_long_request_and_not_a_reset(tmp_path: Path) -> None:
    with (
        limited(tmp_path, rpm=1) as (url, key),
        openai.OpenAI(api_key=key, base_url=f"{url}/v1", max_retries=0) as client,
    ):
        client.chat.completions.create(model="zai/glm-4.7", messages=[{"role": "user", "content": "Hi"}])
        for length in (100_000, 900_000, 8_000_000, 30_000_000):
            text = "x" * length
            with pytest.raises(openai.RateLimitError, match="1 request a minute"):
                client.chat.completions.create(model="zai/glm-4.7", messages=[{"role": "user", "content": text}])


def test_a_connection_goes_on_after_a_short_body_that_was_refused(tmp_path: Path) -> None:
    with limited(tmp_path, rpm=1) as (url, key), httpx.Client(base_url=url) as http, connected(url) as peer:
        http.post(PATH, json=BODY, headers={"x-api-key": key})
        head = f"POST {PATH} HTTP/1.1\r\n{HOST}x-api-key: {key}\r\ncontent-length: 200000\r\n\r\n"
        peer.sendall(head.encode())
        assert status(peer.recv(65536)) == 429
        peer.sendall(b" " * 200_000 + f"GET /healthz HTTP/1.1\r\n{HOST}\r\n".encode())
        assert status(peer.recv(65536)) == 200


def test_a_refused_request_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(tmp_path, rpm=1) as (url, key):
        headers = {"x-api-key": key}
        assert httpx.post(f"{url}{PATH}", json=BODY, headers=headers).status_code == 200
        parsed: list[bytes] = []
        monkeypatch.setattr("cnllm.gateway.request_body.read_body", parsed.append)
        for path in (PATH, "/v1/responses", "/v1/messages", "/v1beta/models/zai/glm-4.7:generateContent"):
            assert httpx.post(f"{url}{path}", json=BODY, headers=headers).status_code == 429
        assert parsed == []


class Holding(Gateway):
    """A gateway that reads nothing of a request until it may go on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.goes_on = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await asyncio.to_thread(self.goes_on.wait)
        await super().__call__(scope, receive, send)


def test_a_client_that_sends_faster_than_it_is_read_has_to_wait() -> None:
    gateway = Holding(simulate=True, keys=[KEY])
    body = memoryview(json.dumps(BODY).encode().ljust(60_000_000))
    with running(gateway) as url, connected(url, SO_SNDBUF=65536) as peer:
        peer.sendall(f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}content-length: {len(body)}\r\n\r\n".encode())
        peer.settimeout(2)
        sent = 0
        try:
            with contextlib.suppress(TimeoutError):
                while sent < len(body):
                    sent += peer.send(body[sent : sent + 65536])
        finally:
            gateway.goes_on.set()
        assert sent < len(body), "the gateway took what nobody has read"
        peer.settimeout(60)
        peer.sendall(body[sent:])
        assert status(peer.recv(65536)) == 200


# ── clients that do not read ──────────────────────────────────────────────────
@pytest.mark.share(2)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reads", [False, True], ids=["never", "one byte at a time"])
def test_an_answer_that_nobody_reads_ends(stream: bool, reads: bool, tmp_path: Path) -> None:
    """A whole reply, and the last piece of a stream, of more than the system takes."""
    upstream = Upstream(Answer([{"content": "x" * 20_000_000}]))
    body = json.dumps({**BODY, "stream": stream}).encode()
    with gateway_for(upstream, tmp_path, ping=0.1, bounds=Bounds(write_seconds=0.8)) as http:
        url = str(http.base_url).rstrip("/")
        with connected(url, SO_RCVBUF=4096) as peer:
            peer.sendall(f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}content-length: {len(body)}\r\n\r\n".encode() + body)
            assert status(peer.recv(20)) == 200
            start = time.monotonic()
            while not _is_closed(peer):
                if reads:
                    peer.recv(1)
                assert time.monotonic() - start < 20
                time.sleep(0.05)


def test_of_answers_that_nobody_reads_the_oldest_ends_where_they_are_too_many_bytes(tmp_path: Path) -> None:
    sizes = 20_000_000, 15_000_000
    upstream = Upstream(*[Answer([{"content": "x" * size}]) for size in sizes])
    body = json.dumps(BODY).encode()
    with (
        gateway_for(upstream, tmp_path, bounds=Bounds(held_bytes=20_000_000)) as http,
        connected(str(http.base_url).rstrip("/"), SO_RCVBUF=4096) as old,
        connected(str(http.base_url).rstrip("/"), SO_RCVBUF=4096) as new,
    ):
        for peer in (old, new):
            peer.sendall(f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}content-length: {len(body)}\r\n\r\n".encode() + body)
            assert status(peer.recv(20)) == 200
        start = time.monotonic()
        while not _is_closed(old):
            assert time.monotonic() - start < 20
            assert not _is_closed(new)
            time.sleep(0.05)
        assert not _is_closed(new)


def _is_closed(peer: socket.socket) -> bool:
    """Whether the other side has ended the connection, without a look at what it has sent."""
    ports = (peer.getpeername()[1], peer.getsockname()[1])
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if tuple(int(address.partition(":")[2], 16) for address in fields[1:3]) == ports:
            return fields[3] != "01"  # established
    return True


def test_a_client_that_reads_slowly_gets_everything(tmp_path: Path) -> None:
    upstream = Upstream(Answer([{"content": "x" * 3_000_000}]))
    body = json.dumps(BODY).encode()
    with gateway_for(upstream, tmp_path, bounds=Bounds(write_seconds=1.0)) as http:
        with connected(str(http.base_url).rstrip("/"), SO_RCVBUF=65536) as peer:
            head = f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
            peer.sendall(head.encode() + body)
            size = 0
            while piece := peer.recv(30_000):
                size += len(piece)
                time.sleep(0.03)
        assert size > 3_000_000


def test_the_server_stops_quickly_beside_clients_that_do_not_read(tmp_path: Path) -> None:
    upstream = Upstream(Answer([{"content": "x" * 20_000_000}]))
    peers = []
    with gateway_for(upstream, tmp_path) as http:
        for stream in (False, True):
            body = json.dumps({**BODY, "stream": stream}).encode()
            peers.append(peer := connected(str(http.base_url).rstrip("/"), SO_RCVBUF=4096))
            peer.sendall(f"POST {PATH} HTTP/1.1\r\n{AUTHORIZED}content-length: {len(body)}\r\n\r\n".encode() + body)
            assert status(peer.recv(20)) == 200
        start = time.monotonic()
    assert time.monotonic() - start < 15
    for peer in peers:
        peer.close()


# ── long work ─────────────────────────────────────────────────────────────────
def test_a_long_body_does_not_stop_the_others() -> None:
    """The bodies of one client are parsed and fitted while another one asks: it waits for no whole body."""
    content = json.dumps({**BODY, "messages": [{"role": "user", "content": "Hi"}] * 100_000}).encode()
    with simulated() as url, httpx.Client(base_url=url) as http:
        mine = {"x-api-key": KEY}
        start = time.monotonic()
        response = http.post(PATH, content=content, headers=mine, timeout=60)
        assert "too long" in response.text or response.status_code == 200
        alone = time.monotonic() - start
        thread = threading.Thread(target=lambda: httpx.post(f"{url}{PATH}", content=content, headers=mine, timeout=60))
        thread.start()
        waits = []
        while thread.is_alive():
            start = time.monotonic()
            http.get("/healthz")
            waits.append(time.monotonic() - start)
        thread.join()
        assert len(waits) > 5
        assert statistics.median(waits) < alone / 10


class Watched(Gateway):
    """A gateway that measures the longest stop of its event loop, in seconds of the processor."""

    longest = 0.0
    _watches = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not self._watches:
            self._watches, self._last = True, time.thread_time()
            self._tick(asyncio.get_running_loop())
        await super().__call__(scope, receive, send)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.thread_time()
        self.longest, self._last = max(self.longest, now - self._last), now
        loop.call_later(0.002, self._tick, loop)


@contextlib.contextmanager
def watched(gateway: Watched) -> Iterator[httpx.Client]:
    with running(gateway) as url, httpx.Client(base_url=url, headers={"x-api-key": KEY}, timeout=60) as http:
        http.post(PATH, json=BODY)  # what is loaded at the first call
        gc.collect()
        gc.freeze()  # a collection of all that the tests hold is no work of the gateway
        gateway.longest = 0.0
        yield http


def test_work_on_a_long_body_leaves_the_event_loop(tmp_path: Path) -> None:
    """Also where it fails, where its tokens or its price are counted, and where `/ui` or a store keeps it."""
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "你好"}] * 2000
    turn: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "Hi"}] * 4000}
    calls = [{"type": "function", "function": {"name": f"f{number}", "parameters": {}}} for number in range(2000)]
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("chat/completions", {"messages": turns}),
        ("chat/completions", {"messages": [turn], "tools": calls}),
        ("messages", {"messages": turns, "max_tokens": 9, "stream": True}),
        ("messages/count_tokens", {"messages": turns}),
        ("responses", {"input": turns, "tools": []}),
        ("chat/completions", {"messages": [*turns, {"role": "user", "content": "你" * 300_000}]}),  # too long
    ]
    book = open_book(f"sqlite:{tmp_path / 'keys'}")
    assert book is not None
    record = KeyRecord("tenant", created=0.0, budgets={"CNY": 10**12, "USD": 10**12}, tpm=10**9)
    book.add(digest(key := new_key()), record)
    gateway = Watched(simulate=True, keys=[KEY], key_book=book, recent=Recent())
    with watched(gateway) as http:
        for path, _ in bodies:  # what is loaded at the first call of a wire
            few = {"messages": turns[:1], "input": "Hi", "max_tokens": 9, "stream": path == "messages"}
            http.post(f"/v1/{path}", json={"model": "zai/glm-4.7", **few})
        gateway.longest = 0.0
        for path, body in bodies:
            response = http.post(f"/v1/{path}", json={"model": "zai/glm-4.7", **body}, headers={"x-api-key": key})
            assert response.status_code == 200 or "maximum context length" in response.text, response.text
            assert gateway.longest < 0.06, path


def test_the_first_list_of_models_leaves_the_event_loop() -> None:
    gateway = Watched(simulate=True, keys=[KEY])
    with watched(gateway) as http:
        assert len(http.get("/v1/models").json()["data"]) > 500
        assert gateway.longest < 0.1


@pytest.mark.parametrize(
    "value",
    [[0] * 600_000, [{}] * 300_000, dict.fromkeys(range(500_001)), [[[0, 1]] * 100_000] * 2],
    ids=["numbers", "objects", "names", "nested"],
)
def test_the_values_of_a_body_are_bounded(value: Any) -> None:
    with simulated() as url:
        refused = httpx.post(f"{url}{PATH}", json={**BODY, "extra": value}, headers={"x-api-key": KEY})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "too_many_values")
        assert "500,000 values" in refused.json()["error"]["message"]


@given(
    st.recursive(
        st.integers() | st.text('\\",[]{}:a') | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('\\"{,'), inner),
    ),
    st.integers(1, 9),
)
def test_signs_in_strings_are_no_values(value: Any, size: int) -> None:
    """The text is counted in slices, whatever stands at their ends."""
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    count = _marks(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cnllm.gateway.request_body._SLICE", size)
        patch.setattr("cnllm.gateway.request_body.MOST_VALUES", count)
        _check_values(content)
        if 0 < count < len(content):
            patch.setattr("cnllm.gateway.request_body.MOST_VALUES", count - 1)
            with pytest.raises(RequestFailed):
                _check_values(content)


def _marks(value: Any) -> int:
    """The brackets and commas of a value."""
    if not isinstance(value, list | dict):
        return 0
    items = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(0, len(items) - 1) + sum(map(_marks, items))


def test_memory_is_for_one_process() -> None:
    command = [sys.executable, "-m", "cnllm", "serve", "--simulate", "--store", "memory:", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--store memory:" in done.stderr
    assert "redis://" in done.stderr


def test_an_old_uvicorn_is_named(tmp_path: Path) -> None:
    (tmp_path / "uvicorn").mkdir()
    (tmp_path / "uvicorn" / "__init__.py").write_text('__version__ = "0.35.0"')
    command = [sys.executable, "-m", "cnllm", "serve", "--simulate"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode != 0
    assert "uvicorn 0.35.0 is too old" in done.stderr
    assert "uvicorn>=" in done.stderr
    assert "Traceback" not in done.stderr
