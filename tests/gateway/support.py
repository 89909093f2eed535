"""A scripted endpoint of chat completions, a gateway before it, and clients that send back what real ones send back."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from cnllm import AsyncClient, Registry
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running
from cnllm.types.policy import Retry, Timeouts

Json = dict[str, Any]
KEY = "the-key-of-the-client"
THOUGHT = "The user wants the weather. 我先查天气。"
TOOL = {"name": "weather", "description": "The weather of a city.", "schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}  # fmt: skip


# ── the endpoint ──────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Answer:
    """One reply of the endpoint: chunks' deltas, or a status with a body."""

    deltas: Sequence[Json] = ()
    finish: str | None = "stop"
    status: int = 200
    body: Any = None
    cut: bool = False
    wait: threading.Event | None = None  # after the first delta
    pause: float = 0.0  # seconds before a whole reply
    lasts: bool = True  # with `wait`: pieces without text follow until the client has gone
    headers: Json = field(default_factory=dict)
    lost: bool = False  # the connection is closed without an answer
    torn: bool = False  # a whole reply lacks its last bytes
    counts: Json = field(default_factory=dict)  # beside those of tokens
    beside: Json = field(default_factory=dict)  # in the first chunk


def say(text: str, **more: Any) -> Answer:
    return Answer([{"content": piece} for piece in (text[:3], text[3:]) if piece], **more)


def call(*cities: str, thought: str = THOUGHT, ids: Sequence[str] = (), text: str = "") -> Answer:
    deltas: list[Json] = [{"reasoning_content": thought[:7]}, {"reasoning_content": thought[7:]}] if thought else []
    deltas += [{"content": text}] if text else []
    for index, city in enumerate(cities):
        id = ids[index] if ids else f"call_{index}"
        head = {"name": "weather", "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": id, "type": "function", "function": head}]})
        arguments = json.dumps({"city": city}, ensure_ascii=False)
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in (arguments[:5], arguments[5:])
        ]
    return Answer(deltas, "tool_calls")


def error(status: int, message: str, **headers: str) -> Answer:
    return Answer(status=status, body={"error": {"message": message, "type": "x"}}, headers=headers)


class Upstream(ThreadingHTTPServer):
    """Answers with a script, the last entry for ever, and keeps the bodies it was sent."""

    daemon_threads = True

    def __init__(self, *script: Answer) -> None:
        self.script = list(script)
        self.bodies: list[Json] = []
        self.headers: list[Json] = []
        self.gone = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def _serve(self) -> None:
        """Wait for requests, and never look for the end meanwhile: hundreds of these live until the tests end."""
        while not self._ends.is_set():
            self.handle_request()

    def shutdown(self) -> None:
        self._ends.set()
        with contextlib.suppress(ConnectionError):  # it is closed already
            socket.create_connection(("127.0.0.1", self.server_port)).close()  # it wakes the thread
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.gone.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # two writes: the second would wait for an ACK of the first
    server: Upstream

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        self.server.headers.append(dict(self.headers.items()))
        answer = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        if answer.lost:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif answer.status != 200:
            self._whole(answer.status, answer.body, answer.headers)
        elif body.get("stream"):
            self._stream(answer)
        else:
            time.sleep(answer.pause)
            self._whole(200, _whole_body(answer), answer.headers, lacking=10 if answer.torn else 0)

    def _whole(self, status: int, body: Any, headers: Json, *, lacking: int = 0) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) - lacking])
        self.close_connection = self.close_connection or lacking > 0

    def _stream(self, answer: Answer) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        base = {"id": "chatcmpl-up", "object": "chat.completion.chunk", "created": 1, "model": "upstream"}
        for index, delta in enumerate(answer.deltas):
            beside = {} if index else answer.beside
            self._chunk({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **beside})
            if answer.wait is not None and index == 0:
                answer.wait.wait(20)
                for _ in range(2000 if answer.lasts else 0):  # until the client has gone, which only writing shows
                    self._chunk({**base, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]})
                    time.sleep(0.005)
        if not answer.cut:
            self._chunk({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish}]})
            self._chunk({**base, "choices": [], "usage": {**USAGE, **answer.counts}})
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _chunk(self, data: Json) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *_: Any) -> None: ...


USAGE = {"prompt_tokens": 1234, "completion_tokens": 56, "total_tokens": 1290}


def _whole_body(answer: Answer) -> Json:
    message: Json = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    for delta in answer.deltas:
        for key in ("content", "reasoning_content"):
            if key in delta:
                message[key] = message.get(key, "") + delta[key]
        for piece in delta.get("tool_calls", ()):
            if piece["index"] not in calls:
                calls[piece["index"]] = {"id": piece["id"], "type": "function", "function": dict(piece["function"])}
            else:
                calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    if calls:
        message["tool_calls"] = list(calls.values())
    choice = {"index": 0, "message": message, "finish_reason": answer.finish}
    usage = {**USAGE, **answer.counts}
    return {"id": "up", "object": "chat.completion", "created": 1, "model": "up", "choices": [choice], "usage": usage}


