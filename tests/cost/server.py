"""One endpoint on the loopback for all rows of the table: a request names its row, and gets what the row says."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import msgspec

from .replies import Made

__all__ = ["LOST", "REFUSED", "UNAVAILABLE", "Cut", "Endpoint", "Step", "sse"]

LOST = "lost"
"""The connection ends before an answer."""
REFUSED = 400
UNAVAILABLE = 503


class Cut(msgspec.Struct, frozen=True):
    """A stream of this reply that breaks off before its last chunk; a whole body breaks off in its middle."""

    made: Made


Step = Made | Cut | int | str

_ROW = re.compile(rb"row-(\w+)")


def sse(made: Made, *chunks: dict[str, Any], ends: bool = True) -> bytes:
    """Return a stream of chunks in the form of the wire."""
    events = [*chunks, *([{"type": "message_stop"}] if ends and made.protocol == "anthropic-messages" else ())]
    lines = []
    for event in events:
        kind = f"event: {event['type']}\n".encode() if "type" in event else b""
        lines.append(kind + b"data: " + msgspec.json.encode(event) + b"\n\n")
    return b"".join(lines) + (b"data: [DONE]\n\n" if ends and made.protocol == "openai-chat" else b"")


class Endpoint(ThreadingHTTPServer):
    """Answers a request with the row that it names, step by step; the last step is followed by the first one."""

    daemon_threads = True

    def __init__(self, rows: Mapping[str, Sequence[Step]]) -> None:
        self.rows = {name.encode(): steps for name, steps in rows.items()}
        self.counts: Counter[bytes] = Counter()
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def step(self, row: bytes) -> Step:
        """Return what answers the next request of a row."""
        with self.lock:
            number = self.counts[row]
            self.counts[row] += 1
        steps = self.rows[row]
        return steps[number % len(steps)]

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None: ...


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the second of two writes would wait for an ACK of the first
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        row = _ROW.search(body)
        assert row is not None
        step = self.server.step(row[1])
        streams = b'"stream":true' in body.replace(b" ", b"") or "streamGenerateContent" in self.path
        if step == LOST:
            self.close_connection = True
        elif isinstance(step, int):
            self._send(step, b'{"error": {"message": "no", "code": "x"}}', "application/json")
        else:
            assert isinstance(step, Made | Cut)
            made = step if isinstance(step, Made) else step.made
            data = sse(made, *made.chunks, made.last) if streams else msgspec.json.encode(made.body)
            if isinstance(step, Cut):
                data = sse(made, *made.chunks[:1], ends=False) if streams else data[: len(data) // 2]
            kind = "text/event-stream" if streams else "application/json"
            self._send(200, data, kind, is_cut=isinstance(step, Cut) and not streams)

    def _send(self, status: int, data: bytes, kind: str, *, is_cut: bool = False) -> None:
        self.send_response_only(status)  # without a date: the time of a bill stands in its body, or nowhere
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data) + is_cut))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = is_cut

    def log_message(self, *_: Any) -> None: ...
