"""What the row tests share: a registry, requests, replies, streams, the command line, and a scripted peer."""

import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import program
from note_rules import check_notes

import cnllm
from cnllm import engine

Json = dict[str, Any]
BUILT_IN = re.compile(r"(^|[/\\])providers\.toml:\d+$")


# ── registry and request ─────────────────────────────────────────────────────
def model(name: str, **options: Any) -> cnllm.Model:
    """A model over chat completions, also where what is asked for would be routed to another wire."""
    return cnllm.Registry.load().resolve(name, **{"protocol": "openai-chat", **options})


def anywhere(url: str = "http://127.0.0.1:9/v1") -> cnllm.Model:
    """A model at an endpoint that no one described."""
    return model("openai-compatible/any-id", base_url=url)


def overlay_text(flags: str = "", *, base_url: str = "http://127.0.0.1:9/v1", more: str = "") -> str:
    return (
        '[providers.home]\ntitle = "A server at home"\nprotocol = "openai-chat"\n'
        f'base_url = "{base_url}"\nkeys = []\n{flags}\n{more}\n'
    )


def overlay(tmp_path: Path, flags: str = "", *, base_url: str = "http://127.0.0.1:9/v1", more: str = "") -> Path:
    path = tmp_path / "overlay.toml"
    path.write_text(overlay_text(flags, base_url=base_url, more=more), encoding="utf-8")
    return path


def home(tmp_path: Path, flags: str = "", **options: str) -> cnllm.Model:
    """`home/m`, of a provider that an overlay declares with these flags."""
    return cnllm.Registry.load(str(overlay(tmp_path, flags, **options))).resolve("home/m")


def plan(target: str | cnllm.Model, messages: Any = "hello", **options: Any) -> cnllm.Plan:
    chosen = model(target) if isinstance(target, str) else target
    built = engine.build_request(chosen, messages, **options)
    check_notes(built.notes)
    return built


def tool(name: str = "search", parameters: Json | None = None) -> Json:
    schema = parameters or {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    return {
        "type": "function",
        "function": {"name": name, "description": "Looks it up.", "parameters": schema},
    }


def call_turn(call_id: str = "call_1", name: str = "search", arguments: str = '{"q":"a"}', **more: Any) -> Json:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        **more,
    }