# ── the gateway ───────────────────────────────────────────────────────────────
def registry_for(upstream: Upstream, folder: Path, *providers: str, more: str = "") -> Registry:
    """The built-in registry, with providers at the address of the endpoint."""
    overlay = folder / f"overlay-{upstream.server_port}.toml"
    overlay.write_text("".join(f'[providers.{p}]\nbase_url = "{upstream.url}"\n' for p in providers) + more)
    return Registry.load(str(overlay))


@contextlib.contextmanager
def gateway_for(
    upstream: Upstream,
    folder: Path,
    *providers: str,
    more: str = "",
    timeout: Timeouts | None = None,
    attempts: int = 1,
    **options: Any,
) -> Iterator[httpx.Client]:
    """A gateway before the endpoint, and a client of it."""
    registry = registry_for(upstream, folder, *(providers or ("deepseek", "zai", "minimax", "moonshot")), more=more)
    options.setdefault("keys", [KEY])
    simulate = options.get("simulate", False)
    given: Json = {"api_key": "the-key-of-the-provider", "timeout": timeout}
    given["retry"] = Retry(attempts=attempts, base=0.01)
    client = AsyncClient(registry, simulate=simulate, **given)
    with (
        running(Gateway(registry, client=client, **options)) as url,
        httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as http,
    ):
        yield http


def lines_sent(url: str, head: str, body: bytes = b"") -> bytes:
    """Send bytes as they are, and return the answer up to its end or to silence."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 10) as peer:
        peer.sendall(head.encode() + body)
        peer.settimeout(10)
        out = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            while piece := peer.recv(65536):
                out += piece
    return out


# ── clients ───────────────────────────────────────────────────────────────────
class ChatClient:
    """A client of chat completions that keeps nothing but text and calls, as most do."""

    protocol = "openai-chat"
    keeps_reasoning = False

    def __init__(self, http: httpx.Client, model: str, *, stream: bool = True, tools: bool = True) -> None:
        self.http, self.model, self.stream, self.tools = http, model, stream, tools
        self.history: list[Json] = []
        self.body: Json = {}
        self.response: httpx.Response | None = None

    def user(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def result(self, id: str, text: str) -> None:
        self.history.append({"role": "tool", "tool_call_id": id, "content": text})

    def request(self) -> Json:
        body: Json = {"model": self.model, "messages": self.history, "stream": self.stream}
        if self.tools:
            function = {"name": TOOL["name"], "description": TOOL["description"], "parameters": TOOL["schema"]}
            body["tools"] = [{"type": "function", "function": function}]
        return body

    def path(self) -> str:
        return "/v1/chat/completions"

    def send(self, **more: Any) -> list[tuple[str, Json]]:
        """Send the conversation, take the answer in, and return its calls as (id, arguments)."""
        self.response = self.http.post(self.path(), json={**self.request(), **more})
        assert self.response.status_code == 200, self.response.text
        self.body = self.whole(frames(self.response.text)) if self.stream else self.response.json()
        return self.take(self.body)

    def whole(self, events: list[Json]) -> Json:
        message: Json = {"role": "assistant", "content": ""}
        calls: dict[int, Json] = {}
        finish, usage = None, None
        for event in events:
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                delta = choice["delta"]
                finish = choice["finish_reason"] or finish
                message["content"] += delta.get("content") or ""
                if delta.get("reasoning_content"):
                    message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
                for piece in delta.get("tool_calls", ()):
                    kept = calls.setdefault(
                        piece["index"],
                        {"id": piece.get("id"), "type": "function", "function": {"name": "", "arguments": ""}},
                    )
                    for key, value in piece.get("function", {}).items():
                        kept["function"][key] += value
        if calls:
            message["tool_calls"] = list(calls.values())
        return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}

    def take(self, body: Json) -> list[tuple[str, Json]]:
        message = dict(body["choices"][0]["message"])
        if not self.keeps_reasoning:
            message.pop("reasoning_content", None)
        self.history.append(message)
        return [(c["id"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", ())]

    def text(self) -> str:
        content: str = self.body["choices"][0]["message"]["content"]
        return content


class ReasoningChatClient(ChatClient):
    """A client of chat completions that sends messages back whole, as openai's SDK with `model_dump` does."""

    keeps_reasoning = True


