"""What the gateway does with requests: who is let in, what is refused and how, what happens when a side goes away."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from cnllm import Registry, UnknownModel
from cnllm.gateway import app
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.bounds import Bounds
from cnllm.gateway.server import running
from cnllm.sdk import async_http_client, http_client

from .support import (
    CLIENTS,
    KEY,
    Answer,
    ChatClient,
    GeminiClient,
    MessagesClient,
    ResponsesClient,
    Upstream,
    error,
    frames,
    gateway_for,
    lines_sent,
    say,
)

PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
    "gemini": "/v1beta/models/zai/glm-4.7:generateContent",
}
BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"model": "zai/glm-4.7", "messages": [{"role": "user", "content": "Hi"}]},
    "openai-responses": {"model": "zai/glm-4.7", "input": "Hi"},
    "anthropic-messages": {"model": "zai/glm-4.7", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}


@pytest.fixture(scope="module")
def simulated() -> Iterator[str]:
    with running(Gateway(Registry.load(), simulate=True, keys=[KEY], bounds=Bounds(body_bytes=200_000))) as url:
        yield url


def message_of(protocol: str, body: dict[str, Any]) -> str:
    """The sentence of an error, out of the shape that the protocol's clients read."""
    if protocol == "anthropic-messages":
        assert body["type"] == "error"
        assert body["error"]["type"]
    if protocol == "gemini":
        assert isinstance(body["error"]["code"], int)
        assert body["error"]["status"]
    message: str = body["error"]["message"]
    return message


# ── who is let in ─────────────────────────────────────────────────────────────
def test_a_key_is_needed_wherever_it_stands(simulated: str) -> None:
    for protocol, path in PATHS.items():
        right: list[dict[str, Any]] = [
            {"headers": {"authorization": f"Bearer {KEY}"}},
            {"headers": {"x-api-key": KEY}},
            {"headers": {"x-goog-api-key": KEY}},
            {"params": {"key": KEY}},
        ]
        wrong: list[dict[str, Any]] = [
            {},
            {"headers": {"authorization": "Bearer"}},
            {"headers": {"authorization": f"Bearer {KEY}x"}},
            {"headers": {"authorization": f"Basic {KEY}"}},
            {"headers": {"x-api-key": KEY[:-1]}},
            {"params": {"key": ""}},
        ]
        for sent in right:
            assert httpx.post(simulated + path, json=BODIES[protocol], **sent).status_code == 200, (protocol, sent)
        for sent in wrong:
            response = httpx.post(simulated + path, json=BODIES[protocol], **sent)
            assert response.status_code == 401, (protocol, sent)
            assert "key" in message_of(protocol, response.json())


def test_no_key_no_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="CNLLM_SERVE_KEY"):
        Gateway(simulate=True)
    with pytest.raises(TypeError, match=r"keys=\["):
        Gateway(simulate=True, keys="a-text")
    lost: list[Any] = [[], iter(()), set(), {}]
    for keys in lost:
        with pytest.raises((TypeError, ValueError), match=r"keys="):
            Gateway(simulate=True, keys=keys)
    gateway = Gateway(simulate=True, keys=[KEY])
    for keys in ("a-text", [], ["a blank"]):
        with pytest.raises((TypeError, ValueError), match="keys"):
            gateway.use(Registry.load(), keys=keys)
    monkeypatch.setenv("CNLLM_SERVE_KEY", "from-the-environment")
    with running(Gateway(simulate=True)) as url:
        assert httpx.get(f"{url}/v1/models").status_code == 401
        headers = {"authorization": "Bearer from-the-environment"}
        assert httpx.get(f"{url}/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("ping", value) for value in ("15", 0, None)],
        *[("trusted_proxies", value) for value in ("10.0.0.1", ["home"], [3])],
        *[("public_url", value) for value in (3, "home")],
        *[("hosts", value) for value in ("localhost", [3])],
        *[(name, 3) for name in ("registry", "store", "token_keys", "client", "identity", "bounds", "access_log")],
        *[(name, 3) for name in ("call_log", "key_book", "limited_keys", "admin_key", "recent", "spans")],
    ],
)
def test_a_wrong_option_of_a_gateway_is_named(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name}"):
        app(**{"simulate": True, "keys": (), name: value})


