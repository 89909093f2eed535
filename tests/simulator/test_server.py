"""The server, over real sockets."""

import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from cases import each

from cnllm.registry import Registry
from cnllm.simulator.server import Server, running

from .support import REGISTRY, Json, ask, frames, send, taken


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(REGISTRY) as listening:
        yield listening


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=5) as made:
        yield made


BODY: Json = {"model": "m", **ask("hi")}
STREAM: Json = {**BODY, "stream": True}


def post(client: httpx.Client, url: str, body: Json = BODY, fault: str | None = None) -> httpx.Response:
    headers = {"authorization": "Bearer k"} | ({"x-cnllm-fault": fault} if fault else {})
    return client.post(url, json=body, headers=headers)


# ── routes ───────────────────────────────────────────────────────────────────
def test_a_provider_by_its_path(server: Server, client: httpx.Client) -> None:
    answer = post(client, f"{server.url}/plain/chat/completions")
    assert (answer.status_code, answer.headers["x-cnllm-simulated"]) == (200, "1")
    assert answer.headers["content-length"] == str(len(answer.content))
    assert answer.json() == taken("plain/m", ask("hi"))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
@pytest.mark.parametrize("model", ["short", "plain/m"])
def test_a_bare_path_by_the_model_it_names(server: Server, client: httpx.Client, path: str, model: str) -> None:
    answer = post(client, server.url + path, {**BODY, "model": model})
    assert answer.json() == taken("plain/m", ask("hi"))


def test_a_model_in_the_path(server: Server, client: httpx.Client) -> None:
    answer = client.post(f"{server.url}/paths/deployments/m/chat?api-version=1", json=ask("hi"))
    assert answer.json() == taken("paths/m", ask("hi"))


def test_the_endpoints_own_refusal(server: Server, client: httpx.Client) -> None:
    answer = client.post(f"{server.url}/strict/chat/completions", json=BODY)
    assert (answer.status_code, answer.text) == (403, '{"msg":"no key","code":7}')


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/plain",
        "/plain/",
        "/plain/nothing",
        "/nobody/chat/completions",
        "/v2/chat/completions",
        "/a/b/c",
        "/v1/responses/compact",
    ],
)
def test_unknown_paths_are_named(server: Server, client: httpx.Client, path: str) -> None:
    answer = post(client, server.url + path)
    assert answer.status_code == 404
    assert path in answer.json()["error"]["message"]


