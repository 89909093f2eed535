"""Endpoints on loopback, one for each wire, that answer with calls nobody asked for."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cnllm.protocols import PROTOCOLS

Calls = list[tuple[str | None, str, dict[str, Any]]]  # id, name, arguments
WIRES = PROTOCOLS


def chat(calls: Calls, text: str, stream: bool) -> bytes:
    made = [
        {**({"id": id} if id is not None else {}), "type": "function",
         "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id, name, arguments in calls
    ]  # fmt: skip
    finish = "tool_calls" if calls else "stop"
    if not stream:
        message = {"role": "assistant", "content": text or None, "tool_calls": made or None}
        return json.dumps({"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}).encode()
    deltas: list[Any] = [{"content": text}] if text else []
    deltas += [{"tool_calls": [{**call, "index": n}]} for n, call in enumerate(made)]
    chunks: list[Any] = [{"id": "r", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(b"data: %s\n\n" % json.dumps(c).encode() for c in chunks) + b"data: [DONE]\n\n"


def events(told: list[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in told)


def messages(calls: Calls, text: str, stream: bool) -> bytes:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "id": id or "", "name": name, "input": given} for id, name, given in calls]
    reason = "tool_use" if calls else "end_turn"
    whole = {"id": "r", "type": "message", "role": "assistant", "content": blocks, "stop_reason": reason, "model": "m"}
    if not stream:
        return json.dumps({**whole, "usage": {"input_tokens": 1, "output_tokens": 1}}).encode()
    told: list[dict[str, Any]] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for n, block in enumerate(blocks):
        bare = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
        told.append({"type": "content_block_start", "index": n, "content_block": bare})
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if block["type"] == "text"
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        told.append({"type": "content_block_delta", "index": n, "delta": delta})
        told.append({"type": "content_block_stop", "index": n})
    told.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}})
    return events([*told, {"type": "message_stop"}])


def gemini(calls: Calls, text: str, stream: bool) -> bytes:
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    parts += [
        {"functionCall": {**({"id": id} if id is not None else {}), "name": name, "args": given}}
        for id, name, given in calls
    ]
    body = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}]}
    return b"data: %s\r\n\r\n" % json.dumps(body).encode() if stream else json.dumps(body).encode()


def responses(calls: Calls, text: str, stream: bool) -> bytes:
    items: list[dict[str, Any]] = []
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        items.append({"type": "message", "id": "m0", "role": "assistant", "status": "completed", "content": content})
    items += [
        {"type": "function_call", "id": f"fc_{n}", "call_id": id or "", "name": name, "arguments": json.dumps(given)}
        for n, (id, name, given) in enumerate(calls)
    ]
    whole = {"id": "r", "object": "response", "status": "completed", "output": items}
    if not stream:
        return json.dumps(whole).encode()
    told: list[dict[str, Any]] = [{"type": "response.created", "response": {**whole, "output": [], "status": "queued"}}]
    for n, item in enumerate(items):
        told.append({"type": "response.output_item.added", "output_index": n, "item": item})
        told.append({"type": "response.output_item.done", "output_index": n, "item": item})
    return events([*told, {"type": "response.completed", "response": whole}])


WRITERS: dict[str, Callable[[Calls, str, bool], bytes]] = dict(
    zip(WIRES, (chat, messages, gemini, responses), strict=True)
)


class Peer:
    """An endpoint of one wire that answers with a script, the last entry for ever, and keeps what it was sent."""

    def __init__(self, wire: str) -> None:
        self.script: list[tuple[Calls, str]] = []
        self.bodies: list[dict[str, Any]] = []
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # two writes: the second would wait for an ACK of the first

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                peer.bodies.append(body)
                calls, text = peer.script.pop(0) if len(peer.script) > 1 else peer.script[0]
                stream = bool(body.get("stream")) or "streamGenerateContent" in self.path
                sent = WRITERS[wire](calls, text, stream)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if stream else "application/json")
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
