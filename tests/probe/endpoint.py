"""An endpoint of chat completions over a real socket: a test says what it answers."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Answer = tuple[int, str, bytes]
Handler = Callable[[Json | None, int], Answer | None]
"""Gets the body (None for a GET) and the number of the request; None closes the connection."""

MODELS = json.dumps({"object": "list", "data": [{"id": "m"}]}).encode()
KEY = "sk-test-0123456789abcdef"


def body(text: str = "Hello there.", *, usage: Json | None = None, **message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
    return json.dumps({"id": "r", "model": "m", "choices": [choice], "usage": usage or {}}).encode()


def ok(text: str = "Hello there.", **message: Any) -> Answer:
    return 200, "application/json", body(text, **message)


def refused(words: str, status: int = 400, **more: Any) -> Answer:
    return status, "application/json", json.dumps({"error": {"message": words, **more}}).encode()


def listing() -> Answer:
    return 200, "application/json", MODELS


class Endpoint:
    """The address, and every request that came."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Json | None] = []
        self.headers: list[dict[str, str]] = []


@contextlib.contextmanager
def serving(handler: Handler) -> Iterator[Endpoint]:
    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are two writes: the second would wait for an ACK of the first

        def log_message(self, *args: Any) -> None: ...

        def do_GET(self) -> None:
            self.respond(None)

        def do_POST(self) -> None:
            self.respond(json.loads(self.rfile.read(int(self.headers.get("content-length", 0)))))

        def respond(self, request: Json | None) -> None:
            endpoint.requests.append(request)
            endpoint.headers.append({k.lower(): v for k, v in self.headers.items()})
            answer = handler(request, len(endpoint.requests))
            if answer is None:
                self.close_connection = True
                self.connection.close()
                return
            status, kind, content = answer
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            if status in (301, 302, 307):
                self.send_header("location", "https://elsewhere.example/v1")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