class MessagesClient(ChatClient):
    """A client of Messages that sends every block back, as Claude Code does."""

    protocol = "anthropic-messages"

    def user(self, text: str) -> None:
        self.history.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def result(self, id: str, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": id, "content": text}
        if self.history[-1]["role"] == "user":
            self.history[-1]["content"].append(block)
        else:
            self.history.append({"role": "user", "content": [block]})

    def request(self) -> Json:
        body: Json = {"model": self.model, "messages": self.history, "stream": self.stream, "max_tokens": 4096}
        body["thinking"] = {"type": "enabled", "budget_tokens": 2048}
        if self.tools:
            body["tools"] = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["schema"]}]
        return body

    def path(self) -> str:
        return "/v1/messages?beta=true"

    def whole(self, events: list[Json]) -> Json:
        body: Json = {}
        blocks: list[Json] = []
        inputs: dict[int, str] = {}
        open_block: int | None = None
        for event in events:
            match event["type"]:
                case "message_start":
                    body = dict(event["message"])
                case "content_block_start":
                    assert open_block is None, "two blocks are open"
                    open_block = event["index"]
                    assert open_block == len(blocks)
                    blocks.append(dict(event["content_block"]))
                case "content_block_delta":
                    assert open_block is not None
                    assert event["index"] == open_block
                    block, delta = blocks[event["index"]], event["delta"]
                    match delta["type"]:
                        case "text_delta":
                            block["text"] += delta["text"]
                        case "thinking_delta":
                            block["thinking"] += delta["thinking"]
                        case "signature_delta":
                            block["signature"] = delta["signature"]
                        case "input_json_delta":
                            inputs[open_block] = inputs.get(open_block, "") + delta["partial_json"]
                case "content_block_stop":
                    assert open_block is not None
                    assert event["index"] == open_block
                    if inputs.get(open_block):
                        blocks[open_block]["input"] = json.loads(inputs[open_block])
                    open_block = None
                case "message_delta":
                    body |= event["delta"]
                    body["usage"] = event["usage"]
        return {**body, "content": blocks}

    def take(self, body: Json) -> list[tuple[str, Json]]:
        self.history.append({"role": "assistant", "content": body["content"]})
        return [(b["id"], b["input"]) for b in body["content"] if b["type"] == "tool_use"]

    def text(self) -> str:
        return "".join(b["text"] for b in self.body["content"] if b["type"] == "text")


class ResponsesClient(ChatClient):
    """A client of Responses without storage that sends items back without their ids and states, as Codex does."""

    protocol = "openai-responses"

    def user(self, text: str) -> None:
        self.history.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})

    def result(self, id: str, text: str) -> None:
        self.history.append({"type": "function_call_output", "call_id": id, "output": text})

    def request(self) -> Json:
        body: Json = {"model": self.model, "input": self.history, "stream": self.stream, "store": False}
        body["include"] = ["reasoning.encrypted_content"]
        body["reasoning"] = {"effort": "medium", "summary": "auto"}
        if self.tools:
            function = {"name": TOOL["name"], "description": TOOL["description"], "parameters": TOOL["schema"]}
            body["tools"] = [{"type": "function", **function, "strict": False}]
        return body

    def path(self) -> str:
        return "/v1/responses"

    def whole(self, events: list[Json]) -> Json:
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        last: Json = next(e["response"] for e in events if e["type"] in ("response.completed", "response.incomplete"))
        assert [item["type"] for item in last["output"]] == [item["type"] for item in done]
        return last

    def take(self, body: Json) -> list[tuple[str, Json]]:
        calls = []
        for item in body["output"]:
            self.history.append({key: value for key, value in item.items() if key not in ("id", "status")})
            if item["type"] == "function_call":
                calls.append((item["call_id"], json.loads(item["arguments"])))
        return calls

    def text(self) -> str:
        return "".join(c["text"] for i in self.body["output"] if i["type"] == "message" for c in i["content"])


class GeminiClient(ChatClient):
    """A client of Gemini that drops thoughts and sends signatures of calls back, as gemini-cli does."""

    protocol = "gemini"

    def user(self, text: str) -> None:
        self.history.append({"role": "user", "parts": [{"text": text}]})

    def result(self, id: str, text: str) -> None:
        part = {"functionResponse": {"id": id, "name": TOOL["name"], "response": {"output": text}}}
        if self.history[-1]["role"] == "user":
            self.history[-1]["parts"].append(part)
        else:
            self.history.append({"role": "user", "parts": [part]})

    def request(self) -> Json:
        body: Json = {"contents": self.history, "generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
        if self.tools:
            function = {
                "name": TOOL["name"],
                "description": TOOL["description"],
                "parametersJsonSchema": TOOL["schema"],
            }
            body["tools"] = [{"functionDeclarations": [function]}]
        return body

    def path(self) -> str:
        verb = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
        return f"/v1beta/models/{self.model}:{verb}"

    def whole(self, events: list[Json]) -> Json:
        parts: list[Json] = []
        last: Json = {}
        for event in events:
            last |= event
            for part in event["candidates"][0].get("content", {}).get("parts", ()):
                parts.append(part)
        return {**last, "parts": parts}

    def take(self, body: Json) -> list[tuple[str, Json]]:
        parts = body["parts"] if "parts" in body else body["candidates"][0]["content"]["parts"]
        self.body = {**body, "parts": parts}
        kept = [part for part in parts if not part.get("thought")]
        self.history.append({"role": "model", "parts": kept})
        return [
            (p["functionCall"].get("id", ""), p["functionCall"].get("args", {})) for p in kept if "functionCall" in p
        ]

    def text(self) -> str:
        return "".join(p.get("text", "") for p in self.body["parts"] if not p.get("thought"))


CLIENTS: tuple[type[ChatClient], ...] = (
    ChatClient,
    ReasoningChatClient,
    MessagesClient,
    ResponsesClient,
    GeminiClient,
)


def frames(text: str) -> list[Json]:
    """The data of a stream's events; comments and the end mark aside."""
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


Session = Callable[[ChatClient], None]