@pytest.mark.parametrize("name", ["store", "token_keys", "models", "registry"])
@pytest.mark.parametrize("make", [http_client, async_http_client])
def test_a_wrong_option_of_a_client_for_sdks_is_named(make: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} is int; "):
        make(**{name: 3})


def test_pages_and_other_names_are_kept_out(simulated: str) -> None:
    url = f"{simulated}/v1/models"
    port = simulated.rpartition(":")[2]
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", "LOCALHOST"):
        headers = {"authorization": f"Bearer {KEY}", "host": host}
        assert httpx.get(url, headers=headers).status_code == 200, host
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", ""):
        assert httpx.get(url, headers={"authorization": f"Bearer {KEY}", "host": host}).status_code == 421, host
    for origin, status in (
        (f"http://localhost:{port}", 200),
        ("http://127.0.0.1:3000", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://localhost.evil.example", 403),
    ):
        headers = {"authorization": f"Bearer {KEY}", "origin": origin}
        assert httpx.get(url, headers=headers).status_code == status, origin


def test_no_key_is_in_the_log(simulated: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    httpx.post(simulated + PATHS["gemini"], json=BODIES["gemini"], params={"key": KEY})
    httpx.post(simulated + PATHS["gemini"], json=BODIES["gemini"], params={"key": "a-wrong-key-of-somebody"})
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("cnllm")]
    assert any("generateContent" in line for line in lines)
    assert not [line for line in lines if KEY in line or "a-wrong-key" in line]


# ── what is refused ───────────────────────────────────────────────────────────
def test_bad_requests_get_the_shape_of_their_protocol_and_name_the_place(simulated: str) -> None:
    deep = b'{"model": "zai/glm-4.7", "messages": ' + b"[" * 90_000 + b"]" * 90_000 + b"}"
    for protocol, path in PATHS.items():
        body = BODIES[protocol]
        list_key = next(key for key in ("messages", "input", "contents") if key in body)
        cases: list[tuple[bytes, int, str]] = [
            (b"", 400, "JSON"),
            (b"{", 400, "JSON"),
            (b"\xff\xfe", 400, "JSON"),
            (b'{"model": "caf\xe9"}', 400, "0xe9 at byte 14"),
            (b"[]", 400, "object"),
            (b'"text"', 400, "object"),
            (deep, 400, ""),
            (json.dumps({**body, list_key: 7}).encode(), 400, list_key),
            (json.dumps({**body, list_key: [7]}).encode(), 400, list_key),
            (json.dumps({**body, "pad": "x" * 300_000}).encode(), 413, "bytes"),
        ]
        if protocol != "gemini":
            cases += [
                (json.dumps({k: v for k, v in body.items() if k != "model"}).encode(), 400, "model"),
                (json.dumps({**body, "model": ["a"]}).encode(), 400, "model"),
                (json.dumps({**body, "model": "no-such-model-anywhere"}).encode(), 404, "no-such-model"),
                (json.dumps({**body, "tools": 7}).encode(), 400, "tools"),
            ]
        for content, status, word in cases:
            response = httpx.post(
                simulated + path, content=content, headers={"x-api-key": KEY, "content-type": "application/json"}
            )
            assert response.status_code == status, (protocol, content[:80], response.text)
            assert word in message_of(protocol, response.json()), (protocol, content[:80], response.text)
            assert response.headers["x-request-id"].startswith("req_")


def test_a_body_with_a_mark_of_utf_8_is_read_and_a_compressed_one_is_not(simulated: str) -> None:
    for protocol, path in PATHS.items():
        content = json.dumps(BODIES[protocol]).encode()
        for body, coding, status in (
            (codecs.BOM_UTF8 + content, "identity", 200),
            (gzip.compress(content), "gzip", 415),
            (content, "X-GZIP", 415),
            (content, "gzip, identity", 415),
        ):
            headers = {"x-api-key": KEY, "content-type": "application/json", "content-encoding": coding}
            response = httpx.post(simulated + path, content=body, headers=headers)
            assert response.status_code == status, (protocol, coding, response.text)
            if status != 200:
                assert f"content-encoding: '{coding.lower()}'" in message_of(protocol, response.json())


def test_paths_and_methods(simulated: str) -> None:
    headers = {"x-api-key": KEY}
    for method, path, status in (
        ("GET", "/v1/chat/completions", 405),
        ("PUT", "/v1/messages", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/responses/compact", 404),
        ("GET", "/nothing", 404),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/v1/healthz", 404),
        ("GET", "/v1beta/chat/completions", 405),
        ("HEAD", "/", 200),
        ("GET", "/v1/models/zai/glm-4.7", 200),
        ("GET", "/v1/models/none/such", 404),
        ("POST", "/v1/responses/resp_1/cancel", 400),
        ("GET", "/v1/responses/resp_none", 404),
        ("DELETE", "/v1/responses/resp_none", 404),
        ("GET", "/v1/requests/req_none", 404),
    ):
        response = httpx.request(method, simulated + path, headers=headers)
        assert response.status_code == status, (method, path, response.text)
        if status == 405:
            assert response.headers["allow"]
    assert httpx.get(f"{simulated}/healthz").json() == {"status": "ok"}


def test_errors_of_gemini_s_wire_have_the_word_of_their_status(simulated: str) -> None:
    path = f"{simulated}/v1beta/models/glm-4.7:generateContent"
    body = {"contents": [{"parts": [{"text": "hi"}]}]}
    for method, headers, status, word in (
        ("GET", {}, 405, "UNIMPLEMENTED"),
        ("POST", {"content-encoding": "gzip"}, 415, "INVALID_ARGUMENT"),
        ("POST", {"x-goog-api-key": "wrong"}, 401, "UNAUTHENTICATED"),
    ):
        response = httpx.request(method, path, headers={"x-goog-api-key": KEY, **headers}, json=body)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["status"]) == (status, status, word)


def test_more_slashes_in_a_path_change_nothing(simulated: str) -> None:
    """An address that ends with a slash, and a path that begins with one, make two of them."""
    headers = {"x-api-key": KEY}
    chat = {"model": "glm-4.7", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    for path in ("//v1/chat/completions", "/v1//chat/completions", "/v1/chat/completions/", "//chat//completions//"):
        reply = httpx.post(simulated + path, headers=headers, json=chat)
        assert (reply.status_code, reply.json()["object"]) == (200, "chat.completion"), path
    assert httpx.post(f"{simulated}//v1/messages", headers=headers, json=chat).json()["type"] == "message"
    gemini = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    for path in ("//v1beta/models/glm-4.7:generateContent", "/v1beta//models/glm-4.7:generateContent/"):
        assert "candidates" in httpx.post(simulated + path, headers=headers, json=gemini).json(), path
    assert "models" in httpx.get(f"{simulated}//v1beta/models/", headers=headers).json()
    assert httpx.get(f"{simulated}/v1/models/", headers=headers).json()["object"] == "list"
    for path in ("//metrics", "//ui", "/metrics/", "//healthz"):  # a proxy may let nobody see those of the operator
        assert httpx.get(simulated + path, headers=headers).status_code == 404, path


def test_a_long_path_is_shown_up_to_a_bound(simulated: str) -> None:
    for path, shown in (("/" + "x" * 255, "/" + "x" * 255), ("/" + "x" * 256, "/" + "x" * 255 + "…")):
        error = httpx.get(simulated + path, headers={"x-api-key": KEY}).json()["error"]
        assert error["message"] == f"there is nothing at {shown}"


def test_lists_of_models_have_the_shape_of_the_callers_protocol(simulated: str) -> None:
    headers = {"x-api-key": KEY}
    chat = httpx.get(f"{simulated}/v1/models", headers=headers).json()
    assert chat["object"] == "list"
    assert {"zai/glm-4.7", "deepseek/deepseek-v4-pro"} <= {model["id"] for model in chat["data"]}
    first = httpx.get(f"{simulated}/v1/models?limit=2", headers={**headers, "anthropic-version": "2023-06-01"}).json()
    assert len(first["data"]) == 2
    assert first["has_more"] is True
    gemini = httpx.get(f"{simulated}/v1beta/models?pageSize=3", headers={"x-goog-api-key": KEY}).json()
    assert [model["name"].startswith("models/") for model in gemini["models"]] == [True] * 3
    assert gemini["nextPageToken"]


def test_pages_of_models_are_read_to_the_end_in_each_direction(simulated: str) -> None:
    all_ = [model["id"] for model in httpx.get(f"{simulated}/v1/models", headers={"x-api-key": KEY}).json()["data"]]
    size = len(all_) // 3 + 1
    with anthropic.Anthropic(api_key=KEY, base_url=simulated, max_retries=0) as client:
        assert [model.id for model in client.models.list(limit=size)] == all_
        pages = list(client.models.list(limit=size, before_id=all_[-1]).iter_pages())
        assert [model.id for page in reversed(pages) for model in page.data] == all_[:-1]
        assert [model.id for model in client.models.list(limit=1, after_id=all_[-2])] == all_[-1:]
        assert client.models.list(after_id=all_[-1]).data == []
    found: list[str] = []
    token = "0"
    while token:
        query = f"?pageSize={size}&pageToken={token}"
        page = httpx.get(f"{simulated}/v1beta/models{query}", headers={"x-goog-api-key": KEY}).json()
        found += [model["name"] for model in page["models"]]
        token = page.get("nextPageToken", "")
    assert found == [f"models/{name}" for name in all_]


def test_a_model_says_what_the_registry_knows_of_it(tmp_path: Path) -> None:
    """As SDKs read it: `ModelInfo` of anthropic, and Google's limits are those of the input and the output."""
    upstream = Upstream(say("Hi."))
    more = """[models."deepseek/m"]
limits = { context = 4000, input = 3000, output = 500 }
status = { released = 2026-01-02, shutdown = 2027-03-04 }
[models."deepseek/gone"]
status = { is = "retired", since = 2026-05-06 }
[models."deepseek/unknown"]
"""
    with (
        gateway_for(upstream, tmp_path, more=more) as http,
        anthropic.Anthropic(api_key=KEY, base_url=str(http.base_url), max_retries=0) as client,
    ):
        model, gone, unknown = (client.models.retrieve(f"deepseek/{name}") for name in ("m", "gone", "unknown"))
        assert (model.max_input_tokens, model.max_tokens) == (3000, 500)
        assert (str(model.created_at.date()), model.lifecycle) == ("2026-01-02", "deprecated")
        assert model.retires_at is not None
        assert str(model.retires_at.date()) == "2027-03-04"
        assert gone.lifecycle == "retired"
        assert (unknown.lifecycle, unknown.retires_at, unknown.created_at.year) == ("active", None, 1970)
        assert (unknown.max_input_tokens, unknown.capabilities) == (None, None)
        assert next(m for m in client.models.list(limit=1000) if m.id == "deepseek/m") == model
        body = http.get("/v1/models/deepseek/m", headers={"anthropic-version": "2023-06-01"}).json()
        assert {*body} == {*anthropic.types.ModelInfo.model_fields}
        assert http.get("/v1beta/models/deepseek/m", headers={"x-goog-api-key": KEY}).json()["inputTokenLimit"] == 3000


def test_names_tiers_and_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAI_API_KEY", "k")  # a tier takes models with a key
    upstream = Upstream(say("Hi."))
    more = '[gateway.models]\n"gpt-*" = "deepseek/deepseek-v4-pro"\n[tiers]\nquick = ["zai/glm-4.7"]\n'
    maps = {"claude-*": "glm-4.7", "claude-haiku-*": "deepseek/deepseek-v4-pro", "mine": "tier:quick"}
    with gateway_for(upstream, tmp_path, more=more, models=maps) as http:
        for name, model in (
            ("glm-4.7", "zai/glm-4.7"),
            ("claude-opus-9", "zai/glm-4.7"),
            ("claude-haiku-4-5-20251001", "deepseek/deepseek-v4-pro"),
            ("gpt-5.5", "deepseek/deepseek-v4-pro"),
            ("mine", "zai/glm-4.7"),
            ("tier:quick", "zai/glm-4.7"),
        ):
            client = ChatClient(http, name)
            client.user("Hi")
            client.send()
            assert client.response is not None
            assert client.response.headers["x-cnllm-model"] == model, name
    with pytest.raises(UnknownModel, match="no-such"):
        Gateway(Registry.load(), keys=["k"], models={"a-*": "no-such-model-anywhere"})


def test_errors_of_endpoints_have_the_clients_shape_and_status(tmp_path: Path) -> None:
    for status, sentence, expected in (
        (401, "Invalid API key", 502),
        (429, "Rate limit reached", 429),
        (400, "bad thing", 400),
        (500, "internal", 502),
        (503, "The server is overloaded", 503),
    ):
        for kind in CLIENTS:
            upstream = Upstream(error(status, sentence, **({"retry-after": "7"} if status == 429 else {})))
            with gateway_for(upstream, tmp_path) as http:
                for stream in (True, False):
                    client = kind(http, "deepseek/deepseek-v4-pro", stream=stream)
                    client.user("Hi")
                    response = http.post(client.path(), json=client.request())
                    overloaded = 529 if kind is MessagesClient and expected == 503 else expected
                    assert response.status_code == overloaded, (kind, status, response.text)
                    assert sentence in message_of(kind.protocol, response.json()), (kind, response.text)
                    assert "the-key-of-the-provider" not in response.text
                    if status == 429:
                        assert response.headers["retry-after"] == "7"


def test_the_official_sdks_raise_their_own_errors(simulated: str) -> None:
    stranger = openai.OpenAI(api_key="wrong", base_url=f"{simulated}/v1", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()
    client = openai.OpenAI(api_key=KEY, base_url=f"{simulated}/v1", max_retries=0)
    with client, pytest.raises(openai.NotFoundError):
        client.responses.create(model="no-such-model-anywhere", input="Hi")
    odd: Any = [{"role": "nobody", "content": "x"}]
    claude = anthropic.Anthropic(api_key=KEY, base_url=simulated, max_retries=0)
    with claude, pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model="zai/glm-4.7", max_tokens=9, messages=odd)


def test_a_fault_of_the_gateway_has_an_id_that_finds_its_line(
    simulated: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("sk-secretsecretsecret")

    monkeypatch.setattr("cnllm.gateway.request_body.read_body", broken)
    response = httpx.post(simulated + PATHS["openai-chat"], json={}, headers={"x-api-key": KEY})
    assert response.status_code == 500
    id = response.headers["x-request-id"]
    assert id in response.json()["error"]["message"]
    assert "secret" not in response.text
    assert any(id in record.getMessage() and "ZeroDivisionError" in record.getMessage() for record in caplog.records)


# ── when a side goes away ─────────────────────────────────────────────────────
def test_a_client_that_goes_takes_the_call_of_the_model_with_it(tmp_path: Path) -> None:
    for kind in (ChatClient, MessagesClient, ResponsesClient, GeminiClient):
        go_on = threading.Event()
        upstream = Upstream(say("Hello.", wait=go_on))
        with gateway_for(upstream, tmp_path) as http:
            client = kind(http, "zai/glm-4.7")
            client.user("Hi")
            with http.stream("POST", client.path(), json=client.request()) as response:
                next(response.iter_raw())
            go_on.set()  # the endpoint writes on, and finds nobody
            assert upstream.gone.wait(20), kind


def test_a_client_that_goes_takes_all_of_its_requests_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()
    upstream = Upstream(say("Hello.", wait=go_on))
    body = json.dumps({**BODIES["openai-chat"], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    with gateway_for(upstream, tmp_path) as http:
        with socket.create_connection((http.base_url.host, http.base_url.port or 0), 10) as peer:
            peer.sendall(request * 3)
            assert peer.recv(10) == b"HTTP/1.1 2"
        go_on.set()  # the endpoint writes on, and finds nobody
        assert upstream.gone.wait(20)
        assert '"outcome":"the client has gone"' in _ended_entry()
        assert http.get("/healthz").status_code == 200
    assert len(upstream.bodies) == 1, "what waited behind it was not sent"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_had_arrived_when_a_client_went_is_counted(tmp_path: Path) -> None:
    go_on = threading.Event()
    upstream = Upstream(say("Hello.", wait=go_on, beside={"usage": {"prompt_tokens": 1000}}))
    body = {**BODIES["openai-chat"], "stream": True, "max_tokens": 100}
    with gateway_for(upstream, tmp_path) as http:
        with http.stream("POST", "/v1/chat/completions", json=body) as response:
            next(response.iter_raw())
        entry = json.loads(_ended_entry())
        go_on.set()
    assert (entry["outcome"], entry["usage"]) == ("the client has gone", {"input": 1000})
    assert entry["cost"] == {"amount": "0.0006", "currency": "USD", "missing": ["output"], "at_most": "0.00082"}


def test_a_client_that_reads_nothing_is_given_up(tmp_path: Path) -> None:
    upstream = Upstream(Answer([{"content": "x" * 100_000}] * 300))
    body = json.dumps({**BODIES["openai-chat"], "stream": True}).encode()
    with gateway_for(upstream, tmp_path, ping=0.1, bounds=Bounds(write_seconds=0.5)) as http:
        url = http.base_url
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((url.host, url.port or 0)) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(head.encode() + body)
            entry = _ended_entry()
        assert "gone" in entry


def _ended_entry() -> str:
    """Wait for the line of the log that says what became of a request."""
    for _ in range(200):
        if lines := [r.getMessage() for r in _HANDLER.records if "chat/completions" in r.getMessage()]:
            return lines[-1]
        time.sleep(0.05)
    return ""


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


_HANDLER = _Lines()


@pytest.fixture(autouse=True)
def _log_lines() -> Iterator[None]:
    logger = logging.getLogger("cnllm.gateway")
    _HANDLER.records.clear()
    logger.addHandler(_HANDLER)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(level)
    logger.removeHandler(_HANDLER)


def test_slow_heads_and_bodies_end(tmp_path: Path) -> None:
    with gateway_for(Upstream(say("Hi.")), tmp_path, bounds=Bounds(body_seconds=0.3)) as http:
        url = f"http://{http.base_url.host}:{http.base_url.port}"
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\ncontent-length: 99\r\n\r\n"
        )
        answer = lines_sent(url, head, b"{")  # returns: the connection ends
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer


def test_connections_that_send_nothing_end() -> None:
    with running(Gateway(simulate=True, keys=[KEY], bounds=Bounds(head_seconds=0.3))) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        idle = [socket.create_connection((host, int(port)), 10) for _ in range(200)]
        try:
            idle[0].sendall(b"POST /v1/messages HTTP/1.1\r\nhost: loc")  # a head that stops
            assert httpx.get(f"{url}/healthz").status_code == 200
            for peer in idle:
                peer.settimeout(20)
                assert peer.recv(1000) == b""
        finally:
            for peer in idle:
                peer.close()


# ── the process ───────────────────────────────────────────────────────────────
@contextlib.contextmanager
def serving(*arguments: str, env: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`cnllm serve` as a process of its own, and its URL."""
    command = [sys.executable, "-m", "cnllm", "serve", "--json", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            ready = json.loads(line)
            assert ready["pid"] == process.pid
            yield process, ready["url"]
        finally:
            process.terminate()
            process.wait(20)


@pytest.mark.parametrize("expects", ["", "expect: 100-continue\r\n"])
def test_a_body_that_is_refused_takes_no_answer_of_another_request(
    tmp_path: Path, expects: str, caplog: pytest.LogCaptureFixture
) -> None:
    upstream = Upstream(say("The answer.", pause=0.3))
    with gateway_for(upstream, tmp_path, "zai") as http:
        head = f"POST {PATHS['openai-chat']} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
        content = json.dumps(BODIES["openai-chat"])
        whole = f"{head}content-length: {len(content)}\r\n\r\n{content}"
        broken = f"{head}{expects}transfer-encoding: chunked\r\n\r\nno size\r\n"
        alone = lines_sent(str(http.base_url), broken)
        assert [alone[9:12], alone.count(b"HTTP/1.1 ")] == [b"400", 1]
        answers = lines_sent(str(http.base_url), whole + broken + whole)
    assert [answers[9:12], answers.count(b"HTTP/1.1 ")] == [b"200", 1]
    assert b"The answer." in answers
    assert len(upstream.bodies) == 1
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_header_in_several_lines_is_one_list(tmp_path: Path) -> None:
    upstream = Upstream(error(400, "no"))
    home = f'[providers.home]\nprotocol = "anthropic-messages"\nbase_url = "{upstream.url}"\nkeys = []\n'
    with gateway_for(upstream, tmp_path, "zai", more=home) as http:
        body = {"model": "home/m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        http.post("/v1/messages", json=body, headers=[("anthropic-beta", "one,two"), ("anthropic-beta", "three")])
    assert upstream.headers[0]["anthropic-beta"] == "one,two, three"


def test_serve_prints_one_line_and_ends_on_sigterm_and_ctrl_c() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with serving("--simulate", "--key", KEY) as (process, url):
            assert httpx.post(url + PATHS["openai-chat"], json=BODIES["openai-chat"]).status_code == 401
            response = httpx.post(
                url + PATHS["openai-chat"], json=BODIES["openai-chat"], headers={"authorization": f"Bearer {KEY}"}
            )
            assert response.status_code == 200
            process.send_signal(number)
            assert process.wait(20) == 0
            assert process.stdout is not None
            assert process.stdout.read() == ""


def test_serve_makes_a_key_where_none_is_given() -> None:
    with serving("--simulate") as (process, url):
        assert process.stderr is not None
        select.select([process.stderr], [], [], 20)
        match = re.search(r"key: (\S+)", process.stderr.readline())
        assert match is not None
        assert httpx.get(f"{url}/v1/models", headers={"x-api-key": match[1]}).status_code == 200


def test_any_other_address_needs_a_word() -> None:
    for arguments, word in (
        (["--host", "0.0.0.0"], "--public"),
        (["--host", "0.0.0.0", "--public", "--no-key"], "--no-key"),
        (["--map", "nothing"], "--map"),
        (["--map", "a=no-such-model-anywhere"], "no-such-model"),
        (["--keys-file", "/nowhere"], "/nowhere"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "cnllm", "serve", "--simulate", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2, (arguments, done.stderr)
        assert word in done.stderr, (arguments, done.stderr)
        assert done.stdout == ""


def test_a_stream_that_runs_is_drained_when_the_server_stops() -> None:
    with serving("--simulate", "--key", KEY) as (process, url):
        body = {**BODIES["openai-chat"], "stream": True, "messages": [{"role": "user", "content": "word " * 4000}]}
        with httpx.stream(
            "POST", url + PATHS["openai-chat"], json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=30
        ) as response:
            pieces = response.iter_text()
            text = next(pieces)
            process.terminate()
            text += "".join(pieces)
        assert "[DONE]" in text
        assert frames(text)[-1]
        assert process.wait(20) == 0


def test_requests_that_came_at_once_and_were_answered_do_not_keep_the_server_from_its_end() -> None:
    one = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
    with serving("--simulate", "--key", KEY) as (process, url):
        answers = lines_sent(url, f"{one}\r\n" * 2 + f"{one}connection: close\r\n\r\n")
        assert answers.count(b"200 OK") == 3
        start = time.monotonic()
        process.terminate()
        assert process.wait(60) == 0
        assert time.monotonic() - start < 10  # for requests that run it would wait longer


def test_workers_that_are_stopped_before_they_serve_end() -> None:
    for _ in range(3):
        with serving("--simulate", "--key", KEY, "--workers", "2") as (process, _):
            process.terminate()  # the line that says "ready" comes before the workers have begun
            assert process.wait(20) == 0


def test_the_head_of_an_answer_without_a_body_is_sent() -> None:
    with running(Gateway(simulate=True, keys=[KEY])) as url, httpx.Client() as client:
        for _ in range(2):
            assert client.head(f"{url}/").status_code == 200
            response = client.post(url + PATHS["openai-chat"], content=b"{", headers={"expect": "100-continue"})
            assert response.status_code == 401


def test_any_worker_may_die_at_any_moment() -> None:
    with serving("--simulate", "--key", KEY, "--workers", "2") as (process, url):
        headers = {"authorization": f"Bearer {KEY}"}
        for _ in range(3):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            if not children.exists():
                pytest.skip("this system does not list a process's children")
            os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
            statuses = []
            with httpx.Client(headers=headers, timeout=20) as http:
                for _ in range(10):
                    with contextlib.suppress(httpx.TransportError):  # a connection that the dead worker had taken
                        statuses.append(http.post(url + PATHS["openai-chat"], json=BODIES["openai-chat"]).status_code)
            assert set(statuses) == {200}
            assert len(statuses) >= 9


def test_a_conversation_goes_on_when_its_worker_dies(tmp_path: Path) -> None:
    """Reasoning that the client cannot carry is in the store before the reply ends, so another worker has it."""
    store = f"sqlite:{tmp_path}/state.db"
    with serving("--simulate", "--key", KEY, "--workers", "2", "--store", store) as (process, url):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            pytest.skip("this system does not list a process's children")
        for _ in range(3):
            with httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=20) as http:
                client = ChatClient(http, "deepseek/deepseek-v4-pro")
                client.user("What is the weather in Beijing? Use the tool.")
                [(id, _)] = client.send()
            for pid in children.read_text().split():  # the one that answered is among them
                os.kill(int(pid), signal.SIGKILL)
            client.result(id, "sunny")
            for _ in range(100):
                with contextlib.suppress(httpx.TransportError), httpx.Client(base_url=url, timeout=20) as http:
                    http.headers["authorization"] = f"Bearer {KEY}"
                    client.http = http
                    client.send()
                    break
                time.sleep(0.05)  # until a new worker listens
            assert client.response is not None
            id = client.response.headers["x-request-id"]
            with httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}) as http:
                codes = [note["code"] for _ in range(20) if (e := http.get(f"/v1/requests/{id}")).status_code == 200
                         for note in e.json()["notes"]]  # fmt: skip
            assert not [code for code in codes if code.startswith(("reasoning-", "thinking-", "state-"))], codes


def test_the_application_mounts_into_others() -> None:
    fastapi = pytest.importorskip("fastapi")
    import uvicorn

    import cnllm

    app = fastapi.FastAPI()
    app.mount("/llm", cnllm.gateway.app(simulate=True, keys=[KEY]))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/llm"
        with openai.OpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=3) as client:
            chat = client.chat.completions.create(model="glm-4.7", messages=[{"role": "user", "content": "Hi"}])
            assert chat.choices[0].message.content
    finally:
        server.should_exit = True
        thread.join(20)
