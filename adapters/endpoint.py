"""An endpoint on this machine for the tests of all adapters: it answers as a test says, and cuts as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Answer", "served"]

Answer = tuple[str, str, str | None]  # text, arguments of a call of `weather`, and the finish; None: the answer is cut
MODEL = "home/m"


def _message(text: str, arguments: str, **more: Any) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {"role": "assistant", "content": text, **({"tool_calls": [{**call, **more}]} if arguments else {})}


def _stream(answer: Answer) -> bytes:
    """Return the events: the text by words, the call, the end. A cut stream has no end."""
    text, arguments, finish = answer
    deltas = [{"content": f"{word} "} for word in text.split()]
    deltas += [_message("", arguments, index=0)] if arguments else []
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices += [{"index": 0, "delta": {}, "finish_reason": finish}] if finish else []
    lines = [f"data: {json.dumps({'id': 'r', 'model': 'm', 'choices': [choice]})}\n\n" for choice in choices]
    return "".join([*lines, "data: [DONE]\n\n" if finish else ""]).encode()


def _whole(answer: Answer) -> tuple[bytes, int]:
    """Return the body of an answer in one piece, and the length that its head promises."""
    text, arguments, finish = answer
    choice = {"index": 0, "message": _message(text, arguments), "finish_reason": finish}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    body = json.dumps({"id": "r", "model": "m", "choices": [choice], "usage": usage}).encode()
    return (body if finish else body[: len(body) // 2]), len(body)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Any]]]:
    """Yield a function that gives `home/m` its answers, one a request, and returns the list of requests to come."""
    answers: list[Answer] = []
    requests: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = answers[min(len(requests), len(answers) - 1)]
            requests.append(asked)
            body, length = (_stream(answer), None) if asked.get("stream") else _whole(answer)
            self.send_response(200)
            self.send_header("content-type", "application/json" if length else "text/event-stream")
            self.send_header(*(("content-length", str(length)) if length else ("connection", "close")))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = tmp_path / "providers.toml"
    file.write_text(
        '[providers.home]\nprotocol = "openai-chat"\nkeys = []\n'
        f'base_url = "http://127.0.0.1:{server.server_port}/v1"\n'
        f'[models."{MODEL}"]\nstatus = {{ is = "current" }}\n'
    )
    monkeypatch.setenv("CNLLM_PROVIDERS", str(file))
    for folder in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"CNLLM_{folder}_DIR", str(tmp_path / folder.lower()))

    def serve(*given: Answer) -> list[Any]:
        answers[:] = given
        return requests

    yield serve
    server.shutdown()
    server.server_close()
