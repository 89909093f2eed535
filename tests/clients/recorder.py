"""A proxy between a client and the gateway that keeps the requests, and what an endpoint did not get of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_CONTEXT = ("system", "instructions", "systemInstruction", "messages", "input", "contents")
"""The fields of a body, of any protocol, that hold the conversation."""

_SEALED = ("signature", "thoughtSignature", "encrypted_content", "data", "thinking", "reasoning_content", "summary")
"""Fields of reasoning, which goes to its author alone: `check` looks at it."""

_NAMES = (
    "id",
    "call_id",
    "tool_use_id",
    "tool_call_id",
    "type",
    "role",
    "status",
    "model",
    "media_type",
    "mimeType",
    "phase",
)
_BILLING = re.compile(r"x-anthropic-billing-header:[^\n]*\n?")


class Recorder(ThreadingHTTPServer):
    """Passes requests on to the gateway, and keeps their bodies."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.gateway_port = port
        self.bodies: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True
    server: Recorder

    def do_GET(self) -> None:
        self._pass_on(b"")

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers.get("content-length", 0))))

    def _pass_on(self, content: bytes) -> None:
        """Send a request to the gateway, and its answer to the client; a broken answer is a broken connection."""
        with contextlib.suppress(ValueError):
            body = json.loads(content)
            if any(field in body for field in _CONTEXT):
                self.server.bodies.append(body)
        peer = http.client.HTTPConnection("127.0.0.1", self.server.gateway_port)
        self.close_connection = True
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            peer.request(self.command, self.path, content or None, headers)
            response = peer.getresponse()
            self.send_response_only(response.status)
            is_cut = "content-length" not in response.headers
            for name, value in response.getheaders():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            if is_cut:
                self.send_header("transfer-encoding", "chunked")
            self.send_header("connection", "close")
            self.end_headers()
            while piece := response.read1(65536):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if is_cut else piece)
            if is_cut:
                self.wfile.write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException):
            pass  # the client sees a connection that ended, as without this proxy
        finally:
            peer.close()

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def recorder(port: int) -> Iterator[Recorder]:
    """The proxy before a gateway, served while the block runs."""
    with Recorder(port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def losses(sent: dict[str, Any], received: dict[str, Any]) -> list[str]:
    """What a client sent in its conversation and its tools, and the endpoint did not get."""
    there = "\n".join(_plain(text) for text in _texts([*_parts(received), received.get("tools")]))
    lost = [text for text in _texts([_parts(sent), _tools(sent)]) if _plain(_BILLING.sub("", text)) not in there]
    return list(dict.fromkeys(lost))


def _parts(body: dict[str, Any]) -> list[Any]:
    """The fields of a body that hold the conversation."""
    return [body[field] for field in _CONTEXT if field in body]


def _tools(sent: dict[str, Any]) -> list[Any]:
    """The names and descriptions of tools that the client runs itself."""
    tools: list[Any] = []
    for tool in sent.get("tools", ()):
        inner = tool.get("functionDeclarations") or [tool.get("function", tool)]
        tools += [{"name": t.get("name"), "description": t.get("description")} for t in inner if t.get("description")]
    return tools


def _texts(value: Any) -> Iterator[str]:
    """The texts of JSON data; of arguments those inside. Names and reasoning are left out."""
    if isinstance(value, str):
        if value[:1] in ("{", "["):
            with contextlib.suppress(ValueError):
                yield from _texts(json.loads(value))
                return
        yield value
    elif isinstance(value, dict):
        if value.get("thought") is True:
            return
        for name, item in value.items():
            if name not in _SEALED and name not in _NAMES:
                yield from _texts(item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _texts(item)


def _plain(text: str) -> str:
    """A text without white space, which clients and endpoints may change."""
    return "".join(text.split())
