"""A turn that an endpoint ends without a word is complete on Messages: clients get it, once.

https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons: "Empty responses with end_turn".
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from protocols.replies import frames, streamed

from cnllm import AsyncClient, Registry
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running
from cnllm.protocols import PROTOCOLS
from gateway.support import KEY
from gateway.test_reply_losses import MESSAGES, REQUESTS, Json, ask, message


class Endpoint(ThreadingHTTPServer):
    """An endpoint of Messages that answers each request with the same reply."""

    daemon_threads = True

    def __init__(self, reply: Json) -> None:
        self.reply = reply
        self.paths: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.paths.append(self.path)
        is_stream, reply = bool(body.get("stream")), self.server.reply
        events = frames(MESSAGES, streamed(MESSAGES, reply))
        content = b"".join(events) if is_stream else json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...


@contextlib.contextmanager
def gateway(endpoint: Endpoint, folder: Path, **options: Any) -> Iterator[str]:
    """The URL of a gateway before the endpoint, which is there under two names."""
    overlay = folder / "own.toml"
    url = f"http://127.0.0.1:{endpoint.server_port}"
    overlay.write_text(
        "".join(
            f'[providers.{name}]\nprotocol = "{MESSAGES}"\nbase_url = "{url}/{name}"\nkeys = []\n'
            for name in ("own", "other")
        )
        + '[gateway.routes.pair]\ntargets = ["own/m", "other/m"]\n'
    )
    registry = Registry.load(overlay)
    thread = threading.Thread(target=endpoint.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        with running(Gateway(registry, client=AsyncClient(registry), keys=[KEY], **options)) as address:
            yield address
    finally:
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()


def body_of(client: str, *, stream: bool) -> tuple[str, Json]:
    """The path and the body of a request."""
    path, body = REQUESTS[client]
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    keys: Json = {} if client == "gemini" or not stream else {"stream": True}
    return path.replace("MODEL", "own/m").replace("METHOD", method), {"model": "own/m", **body, **keys}


ENDS = {  # what each protocol says of a complete reply
    "openai-chat": '"finish_reason":"stop"',
    "anthropic-messages": '"stop_reason":"end_turn"',
    "gemini": '"finishReason":"STOP"',
    "openai-responses": '"status":"completed"',
}


@pytest.mark.share(2)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("content", [[], [{"type": "text", "text": ""}]])
def test_a_turn_without_a_word_reaches_every_client(tmp_path: Path, content: list[Json], stream: bool) -> None:
    endpoint = Endpoint(message(*content))
    with gateway(endpoint, tmp_path) as url, httpx.Client(headers={"authorization": f"Bearer {KEY}"}) as http:
        for client in PROTOCOLS:
            path, body = body_of(client, stream=stream)
            response = http.post(url + path, json=body)
            assert response.status_code == 200, (client, response.text)
            assert ENDS[client] in response.text, client
            assert "error" not in response.text.replace('"error":null', ""), client
    assert len(endpoint.paths) == len(PROTOCOLS)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", PROTOCOLS)
def test_a_turn_that_ends_without_a_word_reaches_an_sdk(client: str, stream: bool, tmp_path: Path) -> None:
    response = ask(client, MESSAGES, message(), tmp_path, stream=stream)
    assert response.status_code == 200, response.text
    assert ENDS[client] in response.text


def test_a_turn_that_ends_without_a_word_is_paid_once(tmp_path: Path) -> None:
    endpoint = Endpoint(message())
    with gateway(endpoint, tmp_path) as url:
        client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=2)
        turns: Any = [{"role": "user", "content": "Hi"}]
        reply = client.messages.create(model="own/m", max_tokens=9, messages=turns)
        assert (reply.content, reply.stop_reason, reply.usage.output_tokens) == ([], "end_turn", 2)
        with client.messages.stream(model="own/m", max_tokens=9, messages=turns) as parts:
            final = parts.get_final_message()
        assert (final.content, final.stop_reason, final.usage.output_tokens) == ([], "end_turn", 2)
    assert len(endpoint.paths) == 2


def test_a_route_asks_each_of_its_targets_once(tmp_path: Path) -> None:
    """Another target may have a word; an SDK that repeats the request would pay for all of them again."""
    endpoint = Endpoint(message())
    with gateway(endpoint, tmp_path) as url:
        client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=2)
        with pytest.raises(anthropic.APIStatusError):
            client.messages.create(model="pair", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
    assert sorted(endpoint.paths) == ["/other/v1/messages", "/own/v1/messages"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_without_a_word_that_has_no_such_end_stays_an_error(stream: bool, tmp_path: Path) -> None:
    for reason in ("stop_sequence", "tool_use", "new_reason"):
        response = ask(MESSAGES, MESSAGES, message(stop_reason=reason), tmp_path, stream=stream)
        assert response.status_code != 200, reason
