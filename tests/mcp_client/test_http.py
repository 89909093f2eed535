"""What a server over HTTP sends is bounded, and what goes to it passes no proxy that NO_PROXY excludes."""

import contextlib
import gzip
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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


PLAIN = {"type": "object", "properties": {}}


def tool(name: str, schema: dict[str, Any] = PLAIN) -> dict[str, Any]:
    return {"name": name, "description": "d", "inputSchema": schema}


@contextmanager
def serving(
    answer: Callable[[Any], Body] = lambda id: (result(id, "fine"), None),
    pages: Sequence[list[dict[str, Any]]] = ([tool("t")],),
    stream: Callable[[socket.socket, Any], None] | None = None,
) -> Iterator[str]:
    """A server with these pages of tools; a call of one gets this body in JSON, or what `stream` sends as events.

    It does not answer the messages that are answers to its own.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the second of two writes would wait for an ACK of the first

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            id = message.get("id")
            coding = None
            if "method" not in message:
                ended.wait(30)
                self.close_connection = True
                return
            if message["method"] == "tools/call" and stream is not None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
                self.close_connection = True
                stream(self.connection, id)
                return
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
                    number = int((message.get("params") or {}).get("cursor", 0))
                    more = {"nextCursor": str(number + 1)} if number + 1 < len(pages) else {}
                    return {"result": {"tools": pages[number], **more}}
                case _:
                    return {"error": {"code": -32601, "message": "no"}}

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    ended = threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            ended.set()
            server.shutdown()
            thread.join()


def result(id: Any, text: str) -> bytes:
    content = [{"type": "text", "text": text}]
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": content}}).encode()


BODIES: dict[str, tuple[Callable[[Any], Body], str]] = {
    "compressed": (lambda id: (gzip.compress(result(id, "a" * (70 << 20)), 1), "gzip"), "more than 67,108,864 bytes"),
    "plain": (lambda id: (result(id, "a" * (65 << 20)), None), "more than 67,108,864 bytes"),
    "of many parts": (
        lambda id: (result(id, "").replace(b"[{", b"[" + b'{"type":"text","text":""},' * 400_000 + b"{"), None),
        "more than 300,000 lists and objects",
    ),
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


def test_an_event_of_too_many_parts_fails_its_call() -> None:
    def send(connection: socket.socket, id: Any) -> None:
        head = json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": [], "structuredContent": {"a": [[]]}}})
        with contextlib.suppress(OSError):
            connection.sendall(f"event: message\r\ndata: {head[:-4]}".encode())
            for _ in range(40):
                connection.sendall(b",[]" * 10_000)
            connection.sendall(f"{head[-4:]}\r\n\r\n".encode())

    with serving(stream=send) as url, cnllm.mcp(url, timeout=60) as tools, pytest.raises(McpError):
        tools.call("t")


def test_a_list_of_tools_that_is_too_long_is_an_error() -> None:
    """Each page is below the bound of a message."""
    pages = [[tool("t", {**PLAIN, "description": "x" * 4_000_000})] for _ in range(6)]
    with serving(pages=pages) as url, pytest.raises(McpError, match="more than 16,777,216 bytes"):
        cnllm.mcp(url).tools()


def test_a_key_that_a_server_echoes_goes_to_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the definition of a tool nor in its result."""
    key = "sk-mcp-0123456789abcdef"
    monkeypatch.setenv("SERVER_KEY", key)
    pages = [[{**tool("t", {"type": "object", "properties": {}, "title": key}), "description": f"as {key}"}]]
    with serving(lambda id: (result(id, f"you are {key}"), None), pages) as url:
        tools = cnllm.mcp(url, key_env="SERVER_KEY")
        with tools, cnllm.Client(simulate=True) as client:
            run = client.run("glm-4.7", "hello", tools=[tools])
            assert run.steps[0].results[0].text == "you are [redacted]"
            assert key not in f"{run.messages}{tools.definitions()}"


def test_tools_whose_names_for_a_model_are_the_same_are_not_both_offered() -> None:
    """The second one is called as the first one is offered."""
    digest = hashlib.sha256(b"a b").hexdigest()[:8]
    with serving(pages=[[tool("a b"), tool(f"a_b_{digest}"), tool("c")]]) as url:
        tools = cnllm.mcp(url, name="x")
        assert [definition.name for definition in tools.definitions()] == ["a b", "c"]
        assert tools.skipped == ((f"a_b_{digest}", "another tool of this server has the same name"),)


def test_a_server_that_asks_and_answers_nothing_is_read_no_further() -> None:
    """It asks without an end in its answer to a call; what would answer it waits."""
    sizes: list[int] = []

    def send(connection: socket.socket, id: Any) -> None:
        connection.settimeout(1)
        ping = {"jsonrpc": "2.0", "method": "ping", "params": {"_meta": {"x": "x" * 4_000}}}
        with contextlib.suppress(OSError):
            for number in range(20_000):
                event = f"event: message\ndata: {json.dumps({**ping, 'id': number})}\n\n".encode()
                connection.sendall(event)
                sizes.append(len(event))

    with serving(stream=send) as url, cnllm.mcp(url, timeout=3) as tools, pytest.raises(McpError):
        tools.call("t")
    assert sum(sizes) < 20_000_000


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


def test_a_password_that_a_proxy_echoes_stands_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy(b"HTTP/1.1 407 not hunter2-hunter2\r\n\r\n", password="hunter2-hunter2") as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        with pytest.raises(McpError, match=r"407 not \[redacted\]"):
            cnllm.mcp("https://tools.example/mcp").tools()
