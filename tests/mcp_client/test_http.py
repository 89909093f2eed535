"""What a server over HTTP sends is bounded, and what goes to it passes no proxy that NO_PROXY excludes."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from client.proxies import Proxy

import cnllm
from cnllm.errors import McpError

pytest.importorskip("mcp", reason="the extra cnllm-client[mcp] is not installed")

Body = tuple[bytes, str | None]
"""A body and its coding."""


@contextmanager
def serving(answer: Callable[[Any], Body]) -> Iterator[str]:
    """A server with one tool `t`; a call of it gets this body in JSON."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the second of two writes would wait for an ACK of the first

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            id = message.get("id")
            coding = None
            if id is None:
                status, body = 202, b""
            elif message["method"] == "tools/call":
                status, (body, coding) = 200, answer(id)
            else:
                status, body = 200, json.dumps({"jsonrpc": "2.0", "id": id, **self._answer(message)}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            if coding is not None:
                self.send_header("content-encoding", coding)
            self.end_headers()
            self.wfile.write(body)

        def _answer(self, message: Any) -> dict[str, Any]:
            match message["method"]:
                case "initialize":
                    version = message["params"]["protocolVersion"]
                    about = {"name": "x", "version": "1"}
                    return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
                case "tools/list":
                    schema = {"type": "object", "properties": {}}
                    return {"result": {"tools": [{"name": "t", "description": "d", "inputSchema": schema}]}}
                case _:
                    return {"error": {"code": -32601, "message": "no"}}

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()
            thread.join()


def result(id: Any, text: str) -> bytes:
    content = [{"type": "text", "text": text}]
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": content}}).encode()


BODIES: dict[str, tuple[Callable[[Any], Body], str]] = {
    "compressed": (lambda id: (gzip.compress(result(id, "a" * (70 << 20)), 1), "gzip"), "more than 67,108,864 bytes"),
    "plain": (lambda id: (result(id, "a" * (65 << 20)), None), "more than 67,108,864 bytes"),
    "without content": (lambda id: (gzip.compress(gzip.compress(b"") * 300_000), "gzip, gzip"), "hold no content"),
    "not compressed": (lambda id: (result(id, "x"), "gzip"), "incorrect header"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_reply_that_is_too_large_fails_its_call_alone(name: str) -> None:
    make, reason = BODIES[name]
    answers = [lambda id: (gzip.compress(result(id, "fine")), "gzip"), make]
    with serving(lambda id: answers.pop()(id)) as url, cnllm.mcp(url, timeout=60) as tools:
        tools.tools()
        began = time.process_time()
        with pytest.raises(McpError, match=reason):
            tools.call("t")
        assert time.process_time() - began < 10
        assert "fine" in str(tools.call("t"))


def test_a_server_that_no_proxy_excludes_is_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda id: (result(id, "fine"), None)) as url, Proxy() as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,127.0.0.0/8")
        with cnllm.mcp(url) as tools:
            assert "fine" in str(tools.call("t"))
        assert proxy.asked == []
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
        with cnllm.mcp(url) as tools:
            assert "fine" in str(tools.call("t"))
        assert proxy.asked != []
