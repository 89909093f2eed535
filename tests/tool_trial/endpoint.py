"""A model that solves every task: an endpoint of chat completions, over a real socket."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cnllm.tool_trial import TASKS

Json = dict[str, Any]
Turn = list[tuple[str, str]] | str
"""Calls (name and arguments as JSON text), or the last answer."""

NOTE = TASKS[-1].begin().prompt.split("\n---\n")[1].removesuffix("\n---")


def call(name: str, **arguments: Any) -> tuple[str, str]:
    return name, json.dumps(arguments, ensure_ascii=False)


SOLUTIONS: dict[str, list[Turn]] = {
    "weather": [[call("get_weather", city="Bern, Switzerland")], "It is 17 degrees."],
    "arithmetic": [[call("multiply", a=48731, b=6197)], "It is 301,986,007."],
    "search-then-read": [
        [call("search_archive", query="mural")],
        [call("read_document", id="doc-7")],
        "Ilse Varga painted it.",
    ],
    "two-at-once": [
        [call("get_temperature", city="Oslo"), call("get_temperature", city="Lima")],
        "Lima is warmer: 24 degrees.",
    ],
    "no-tool": ["12"],
    "nested": [
        [
            call(
                "book_room",
                guest={"name": "Ana Ruiz", "age": 34},
                nights=["2026-03-14", "2026-03-15"],
                room="double",
            )
        ],
        "The code is QX-81.",
    ],
    "enum": [[call("set_light", room="kitchen", level="dim")], "The kitchen is dim now."],
    "no-arguments": [[call("get_battery_level")], "It is 83 percent full."],
    "chinese": [[call("get_temperature", city="杭州")], "杭州现在23度。"],
    "long-result": [[call("list_orders")], "A-317 came to 219.57 EUR."],
    "error-to-correct": [
        [call("count_stock", code="WIDGET")],
        [call("count_stock", code="WID-204")],
        "There are 58 widgets.",
    ],
    "error-to-report": [[call("delete_file", path="/srv/old.log")], "It failed with E-4417."],
    "exact-text": [[call("save_note", title="Quotes", text=NOTE)], "It is saved."],
}
"""What the model does in each task, turn by turn."""

_PROMPTS = {task.begin().prompt: task.name for task in TASKS}


def task_of(body: Json) -> str:
    """The task that a request belongs to."""
    return next(_PROMPTS[m["content"]] for m in body["messages"] if m["role"] == "user" and m["content"] in _PROMPTS)


@contextlib.contextmanager
def serving(
    change: Callable[[str, Turn], Turn | int] = lambda task, turn: turn, *, counts: bool = True
) -> Iterator[tuple[str, list[Json]]]:
    """An endpoint with the bodies that it got. `change` spoils a turn, or refuses it with a status.

    It `counts` the tokens of a reply.
    """
    bodies: list[Json] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the second of two writes would wait for an ACK of the first

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            bodies.append(body)
            task = task_of(body)
            number = sum(m["role"] == "assistant" for m in body["messages"])
            turn = change(task, SOLUTIONS[task][min(number, len(SOLUTIONS[task]) - 1)])
            if isinstance(turn, int):
                content = json.dumps({"error": {"message": f"refused with {turn}"}}).encode()
                self.answer(turn, "application/json", content)
                return
            chunks = [*_chunks(turn, "tools" in body), "[DONE]"]
            if not counts:
                chunks = [{**chunk, "usage": None} if isinstance(chunk, dict) else chunk for chunk in chunks]
            lines = [c if isinstance(c, str) else json.dumps(c, ensure_ascii=False) for c in chunks]
            self.answer(200, "text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode())

        def answer(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _chunks(turn: Turn, native: bool) -> Iterator[Json]:
    """A turn as chunks; without tools of the wire its calls are text."""
    if isinstance(turn, str):
        yield _chunk({"role": "assistant", "content": turn})
        yield _chunk({}, "stop", usage={"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})
        return
    if not native:
        blocks = [f'<tool_call>{{"name":"{name}","arguments":{arguments}}}</tool_call>' for name, arguments in turn]
        yield from _chunks("\n".join(blocks), native)
        return
    for index, (name, arguments) in enumerate(turn):
        function = {"name": name, "arguments": arguments}
        head = {"index": index, "id": f"call_{index}_{name}", "type": "function", "function": function}
        yield _chunk({"role": "assistant", "tool_calls": [head]})
    yield _chunk({}, "tool_calls", usage={"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})


def _chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