def result_turn(call_id: str = "call_1", text: Any = "found") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def roles(body: Mapping[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def text_of(content: Any) -> str:
    """The text of wire content, be it a string or parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


# ── notes ────────────────────────────────────────────────────────────────────
def notes_about(notes: Iterable[cnllm.Note], flag: str) -> list[cnllm.Note]:
    """The notes on this flag or on one below or above it (`tool_choice`, `tool_choice.allowed`)."""
    found = []
    for note in notes:
        mine = re.sub(r'^when\.("[^"]*"|[^.]*)\.', "", str(note.flag or ""))
        if mine == flag or mine.startswith(f"{flag}.") or (flag.startswith(f"{mine}.") and mine):
            found.append(note)
    return found


def expect_note(
    notes: Iterable[cnllm.Note], flag: str, *, said: Any = None, did: Any = None, where: str | None = None
) -> cnllm.Note:
    """A note on the flag with what the caller said, what was done instead, and the line that decided it."""
    notes = list(notes)
    told = [
        note
        for note in notes_about(notes, flag)
        if (said is None or str(said) in str(note.said)) and (did is None or str(did) in str(note.did))
    ]
    assert told, f"no note on {flag} says {said!r} -> {did!r}: {notes}"
    note = told[0]
    assert str(note.said) != str(note.did)
    line = BUILT_IN if where is None else re.compile(rf"{re.escape(where)}:\d+$")
    assert line.search(note.where or ""), note
    return note


# ── whole replies and streams ────────────────────────────────────────────────
JSON_HEADERS = {"content-type": "application/json"}
SSE_HEADERS = {"content-type": "text/event-stream"}


def whole_body(message: Json, finish: str | None = "stop", **top: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "r1", "object": "chat.completion", "model": "m", "choices": [choice], **top}).encode()


def read_whole(
    target: str | cnllm.Model, message: Json, finish: str | None = "stop", *, asked: Any = None, **top: Any
) -> cnllm.Reply:
    return read_body(target, whole_body(message, finish, **top), asked=asked)


def read_body(target: str | cnllm.Model, body: bytes | Json, status: int = 200, *, asked: Any = None) -> cnllm.Reply:
    chosen = model(target) if isinstance(target, str) else target
    content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return engine.parse_response(chosen, status, JSON_HEADERS, content, plan=asked)


def chunk(delta: Json | None = None, finish: str | None = None, **top: Any) -> Json:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "r1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **top}


def text_chunks(*texts: str, field: str = "content") -> list[Json]:
    return [chunk({field: text}) for text in texts]


def call_chunk(*calls: Json | None) -> Json:
    return chunk({"tool_calls": list(calls)})


def frame(payload: Json | str) -> bytes:
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    return b"data: " + text.encode() + b"\n\n"


def sse(payloads: Iterable[Json | str], *, done: bool = True) -> bytes:
    return b"".join(map(frame, payloads)) + (frame("[DONE]") if done else b"")


@dataclass(frozen=True)
class Played:
    events: list[Any]
    reply: cnllm.Reply

    def text(self) -> str:
        return text_seen(self.events)

    def reasoning(self) -> str:
        return text_seen(self.events, cnllm.ReasoningDelta)

    def calls(self) -> list[tuple[str, Any]]:
        return [(call.name, call.arguments) for call in self.reply.tool_calls]


def play(
    target: str | cnllm.Model,
    stream: bytes | Sequence[Json],
    *,
    size: int | None = None,
    asked: cnllm.Plan | None = None,
) -> Played:
    """Feeds a stream in pieces of this size (default: at once) and reads it to its end."""
    chosen = model(target) if isinstance(target, str) else target
    data = stream if isinstance(stream, bytes) else sse(stream)
    parser = engine.StreamParser(chosen, plan=asked)
    events: list[Any] = []
    step = size or max(len(data), 1)
    for start in range(0, len(data), step):
        events += parser.feed(data[start : start + step])
    events += parser.end()
    reply = parser.close()
    check_notes(reply.notes)
    return Played(events, reply)


def seen(stream: Any, events: list[Any] | None = None) -> tuple[list[Any], cnllm.Reply]:
    """Every event of a client's stream, and its reply; what came before an error is in the list given."""
    events = [] if events is None else events
    with stream as running:
        for event in running:
            events.append(event)
    return events, running.reply


async def seen_async(stream: Any, events: list[Any]) -> cnllm.Reply:
    async with stream as running:
        async for event in running:
            events.append(event)
    reply: cnllm.Reply = running.reply
    return reply


def text_seen(events: Iterable[Any], kind: type[cnllm.TextDelta] | type[cnllm.ReasoningDelta] = cnllm.TextDelta) -> str:
    """The text a reader has in front of him: what was delivered since the last restart."""
    text = ""
    for event in events:
        if isinstance(event, cnllm.Restarted):
            text = ""
        elif isinstance(event, kind):
            text += event.text
    return text


# ── answers without a socket ─────────────────────────────────────────────────
@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]


def ok(body: bytes) -> Answer:
    return Answer(200, body, JSON_HEADERS)


def streamed(payloads: Iterable[Json | str], *, done: bool = True) -> Answer:
    return Answer(200, sse(payloads, done=done), SSE_HEADERS)


def failed(status: int, body: Json, **headers: str) -> Answer:
    return Answer(status, json.dumps(body, ensure_ascii=False).encode(), {**JSON_HEADERS, **headers})


class Wire:
    """An httpx transport: each request gets the next answer (the last one again) and is kept."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = answers
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(request)
        return httpx.Response(answer.status, headers=dict(answer.headers), content=answer.body)

    def body(self, index: int = -1) -> Json:
        decoded: Json = json.loads(self.requests[index].content)
        return decoded


# ── a peer on a real socket ──────────────────────────────────────────────────
@dataclass(frozen=True)
class Sleep:
    seconds: float


class Reset:
    """The connection is torn down with RST."""


class Hold:
    """The connection stays open and silent until the server is left."""


Step = bytes | Sleep | Reset | Hold
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def http(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in {**JSON_HEADERS, **(headers or {})}.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Received:
    at: float
    head: str
    body: bytes

    def json(self) -> Json:
        decoded: Json = json.loads(self.body)
        return decoded


class Server:
    """Plays one script a connection on 127.0.0.1 (the last one again); keeps every request with its time."""

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self.scripts = scripts
        self.received: list[Received] = []
        self.holding = threading.Event()
        self._left = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        with contextlib.suppress(OSError):  # macOS refuses this on a listener; closing wakes accept there
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._left.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, peer)

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            try:
                peer.settimeout(20)
                request = self._read(peer)
                if request is None:
                    return
                with self._lock:
                    script = self.scripts[min(len(self.received), len(self.scripts) - 1)]
                    self.received.append(request)
                for step in script:
                    self._play(peer, step)
            except OSError:
                return  # the client went away, which is its right

    def _play(self, peer: socket.socket, step: Step) -> None:
        match step:
            case bytes():
                peer.sendall(step)
            case Sleep(seconds):
                self._left.wait(seconds)
            case Reset():
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()
            case Hold():
                self.holding.set()
                self._left.wait()

    @staticmethod
    def _read(peer: socket.socket) -> Received | None:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = peer.recv(65536)
            if not piece:
                return None
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        while length and len(body) < int(length[1]):
            body += peer.recv(65536)
        return Received(time.monotonic(), head.decode("latin-1"), body)


# ── the command line, as a process ───────────────────────────────────────────
ROOT = Path(cnllm.__file__).resolve().parents[1]


def python(code: str, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def cli(*args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line in this process."""
    return program.completed(args, env)