def test_an_unknown_model_on_a_bare_path(server: Server, client: httpx.Client) -> None:
    answer = post(client, f"{server.url}/v1/chat/completions", {**BODY, "model": "nobody"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "model")
    assert post(client, f"{server.url}/v1/chat/completions", ask()).status_code == 400


def test_only_post_is_answered(server: Server, client: httpx.Client) -> None:
    for path in ("/plain/chat/completions", "/v1/chat/completions"):
        answer = client.get(server.url + path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert client.post(f"{server.url}/v1/models").status_code == 405


def test_lists_of_models(server: Server, client: httpx.Client) -> None:
    listed = client.get(f"{server.url}/strict/models").json()
    assert [m["id"] for m in listed["data"]] == ["always", "m", "since", "streams"]
    every = client.get(f"{server.url}/v1/models").json()
    assert [m["id"] for m in every["data"]] == REGISTRY.names()
    assert client.get(f"{server.url}/nobody/models").status_code == 404
    assert client.head(f"{server.url}/v1/models").content == b""


# ── streams ──────────────────────────────────────────────────────────────────
def test_a_stream_is_chunked_one_event_a_chunk(server: Server) -> None:
    content = json.dumps(STREAM).encode()
    head = (
        f"POST /plain/chat/completions HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    raw = talk(server, head.encode() + content)
    headers, _, body = raw.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in headers.lower()
    chunks = []
    while body:
        size, _, body = body.partition(b"\r\n")
        chunks.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    assert chunks[-1] == b""
    assert all(c.endswith(b"\n\n") and c.count(b"\n\n") == 1 for c in chunks[:-1])
    assert b"".join(chunks) == send("plain/m", STREAM)[1]


@pytest.mark.parametrize("path", ["/v1beta/models/gemini-2.5-flash", "/google/models/gemini-2.5-flash"])
def test_a_gemini_stream_without_alt_sse_is_one_json_array(client: httpx.Client, path: str) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    with running(Registry.load()) as google:
        url = f"{google.url}{path}:streamGenerateContent"
        events = client.post(url, params={"alt": "sse"}, json=body, headers={"x-goog-api-key": "k"})
        array = client.post(url, json=body, headers={"x-goog-api-key": "k"})
    assert events.headers["content-type"] == "text/event-stream"
    assert array.headers["content-type"] == "application/json"
    texts = [
        [chunk["candidates"][0]["content"] for chunk in chunks]
        for chunks in ([json.loads(line[6:]) for line in events.text.splitlines() if line], array.json())
    ]
    assert texts[0] == texts[1]
    assert len(texts[1]) > 1


def talk(server: Server, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as peer:
        peer.sendall(sent)
        return b"".join(iter(lambda: peer.recv(65536), b""))


def test_many_at_once(server: Server) -> None:
    async def one(client: httpx.AsyncClient, n: int) -> int:
        body = {**STREAM, "messages": [{"role": "user", "content": f"number {n}"}]}
        answer = await client.post(f"{server.url}/plain/chat/completions", json=body)
        assert f"{n}" in "".join(c["delta"].get("content") or "" for f in frames(answer.content) for c in f["choices"])
        return answer.status_code

    async def all_of_them() -> list[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(trust_env=False, timeout=30, limits=limits) as client:
            return await asyncio.gather(*(one(client, n) for n in range(100)))

    assert set(asyncio.run(all_of_them())) == {200}


def test_pace_holds_pieces_apart() -> None:
    with running(REGISTRY, pace=0.01) as slow, httpx.Client(trust_env=False) as client:
        begun = time.monotonic()
        answer = post(client, f"{slow.url}/plain/chat/completions", STREAM)
        assert time.monotonic() - begun >= 0.01 * len(frames(answer.content))


# ── protection ───────────────────────────────────────────────────────────────
@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_other_hosts_are_misdirected(server: Server, client: httpx.Client, host: str) -> None:
    answer = client.post(f"{server.url}/plain/chat/completions", json=BODY, headers={"host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]", "[::1]:80"])
def test_hosts_that_are_loopback(server: Server, client: httpx.Client, host: str) -> None:
    answer = client.post(f"{server.url}/plain/chat/completions", json=BODY, headers={"host": host})
    assert answer.status_code == 200


@each("host", ["0.0.0.0", "::", "192.168.0.1", "example.com", ""])
def test_a_server_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        Server(REGISTRY, host)


def test_a_body_that_is_too_large() -> None:
    async def asked() -> int:
        server = Server(REGISTRY, body_limit=1000)
        await server.start()
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                body = {**BODY, "padding": "x" * 300_000}
                answer = await client.post(f"{server.url}/plain/chat/completions", json=body)
                return answer.status_code
        finally:
            await server.stop()

    assert asyncio.run(asked()) == 413


@pytest.mark.parametrize(
    "sent",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nBad\r\n\r\n"],
)
def test_what_is_no_http(server: Server, sent: bytes) -> None:
    assert talk(server, sent).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_goes_away_harms_no_one(server: Server, client: httpx.Client) -> None:
    for sent in (
        b"",
        b"POST /plain/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(sent)
    assert post(client, f"{server.url}/plain/chat/completions").status_code == 200


def test_a_client_may_ask_before_it_sends(server: Server) -> None:
    content = json.dumps(BODY).encode()
    head = (
        f"POST /plain/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
        "Expect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as peer:
        peer.sendall(head.encode())
        assert peer.recv(65536).startswith(b"HTTP/1.1 100 ")
        peer.sendall(content)
        assert peer.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_connection_is_kept(server: Server) -> None:
    content = json.dumps(BODY).encode()
    head = f"POST /plain/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    once = head.encode() + b"\r\n" + content
    last = head.encode() + b"Connection: close\r\n\r\n" + content
    assert talk(server, once + once + last).count(b"HTTP/1.1 200 ") == 3


def test_an_answer_on_a_kept_connection_waits_for_no_acknowledgement(server: Server, client: httpx.Client) -> None:
    """Without TCP_NODELAY each body but the first would wait 40 ms behind its head, until that is acknowledged."""
    times = []
    for _ in range(21):
        start = time.monotonic()
        assert post(client, f"{server.url}/plain/chat/completions").status_code == 200
        times.append(time.monotonic() - start)
    assert min(times[5:]) < 0.035, times


def test_a_port_that_is_taken(server: Server) -> None:
    with pytest.raises(OSError, match="in use"), running(REGISTRY, port=server.port):
        pass


def test_nothing_is_left_running() -> None:
    before = set(threading.enumerate())  # those of other tests may end meanwhile
    with running(REGISTRY) as server, socket.create_connection(("127.0.0.1", server.port)):
        assert len(set(threading.enumerate()) - before) == 1
    assert set(threading.enumerate()) <= before


# ── faults ───────────────────────────────────────────────────────────────────
def url_of(server: Server) -> str:
    return f"{server.url}/plain/chat/completions"


@pytest.mark.parametrize("fault", ["stall-headers", "stall-body", "stall-middle", "linger", "stall-headers; times=1"])
@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
def test_a_stall_outlasts_the_client_s_patience(server: Server, fault: str, body: Json) -> None:
    with httpx.Client(trust_env=False, timeout=0.2) as client, pytest.raises(httpx.ReadTimeout):
        post(client, url_of(server), body, f"{fault}; id={body.get('stream', 0)}")


def received(server: Server, fault: str, body: Json = STREAM) -> tuple[bytes, Exception | None]:
    """What came before the end, and the error that was the end, if one was."""
    got = b""
    with httpx.Client(trust_env=False, timeout=5) as client:
        try:
            with client.stream("POST", url_of(server), json=body, headers={"x-cnllm-fault": fault}) as answer:
                for piece in answer.iter_raw():
                    got += piece
        except httpx.TransportError as error:
            return got, error
    return got, None


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
def test_a_body_that_is_cut(server: Server, body: Json) -> None:
    whole = send("plain/m", body)[1]
    got, error = received(server, "cut", body)
    assert error is None
    assert whole.startswith(got)
    assert 0 < len(got) < len(whole)


def test_a_connection_that_drops_or_is_reset(server: Server) -> None:
    whole = send("plain/m", STREAM)[1]
    got, error = received(server, "drop")
    assert isinstance(error, httpx.RemoteProtocolError)
    assert whole.startswith(got)
    got, error = received(server, "reset")
    assert isinstance(error, httpx.ReadError)
    got, error = received(server, "reset-headers")
    assert (got, isinstance(error, httpx.ReadError)) == (b"", True)


def test_comments_without_end(server: Server) -> None:
    with (
        httpx.Client(trust_env=False) as client,
        client.stream("POST", url_of(server), json=STREAM, headers={"x-cnllm-fault": "comments"}) as answer,
    ):
        comments = (line for line in answer.iter_lines() if line == ": still here")
        assert len(list(itertools.islice(comments, 5))) == 5


def test_a_slow_reply_is_whole(server: Server, client: httpx.Client) -> None:
    begun = time.monotonic()
    answer = post(client, url_of(server), BODY, "slow=0.05")
    assert time.monotonic() - begun >= 0.2
    assert answer.json() == taken("plain/m", ask("hi"))


def test_a_redirect_names_where_it_leads(server: Server, client: httpx.Client) -> None:
    answer = post(client, url_of(server), BODY, "redirect")
    assert (answer.status_code, answer.headers["location"]) == (307, "/moved")
    answer = post(client, url_of(server), BODY, "redirect=https://elsewhere.example/v1")
    assert answer.headers["location"] == "https://elsewhere.example/v1"


def test_a_status_that_was_asked_for_is_answered(server: Server, client: httpx.Client) -> None:
    answer = post(client, url_of(server), BODY, "status=503; retry-after=2")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["error"]["message"]
    assert post(client, url_of(server), BODY, "retry-after=0.5").status_code == 429


def test_a_fault_that_passes(server: Server, client: httpx.Client) -> None:
    statuses = [post(client, url_of(server), BODY, "status=500; times=2; id=x").status_code for _ in range(4)]
    assert statuses == [500, 500, 200, 200]
    assert post(client, url_of(server), BODY, "status=500; times=2; id=y").status_code == 500


@pytest.mark.parametrize("fault", ["nonsense", "times=2", "status=many", "slow=ly", "status=1", "times=x; cut"])
def test_a_fault_that_is_none(server: Server, client: httpx.Client, fault: str) -> None:
    answer = post(client, url_of(server), BODY, fault)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "fault")
